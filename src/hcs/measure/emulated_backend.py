"""Timed work on emulated cards: an engine with a true speed of its own, its own clock, and the faults of real timing.

Each card has a speed file beside its card file, written when the card is made and read by nothing but this engine. The
engine's clock starts slow and rises, every launch costs something, every run differs a little, and some are disturbed.
So finding the speed takes the same care as on a real card; nobody can read it off.
"""

import hashlib
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from hcs.measure.backends import PRECISIONS, BackendError, Precision, Unit
from hcs.vendors import emulated

SUFFIX: Final = ".speed"

_RAMP_SECONDS: Final = 0.8
_COLD: Final = 0.65
_LAUNCH_SECONDS: Final = 8e-6
_JITTER: Final = 0.004
_DISTURBED: Final = 0.06


class Speed(msgspec.Struct, frozen=True):
    """What an emulated card truly does: trillions of operations a second by precision, and GB/s.

    ``peer_gbps`` 0: it cannot copy to other cards.
    """

    operations: dict[Precision, float]
    memory_gbps: float
    peer_gbps: float = 0.0


def write_speed(card: Path, speed: Speed) -> None:
    """Give an emulated card its true speed."""
    card.with_suffix(SUFFIX).write_bytes(msgspec.json.encode(speed))


class EmulatedBackend:
    """Drives the emulated cards of one directory, as far as they have a speed."""

    is_card = True
    vendors = frozenset[str]()

    def __init__(self, cards: Path, *, seed: int = 0) -> None:
        """Read the cards.

        Args:
            cards: the directory of card files.
            seed: of what differs from run to run.
        """
        found = []
        for path in sorted(cards.glob(f"*{SUFFIX}")):
            try:
                card = emulated.read_card(path.with_suffix(".card"))
                speed = msgspec.json.decode(path.read_bytes(), type=Speed)
            except (OSError, emulated.EmulatedCardError, msgspec.MsgspecError):
                continue
            found.append((card, _Engine(card.uuid, speed, seed)))
        self._cards = found

    @property
    def name(self) -> str:
        """What it is."""
        return "emulated engine"

    def units(self) -> Sequence[Unit]:
        """The cards that have a speed."""
        return [Unit(index, f"{card.model} (emulated)", card.uuid) for index, (card, _) in enumerate(self._cards)]

    def precisions(self, unit: int) -> Sequence[Precision]:
        """Those it has a speed in."""
        return [p for p in PRECISIONS if self._engine(unit).speed.operations.get(p)]

    def multiply(self, unit: int, size: int, precision: Precision, repeats: int) -> float:
        """See :class:`hcs.measure.backends.Backend`."""
        engine = self._engine(unit)
        # Small matrices leave part of the card idle, as on real ones.
        reached = engine.speed.operations[precision] * size / (size + 96)
        return engine.run(2 * size**3 / (reached * 1e12), repeats)

    def copy(self, unit: int, amount: int, repeats: int) -> float:
        """See :class:`hcs.measure.backends.Backend`."""
        engine = self._engine(unit)
        return engine.run(2 * amount / (engine.speed.memory_gbps * 1e9), repeats)

    def copy_to(self, unit: int, other: int, amount: int, repeats: int) -> float | None:
        """See :class:`hcs.measure.backends.Backend`."""
        engine, far = self._engine(unit), self._engine(other)
        speed = min(engine.speed.peer_gbps, far.speed.peer_gbps)
        return engine.run(amount / (speed * 1e9), repeats) if speed and other != unit else None

    def clocks(self, unit: int) -> dict[str, int]:
        """The engine's clock as it is now."""
        return {"engine": round(1000 * self._engine(unit).clock())}

    def driver(self) -> str:
        """There is none."""
        return ""

    def _engine(self, unit: int) -> "_Engine":
        if not 0 <= unit < len(self._cards):
            raise BackendError(f"there is no emulated card {unit} with a speed; there are {len(self._cards)}")
        return self._cards[unit][1]


class _Engine:
    """One card's execution unit with its own clock: time passes only by work."""

    def __init__(self, uuid: str, speed: Speed, seed: int) -> None:
        self.speed = speed
        self._busy = 0.0
        digest = hashlib.sha256(f"{uuid}:{seed}".encode()).digest()
        self._random = random.Random(int.from_bytes(digest[:8], "big"))

    def clock(self) -> float:
        """The clock as a part of its full rate."""
        return min(1.0, _COLD + (1 - _COLD) * self._busy / _RAMP_SECONDS)

    def run(self, seconds: float, repeats: int) -> float:
        """Do work that takes so long at full speed, so often; the time by the card's own timer."""
        taken = repeats * (seconds / self.clock() + _LAUNCH_SECONDS)
        taken *= max(0.9, self._random.gauss(1.0, _JITTER))
        if self._random.random() < _DISTURBED:
            taken *= 1 + self._random.random() * 0.4
        self._busy += taken
        return taken
