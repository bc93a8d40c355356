"""Run times of whole jobs: time per step from ``RunTimePredictor``, times the steps, plus start-up; own runs first.

Runs of unknown amount are a campaign of their own, scaled to the others' time per step, so they tell what a model
costs relative to another without being mistaken for single steps. What a question leaves open (batch, steps) is filled
with the median of that model's runs, and the interval widens by their spread.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hcs.predict.novelty import PROBED_MODEL
from hcs.predict.runs import LONGEST, MOST_CARDS, MOST_SAMPLES, MOST_STEPS, Run, Work, amount, timed
from hcs.predict.runtime import RunTimePredictor, Training
from hcs.predict.startup import startup
from hcs.predict.table import Floats, table
from hcs.predict.trees import Kind

SAME, NOTHING = "same", "nothing"
_UNKNOWN = "whole"  # the campaign of runs whose amount is unknown
_GUESS, _GUESS_FACTOR = 600.0, 300.0  # ten minutes, between two seconds and two days: what an empty history says
_SHORTEST = 1e-3
_REACH = 1.645
_REPEAT_NOISE, _REPEAT_WEIGHT = 0.10, 4  # a run repeated differs by a tenth, as if that had been seen four times
_OPEN = 1.0  # spread, in logarithms, of a number that is not stated, before any run tells
_FEW = 10  # with so many different jobs the process's own intervals are half as good as they get
_STRETCH = 0.1  # of the logarithm by which the steps are beyond the runs' own

Key = tuple[str, str, float | None, int, int, float | None]


@dataclass(frozen=True)
class Duration:
    """Seconds with a 90 % interval, how novel the question was, and whether there was nothing to answer it from."""

    seconds: float
    low: float
    high: float
    level: str
    fallback: bool


class Durations:
    """Fitted once off the decision path."""

    def __init__(self, runs: Sequence[Run], *, seed: int, kind: Kind, limit: int) -> None:
        """``runs`` as ``runs.sane`` leaves them; at most about ``limit`` different jobs are conditioned on."""
        good = timed(runs)
        self.models = {run.model for run in good}
        self._uncounted = {run.model for run in good if run.steps is None}
        self.own: dict[Key, list[float]] = {}
        for run in good:
            if run.steady:
                continue
            key = (run.model, run.kind, run.batch, run.cards, run.nodes, run.steps)
            self.own.setdefault(key, []).append(float(np.log(run.seconds)))
        self.repeat = _repeat_noise(list(self.own.values()))
        self._batches = _medians([(run.model, run.batch) for run in good])
        self._steps = _medians([(run.model, run.steps) for run in good if not run.steady])
        counted = [run for run in good if run.steps is not None and not run.steady]
        self.before = startup(
            [np.array([run.model for run in counted]), np.array([run.kind for run in counted])],
            np.array([[np.log(self._batch(run.model, run.batch)[0] or 1.0), np.log(run.cards)] for run in counted]),
            np.array([run.steps for run in counted], dtype=np.float64),
            np.array([run.seconds for run in counted], dtype=np.float64),
        )
        self.predictor = self._fitted(good, seed, kind, limit)

    def predict(self, queue: Sequence[Work], kinds: Sequence[str]) -> list[dict[str, Duration]]:
        """One entry for each job and kind."""
        asked = [(work, kind) for work in queue for kind in kinds]
        own = [self._own(work, kind) for work, kind in asked]
        modelled = iter(self._modelled([pair for pair, answer in zip(asked, own, strict=True) if answer is None]))
        answers = iter([answer if answer is not None else next(modelled) for answer in own])
        return [{kind: next(answers) for kind in kinds} for _ in queue]

    def _fitted(self, good: Sequence[Run], seed: int, kind: Kind, limit: int) -> RunTimePredictor | None:
        if not good:
            self.scale = _GUESS
            return None
        counted = [run.seconds / run.steps for run in good if run.steps is not None]
        whole = [run.seconds for run in good if run.steps is None]
        self.scale = float(np.median(whole)) / float(np.median(counted)) if whole and counted else 1.0
        together: dict[tuple[str, str, float, int, int, str], list[tuple[float, float]]] = {}
        for run in good:
            batch = self._batch(run.model, run.batch)[0]
            cell = (run.model, run.kind, batch, run.cards, run.nodes, _UNKNOWN if run.steps is None else "")
            before = 0.0 if run.steps is None or run.steady else self.before
            part = max(run.seconds - before, 0.02 * run.seconds)
            # A run that is mostly start-up tells little about its steps.
            told = (float(np.log(part / (run.steps or self.scale))), (part / run.seconds) ** 2)
            together.setdefault(cell, []).append(told)
        cells = sorted(together)
        rows = table(
            [cell[0] for cell in cells],
            [cell[1] for cell in cells],
            [cell[2] for cell in cells],
            [_layout(cell[3], cell[4]) for cell in cells],
            [cell[5] for cell in cells],
        )
        self._few = float(np.sqrt(_FEW / (_FEW + len(cells))))
        seconds = np.array([float(np.exp(_weighted_median(together[cell]))) for cell in cells])
        return RunTimePredictor(Training(rows, seconds, None, seed, kind, limit, refits=False, repeat=self.repeat))

    def _own(self, work: Work, kind: str) -> Duration | None:
        if _absurd(work):
            return None
        steps, batch = amount(work.steps, MOST_STEPS), amount(work.batch, MOST_SAMPLES)
        seen = self.own.get((work.model, kind, batch, work.cards, work.nodes, steps))
        if not seen:
            return None
        middle = float(np.median(seen))
        # Student's t of few observations, by its usual expansion.
        freedom = _REPEAT_WEIGHT + len(seen) - 1
        reach = _REACH * (1 + 1 / freedom) * self.repeat * float(np.sqrt(1 + 1 / len(seen)))
        if steps is None:  # the next one may be of any amount
            reach = float(np.hypot(reach, _REACH * max(float(np.std(seen)), self._steps_spread(len(seen)))))
        return _bounded(middle, middle - reach, middle + reach, SAME, False)

    def _modelled(self, asked: Sequence[tuple[Work, str]]) -> list[Duration]:
        if not asked:
            return []
        if self.predictor is None:
            away = float(np.log(_GUESS_FACTOR))
            middle = float(np.log(_GUESS))
            return [_bounded(middle, middle - away, middle + away, NOTHING, True)] * len(asked)
        batches = [self._batch(work.model, work.batch) for work, _ in asked]
        steps = [self._amount(work.model, work.steps) for work, _ in asked]
        absurd = [_absurd(work) for work, _ in asked]
        rows = table(
            [work.model for work, _ in asked],
            [kind for _, kind in asked],
            [batch for batch, _ in batches],
            [[1] if wrong else _layout(work.cards, work.nodes) for (work, _), wrong in zip(asked, absurd, strict=True)],
            [_UNKNOWN if count is None else "" for count, _ in steps],
        )
        found = self.predictor.predict(rows)
        wide = float(np.log(_GUESS_FACTOR))
        answers = []
        for place, (count, open_steps) in enumerate(steps):
            middle, before = float(np.log(found.seconds[place])), 0.0 if count is None else self.before
            ends = np.log([found.low[place], found.high[place]]) - middle
            amounts = float(np.log(self.scale if count is None else count))
            nowhere = count is None and not self._uncounted
            if nowhere:  # the pace is known, and no run ever told how much work there may be
                middle = float(np.log(_GUESS))
            lost = bool(found.fallback[place] or absurd[place] or nowhere)
            work = asked[place][0]
            open_parts = np.array([batches[place][1], open_steps, self._few * self.repeat, self._stretch(work)])
            reach = [float(np.sqrt(end**2 + np.sum((_REACH * open_parts) ** 2))) for end in ends]
            if lost:
                reach = [max(away, wide) for away in reach]
            bounds = [_log(before + np.exp(min(amounts + middle + by, 60.0))) for by in (0.0, -reach[0], reach[1])]
            level = str(found.novelty[place])
            answers.append(_bounded(bounds[0], bounds[1], bounds[2], level, lost))
        return answers

    def _batch(self, model: str, batch: float | None) -> tuple[float, float]:
        """The batch to ask with, 0 for none, and how unsure it is in logarithms."""
        usual, spread = self._batches.get(model, (None, 0.0))
        batch = amount(batch, MOST_SAMPLES)
        if usual is None:
            # A model none of whose runs had a batch has no such setting, whatever is asked; a new one keeps its own.
            return (0.0 if model in self.models else (batch or 0.0)), 0.0
        return (usual, max(spread, _OPEN / 2)) if not batch else (batch, 0.0)

    def _amount(self, model: str, steps: float | None) -> tuple[float | None, float]:
        """The steps to ask for, None for a whole run of unknown amount, and how unsure that is in logarithms."""
        if steps is not None and (known := amount(steps, MOST_STEPS)) is not None:
            return known, 0.0
        found = self._steps.get(model) or self._steps.get("")
        if found is None or model in self._uncounted:
            return None, self._steps_spread(1)
        return found[0], max(found[1], _OPEN)

    def _stretch(self, work: Work) -> float:
        """How unsure it is that time grows with the steps, this far from the model's runs, in logarithms."""
        usual = self._steps.get(work.model)
        if usual is None or not work.steps or _absurd(work):
            return 0.0
        return self._few * _STRETCH * abs(float(np.log(work.steps / usual[0])))

    def _steps_spread(self, count: int) -> float:
        return _OPEN / float(np.sqrt(count))


def _medians(values: Sequence[tuple[str, float | None]]) -> dict[str, tuple[float, float]]:
    """Median and spread, in logarithms, of each model's known values; under the empty name those of all."""
    together: dict[str, list[float]] = {}
    for model, value in values:
        if value is not None and value > 0:
            together.setdefault(model, []).append(float(np.log(value)))
            together.setdefault("", []).append(float(np.log(value)))
    return {name: (float(np.exp(np.median(logs))), float(np.std(logs))) for name, logs in together.items()}


def _weighted_median(values: Sequence[tuple[float, float]]) -> float:
    order = sorted(values)
    weights = np.cumsum([weight for _, weight in order])
    below, above = np.searchsorted(weights, weights[-1] / 2 * np.array([1 - 1e-9, 1 + 1e-9]))
    return (order[int(below)][0] + order[min(int(above), len(order) - 1)][0]) / 2


def _repeat_noise(groups: Sequence[Sequence[float]]) -> float:
    """Standard deviation, in logarithms, of a run done again."""
    squares = sum(float(np.sum((np.asarray(group) - np.mean(group)) ** 2)) for group in groups)
    freedom = sum(len(group) - 1 for group in groups)
    return float(np.sqrt((_REPEAT_WEIGHT * _REPEAT_NOISE**2 + squares) / (_REPEAT_WEIGHT + freedom)))


def _absurd(work: Work) -> bool:
    """Whether a number of the job is one no job can have; an absent one, or a batch of 0, is only unknown."""
    return (
        not 1 <= work.cards <= MOST_CARDS
        or not 1 <= work.nodes <= work.cards
        or (work.steps is not None and amount(work.steps, MOST_STEPS) is None)
        or (bool(work.batch) and amount(work.batch, MOST_SAMPLES) is None)
    )


def _layout(cards: int, nodes: int) -> list[int]:
    return [cards // nodes + (index < cards % nodes) for index in range(nodes)]


def _log(value: Floats | float) -> float:
    return float(np.log(np.maximum(value, _SHORTEST)))


def _bounded(middle: float, low: float, high: float, level: str, fallback: bool) -> Duration:
    """From logarithms to seconds within what a run can take."""
    ends = np.exp(np.clip([middle, low, high], np.log(_SHORTEST), np.log(LONGEST)))
    return Duration(float(ends[0]), float(ends[1]), float(ends[2]), level, fallback)


__all__ = ["NOTHING", "PROBED_MODEL", "SAME", "Duration", "Durations"]
