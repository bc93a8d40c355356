"""Devices promised to pods that are not yet seen bound.

kube-scheduler binds in the background: the next pod's ``filter`` often comes before the previous pod's ``bind``. So a
decision holds its devices from the moment it is answered. A *promise* lapses after a while, because kube-scheduler may
have given the pod up without telling us. Once the Binding has been sent the devices are *committed*: then time alone
never frees them, only the sight of the pod (bound, gone) or an answer of the API server does. Nothing here is ever
saved: pods carry the truth, and after a restart every pod without a node is filtered again.
"""

from collections.abc import Callable, Iterator

import msgspec

from hcs.model.allocations import Allocation


class Reservation(msgspec.Struct, frozen=True):
    """Devices held for one pod; ``until`` is when it lapses (or, committed, when it is looked into), in seconds."""

    allocation: Allocation
    pod_key: str
    reason: str
    until: float
    committed: bool = False


def _unheard(_uid: str, _allocation: Allocation | None) -> None:
    """Nobody listens."""


class Reservations:
    """At most one reservation for each pod UID."""

    def __init__(self, seconds: float, changed: Callable[[str, Allocation | None], None] = _unheard) -> None:
        """Make an empty book.

        Args:
            seconds: how long a promise holds.
            changed: told of each pod (UID) what it is promised from now on; None: nothing.
        """
        self.seconds = seconds
        self._held: dict[str, Reservation] = {}
        self._changed = changed
        self._next = float("inf")

    def __len__(self) -> int:
        return len(self._held)

    def get(self, uid: str, now: float) -> Reservation | None:
        """What is held for a pod now."""
        held = self._held.get(uid)
        return held if held is not None and _stands(held, now) else None

    def hold(self, pod_key: str, allocation: Allocation, reason: str, now: float, seconds: float | None = None) -> None:
        """Promise these devices to the allocation's pod, in place of whatever was promised to it before.

        What is committed stays: the Binding may be written, and only the view of the pod lags behind.

        Args:
            pod_key: ``namespace/name``.
            allocation: the devices, and the pod's UID.
            reason: one sentence.
            now: seconds.
            seconds: how long; None for as long as any promise.
        """
        before = self._held.get(allocation.pod)
        if before is not None and before.committed:
            return
        until = now + (self.seconds if seconds is None else seconds)
        self._held[allocation.pod] = Reservation(allocation, pod_key, reason, until)
        self._next = min(self._next, until)
        self._changed(allocation.pod, allocation)

    def commit(self, pod_key: str, allocation: Allocation, reason: str, now: float) -> None:
        """The Binding is about to be sent: from here on time alone frees nothing."""
        self._held[allocation.pod] = Reservation(allocation, pod_key, reason, now + self.seconds, committed=True)
        self._changed(allocation.pod, allocation)

    def doubt(self, uid: str, now: float) -> None:
        """Whether the Binding was written is not known: it is to be looked into at once."""
        held = self._held.get(uid)
        if held is not None:
            self._held[uid] = msgspec.structs.replace(held, until=now)

    def committed_since(self, uid: str) -> float | None:
        """When a pod's devices were committed; None where they are not."""
        held = self._held.get(uid)
        return held.until - self.seconds if held is not None and held.committed else None

    def drop(self, uid: str) -> bool:
        """Free what a pod held; tells whether that was anything."""
        dropped = self._held.pop(uid, None) is not None
        if dropped:
            self._changed(uid, None)
        return dropped

    def others(self, uid: str, now: float) -> Iterator[Reservation]:
        """Everything held now for pods other than this one."""
        return (held for other, held in self._held.items() if other != uid and _stands(held, now))

    def lapse(self, now: float) -> list[Reservation]:
        """Remove the promises that have lapsed, and return them."""
        lapsed = [held for held in self._held.values() if not _stands(held, now)]
        for held in lapsed:
            del self._held[held.allocation.pod]
            self._changed(held.allocation.pod, None)
        return lapsed

    def tell_lapsed(self, now: float) -> None:
        """Tell of promises that have lapsed, though they stay in the book until :meth:`lapse`; costs nothing while
        none has."""
        if now < self._next:
            return
        self._next = float("inf")
        for uid, held in self._held.items():
            if not _stands(held, now):
                self._changed(uid, None)
            elif not held.committed:
                self._next = min(self._next, held.until)

    def doubtful(self, now: float) -> list[Reservation]:
        """Committed ones that have not been seen for as long as a promise lasts: somebody should look at their pod."""
        return [held for held in self._held.values() if held.committed and held.until <= now]


def _stands(held: Reservation, now: float) -> bool:
    return held.committed or now < held.until
