"""One spiking resource on the kubelet's socket: the books' answers, and the limits set when a container starts."""

import logging
from collections.abc import Awaitable, Callable

from hcs.deviceplugin.podresources import Holder
from hcs.deviceplugin.resource import Grant
from hcs.neuro.capacities import WORDS
from hcs.neuroplugin.books import Books
from hcs.neuroplugin.plans import Plan, Plans, next_in_line

log = logging.getLogger(__name__)


class SpikingResource:
    """One resource; it implements :class:`hcs.deviceplugin.resource.Resource`."""

    def __init__(
        self,
        name: str,
        books: Books,
        *,
        enforce: Callable[[Holder], Awaitable[None]],
        plans: Plans | None = None,
        occupied: Callable[[], None] = lambda: None,
    ) -> None:
        """Prepare.

        Args:
            name: the resource's name, ``domain/word``.
            books: who has what.
            enforce: called when a container starts, to hold it to its limits.
            plans: says what the router chose; None: the plugin chooses all by itself.
            occupied: called when cores were handed out.
        """
        self.name = name
        self._plans = plans if WORDS[books.word(name)] == "cores" else None
        self._occupied = occupied
        self._books, self._enforce = books, enforce

    async def prefer(self, available: tuple[str, ...], required: tuple[str, ...], size: int) -> tuple[str, ...]:
        """Ids of one board; of that the router chose, where it did."""
        plan = next_in_line(await self._look(), self.name, size, self._books.served)
        return self._books.prefer(self.name, available, required, size, plan)

    async def allocate(self, ids: tuple[str, ...]) -> Grant:
        """Book the ids. The list stays as it is: ids that pods hold are as healthy as free ones."""
        plans = await self._look()
        board = self._books.board(self.name, ids)
        plan = next_in_line(plans, self.name, len(ids), self._books.served, board)
        grant = self._books.allocate(self.name, ids, plan, plans=plans)
        self._occupied()
        return grant

    async def start(self, ids: tuple[str, ...], holder: Holder | None) -> None:
        """A container starts, for the first time or again: hold it to its limits."""
        taken = self._books.identify(self.name, ids, holder)
        if taken is None:
            log.warning("a container starts with ids nobody booked: resource=%s", self.name)
            return
        if holder is not None:
            self._books.correct(taken, holder, await self._look())
            await self._enforce(holder)

    async def _look(self) -> tuple[Plan, ...]:
        return await self._plans.look() if self._plans is not None else ()
