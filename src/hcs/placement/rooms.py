"""What a node has free beside its cards: CPU, memory and places for pods, which kube-scheduler counts and we look at.

Nothing here is reserved. Whoever plans for several pods at once, or for pods that are to be evicted, must know whether
kube-scheduler will agree.
"""

from typing import Final

import msgspec

PLENTY: Final = 1 << 20
"""More pods than any node takes."""


class Room(msgspec.Struct, frozen=True):
    """What is free on a node beside its cards: thousandths of a CPU, bytes of memory, and pods; can be negative."""

    milli_cpu: int
    memory: int
    pods: int = 110

    def holds(self, milli_cpu: int, memory: int, pods: int = 1) -> bool:
        """Whether so much fits."""
        return self.milli_cpu >= milli_cpu and self.memory >= memory and self.pods >= pods

    def without(self, milli_cpu: int, memory: int, pods: int = 1) -> "Room":
        """What is left once so much is taken; negative amounts are given back."""
        return Room(self.milli_cpu - milli_cpu, self.memory - memory, self.pods - pods)

    def times(self, milli_cpu: int, memory: int) -> int:
        """How many equal pods fit."""
        fits = max(self.pods, 0)
        for free, asked in ((self.milli_cpu, milli_cpu), (self.memory, memory)):
            if asked > 0:
                fits = min(fits, max(free, 0) // asked)
            elif free < 0:
                fits = 0
        return fits
