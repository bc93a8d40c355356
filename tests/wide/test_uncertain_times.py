"""Planning with times that turn out otherwise: what is left of a run, times that must agree, room at a lane's end."""

from itertools import pairwise
from math import exp

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.wide.worlds import SMALL

from hcs.wide.consistency import consistent
from hcs.wide.fleets import Pool, parse_pools
from hcs.wide.generation import generate
from hcs.wide.jobs import UPPER_QUANTILE, Job, RunTime
from hcs.wide.lanes import Lanes
from hcs.wide.listing import Board
from hcs.wide.planner import Planner, policy
from hcs.wide.simulation import Simulation
from hcs.wide.snapshot import Running, Snapshot

POOLS = parse_pools("fast=4,slow=8")


def guessed(truth: int, sigma: float, draw: float) -> RunTime:
    guess = max(1, round(truth * exp(sigma * draw)))
    return RunTime(guess, max(guess, round(guess * exp(UPPER_QUANTILE * sigma))))


def test_what_is_left_shrinks_to_nothing_when_times_are_exact() -> None:
    run = RunTime.exactly(1000)
    assert [run.left(age) for age in (-500, 0, 400, 999, 5000)] == [1500, 1000, 600, 1, 1]


@given(
    expected=st.integers(10, 10**9), part=st.floats(1.01, 5), ages=st.lists(st.floats(0, 40), min_size=2, max_size=9)
)
def test_the_older_a_job_the_later_its_end_is_expected(expected: int, part: float, ages: list[float]) -> None:
    run = RunTime(expected, round(expected * part) + 1)
    ends = [age + run.left(age) for age in sorted(round(expected * age) for age in ages)]
    assert all(left >= 1 for left in (run.left(round(expected * age)) for age in ages))
    assert ends[0] >= expected
    assert all(later >= earlier - 2 for earlier, later in pairwise(ends))


def test_jobs_of_one_profile_agree_on_how_much_faster_a_kind_is() -> None:
    dice, sigma = np.random.default_rng(4), 0.3
    truths = [{"fast": length, "slow": 5 * length} for length in (10**6, 2 * 10**6, 3 * 10**6, 4 * 10**6)]
    told = [
        Job(
            f"j{at}",
            1,
            {kind: guessed(time, sigma, dice.standard_normal()) for kind, time in truth.items()},
            profile="m",
        )
        for at, truth in enumerate(truths)
    ]
    agreed = consistent(told)

    def error(jobs: list[Job]) -> float:
        logs = [np.log(job.times["slow"].expected / job.times["fast"].expected / 5) for job in jobs]
        return float(np.mean(np.abs(logs)))

    assert error([agreed[job.id] for job in told]) < 0.6 * error(told)
    for job in told:
        for kind, run in agreed[job.id].times.items():
            assert run.upper / run.expected < job.times[kind].upper / job.times[kind].expected


@pytest.mark.parametrize(
    "jobs",
    [
        pytest.param([Job("a", 1, {"fast": RunTime(10, 20), "slow": RunTime(99, 200)}, profile="m")], id="alone"),
        pytest.param(
            [
                Job(name, 1, {"fast": RunTime(10, 20), "slow": RunTime(at * 30, at * 70)})
                for at, name in enumerate("ab", 1)
            ],
            id="without a profile",
        ),
        pytest.param(
            [
                Job(name, at, {"fast": RunTime(10, 20), "slow": RunTime(at * 30, at * 70)}, profile="m")
                for at, name in enumerate("ab", 1)
            ],
            id="of other widths",
        ),
        pytest.param(
            [
                Job(name, 1, {"fast": RunTime(at * 10, at * 20), "slow": RunTime(at * 30, at * 70)}, profile="m")
                for at, name in enumerate("ab", 1)
            ],
            id="that agree already",
        ),
    ],
)
def test_nothing_changes_for_jobs(jobs: list[Job]) -> None:
    assert list(consistent(jobs).values()) == jobs


def test_a_lane_leaves_room_for_the_error_of_what_ends_last() -> None:
    pool = Pool("c", "fast", 2)
    jobs = [Job(name, 1, {"fast": run}) for name, run in (("long", RunTime(100, 150)), ("short", RunTime(40, 60)))]
    board = Board(Snapshot(0, (pool,), tuple(jobs)), upper=False)
    assert [Lanes(board, jobs, caution).end(0, [0, 1]) for caution in (0, 500, 1000)] == [100, 125, 150]
    assert Lanes(board, jobs, 1000).options(0, 149) == []
    assert Lanes(board, jobs, 1000).options(0, 150) == [0]


def test_a_job_follows_when_the_one_before_ends_early() -> None:
    """Nothing is promised in a closed queue, so nothing waits for an upper end."""
    waiting = tuple(Job(name, 1, {"fast": RunTime(100, 200)}) for name in "ab")
    running = (Running(Job("r", 1, {"fast": RunTime(100, 200)}), "c/fast", 0, 200),)
    plan = Planner(SMALL).decide(Snapshot(50, (Pool("c", "fast", 2),), waiting, running, closed=True))
    assert len(plan.starts) == 1
    other = next(place for place in plan.expected if place.start > 50)
    assert other.start < 150


@pytest.mark.parametrize("late", "abcd")
def test_what_has_not_started_moves_when_a_job_ends_later_than_believed(late: str) -> None:
    """Four jobs believed alike on two cards: the rest follows the true ends, not the plan that was made first."""
    jobs = [Job(name, 1, {kind: RunTime(100, 150) for kind in ("one", "two")}) for name in "abcd"]
    actual = {job.id: dict.fromkeys(job.times, 400 if job.id == late else 100) for job in jobs}
    report = Simulation(jobs, parse_pools("one=1,two=1"), actual, closed=True).run(policy("hcs", SMALL))
    begun, end = min((one.started, one.ended) for one in report.outcomes if one.job == late)
    assert [one.ended for one in report.outcomes if one.job != late and one.ended > 300] == []
    assert end == begun + 400 == max(one.ended for one in report.outcomes)


@pytest.mark.parametrize("seed", [1, 2])
def test_with_wrong_times_a_closed_queue_still_beats_every_list(seed: int) -> None:
    dice, sigma = np.random.default_rng(seed), 0.1
    queue = [each.job for each in generate(60, seed, ("fast", "slow"))]
    actual = {job.id: {kind: run.expected for kind, run in job.times.items()} for job in queue}
    told = [
        Job(
            job.id,
            job.cards,
            {kind: guessed(time, sigma, dice.standard_normal()) for kind, time in actual[job.id].items()},
            profile=job.profile,
        )
        for job in queue
    ]
    ends = {
        name: max(each.ended for each in Simulation(told, POOLS, actual, closed=True).run(policy(name, SMALL)).outcomes)
        for name in ("easy", "sjf", "ljf", "hcs")
    }
    assert ends["hcs"] <= min(ends.values())
