"""Work to be simulated: a pod with an arrival and a duration, instead of one that is there and ends when it ends."""

from collections.abc import Mapping

import msgspec

from hcs.model.refusals import Refusal
from hcs.model.requests import ComputeRequest


class Work(msgspec.Struct, frozen=True):
    """One pod to be. Times are seconds on the simulation's clock, which begins at 0.

    ``duration`` None: it stays. ``cpu`` is in thousandths of a core, ``memory`` in bytes; both are what kube-scheduler
    would hold it to. Pods of a higher ``priority`` are tried first. ``refusals`` says why admission turned it away;
    then nothing is tried.
    """

    name: str
    request: ComputeRequest | None = None
    arrive: float = 0.0
    duration: float | None = None
    priority: int = 0
    cpu: int = 0
    memory: int = 0
    job: str = ""
    refusals: tuple[Refusal, ...] = ()


class Room(msgspec.Struct, frozen=True):
    """What a node has beside cards: ``cpu`` in thousandths of a core, ``memory`` in bytes, ``pods`` as a count."""

    cpu: int
    memory: int
    pods: int = 110

    def holds(self, work: Work) -> bool:
        """Whether the work fits in, cards aside."""
        return work.cpu <= self.cpu and work.memory <= self.memory and self.pods > 0

    def less(self, work: Work, times: int = 1) -> "Room":
        """The room once the work is in; ``times`` -1 gives it back."""
        return Room(self.cpu - times * work.cpu, self.memory - times * work.memory, self.pods - times)


Rooms = Mapping[str, Room]
"""Node → its room. A node that is missing is never short of anything but cards."""
