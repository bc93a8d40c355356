"""For how long a released Job has had no running pod: before its first one, or after a disruption took that.

A pod that a drain, an eviction or a preemption took is made again by its cluster, however long it ran before: its wait
begins when the new pod was made. What this process has seen comes before what clocks of others say. Pure.
"""

import datetime
from collections.abc import Sequence

from hcs.model.pods import Pod
from hcs.wide.entries import Placement
from hcs.wide.jobs import Milliseconds


class Idling:
    """By UID of the Job: whether it ran, and since when it does not."""

    def __init__(self, begun: Milliseconds) -> None:
        """``begun``: when this process began to look."""
        self._begun = begun
        self._ran: set[str] = set()
        self._since: dict[str, Milliseconds] = {}
        """By the time that no clock changes."""

    def runs(self, uid: str) -> None:
        """A pod of it runs now."""
        self._ran.add(uid)
        self._since.pop(uid, None)

    def ran(self, uid: str) -> bool:
        """Whether a pod of it was ever seen to run."""
        return uid in self._ran

    def waits(
        self, placement: Placement, pods: Sequence[Pod], now: Milliseconds, elapsed: Milliseconds
    ) -> Milliseconds:
        """None of its pods runs now, and these are there: for how long that is so, in milliseconds.

        ``elapsed`` is time that no change of the clock alters: what this process saw of a wait is measured by that.
        """
        uid = placement.uid
        if uid not in self._since:
            made = [moment(pod.metadata.creationTimestamp) for pod in pods if pod.metadata.creationTimestamp]
            # Without pods nobody can say how it was before this process began.
            known = round(min(made) * 1000) if made else self._begun
            started = placement.started or now
            waited = 0 if self.ran(uid) else now - max(started, min(known, now))
            self._since[uid] = elapsed - max(0, waited)
        return elapsed - self._since[uid]

    def forget(self, uid: str) -> None:
        """It is over."""
        self._ran.discard(uid)
        self._since.pop(uid, None)


def moment(stamp: str) -> float:
    """Seconds since 1970 of a moment as Kubernetes writes it.

    >>> moment("1970-01-01T00:01:00Z")
    60.0
    """
    return datetime.datetime.fromisoformat(stamp.replace("Z", "+00:00")).timestamp()
