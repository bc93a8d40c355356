"""How well a policy orders and places a trace of jobs on a fleet, and how long its decisions take.

The simulator runs the planner's own code in virtual time. Prints one JSON object; hours are of the trace's time,
seconds are of this machine.

    python -m benchmarks.cpn --trace FILE --fleet v100=8,p100=16,k80=24 --policy hcs --times true --json
    python -m benchmarks.cpn --trace FILE --policy hcs --sharing PAIRS.csv --json
    python -m benchmarks.cpn --generate 400 --gap 100 --fleet a=8,b=16 --cpu-threshold 0.8 --seed 1 --json
    python -m benchmarks.cpn --generate 20 --manifests - --seed 1
    python -m benchmarks.cpn --decision-time 1000 --fleet v100=8,p100=16,k80=24 --json

With ``--sharing`` two jobs may run on one card: whether a pair fits and how fast it is comes from our predictor, which
never saw that pair; what then happens is what was measured. A queue made by ``--generate`` knows its own pairs; what
its jobs really take of the CPU is off by a lognormal factor of sigma 0.3 from what they ask for.
"""

import argparse
import json
import math
import os
import platform
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from benchmarks.queues import disturbed, failing, predicted, read_trace

from hcs.model.refusals import RefusedError
from hcs.wide.bound import lower_bound
from hcs.wide.chances import Chances
from hcs.wide.fleets import Pool, parse_pools
from hcs.wide.generation import GIB, Generated, equipped, generate, manifest, pair_rates
from hcs.wide.jobs import Job, RunTime
from hcs.wide.network import Link, Network
from hcs.wide.outcomes import Report
from hcs.wide.planner import policy
from hcs.wide.sharing import Rates, Sharing
from hcs.wide.simulation import Simulation
from hcs.wide.snapshot import Plan, Snapshot

HOUR = 3_600_000
POLICIES = ("fifo", "fifo-exclusive", "binpack", "spread", "easy", "sjf", "ljf", "hcs")
CPU_ERROR = 0.3


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
        "shared": report.shared,
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


class Setting:
    """A queue and a fleet, what is told of them, and what is really so."""

    def __init__(self, jobs: list[Job], pools: tuple[Pool, ...], threshold: float) -> None:
        self.jobs, self.told, self.pools, self.threshold = jobs, jobs, pools, round(1000 * threshold)
        self.sharing: Sharing | None = None
        self.pairs: dict[tuple[str, str, str], Rates] | None = None
        self.cpu: dict[str, int] = {}
        self.network: Network | None = None

    def share(self, truth: dict[tuple[str, str, str], Rates], belief: dict[tuple[str, str, str], Rates]) -> None:
        """Let two jobs share a card; where peaks are not known, the belief vouches that they fit."""
        self.pairs, self.sharing = truth, Sharing(belief, vouched=True, cpu=self.threshold)

    def run(self, timed: Timed, failing_percent: float, seed: int) -> Report:
        """The queue in virtual time."""
        jobs = self.jobs
        actual = {job.id: {kind: run.expected for kind, run in job.times.items()} for job in jobs}
        chances = Chances(failing(jobs, failing_percent, seed).failing, pairs=self.pairs, cpu=self.cpu)
        simulation = Simulation(
            self.told,
            self.pools,
            actual,
            network=self.network,
            chances=chances,
            closed=len({job.arrival for job in jobs}) == 1,
            sharing=self.sharing,
        )
        return simulation.run(timed)


def from_trace(options: argparse.Namespace, pools: tuple[Pool, ...]) -> Setting:
    """A trace from a file; with measured pairs, two of its jobs may share a card."""
    rows, jobs = read_trace(options.trace)
    made = Setting(jobs, pools, options.cpu_threshold)
    if options.times == "predicted":
        made.told = predicted(rows, jobs, options.train)
    if options.sharing:
        # Its predictor is not for everybody who plans: it takes seconds to import.
        from benchmarks.pair_tables import pair_tables

        made.share(*pair_tables(Path(options.sharing), options.seed))
    return made


def made_up(queue: list[Generated], options: argparse.Namespace, pools: tuple[Pool, ...]) -> Setting:
    """A generated queue: its data lies in one store, a link of 1 GiB a second leads to each cluster."""
    kinds = tuple(sorted({pool.kind for pool in pools}))
    made = Setting([each.job for each in queue], equipped(pools), options.cpu_threshold)
    rates = pair_rates(queue, kinds)
    made.share(rates, rates)
    dice = np.random.default_rng(options.seed + 2)
    made.cpu = {each.job.id: round(each.cpu * math.exp(CPU_ERROR * dice.standard_normal())) for each in queue}
    links = [Link("store", cluster, GIB) for cluster in sorted({pool.cluster for pool in pools})]
    made.network = Network(links, {("store", blob.digest) for each in queue for blob in each.job.inputs})
    return made


def write_manifests(queue: list[Generated], path: str) -> None:
    """The queue's Jobs as one YAML file that can be submitted; - is standard output."""
    text = "---\n".join(yaml.safe_dump(manifest(each), sort_keys=False) for each in queue)
    if path == "-":
        sys.stdout.write(text)
    else:
        Path(path).write_text(text, encoding="utf-8")


def parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The options."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trace", help="a job list: job, gpus, submit_s and sec_KIND columns")
    parser.add_argument("--generate", type=int, metavar="N", help="make up a queue of N jobs from the seed")
    parser.add_argument("--gap", type=float, default=0.0, help="seconds between generated jobs; 0: all at once")
    parser.add_argument("--manifests", metavar="FILE", help="write the generated queue as Jobs, - prints; plan nothing")
    parser.add_argument("--fleet", default="v100=8,p100=16,k80=24", help="cards of each kind, or CLUSTER/KIND=CARDS")
    parser.add_argument("--policy", choices=POLICIES, default="hcs")
    parser.add_argument("--times", choices=("true", "predicted"), default="true", help="what the planner is told")
    parser.add_argument("--train", help="measurements the predictor learns from")
    parser.add_argument("--sharing", metavar="PAIRS", help="measured pairs: two jobs of a trace may share a card")
    parser.add_argument("--no-sharing", action="store_true", help="one job a card in a generated queue too")
    parser.add_argument("--cpu-threshold", type=float, default=0.9, help="CPU share of a node a guest may bring it to")
    parser.add_argument("--error-sigma", type=float, default=0.0, help="lognormal error of the times planned with")
    parser.add_argument(
        "--error-of",
        choices=("job", "profile"),
        default="job",
        help="whose times are off alike: each job by itself, or all of one model, batch and width",
    )
    parser.add_argument("--failing-percent", type=float, default=0.0, help="so many jobs fail once")
    parser.add_argument("--planning-seconds", type=float, default=6.0, help="no improvement is begun after these")
    parser.add_argument("--decision-time", type=int, metavar="JOBS", help="time one decision on a generated queue")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true", help="one JSON object")
    options = parser.parse_args(arguments)
    if not 0 < options.cpu_threshold <= 1:
        parser.error("--cpu-threshold is a share of the CPU: above 0 and at most 1")
    for name in ("generate", "decision_time"):
        if getattr(options, name) is not None and not 0 < getattr(options, name) <= 1_000_000:
            parser.error(f"--{name.replace('_', '-')} counts jobs: from 1 to 1000000")
    if options.error_sigma < 0 or options.gap < 0 or not 0 <= options.failing_percent <= 100:
        parser.error("--error-sigma and --gap are 0 or more, --failing-percent is from 0 to 100")
    return options


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark; 0 on success, 2 when the input cannot be used."""
    options = parsed(arguments)
    try:
        pools = parse_pools(options.fleet)
        kinds = tuple(sorted({pool.kind for pool in pools}))
        if options.decision_time is not None:
            result = decision_time(options.decision_time, pools, options.seed)
        elif options.generate is not None:
            queue = generate(options.generate, options.seed, kinds, round(1000 * options.gap))
            if options.manifests:
                write_manifests(queue, options.manifests)
                return 0
            result = planned(made_up(queue, options, pools), options)
        elif options.trace is None:
            raise ValueError("name a trace with --trace FILE, make a queue with --generate N, or ask --decision-time N")
        else:
            result = planned(from_trace(options, pools), options)
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


def planned(setting: Setting, options: argparse.Namespace) -> dict[str, Any]:
    """The figures of one run."""
    if options.error_sigma:
        setting.told = disturbed(setting.told, options.error_sigma, options.seed, options.error_of == "profile")
    if options.no_sharing:
        setting.sharing = None
    timed = Timed(options.policy, options.planning_seconds)
    report = setting.run(timed, options.failing_percent, options.seed)
    result = summary(setting.jobs, setting.pools, report, timed)
    result |= {"policy": options.policy, "times": options.times}
    if setting.sharing is not None:
        result["cpu_threshold"] = options.cpu_threshold
    return result


if __name__ == "__main__":
    raise SystemExit(main())
