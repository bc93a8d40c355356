"""What a controller asks about its jobs: run time, memory, and sharing, from the history of finished runs.

This is the seam between the statistics and whoever keeps a queue. History is whatever runs have left behind: with or
without a batch, with or without a known amount of work, killed for memory, or nonsense. The answer is always finite,
ordered and positive; where nothing can be said it is the widest interval there is, marked ``fallback``.

A job that ran before, exactly so, is predicted by the median of its own runs: a new run can then only move the answer
towards what was seen. Everything else is a time per step from ``RunTimePredictor`` times the steps, plus start-up.
A predictor never changes: learning makes another one, so a decision never sees half of an update.
"""

from collections.abc import Sequence

import msgspec
import numpy as np

from hcs.predict.couples import Couple, CoupleRates, Rate
from hcs.predict.durations import Duration, Durations
from hcs.predict.memory import CONTEXT, MemoryPredictor, Peak
from hcs.predict.runs import Run, Work, amount, sane
from hcs.predict.sealed import AGAIN, ModelFileError, opened, read, sealed
from hcs.predict.trees import DEFAULT, KINDS, Kind

__all__ = ["Forecast", "JobPredictor", "ModelFileError", "Rate", "Run", "Settings", "Work"]

VERSION = 1
_FORMAT = "hcs-job-predictor"
_MOST_RUNS = 200_000
_MOST_BATCH = 1e9
_AFTER_OOM = 1.5  # ask for half as much again where a run of that much, or of nobody knows how much, was too large


class Settings(msgspec.Struct, frozen=True):
    """How to fit: trees, how many different jobs are conditioned on at most, bytes of one context on a card."""

    trees: Kind = DEFAULT
    limit: int = 240
    context: int = CONTEXT


class Forecast(msgspec.Struct, frozen=True):
    """A job on one kind of card.

    Milliseconds alone on its cards, expected and as a 90 % interval, ``0 < lower <= expected <= upper``. ``memory`` is
    the bytes on each card to ask for, context included; None: no run told. ``level`` is how far the question is from
    what was seen, and ``probe_wanted`` says that no run of this model ever ended well: a short run alone would tell.
    ``needed`` is what runs have shown to be the least that it needs; what ``memory`` is above that is a guess.
    """

    expected_ms: int
    upper_ms: int
    lower_ms: int
    memory: int | None
    level: str
    fallback: bool
    probe_wanted: bool
    needed: int = 0


class _Content(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    runs: list[Run]
    seed: int
    settings: Settings


class JobPredictor:
    """Everything learnt from a history; ``forecast`` only reads."""

    def __init__(self, runs: Sequence[Run], seed: int, settings: Settings) -> None:
        """Use ``fitted``."""
        self.runs, self.seed, self.settings = tuple(runs), seed, settings
        useful = [run for run in map(sane, runs) if run is not None]
        self.durations = Durations(useful, seed=seed, kind=settings.trees, limit=settings.limit)
        self._learn_memory(useful)
        self._learn_sharing(useful)

    @classmethod
    def fitted(cls, runs: Sequence[Run], *, seed: int = 0, settings: Settings | None = None) -> "JobPredictor":
        """Learn from runs in any order; the same runs, seed and settings give the same answers."""
        return cls(runs, seed, settings or Settings())

    def learned(self, runs: Sequence[Run]) -> "JobPredictor":
        """Another predictor that knows these runs too."""
        return JobPredictor([*self.runs, *runs], self.seed, self.settings)

    def forecast(self, queue: Sequence[Work], kinds: Sequence[str]) -> list[dict[str, Forecast]]:
        """For each job its forecast on every kind; one call for the whole queue."""
        found = self.durations.predict(queue, kinds)
        answers = []
        for work, times in zip(queue, found, strict=True):
            memory = self.memory(work)
            probe, needed = work.model not in self.durations.models, self.needed(work)
            answers.append({kind: _forecast(times[kind], memory, probe, needed) for kind in kinds})
        return answers

    def memory(self, work: Work) -> int | None:
        """Bytes on each card to ask for; None when no run of the model told."""
        if work.model not in self._batches:
            return None
        batch = self._batch(work.model, work.batch)
        exceeded = [peak for peak in self._exceeded if peak.model == work.model and peak.batch <= batch]
        found = self._memory.predict(work.model, batch)
        if found is not None:
            ask = int(found.ask)
        elif exceeded and (known := max(peak.bytes for peak in exceeded)) > 1:
            ask = max(round(_AFTER_OOM * known), self.needed(work)) + self.settings.context
        else:
            return None
        # Some ran out of memory without saying how much that was: each asks for half as much again.
        blind = sum(1 for peak in exceeded if peak.bytes <= 1)
        return round(ask * _AFTER_OOM ** min(blind, 8))

    def needed(self, work: Work) -> int:
        """Bytes on each card that it surely needs, by runs of this batch or smaller ones; 0 when none told."""
        batch = self._batch(work.model, work.batch)
        return max((least for at, least in self._needed.get(work.model, {}).items() if at <= batch), default=0)

    def slowdown(self, a: Work | str, b: Work | str) -> Rate:
        """Normalised rate of ``a`` beside ``b`` on one card; models or jobs."""
        return self._rates.predict(*(job if isinstance(job, str) else job.model for job in (a, b)))

    def fits(self, a: Work, b: Work, kind: str, capacity: int) -> bool:
        """Whether both surely fit on one card of ``capacity`` usable bytes.

        Only what is known fits: both need a known ask, and no pair of these models that was no larger ran out there.
        """
        asks = (self.memory(a), self.memory(b))
        if a.cards != 1 or b.cards != 1 or None in asks:
            return False
        for one, other in ((a, b), (b, a)):
            failed_at = self._failed.get((one.model, other.model, kind))
            if failed_at is not None and self._batch(one.model, one.batch) >= failed_at:
                return False
        return sum(ask for ask in asks if ask is not None) <= capacity

    def encode(self) -> bytes:
        """The file's bytes: the runs and how they were fitted, never code; decoding fits again, to the same answers."""
        return sealed(
            _FORMAT,
            VERSION,
            msgspec.json.encode(_Content([_written(run) for run in self.runs], self.seed, self.settings)),
        )

    @classmethod
    def decode(cls, raw: bytes) -> "JobPredictor":
        """The predictor a file holds.

        Raises:
            ModelFileError: not such a file, another version, cut or changed, or settings nobody could have meant.
        """
        content = opened(_FORMAT, VERSION, raw)
        found = read(content, _Content, "the content cannot be read")
        settings = found.settings
        if settings.trees not in KINDS or not 1 <= settings.limit <= 10_000 or settings.context < 0:
            raise ModelFileError(f"settings {settings} are out of range; {AGAIN}")
        if len(found.runs) > _MOST_RUNS or found.seed < 0:
            raise ModelFileError(f"{len(found.runs)} runs with seed {found.seed}; at most {_MOST_RUNS}; {AGAIN}")
        return cls(found.runs, found.seed, settings)

    def _learn_memory(self, runs: Sequence[Run]) -> None:
        told = [run for run in runs if run.peak_memory is not None or run.outcome == "accelerator-oom"]
        together: dict[str, list[float]] = {}
        for run in told:
            together.setdefault(run.model, []).append(run.batch or 0.0)
        # A job that does not say its batch is taken for the largest seen.
        self._batches = {model: max(batches) for model, batches in together.items()}
        peaks: dict[tuple[str, int, bool], int] = {}
        self._needed: dict[str, dict[int, int]] = {}
        # What ran out says what to ask for; what broke off for another reason was only not finished allocating.
        self._exceeded: list[Peak] = []
        for run in told:
            batch = self._batch(run.model, run.batch)
            if run.peak_memory is None:
                self._exceeded.append(Peak(run.model, batch, 1, exceeded=True))
                continue
            ran_out = run.outcome == "accelerator-oom"
            if ran_out:
                self._exceeded.append(Peak(run.model, batch, run.peak_memory, exceeded=True))
            least = self._needed.setdefault(run.model, {})
            least[batch] = max(least.get(batch, 0), run.peak_memory + ran_out)
            # What a run held that did not end well is a lower bound.
            key = (run.model, batch, run.outcome != "succeeded")
            peaks[key] = max(peaks.get(key, 0), run.peak_memory)
        seen = [Peak(model, batch, held, exceeded) for (model, batch, exceeded), held in sorted(peaks.items())]
        self._memory = MemoryPredictor(seen, context=type(CONTEXT)(self.settings.context))

    def _learn_sharing(self, runs: Sequence[Run]) -> None:
        shared = [run for run in runs if run.shared_with is not None]
        slowed = [run for run in shared if run.outcome == "succeeded" and run.seconds > 0]
        kinds = sorted({run.kind for run in slowed})
        works = [Work("", run.model, run.batch, run.cards, run.steps, run.nodes) for run in slowed]
        couples = []
        for run, times in zip(slowed, self.durations.predict(works, kinds), strict=True):
            alone = times[run.kind]
            # Without a good idea of the time alone a shared run says nothing about sharing.
            if not alone.fallback and alone.high < 3 * alone.low and run.shared_with is not None:
                couples.append(Couple(run.model, run.shared_with, min(1.0, alone.seconds / run.seconds)))
        self._rates = CoupleRates(couples)
        self._failed: dict[tuple[str, str, str], int] = {}
        for run in shared:
            if run.outcome == "accelerator-oom" and run.shared_with is not None:
                key = (run.model, run.shared_with, run.kind)
                batch = self._batch(run.model, run.batch)
                self._failed[key] = min(self._failed.get(key, batch), batch)

    def _batch(self, model: str, batch: float | None) -> int:
        known = amount(batch, _MOST_BATCH)
        return int(np.ceil(known if known is not None else self._batches.get(model, 0.0)))


def _forecast(found: Duration, memory: int | None, probe: bool, needed: int) -> Forecast:
    expected = max(1, round(found.seconds * 1000))
    return Forecast(
        expected,
        max(expected, round(found.high * 1000)),
        max(1, min(expected, round(found.low * 1000))),
        memory,
        found.level,
        found.fallback,
        probe,
        needed,
    )


def _written(run: Run) -> Run:
    """A run that JSON can hold: what is not finite is not known."""
    batch, steps, seconds = (
        float(value) if value is not None and np.isfinite(value) else None
        for value in (run.batch, run.steps, run.seconds)
    )
    return msgspec.structs.replace(run, batch=batch, steps=steps, seconds=seconds or 0.0)
