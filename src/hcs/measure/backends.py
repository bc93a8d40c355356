"""Who does the timed work: a framework that drives real cards, or the emulated engine. One small file each.

A backend promises only what it has: a precision it lacks is not in :meth:`Backend.precisions`, and nothing is measured
for it. Times are by the card's own timers wherever there are any.
"""

from collections.abc import Sequence
from typing import Literal, Protocol

import msgspec

Precision = Literal["fp16", "bf16", "fp32", "int8"]
PRECISIONS: tuple[Precision, ...] = ("fp16", "bf16", "fp32", "int8")


class BackendError(RuntimeError):
    """The framework or the card cannot do this; the message carries its own words."""


class Unit(msgspec.Struct, frozen=True):
    """One card as a backend lists it. ``uuid`` is empty where the framework does not tell; then ``index`` decides."""

    index: int
    name: str
    uuid: str = ""


class Backend(Protocol):
    """Drives cards. Methods that time return seconds for all repeats together and may raise :class:`BackendError`."""

    @property
    def name(self) -> str:
        """Framework and version, like ``torch 2.9.0 cuda``; says ``emulated`` where it is."""

    @property
    def is_card(self) -> bool:
        """Whether it drives accelerators; figures of a processor are never published as a card's."""

    @property
    def vendors(self) -> frozenset[str]:
        """The vendor words of the cards it may drive; empty where that is not known."""

    def units(self) -> Sequence[Unit]:
        """The cards it can drive."""

    def precisions(self, unit: int) -> Sequence[Precision]:
        """What the card multiplies in, by hardware where the vendor says so."""

    def multiply(self, unit: int, size: int, precision: Precision, repeats: int) -> float:
        """Seconds for ``repeats`` products of two square matrices of ``size`` x ``size``."""

    def copy(self, unit: int, amount: int, repeats: int) -> float:
        """Seconds for copying ``amount`` bytes within the card's memory ``repeats`` times (read and written)."""

    def copy_to(self, unit: int, other: int, amount: int, repeats: int) -> float | None:
        """Seconds for copying ``amount`` bytes to another card ``repeats`` times; None where it cannot."""

    def clocks(self, unit: int) -> dict[str, int]:
        """Clock rates in MHz under names like ``sm`` and ``memory``; empty where nobody tells."""

    def driver(self) -> str:
        """Version of the driver, empty where nobody tells."""
