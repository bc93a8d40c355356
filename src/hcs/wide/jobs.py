"""What waits: a job, how long it takes on each kind of card, and the bytes it needs beside it.

A run time is an interval, because it is predicted: decisions compare the expected value, promises are made with the
upper one. With exact times both are equal.
"""

from math import exp, log
from statistics import NormalDist

import msgspec

Milliseconds = int
Bytes = int

UPPER_QUANTILE = 1.645
"""Standard deviations from the expected value to the upper one: 95 per cent."""
_NORMAL = NormalDist()


class RunTime(msgspec.Struct, frozen=True, order=True):
    """Milliseconds a job runs alone on its cards: the expected value and an upper quantile of it."""

    expected: Milliseconds
    upper: Milliseconds

    def __post_init__(self) -> None:
        if not 0 < self.expected <= self.upper:
            raise ValueError(f"a run time needs 0 < expected <= upper, not {self.expected} and {self.upper}")

    @classmethod
    def exactly(cls, duration: Milliseconds) -> "RunTime":
        """A run time that is known."""
        return cls(duration, duration)

    def cautious(self, caution: int) -> Milliseconds:
        """The expected value and so many per mille of the distance to the upper one."""
        return self.expected + (self.upper - self.expected) * caution // 1000

    def left(self, age: Milliseconds) -> Milliseconds:
        """Milliseconds still to expect of a job that has run for so long.

        The median of what is left of a lognormal error whose 95 per cent quantile is the upper value. What is past that
        by far is given an eighth of its age more.
        """
        if age <= 0 or self.upper == self.expected:
            return max(1, self.expected - age)
        sigma = log(self.upper / self.expected) / UPPER_QUANTILE
        passed = _NORMAL.cdf(log(age / self.expected) / sigma)
        if passed > 1 - 1e-9:
            return max(1, age // 8)
        return max(1, round(self.expected * exp(sigma * _NORMAL.inv_cdf((1 + passed) / 2))) - age)


class Blob(msgspec.Struct, frozen=True, order=True):
    """Bytes under a name of their content: an image layer or a data set. Equal digests are the same bytes."""

    digest: str
    size: Bytes


class Job(msgspec.Struct, frozen=True):
    """A job of the queue. It gets all its cards at once, on one pool, and keeps them until it ends.

    ``times`` holds the kinds of card it can run on; a kind that is missing is one it cannot use. ``priority``: higher
    goes first. ``deadline`` is the moment by which it should have ended; among equal priorities, jobs that would still
    make theirs go first. ``memory`` is the upper quantile of its peak on one card, context included; None: not known,
    so it shares only where a table vouches. ``load`` is the share of a card's time it keeps busy in per mille.
    ``profile`` names what it computes, model and batch for instance: jobs of one profile differ in length only. ``cpu``
    is how many millicores of its node's CPU it keeps busy.
    """

    id: str
    cards: int
    times: dict[str, RunTime]
    arrival: Milliseconds = 0
    priority: int = 0
    deadline: Milliseconds | None = None
    inputs: tuple[Blob, ...] = ()
    memory: Bytes | None = None
    load: int = 1000
    profile: str = ""
    cpu: int = 0

    def __post_init__(self) -> None:
        if self.cards < 1:
            raise ValueError(f"job {self.id} asks for {self.cards} cards; it needs at least one")
        if not 0 < self.load <= 1000:
            raise ValueError(f"job {self.id} has a load of {self.load} per mille; it lies between 1 and 1000")
