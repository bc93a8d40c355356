"""Changes of an entry's state: written down, told in the log, and everything of the old place forgotten with them."""

import logging
from collections.abc import Callable
from typing import Any

from hcs.cpn.attempts import floors
from hcs.cpn.limits import Settings
from hcs.cpn.refusing import Refusals
from hcs.store.queue import QueueStore
from hcs.wide.entries import Entry, Placement
from hcs.wide.jobs import Bytes, Milliseconds
from hcs.wide.lifecycle import PLACED

log = logging.getLogger(__name__)


class Moves:
    """Moves entries on, and knows of those that stand still why."""

    def __init__(
        self,
        store: QueueStore,
        refusals: Refusals,
        *,
        now: Callable[[], Milliseconds],
        card_memory: Callable[[str, str], Bytes | None],
        settings: Settings,
    ) -> None:
        """
        Args:
            store: the queue.
            refusals: clusters that are left out for a while.
            now: milliseconds since 1970.
            card_memory: bytes of a card of a kind on a cluster, if known.
            settings: limits.
        """
        self._store, self._refusals, self._now = store, refusals, now
        self._card_memory, self._settings = card_memory, settings
        self.notes: dict[str, tuple[str, str]] = {}
        """Of entries that stand still: why, as reason and sentence."""
        self.leaving: list[Callable[[str, Placement], None]] = []
        """Called when an entry leaves its place."""

    def again(self, entry: Entry, reason: str, message: str, *, counts: bool = True) -> None:
        """Back into the queue behind the others, or out of it when that was once too often."""
        attempts = entry.attempts + counts
        placement = entry.placement
        assert placement is not None
        whole = self._card_memory(placement.cluster, placement.kind)
        changes: dict[str, Any] = {"attempts": attempts, **floors(entry, reason, whole)}
        limit = self._settings.attempts
        if reason == "JobFailed" and isinstance(own := (entry.manifest.get("spec") or {}).get("backoffLimit"), int):
            limit = max(1, min(limit, own + 1))
        if attempts >= limit:
            said = f"{message}; that was attempt {attempts} of {limit}: look at its log ('hcs cpn job {entry.id}')"
            self.move(entry, "Failed", "TooManyFailures", f"{reason}: {said}", **changes)
            return
        if reason == "JobFailed":
            pause = min(360.0, self._settings.retry_pause * 2.0 ** (attempts - 1))
            self._refusals.until[entry.id, placement.cluster] = self._now() + round(pause * 1000)
        self.requeue(entry, reason, message, **changes)

    def lose(self, entry: Entry, cluster: str) -> None:
        """Its cluster is gone, by its operator's word."""
        message = f"cluster {cluster} is gone with all that ran there, as its operator says"
        if entry.state == "Cancelling":
            self.move(entry, "Cancelled", "ClusterGone", message)
        else:
            self.again(entry, "ClusterGone", message, counts=False)

    def requeue(self, entry: Entry, reason: str, message: str, **changes: Any) -> None:
        self.move(entry, "Queued", reason, message, behind=True, **changes)

    def move(self, entry: Entry, after: Any, reason: str, message: str, **changes: Any) -> Entry:
        moved = self._store.move(entry, after, now=self._now(), reason=reason, message=message, **changes)
        self.notes.pop(entry.id, None)
        if after != "Queued":
            self._refusals.taken(entry.id)
        if after not in PLACED and entry.placement is not None:
            for forget in self.leaving:
                forget(entry.id, entry.placement)
        log.info("job moved: job=%s state=%s reason=%s %s", entry.id, after, reason, message)
        return moved
