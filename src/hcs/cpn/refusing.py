"""Clusters that would not have a job: for how long they are left out for it, and whether that is the job's fault.

A cluster without the rights, the namespace or the room must not use up the attempts of all that waits; a manifest that
no API can read, or that every cluster refuses, must not be tried for ever.
"""

from collections.abc import Callable, Iterable
from typing import Final

from hcs.wide.jobs import Milliseconds

_FIRST: Final[Milliseconds] = 30_000
_LONGEST: Final[Milliseconds] = 3_600_000
_UNREADABLE: Final = frozenset(("Invalid", "BadRequest"))


class Refusals:
    """Since each job was last taken. What a process forgets is learnt anew."""

    def __init__(self, clusters: Callable[[], Iterable[str]]) -> None:
        """``clusters``: the names of all live ones."""
        self._clusters = clusters
        self._counts: dict[str, dict[str, int]] = {}
        self.until: dict[tuple[str, str], Milliseconds] = {}
        """Entry and cluster that would not have it: until when it is not tried there again."""

    def add(self, id: str, cluster: str, now: Milliseconds) -> None:
        """A cluster would not have a job: elsewhere, or there again after a pause that grows to an hour."""
        known = self._counts.setdefault(id, {})
        count = known[cluster] = known.get(cluster, 0) + 1
        self.until[id, cluster] = now + min(_LONGEST, _FIRST << min(count, 10))

    def blame(self, id: str, reason: str, message: str) -> bool:
        """Whether the refusal that was added last is the job's own fault."""
        if "exceeded quota" in message.lower():
            return False
        return reason in _UNREADABLE or set(self._clusters()) <= self._counts.get(id, {}).keys()

    def taken(self, id: str) -> None:
        """A cluster has taken the job, or it has ended."""
        self._counts.pop(id, None)
