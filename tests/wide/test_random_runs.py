"""Planner and simulator in random worlds: failures, wrong predictions, late news, pools that vanish, shared cards."""

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.wide.worlds import SMALL, Watched, World, complaints, world

from hcs.wide.baselines import BASELINES
from hcs.wide.chances import Chances
from hcs.wide.fleets import parse_pools
from hcs.wide.generation import equipped, generate, pair_rates
from hcs.wide.planner import policy
from hcs.wide.sharing import Sharing
from hcs.wide.simulation import Simulation

EVERY = [*sorted(BASELINES), "hcs"]
seeds = st.integers(0, 1 << 32)


def check(there: World) -> None:
    report = there.run(policy("hcs", SMALL))
    assert complaints(there, report) == []
    assert report.broken == 0


@given(seed=seeds)
def test_nothing_is_lost_and_no_reservation_breaks_while_intervals_hold(seed: int) -> None:
    check(world(seed, 12))


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(200))
def test_two_hundred_long_runs_lose_nothing_and_break_no_reservation(seed: int) -> None:
    check(world(seed, 60))


@given(seed=seeds)
def test_equal_worlds_run_alike(seed: int) -> None:
    runs = [world(seed, 6).run(policy("hcs", SMALL)) for _ in range(2)]
    assert runs[0] == runs[1]


@given(seed=seeds)
@example(seed=119)  # a guest's end is seen after its upper value, within the lag
def test_nobody_waits_longer_than_the_bound(seed: int) -> None:
    """Wide jobs, priorities, deadlines, shared cards; D is the longest that a card can be held, by a pair or alone."""
    there = world(seed, 20, outages=False, failures=False, data=False)
    there = msgspec.structs.replace(there, closed=False)
    watched = Watched(policy("hcs", SMALL))
    report = there.run(watched)
    longest = max(run.upper for job in there.jobs for run in job.times.values())
    if there.sharing is not None:
        # Each of the two takes at most so much longer than alone, until the other has ended.
        longest = 2 * longest * 1000 // (1000 - there.sharing.error)
    longest += 2 * there.lag
    for outcome in report.outcomes:
        if outcome.job in watched.first:
            assert outcome.started <= watched.first[outcome.job]
            assert outcome.wait <= watched.patience + longest * (watched.ahead[outcome.job] + 1)
        else:
            assert outcome.wait <= watched.patience


@given(seed=seeds)
def test_news_that_come_later_than_told_break_reservations_and_nothing_else(seed: int) -> None:
    there = world(seed, 8)
    there = msgspec.structs.replace(
        there,
        lag=0,
        chances=msgspec.structs.replace(there.chances, late={job.id: 1_000_000 for job in there.jobs}),
    )
    report = there.run(policy("hcs", SMALL))
    assert complaints(there, report) == []


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize("count", [40, 100, pytest.param(1000, marks=pytest.mark.nightly)])
def test_generated_queues_drain_whatever_the_policy(name: str, count: int) -> None:
    """FIFO shares blindly: its jobs run out of memory and are given up, and that is counted; nothing vanishes."""
    pools = equipped(parse_pools("fast=4,slow=8"))
    queue = generate(count, 5, ("fast", "slow"), gap=100_000, urgent=20)
    rates = pair_rates(queue, ("fast", "slow"))
    jobs = [msgspec.structs.replace(each.job, inputs=()) for each in queue]
    report = Simulation(jobs, pools, chances=Chances(pairs=rates), sharing=Sharing(rates)).run(policy(name, SMALL))
    assert len(report.outcomes) + len(report.refused) == count
    assert report.unfinished == ()
    if name == "fifo":
        assert report.out_of_memory >= len(report.refused) == report.deadlocks > 0
    else:
        assert (report.out_of_memory, report.deadlocks, report.refused) == (0, 0, ())
    assert (report.shared > 0) == (name in ("fifo", "hcs"))
