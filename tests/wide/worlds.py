"""Random worlds for the planner: a queue, a fleet, what is told of them and what is really so, all from one seed.

What is really so stays within what was told: run times end by their upper value, ends are seen no later than the lag,
pairs run at least at the rates that upper ends are reckoned with. Failures, outages and transfers come on top.
"""

from collections.abc import Iterable
from typing import Any

import msgspec
import numpy as np

from hcs.wide.annealing import Budget
from hcs.wide.chances import Chances, Outage
from hcs.wide.fleets import Pool
from hcs.wide.jobs import Blob, Job, RunTime
from hcs.wide.network import Link, Network
from hcs.wide.outcomes import Report
from hcs.wide.planner import Settings
from hcs.wide.sharing import Rates, Sharing
from hcs.wide.simulation import Decide, Simulation
from hcs.wide.snapshot import Plan, Snapshot

SMALL = Settings(budget=Budget(restarts=2, moves=300, tries=64, effort=0.02))
MIB = 1 << 20
KINDS = ("fast", "slow")


class World(msgspec.Struct, frozen=True):
    """Ready to be run any number of times."""

    jobs: tuple[Job, ...]
    pools: tuple[Pool, ...]
    actual: dict[str, dict[str, int]]
    chances: Chances
    sharing: Sharing | None
    lag: int
    closed: bool
    patience: int | None
    links: tuple[Link, ...]

    def run(self, decide: Decide) -> Report:
        """The world with a policy."""
        stored = {("store", blob.digest) for job in self.jobs for blob in job.inputs}
        return Simulation(
            self.jobs,
            self.pools,
            self.actual,
            network=Network(self.links, stored) if self.links else None,
            chances=self.chances,
            closed=self.closed,
            patience=self.patience,
            sharing=self.sharing,
            lag=self.lag,
        ).run(decide)


def world(seed: int, count: int = 40, outages: bool = True, failures: bool = True, data: bool = True) -> World:
    """A world of ``count`` jobs."""
    dice = np.random.default_rng(seed)
    pools = (
        Pool("east", "fast", 4, 16 * MIB, cpu=8000),
        Pool("east", "slow", 6, 8 * MIB, cpu=8000),
        Pool("west", "slow", 5, 8 * MIB, cpu=8000),
    )
    sigma = float(dice.choice([0.0, 0.1, 0.3]))
    lag = int(dice.choice([0, 0, 5_000, 60_000]))
    jobs, actual, failing, late = [], {}, {}, {}
    moment = 0
    for number in range(count):
        kinds = [KINDS, KINDS, ("fast",), ("slow",)][int(dice.integers(4))]
        base = float(dice.lognormal(13, 1.0))
        times = {kind: _interval(dice, base, sigma) for kind in kinds}
        name = f"j{number:04d}"
        actual[name] = {
            kind: int(dice.integers(max(1, run.expected // 2), run.upper + 1)) for kind, run in times.items()
        }
        deadline = moment + int(base * 3) if dice.random() < 0.2 else None
        jobs.append(
            Job(
                name,
                int(dice.choice([1, 1, 1, 2, 4])),
                times,
                moment,
                priority=int(dice.choice([0, 0, 0, 1])),
                deadline=deadline,
                inputs=(Blob(f"d{int(dice.integers(6))}", int(dice.integers(1, 50)) * MIB),) if data else (),
                memory=int(dice.integers(1, 8)) * MIB,
                profile=f"m{int(dice.integers(4))}",
                cpu=int(dice.integers(500, 6000)),
            )
        )
        if failures and dice.random() < 0.2:
            failing[name] = tuple(int(part) for part in dice.integers(1, 1000, int(dice.integers(1, 3))))
        late[name] = int(dice.integers(0, lag + 1))
        moment += int(dice.exponential(60_000))
    belief = {
        (kind, f"m{one}", f"m{other}"): Rates(int(dice.integers(400, 1000)), int(dice.integers(400, 1000)))
        for kind in KINDS
        for one in range(4)
        for other in range(4)
        if dice.random() < 0.7
    }
    sharing = Sharing(belief) if dice.random() < 0.7 else None
    truth = {
        key: Rates(*(int(dice.integers(rate * 9 // 10, 1001)) for rate in (r.guest, r.host)))
        for key, r in belief.items()
    }
    gone = _outages(dice, pools, moment) if outages else ()
    links = tuple(Link("store", cluster, 20 * MIB, 100) for cluster in ("east", "west")) if data else ()
    return World(
        tuple(jobs),
        pools,
        actual,
        Chances(failing, gone, late, truth),
        sharing,
        lag,
        bool(dice.random() < 0.3),
        int(dice.choice([0, 300_000, 3_000_000])) if dice.random() < 0.7 else None,
        links,
    )


def _interval(dice: np.random.Generator, base: float, sigma: float) -> RunTime:
    expected = max(1000, round(base * float(dice.uniform(1, 6))))
    return RunTime(expected, round(expected * (1 + 2 * sigma)))


def _outages(dice: np.random.Generator, pools: Iterable[Pool], span: int) -> tuple[Outage, ...]:
    made = []
    for pool in pools:
        for _ in range(int(dice.integers(0, 3))):
            begins = int(dice.integers(0, 2 * span + 1))
            ends = begins + int(dice.integers(1, 1_800_000))
            made.append(Outage(pool.name, begins, ends, bool(dice.random() < 0.5)))
    return tuple(made)


class Watched:
    """A policy looked over the shoulder: first promises, how many stood before each, the longest patience."""

    def __init__(self, decide: Decide) -> None:
        self._decide = decide
        self.first: dict[str, int] = {}
        self.ahead: dict[str, int] = {}
        self.patience = 0

    def __call__(self, snapshot: Snapshot) -> Plan:
        plan = self._decide(snapshot)
        self.patience = max(self.patience, snapshot.patience)
        for at, place in enumerate(plan.promises):
            if place.job not in self.first:
                self.first[place.job], self.ahead[place.job] = place.start, at
        return plan


def complaints(world: World, report: Report) -> list[str]:
    """What must never be: jobs lost or run twice, ends before arrivals, memory that ran out."""
    found: list[Any] = []
    ended = [outcome.job for outcome in report.outcomes]
    everybody = sorted([*ended, *(job for job, _ in report.refused), *report.unfinished])
    if everybody != sorted(job.id for job in world.jobs):
        found.append(f"jobs lost or doubled: {set(everybody) ^ {job.id for job in world.jobs}}")
    if report.unfinished:
        found.append(f"never started: {report.unfinished}")
    wrong = [no for _, no in report.refused if no.reason != "TooManyFailures"]
    found += wrong
    found += [outcome for outcome in report.outcomes if not outcome.arrival <= outcome.started <= outcome.ended]
    if report.out_of_memory:
        found.append(f"{report.out_of_memory} out of memory")
    return [str(each) for each in found]
