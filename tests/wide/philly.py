"""Philly's jobs as a stream for the planner: arrivals, durations and cards as recorded, kinds and errors made up.

The trace names no card type, so a job's recorded duration is its time on the best kind; others are slower by factors of
its own. What is told of a time has an interval; the truth lies in it. Any controller can be fed with the stream.
"""

import csv
from collections.abc import Iterator
from pathlib import Path

import msgspec
import numpy as np
from tests.samples import SAMPLES

from hcs.wide.jobs import Job, RunTime

TRACE = SAMPLES.parents[1] / "data" / "philly" / "jobs_train.csv"
DAY = 86_400


class Arrival(msgspec.Struct, frozen=True):
    """A job as the planner is told of it, and what it really takes on each kind, in milliseconds."""

    job: Job
    actual: dict[str, int]


def stream(
    kinds: tuple[str, ...],
    *,
    first_day: float,
    days: float,
    every: int = 1,
    widest: int = 8,
    seed: int = 0,
    trace: Path = TRACE,
) -> Iterator[Arrival]:
    """Every ``every``-th job of some days, in order of arrival; moments count from the first of those days."""
    dice = np.random.default_rng(seed)
    with trace.open(newline="", encoding="utf-8") as lines:
        for number, row in enumerate(csv.DictReader(lines)):
            moment = float(row["submit_s"]) - first_day * DAY
            if moment >= days * DAY:
                return
            if moment < 0 or number % every:
                continue
            slower = sorted(1 + 4 * dice.random(len(kinds)) ** 2)
            slower[0] = 1.0
            best = max(1000, round(1000 * float(row["duration_s"])))
            times, actual = {}, {}
            for kind, factor in zip(dice.permutation(kinds).tolist(), slower, strict=True):
                truth = round(best * factor)
                error = float(dice.normal(0, 0.15))
                expected = max(1, round(truth * np.exp(error)))
                times[kind] = RunTime(expected, max(expected, truth, round(expected * 1.28)))
                actual[kind] = truth
            job = Job(f"philly-{number:06d}", min(widest, int(row["num_gpus"])), times, round(1000 * moment))
            yield Arrival(job, actual)
