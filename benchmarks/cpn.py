"""How well a policy orders and places a trace of jobs on a fleet, and how long its decisions take.

The simulator runs the planner's own code in virtual time. Prints one JSON object; hours are of the trace's time,
seconds are of this machine.

    python -m benchmarks.cpn --trace FILE --fleet v100=8,p100=16,k80=24 --policy hcs --times true --json
    python -m benchmarks.cpn --decision-time 1000 --fleet v100=8,p100=16,k80=24 --json
"""

import argparse
import csv
import importlib
import json
import math
import os
import platform
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from hcs.model.refusals import RefusedError
from hcs.wide.bound import lower_bound
from hcs.wide.fleets import Pool, parse_pools
from hcs.wide.jobs import Job, RunTime
from hcs.wide.planner import policy
from hcs.wide.simulation import Chances, Report, Simulation
from hcs.wide.snapshot import Plan, Snapshot

HOUR = 3_600_000
POLICIES = ("fifo", "fifo-exclusive", "binpack", "spread", "easy", "sjf", "ljf", "hcs")
Rows = list[dict[str, str]]
Predict = Callable[[Path, Rows, list[str]], list[dict[str, RunTime]]]
"""Training file, the trace's rows and the kinds asked about, to the run times of each row."""


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
        profile = f"{row['model']}/{row['batch_size']}" if row.get("model") and row.get("batch_size") else ""
        jobs.append(Job(row["job"], int(row["gpus"]), times, round(float(row["submit_s"]) * 1000), profile=profile))
    if len({job.id for job in jobs}) < len(jobs):
        raise ValueError(f"{path} names a job twice")
    return rows, jobs


def predicted(rows: Rows, jobs: list[Job], train: str | None) -> list[Job]:
    """The same jobs with the times our predictor gives, for the kinds the trace knows the true time of."""
    try:
        module = importlib.import_module("hcs.predict.traces")
    except ImportError:
        raise ValueError(
            "--times predicted needs hcs.predict.traces, which this build lacks; use --times true"
        ) from None
    if train is None:
        raise ValueError("--times predicted needs --train FILE, the measurements to learn from")
    predict: Predict = module.run_times
    kinds = sorted({kind for job in jobs for kind in job.times})
    guessed = predict(Path(train), rows, kinds)
    return [
        msgspec.structs.replace(job, times={kind: guess[kind] for kind in job.times if kind in guess})
        for job, guess in zip(jobs, guessed, strict=True)
    ]


def disturbed(jobs: list[Job], sigma: float, seed: int, common: bool = False) -> list[Job]:
    """The jobs with times off by a lognormal factor; the interval is that of the distribution, 5 to 95 per cent.

    ``common``: one factor for all jobs of a profile and width on a kind, as a predictor that knows them badly would err.
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


class Timed:
    """A policy with a clock: how long each decision took, and an end to improvement after so many seconds of it."""

    def __init__(self, name: str, seconds: float) -> None:
        self.took: list[float] = []
        self._seconds, self._until = seconds, math.inf
        self._decide = policy(name, stop=lambda: time.perf_counter() > self._until)

    def __call__(self, snapshot: Snapshot) -> Plan:
        began = time.perf_counter()
        self._until = began + max(0.0, self._seconds - sum(self.took))
        plan = self._decide(snapshot)
        self.took.append(time.perf_counter() - began)
        return plan


def summary(jobs: list[Job], pools: tuple[Pool, ...], report: Report, timed: Timed) -> dict[str, Any]:
    """The figures; what went wrong is among them."""
    done = report.outcomes
    completions = [outcome.completion / HOUR for outcome in done] or [math.nan]
    first = min((job.arrival for job in jobs), default=0)
    able = [job for job in jobs if any(pool.admits(job) for pool in pools)]
    return {
        "makespan_h": round(max((outcome.ended - first for outcome in done), default=0) / HOUR, 3),
        "mean_completion_h": round(float(np.mean(completions)), 3),
        "p99_completion_h": round(float(np.quantile(completions, 0.99)), 3),
        "longest_wait_h": round(max((outcome.wait for outcome in done), default=0) / HOUR, 3),
        "planning_s": round(sum(timed.took), 3),
        "decision_p99_s": round(float(np.quantile(timed.took, 0.99)) if timed.took else 0.0, 4),
        "lp_bound_h": round(lower_bound(able, pools) / HOUR, 3),
        "jobs": len(jobs),
        "completed": len(done),
        "unfinished": len(report.unfinished),
        "refused": [{"job": job, "reason": no.reason, "message": no.message} for job, no in report.refused],
        "out_of_memory": report.out_of_memory,
        "deadlocks": report.deadlocks,
        "failures": report.failures,
        "broken_reservations": report.broken,
        "decisions": report.decisions,
    }


def decision_time(count: int, pools: tuple[Pool, ...], seed: int) -> dict[str, Any]:
    """Seconds of one decision on a queue of so many jobs: from scratch with a place for each, and at an event."""
    from hcs.wide.planner import Planner, Settings

    dice = np.random.default_rng(seed)
    jobs = []
    for number in range(count):
        base = float(dice.lognormal(8.5, 1.2)) * 1000
        times = {pool.kind: RunTime.exactly(max(1, round(base * float(dice.uniform(1, 8))))) for pool in pools}
        widest = min(pool.cards for pool in pools)
        cards = min(widest, int(dice.choice([1, 1, 1, 2, 4, 8])))
        jobs.append(Job(f"j{number}", cards, times, number))
    snapshot = Snapshot(now=count, pools=pools, waiting=tuple(jobs), patience=1 << 60)
    took = {}
    for label, window in (("scratch_s", count), ("incremental_s", Settings().window)):
        planner = Planner(Settings(window=window))
        spent = []
        for _ in range(3):
            began = time.perf_counter()
            planner.decide(snapshot)
            spent.append(time.perf_counter() - began)
        took[label] = round(sorted(spent)[1], 4)
    return {"jobs": count, "pools": len(pools), **took}


def main() -> int:
    """Run the benchmark; 0 on success, 2 when the input cannot be used."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trace", help="a job list: job, gpus, submit_s and sec_KIND columns")
    parser.add_argument("--fleet", default="v100=8,p100=16,k80=24", help="cards of each kind, or CLUSTER/KIND=CARDS")
    parser.add_argument("--policy", choices=POLICIES, default="hcs")
    parser.add_argument("--times", choices=("true", "predicted"), default="true", help="what the planner is told")
    parser.add_argument("--train", help="measurements the predictor learns from")
    parser.add_argument("--error-sigma", type=float, default=0.0, help="lognormal error of the times planned with")
    parser.add_argument(
        "--error-of",
        choices=("job", "profile"),
        default="job",
        help="who errs alike: nobody, or all of one model and batch",
    )
    parser.add_argument("--failing-percent", type=float, default=0.0, help="so many jobs fail once")
    parser.add_argument("--planning-seconds", type=float, default=8.0, help="no improvement is begun after these")
    parser.add_argument("--decision-time", type=int, metavar="JOBS", help="time one decision on a generated queue")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true", help="one JSON object")
    options = parser.parse_args()
    try:
        pools = parse_pools(options.fleet)
        if options.decision_time is not None:
            result = decision_time(options.decision_time, pools, options.seed)
        elif options.trace is None:
            raise ValueError("name a trace with --trace FILE, or ask for --decision-time JOBS")
        else:
            rows, jobs = read_trace(options.trace)
            actual = {job.id: {kind: run.expected for kind, run in job.times.items()} for job in jobs}
            told = predicted(rows, jobs, options.train) if options.times == "predicted" else jobs
            if options.error_sigma:
                told = disturbed(told, options.error_sigma, options.seed, options.error_of == "profile")
            timed = Timed(options.policy, options.planning_seconds)
            closed = len({job.arrival for job in jobs}) == 1
            chances = failing(jobs, options.failing_percent, options.seed)
            report = Simulation(told, pools, actual, chances=chances, closed=closed).run(timed)
            result = summary(jobs, pools, report, timed)
            result |= {"policy": options.policy, "times": options.times}
    except (OSError, ValueError) as error:
        message = "; ".join(map(str, error.refusals)) if isinstance(error, RefusedError) else str(error)
        print(f"error: {message}", file=sys.stderr)
        return 2
    result |= {"seed": options.seed, "machine": f"{platform.machine()}, {os.cpu_count()} CPUs"}
    if options.json:
        print(json.dumps(result))
    else:
        print("\n".join(f"{name}: {value}" for name, value in result.items()))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
