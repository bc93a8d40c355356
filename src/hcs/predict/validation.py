"""How good a predictor of this history is: by what it says about runs it has not seen, for each level of novelty.

Runs of the same job stay together. Five folds of jobs say how well new jobs of known pairings are met, and which trees
meet them better; whole pairings and models left out, a few of each drawn by the seed, say how far the rest carries.
"""

from collections.abc import Sequence
from typing import NamedTuple

import msgspec
import numpy as np

from hcs.predict.jobs import JobPredictor, Settings, Work
from hcs.predict.runs import Run, sane, timed
from hcs.predict.trees import KINDS, Kind

FOLDS = 5
_MOST_GROUPS = 4
_FEWEST = 10


class Level(msgspec.Struct, frozen=True, rename="camel"):
    """Errors at one level of novelty, in per cent of the run time; coverage is of the 90 % interval."""

    level: str
    runs: int
    mape_pct: float
    median_ape_pct: float
    coverage_90_pct: float


class Validation(msgspec.Struct, frozen=True, rename="camel"):
    """Errors by level, the error with each kind of trees, and the kind that met the folds better."""

    levels: tuple[Level, ...]
    trees: dict[str, float]
    chosen: Kind


class _Miss(NamedTuple):
    level: str
    error: float
    inside: bool


def validated(runs: Sequence[Run], *, seed: int = 0, settings: Settings | None = None) -> Validation:
    """Cross-validate. With fewer than ten different jobs there is nothing to tell: no levels, and the first trees."""
    first = settings or Settings()
    usable = timed([run for run in map(sane, runs) if run is not None])
    jobs = sorted({_job(run) for run in usable}, key=str)
    if len(jobs) < _FEWEST:
        return Validation((), {}, first.trees)
    draw = np.random.default_rng(seed)
    fold = dict(zip(jobs, (draw.permutation(len(jobs)) % FOLDS).tolist(), strict=True))
    misses: dict[str, list[_Miss]] = {}
    for kind in KINDS:
        tried = msgspec.structs.replace(first, trees=kind)
        misses[kind] = [
            miss for held in range(FOLDS) for miss in _missed(usable, {j for j in jobs if fold[j] == held}, seed, tried)
        ]
    trees = {kind: round(100 * float(np.mean([miss.error for miss in found])), 2) for kind, found in misses.items()}
    chosen: Kind = min(KINDS, key=lambda kind: (trees[kind], kind != first.trees))
    settled = msgspec.structs.replace(first, trees=chosen)
    # Only what a group is left out for is scored with it; new jobs of known pairings were scored by the folds.
    every = list(misses[chosen])
    for names in ({job[:2] for job in jobs}, {job[:1] for job in jobs}):
        if len(names) < 2:
            continue
        ordered = sorted(names)
        for place in draw.permutation(len(ordered))[:_MOST_GROUPS]:
            group = ordered[int(place)]
            every += _missed(usable, {job for job in jobs if job[: len(group)] == group}, seed, settled)
    return Validation(tuple(_level(name, every) for name in sorted({miss.level for miss in every})), trees, chosen)


def _missed(runs: Sequence[Run], held: set[tuple[object, ...]], seed: int, settings: Settings) -> list[_Miss]:
    known = [run for run in runs if _job(run) not in held]
    asked = [run for run in runs if _job(run) in held]
    if not known or not asked:
        return []
    predictor = JobPredictor.fitted(known, seed=seed, settings=settings)
    kinds = sorted({run.kind for run in asked})
    works = [Work(str(at), run.model, run.batch, run.cards, run.steps, run.nodes) for at, run in enumerate(asked)]
    found = []
    for run, forecasts in zip(asked, predictor.forecast(works, kinds), strict=True):
        told, took = forecasts[run.kind], 1000 * run.seconds
        inside = told.lower_ms - 0.5 <= took <= told.upper_ms + 0.5
        found.append(_Miss(told.level, abs(told.expected_ms / took - 1), inside))
    return found


def _job(run: Run) -> tuple[object, ...]:
    return (run.model, run.kind, run.batch, run.cards, run.nodes)


def _level(name: str, misses: Sequence[_Miss]) -> Level:
    mine = [miss for miss in misses if miss.level == name]
    errors = np.array([miss.error for miss in mine])
    return Level(
        name,
        len(mine),
        round(100 * float(errors.mean()), 2),
        round(100 * float(np.median(errors)), 2),
        round(100 * float(np.mean([miss.inside for miss in mine])), 1),
    )
