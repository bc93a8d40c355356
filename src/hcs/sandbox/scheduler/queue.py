"""Which pod is tried next, and when a refused one is tried again. Pure: the time is passed in.

The habits of the real queue that an extender meets, all kept here:

* A pod that failed by *error* (a call failed, a bind was refused) waits out a back-off of 1 s, doubling up to 10 s.
* A pod that was *refused* waits for an event: any update of itself, a change of a node, a bound pod that goes. If it is
  still inside its back-off then, it goes to the back-off queue, but **that queue is popped early whenever nothing else
  is ready** (SchedulerPopFromBackoffQ, on since 1.33). So the scheduler's own condition write wakes a lone pod at once:
  every first refusal is two filter calls, and a refusal text that changes with each call never comes to rest.
* An event that comes while a pod is being tried counts when the try has failed.
* Whatever happens, a refused pod is tried again after five minutes.
"""

import dataclasses
from typing import Final, Literal

from hcs.sandbox.scheduler.objects import WholePod

FORGOTTEN_SECONDS: Final = 300.0
Place = Literal["active", "backoff", "error-backoff", "waiting", "trying"]


@dataclasses.dataclass
class Entry:
    """One unbound pod in the queue."""

    pod: WholePod
    place: Place
    since: float
    order: int
    refusals: int = 0
    errors: int = 0
    attempts: int = 0
    woken: bool = False


class SchedulingQueue:
    """All unbound pods that no gate holds."""

    def __init__(self, *, initial_backoff: float = 1.0, max_backoff: float = 10.0) -> None:
        """Make an empty queue; both back-offs are seconds."""
        self._initial, self._max = initial_backoff, max_backoff
        self._entries: dict[str, Entry] = {}
        self._orders = 0

    def __len__(self) -> int:
        return len(self._entries)

    def places(self) -> dict[str, Place]:
        """Pod key → where it is."""
        return {entry.pod.key: entry.place for entry in self._entries.values()}

    def put(self, pod: WholePod, now: float) -> None:
        """A pod is new, or was changed."""
        entry = self._entries.get(pod.uid)
        if entry is None:
            self._entries[pod.uid] = Entry(pod, "active", now, self._next_order())
            return
        changed = entry.pod.metadata.resourceVersion != pod.metadata.resourceVersion
        entry.pod = pod
        if changed:
            self._wake(entry, now)

    def remove(self, uid: str) -> None:
        """A pod is bound, finished, gated or gone."""
        self._entries.pop(uid, None)

    def wake_all(self, now: float, *, besides: str = "") -> None:
        """A node changed, a bound pod went away, or an assumed one was given up: what was refused may fit now."""
        for entry in self._entries.values():
            if entry.pod.uid != besides:
                self._wake(entry, now)

    def pop(self, now: float) -> Entry | None:
        """The pod to try now, if any: highest priority first, then the one that waits longest."""
        self._release(now)
        ready = [entry for entry in self._entries.values() if entry.place == "active"]
        if not ready:
            ready = [entry for entry in self._entries.values() if entry.place == "backoff"]
        if not ready:
            return None
        entry = min(ready, key=lambda entry: (-entry.pod.priority, entry.since, entry.order))
        entry.place, entry.woken = "trying", False
        entry.attempts += 1
        return entry

    def refused(self, entry: Entry, now: float) -> None:
        """No node would have it."""
        entry.refusals, entry.errors = entry.refusals + 1, 0
        self._fail(entry, "waiting", now)
        if entry.woken:
            self._wake(entry, now)

    def failed(self, entry: Entry, now: float) -> None:
        """Something went wrong that is not the pod's fault."""
        entry.errors += 1
        self._fail(entry, "error-backoff", now)

    def next_wake(self, now: float) -> float | None:
        """Seconds until time alone makes something ready; None when only an event can."""
        times = [time for entry in self._entries.values() if (time := self._ready_at(entry)) is not None]
        return max(0.0, min(times) - now) if times else None

    def _fail(self, entry: Entry, place: Place, now: float) -> None:
        entry.place, entry.since, entry.order = place, now, self._next_order()

    def _wake(self, entry: Entry, now: float) -> None:
        if entry.place == "trying":
            entry.woken = True
        elif entry.place == "waiting":
            entry.place = "backoff" if now < entry.since + self._backoff(entry) else "active"

    def _release(self, now: float) -> None:
        for entry in self._entries.values():
            time = self._ready_at(entry)
            if time is not None and time <= now:
                entry.place = "active"

    def _ready_at(self, entry: Entry) -> float | None:
        match entry.place:
            case "active":
                return entry.since
            case "backoff" | "error-backoff":
                return entry.since + self._backoff(entry)
            case "waiting":
                return entry.since + FORGOTTEN_SECONDS
        return None

    def _backoff(self, entry: Entry) -> float:
        count = entry.errors or entry.refusals
        return min(self._max, self._initial * 2.0 ** min(count - 1, 30)) if count else 0.0

    def _next_order(self) -> int:
        self._orders += 1
        return self._orders
