"""Queues to plan: traces from files, generated ones, and what the planner is told about them instead of the truth."""

import csv
import importlib
import math
from collections.abc import Callable
from pathlib import Path

import msgspec
import numpy as np

from hcs.wide.chances import Chances
from hcs.wide.jobs import Job, RunTime

Rows = list[dict[str, str]]
Predict = Callable[[Path, Rows, list[str]], list[dict[str, RunTime]]]
"""Training file, the trace's rows and the kinds asked about, to the run times of each row."""


def profile(model: str, batch: str) -> str:
    """The name under which the planner knows what a job computes."""
    return f"{model}/{batch}"


def read_trace(path: str) -> tuple[Rows, list[Job]]:
    """The rows of a trace, and its jobs with the times it states; ``submit_s`` and ``sec_*`` are seconds."""
    with Path(path).open(newline="", encoding="utf-8") as lines:
        rows = list(csv.DictReader(lines))
    missing = {"job", "gpus", "submit_s"} - set(rows[0] if rows else ())
    if missing:
        raise ValueError(f"{path} lacks the columns {', '.join(sorted(missing))}, or has no rows")
    jobs = []
    for row in rows:
        seconds = {name[4:]: float(value) for name, value in row.items() if name.startswith("sec_") and value}
        if any(not 0 < value < 1e9 for value in seconds.values()):
            raise ValueError(f"{path}: job {row['job']} has a run time that is not a positive number of seconds")
        times = {kind: RunTime.exactly(max(1, round(value * 1000))) for kind, value in seconds.items()}
        known = row.get("model") and row.get("batch_size")
        name = profile(row["model"], row["batch_size"]) if known else ""
        jobs.append(Job(row["job"], int(row["gpus"]), times, round(float(row["submit_s"]) * 1000), profile=name))
    if len({job.id for job in jobs}) < len(jobs):
        raise ValueError(f"{path} names a job twice")
    return rows, jobs


def predicted(rows: Rows, jobs: list[Job], train: str | None) -> list[Job]:
    """The same jobs with the times our predictor gives, for the kinds the trace knows the true time of."""
    if train is None:
        raise ValueError("--times predicted needs --train FILE, the measurements to learn from")
    try:
        module = importlib.import_module("benchmarks.run_times")
    except ModuleNotFoundError:
        raise ValueError(
            "--times predicted needs benchmarks.run_times, which this build lacks; use --times true"
        ) from None
    predict: Predict = module.run_times
    kinds = sorted({kind for job in jobs for kind in job.times})
    guessed = predict(Path(train), rows, kinds)
    return [
        msgspec.structs.replace(job, times={kind: guess[kind] for kind in job.times if kind in guess})
        for job, guess in zip(jobs, guessed, strict=True)
    ]


def disturbed(jobs: list[Job], sigma: float, seed: int, common: bool = False) -> list[Job]:
    """The jobs with times off by a lognormal factor; the interval is that of the distribution, 5 to 95 per cent.

    ``common``: one factor for all jobs of a profile and width on a kind, as a predictor that knows them badly errs.
    """
    dice = np.random.default_rng(seed)
    factors: dict[tuple[str, int, str], float] = {}
    out = []
    for job in jobs:
        times = {}
        for kind, run in job.times.items():
            factor = math.exp(sigma * dice.standard_normal())
            if common and job.profile:
                factor = factors.setdefault((job.profile, job.cards, kind), factor)
            guess = max(1, round(run.expected * factor))
            times[kind] = RunTime(guess, max(guess, round(guess * math.exp(1.645 * sigma))))
        out.append(msgspec.structs.replace(job, times=times))
    return out


def failing(jobs: list[Job], percent: float, seed: int) -> Chances:
    """So many of the jobs fail once, somewhere in their run."""
    dice = np.random.default_rng(seed + 1)
    hit = dice.random(len(jobs)) * 100 < percent
    return Chances({job.id: (int(dice.integers(1, 1000)),) for job, fails in zip(jobs, hit, strict=True) if fails})
