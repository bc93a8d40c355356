"""Jobs for which no host of a cluster has memory now: their card goes to the next one meanwhile, and that is told.

The planner does not count host memory. A job that it would start first, again and again, and that cannot be started,
would keep a card idle; so that cluster is left out for it for a while, as one that refused it.
"""

from collections.abc import Iterable
from typing import Final

from hcs.cpn.ledger import host_memory_left
from hcs.cpn.views import ClusterView
from hcs.model.quantities import show_bytes
from hcs.wide.entries import Entry
from hcs.wide.jobs import Milliseconds

PAUSE: Final[Milliseconds] = 30_000
"""Until it is looked at again; metrics are not newer."""


class Shortages:
    """What was found short, until it is looked at again."""

    def __init__(self, refused: dict[tuple[str, str], Milliseconds]) -> None:
        """``refused``: entries and clusters that are left out for them, until when; shared with the dispatcher."""
        self._refused = refused
        self._told: dict[str, str] = {}

    def expire(self, now: Milliseconds) -> None:
        """Forget what is to be tried again, of the dispatcher too."""
        for key in [key for key, until in self._refused.items() if until <= now]:
            del self._refused[key]
        paused = {id for id, _ in self._refused}
        self._told = {id: message for id, message in self._told.items() if id in paused}

    def paused(self, id: str) -> bool:
        """Whether some cluster is left out for an entry just now."""
        return any(id == other for other, _ in self._refused)

    def note(self, id: str) -> str:
        """Why an entry was not started, as reason and sentence; empty: for no such reason."""
        return self._told.get(id, "")

    def fits(self, entry: Entry, view: ClusterView, sent: Iterable[Entry], now: Milliseconds) -> bool:
        """Whether a host has room for each of its pods, which may live apart; where none has, it is left out there."""
        left = host_memory_left(view, sent, now)
        asked = max(entry.submission.host_memory, entry.host_floor or 0)
        if left is None or asked <= left:
            return True
        self._refused[entry.id, view.name] = now + PAUSE
        self._told[entry.id] = (
            f"HostMemoryShort: it asks for {show_bytes(asked)} of host memory, "
            f"the host of {view.name} with most has {show_bytes(left)} free; looking again"
        )
        return False
