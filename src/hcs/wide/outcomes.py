"""What came of a run in virtual time."""

import msgspec

from hcs.model.refusals import Refusal
from hcs.wide.jobs import Milliseconds
from hcs.wide.snapshot import Place


class Outcome(msgspec.Struct, frozen=True):
    """One job that ended. ``started`` is when it last took its cards; ``host`` whose card it was a guest on."""

    job: str
    pool: str
    arrival: Milliseconds
    started: Milliseconds
    ended: Milliseconds
    host: str | None = None

    @property
    def wait(self) -> Milliseconds:
        """From arrival to its cards."""
        return self.started - self.arrival

    @property
    def completion(self) -> Milliseconds:
        """From arrival to its end."""
        return self.ended - self.arrival


class Report(msgspec.Struct, frozen=True):
    """What happened.

    ``broken`` counts promises that were not kept, ``displaced`` those whose pool vanished, ``deadlocks`` heads that
    were given up, ``lost`` attempts that ended with their pool, ``shared`` guests that were started.
    """

    outcomes: tuple[Outcome, ...]
    refused: tuple[tuple[str, Refusal], ...] = ()
    unfinished: tuple[str, ...] = ()
    out_of_memory: int = 0
    deadlocks: int = 0
    failures: int = 0
    broken: int = 0
    displaced: int = 0
    lost: int = 0
    shared: int = 0
    decisions: int = 0
    bytes_moved: int = 0
    placed: tuple[Place, ...] = ()
