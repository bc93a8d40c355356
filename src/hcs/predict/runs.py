"""A job that is asked about, and a run that history holds; what is nonsense in either is dropped here, once."""

import math
from collections.abc import Sequence
from typing import Literal

import msgspec

from hcs.model.quantities import MAX_AMOUNT

Outcome = Literal["succeeded", "accelerator-oom", "host-oom", "failed"]

LONGEST = 10 * 365 * 86_400.0
"""Seconds: a run time beyond ten years is a typing mistake, as observation and as answer."""
MOST_SAMPLES = 1e9
"""Samples in one step: more than any card could hold is a typing mistake."""
MOST_STEPS = 1e13
_LEAST = 1e-6
MOST_CARDS = 1_000_000


class Work(msgspec.Struct, frozen=True):
    """One job of the queue.

    ``batch`` is samples per card and step, None where the job has no such setting or nobody said; ``steps`` is the
    amount of work, epochs × samples / batch, None where unknown. ``nodes`` is over how many nodes the cards spread.
    """

    id: str
    model: str
    batch: float | None
    cards: int
    steps: float | None
    nodes: int = 1


class Run(msgspec.Struct, frozen=True):
    """One run that ended, on cards of one kind.

    ``seconds`` is wall-clock time from start to end; ``peak_memory`` is bytes on the fullest card, and for one that
    ran out of memory what it held or was allowed. ``probe`` marks a short exclusive run made to learn from.
    ``shared_with`` is the model of the job on the same card, None: alone. ``finished`` is milliseconds of any one
    clock. ``steady``: no whole run but so many steps of one under way, as measured rates are: no start-up is in them,
    and nobody asked for just that many.
    """

    model: str
    kind: str
    batch: float | None
    cards: int
    steps: float | None
    seconds: float
    peak_memory: int | None
    outcome: Outcome
    probe: bool = False
    shared_with: str | None = None
    finished: int = 0
    nodes: int = 1
    steady: bool = False


def amount(value: float | None, most: float) -> float | None:
    """The value if it is a positive number, up to ``most`` and not next to nothing, else None."""
    return float(value) if value is not None and math.isfinite(value) and _LEAST <= value <= most else None


def sane(run: Run) -> Run | None:
    """The run with what cannot be true left out; None when nothing is left to learn from."""
    if not 1 <= run.cards <= MOST_CARDS or not 1 <= run.nodes <= run.cards:
        return None
    memory = run.peak_memory if run.peak_memory is not None and 0 < run.peak_memory <= MAX_AMOUNT else None
    seconds = amount(run.seconds, LONGEST) or 0.0
    if not seconds and memory is None and run.outcome != "accelerator-oom":
        return None
    return msgspec.structs.replace(
        run,
        batch=amount(run.batch, MOST_SAMPLES),
        steps=amount(run.steps, MOST_STEPS),
        seconds=seconds,
        peak_memory=memory,
    )


def timed(runs: Sequence[Run]) -> list[Run]:
    """The runs whose time says how long such a run takes: ended well, alone on their cards."""
    return [run for run in runs if run.outcome == "succeeded" and run.shared_with is None and run.seconds > 0]
