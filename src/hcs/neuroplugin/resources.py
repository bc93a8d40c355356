"""One spiking resource on the kubelet's socket: the books' answers, and the limits set when a container starts."""

import logging
from collections.abc import Awaitable, Callable

from hcs.deviceplugin.podresources import Holder
from hcs.deviceplugin.resource import Grant
from hcs.neuroplugin.books import Books

log = logging.getLogger(__name__)


class SpikingResource:
    """One resource; it implements :class:`hcs.deviceplugin.resource.Resource`."""

    def __init__(
        self,
        name: str,
        books: Books,
        *,
        enforce: Callable[[Holder], Awaitable[None]],
    ) -> None:
        """Prepare.

        Args:
            name: the resource's name, ``domain/word``.
            books: who has what.
            enforce: called when a container starts, to hold it to its limits.
        """
        self.name = name
        self._books, self._enforce = books, enforce

    async def prefer(self, available: tuple[str, ...], required: tuple[str, ...], size: int) -> tuple[str, ...]:
        """Ids of one board."""
        return self._books.prefer(self.name, available, required, size)

    async def allocate(self, ids: tuple[str, ...]) -> Grant:
        """Book the ids. The list stays as it is: ids that pods hold are as healthy as free ones."""
        return self._books.allocate(self.name, ids)

    async def start(self, ids: tuple[str, ...], holder: Holder | None) -> None:
        """A container starts, for the first time or again: hold it to its limits."""
        taken = self._books.identify(self.name, ids, holder)
        if taken is None:
            log.warning("a container starts with ids nobody booked: resource=%s", self.name)
            return
        if holder is not None:
            await self._enforce(holder)
