"""Weeks of Philly's jobs through planner and simulator, with failures and wrong predictions, in minutes."""

import resource

import numpy as np
import pytest
from tests.wide.philly import TRACE, stream
from tests.wide.worlds import Watched

from hcs.wide.chances import Chances
from hcs.wide.fleets import parse_pools
from hcs.wide.planner import Planner
from hcs.wide.simulation import Simulation
from hcs.wide.snapshot import Plan, Snapshot

recorded = pytest.mark.skipif(not TRACE.is_file(), reason=f"no trace at {TRACE}; set HCS_SHARED")
KINDS = ("new", "old", "odd")


def soak(first_day: float, days: float, every: int, fleet: str) -> int:
    """Run a part of the trace; the number of its jobs."""
    arrivals = list(stream(KINDS, first_day=first_day, days=days, every=every))
    jobs = [arrival.job for arrival in arrivals]
    dice = np.random.default_rng(1)
    failing = {job.id: (int(dice.integers(1, 1000)),) for job in jobs if dice.random() < 0.05}
    watched, memory = Watched(Planner().decide), []

    def decide(snapshot: Snapshot) -> Plan:
        memory.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
        return watched(snapshot)

    actual = {arrival.job.id: arrival.actual for arrival in arrivals}
    report = Simulation(jobs, parse_pools(fleet), actual, chances=Chances(failing)).run(decide)
    assert sorted(outcome.job for outcome in report.outcomes) == sorted(job.id for job in jobs)
    assert report.failures == len(failing)
    assert (report.broken, report.out_of_memory) == (0, 0)
    longest = max(run.upper for job in jobs for run in job.times.values())
    for outcome in report.outcomes:
        if outcome.job not in failing:
            allowed = longest * (watched.ahead[outcome.job] + 1) if outcome.job in watched.ahead else 0
            assert outcome.wait <= watched.patience + allowed
    # KiB; a third of the way everything that grows with the fleet is there, the rest may only be what ended.
    assert memory[-1] - memory[len(memory) // 3] < 64 * 1024
    return len(jobs)


@recorded
def test_a_day_of_philly() -> None:
    assert soak(30, 1, 10, "new=24,old=32,odd=16") > 100


@recorded
@pytest.mark.nightly
@pytest.mark.timeout(900)
def test_four_weeks_of_philly() -> None:
    """Only weeks show whether anything piles up: promises, the fair line, memory."""
    assert soak(21, 28, 2, "new=120,old=160,odd=120") > 20_000
