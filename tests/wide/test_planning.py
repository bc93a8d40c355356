"""The planner and the baselines on queues in virtual time."""

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hcs.model.refusals import RefusedError
from hcs.wide.annealing import Budget
from hcs.wide.baselines import BASELINES, shortest
from hcs.wide.bound import lower_bound
from hcs.wide.fleets import Pool, parse_pools
from hcs.wide.generation import GIB, generate
from hcs.wide.jobs import Blob, Job, RunTime
from hcs.wide.network import Link, Network
from hcs.wide.planner import Planner, Settings, policy
from hcs.wide.profile import Profile
from hcs.wide.simulation import Chances, Simulation
from hcs.wide.snapshot import Place, Running, Snapshot

HOUR = 3_600_000
SMALL = Settings(budget=Budget(restarts=2, moves=300, tries=64, effort=0.02))
POOLS = parse_pools("fast=4,slow=8")
EVERY = [*sorted(BASELINES), "hcs"]


def job(name: str, cards: int = 1, arrival: int = 0, **times: int) -> Job:
    return Job(name, cards, {kind: RunTime.exactly(time) for kind, time in times.items()}, arrival)


@st.composite
def queues(draw: st.DrawFn, late: int = 200) -> list[Job]:
    made = []
    for number in range(draw(st.integers(1, 18))):
        kinds = draw(st.sampled_from([("fast", "slow"), ("fast",), ("slow",)]))
        times = {kind: draw(st.integers(1, 100)) for kind in kinds}
        made.append(job(f"j{number}", draw(st.sampled_from([1, 1, 2, 3, 4])), draw(st.integers(0, late)), **times))
    return made


def most_used(report: Any, pool: str, jobs: list[Job]) -> int:
    """The most cards of a pool in use at once, read off the outcomes alone."""
    cards = {each.id: each.cards for each in jobs}
    steps = [
        step
        for outcome in report.outcomes
        if outcome.pool == pool
        for step in ((outcome.started, 1, cards[outcome.job]), (outcome.ended, 0, -cards[outcome.job]))
    ]
    used = most = 0
    for _, _, change in sorted(steps):
        used += change
        most = max(most, used)
    return most


@pytest.mark.parametrize("name", EVERY)
@given(jobs=queues(), closed=st.booleans())
def test_every_job_ends_once_no_card_is_taken_twice_and_nobody_beats_the_bound(
    name: str, jobs: list[Job], closed: bool
) -> None:
    report = Simulation(jobs, POOLS, closed=closed).run(policy(name, SMALL))
    assert sorted(outcome.job for outcome in report.outcomes) == sorted(each.id for each in jobs)
    assert all(outcome.started >= outcome.arrival for outcome in report.outcomes)
    for pool in POOLS:
        assert most_used(report, pool.name, jobs) <= pool.cards
    first = min(each.arrival for each in jobs)
    assert max(outcome.ended for outcome in report.outcomes) - first >= lower_bound(jobs, POOLS, 3)
    assert (report.out_of_memory, report.deadlocks, report.unfinished) == (0, 0, ())


@given(jobs=queues(), patience=st.integers(0, 150))
def test_promises_hold_while_times_are_exact_and_nobody_waits_longer_than_the_bound(
    jobs: list[Job], patience: int
) -> None:
    decide, first, ahead = Planner(SMALL).decide, {}, {}

    def watching(snapshot: Snapshot) -> Any:
        plan = decide(snapshot)
        for at, place in enumerate(plan.promises):
            if place.job not in first:
                first[place.job] = place.start
                ahead[place.job] = at
            assert place.start <= first[place.job]
        return plan

    report = Simulation(jobs, POOLS, patience=patience).run(watching)
    assert report.broken == 0
    longest = max(run.upper for each in jobs for run in each.times.values())
    for outcome in report.outcomes:
        aged = sum(other.arrival <= outcome.arrival for other in report.outcomes)
        assert outcome.wait <= patience + longest * (ahead.get(outcome.job, aged - 1) + 1)
        if outcome.job in first:
            assert outcome.started <= first[outcome.job]


def test_a_wide_job_among_a_stream_of_narrow_ones_starts_within_the_bound() -> None:
    """Shortest first alone would never empty four cards at once."""
    stream = [job(f"s{number:03d}", 1, number * 2, fast=10) for number in range(400)]
    wide = job("wide", 4, 5, fast=50)
    pools = parse_pools("fast=4")
    waits = {}
    for name in ("sjf", "hcs"):
        report = Simulation([*stream, wide], pools, patience=100).run(policy(name, SMALL))
        waits[name] = next(outcome.wait for outcome in report.outcomes if outcome.job == "wide")
    assert waits["hcs"] <= 100 + 50 * 1
    assert waits["sjf"] > 500


def promising(*promises: Place, waiting: tuple[Job, ...], pools: str) -> dict[str, Place]:
    """The promises a decision makes at the moment 20 where these stood, fast cards being taken until 30."""
    busy = Running(job("r", 4, fast=30), "fast/fast", 0, 30)
    made = Planner(SMALL).decide(
        Snapshot(now=20, pools=parse_pools(pools), waiting=waiting, running=(busy,), promises=promises)
    )
    return {place.job: place for place in made.promises}


def test_a_job_that_came_earlier_but_was_promised_later_stays_behind() -> None:
    waiting = (job("failed-once", 4, 0, fast=10), job("promised", 4, 5, fast=10))
    made = promising(Place("promised", "fast/fast", 30, 40), waiting=waiting, pools="fast=4")
    assert made["promised"].start == 30
    assert made["failed-once"].start == 40


def test_a_promise_does_not_move_back_for_an_earlier_end() -> None:
    waiting = (job("j", 1, fast=5, slow=50),)
    made = promising(Place("j", "slow/slow", 25, 75), waiting=waiting, pools="fast=4,slow=1")
    assert made.get("j") is None or made["j"].start <= 25


@given(jobs=queues(), closed=st.booleans())
def test_equal_snapshots_give_equal_plans(jobs: list[Job], closed: bool) -> None:
    snapshot = Snapshot(now=300, pools=POOLS, waiting=tuple(jobs), closed=closed, patience=150)
    assert Planner(SMALL).decide(snapshot) == Planner(SMALL).decide(snapshot)


def test_a_long_closed_queue_is_improved_to_the_same_plan_again() -> None:
    jobs = tuple(each.job for each in generate(30, 1, ("fast", "slow")))
    snapshot = Snapshot(now=0, pools=POOLS, waiting=jobs, closed=True)
    first = Planner(SMALL).decide(snapshot)
    assert all(Planner(SMALL).decide(snapshot) == first for _ in range(2))


def test_it_waits_for_a_better_kind_when_that_ends_sooner() -> None:
    busy = Running(job("r", 4, fast=10), "fast/fast", 0, 10)
    waiting = (job("j", 1, fast=5, slow=100),)
    plan = Planner(SMALL).decide(Snapshot(now=0, pools=POOLS, waiting=waiting, running=(busy,), patience=HOUR))
    assert plan.starts == ()
    assert plan.expected == (Place("j", "fast/fast", 10, 15),)


def test_a_closed_queue_is_packed_better_than_any_list() -> None:
    jobs = [each.job for each in generate(60, 3, ("fast", "slow"))]
    ends = {
        name: max(outcome.ended for outcome in Simulation(jobs, POOLS, closed=True).run(policy(name, SMALL)).outcomes)
        for name in ("easy", "sjf", "ljf", "hcs")
    }
    assert ends["hcs"] <= min(ends.values())
    assert ends["hcs"] <= 1.1 * lower_bound(jobs, POOLS)


def test_jobs_that_can_never_run_are_refused_with_a_reason() -> None:
    waiting = (job("wide", 9, slow=5), job("alien", 1, other=5), job("fine", 1, fast=5))
    plan = Planner(SMALL).decide(Snapshot(now=0, pools=POOLS, waiting=waiting))
    assert {name: no.reason for name, no in plan.refused} == {"wide": "TooManyCards", "alien": "NoRunTime"}
    assert [place.job for place in plan.starts] == ["fine"]


def test_an_overrun_moves_the_promise_and_the_job_still_runs() -> None:
    jobs = [job("long", 4, fast=10), job("next", 4, 1, fast=10)]
    report = Simulation(jobs, parse_pools("fast=4"), {"long": {"fast": 60_000}, "next": {"fast": 10}}, patience=0).run(
        policy("hcs", SMALL)
    )
    assert len(report.outcomes) == 2
    assert report.broken >= 1


def test_a_failed_job_runs_again_behind_others_and_not_for_ever() -> None:
    jobs = [job("bad", 4, fast=10), job("worse", 4, fast=10), job("good", 4, fast=10)]
    chances = Chances({"bad": (500,), "worse": (100, 100, 100)})
    report = Simulation(jobs, parse_pools("fast=4"), chances=chances).run(policy("fifo-exclusive"))
    assert [outcome.job for outcome in report.outcomes] == ["good", "bad"]
    assert [(name, no.reason) for name, no in report.refused] == [("worse", "TooManyFailures")]
    assert report.failures == 4


def test_blind_sharing_runs_out_of_memory_and_is_counted() -> None:
    pools = (Pool("c", "fast", 1, memory=10 * GIB),)
    jobs = [Job(f"j{at}", 1, {"fast": RunTime.exactly(HOUR)}, at, memory=6 * GIB) for at in range(3)]
    blind = Simulation(jobs, pools).run(policy("fifo"))
    assert blind.out_of_memory > 0
    assert blind.deadlocks > 0
    careful = Simulation(jobs, pools).run(policy("fifo-exclusive"))
    assert (careful.out_of_memory, len(careful.outcomes)) == (0, 3)


def test_bytes_move_once_and_while_the_job_waits() -> None:
    links = [Link("store", "c", 1000)]
    layer = Blob("layer", 20_000)
    pools = (Pool("c", "fast", 1),)
    time = {"fast": RunTime.exactly(30_000)}
    jobs = [Job("a", 1, time, inputs=(layer,)), Job("b", 1, time, 1, inputs=(layer, Blob("data", 5000)))]
    network = Network(links, [("store", "layer"), ("store", "data")])
    report = Simulation(jobs, pools, network=network).run(policy("hcs", SMALL))
    assert report.bytes_moved == 25_000
    ends = {outcome.job: outcome.ended for outcome in report.outcomes}
    assert ends == {"a": 50_000, "b": 80_000}


def test_the_quickest_way_is_taken_and_links_are_shared() -> None:
    links = [Link("a", "c", 10), Link("a", "b", 1000), Link("b", "c", 1000, 5)]
    network = Network(links, [("a", "x"), ("a", "y")])
    assert network.ready("c", [Blob("x", 1000)], 0) == 2005
    assert network.fetch("c", [Blob("x", 1000)], 0) is not None
    assert network.ready("c", [Blob("y", 1000)], 0) == 3005
    assert network.ready("c", [Blob("z", 1)], 0) is None


@given(st.lists(st.tuples(st.integers(1, 4), st.integers(1, 30), st.integers(0, 50)), max_size=20))
def test_the_earliest_place_fits_and_there_is_none_before(asks: list[tuple[int, int, int]]) -> None:
    profile = Profile(0, 4)
    for cards, duration, ready in asks:
        start = profile.earliest(cards, duration, ready)
        assert profile.fits(cards, start, start + duration)
        assert not any(profile.fits(cards, moment, moment + duration) for moment in range(ready, start))
        profile.book(cards, start, start + duration)
    assert all(before < after for before, after in pairwise(profile.times))


def test_a_card_is_never_booked_twice() -> None:
    profile = Profile(0, 1)
    profile.book(1, 0, 10)
    with pytest.raises(AssertionError, match="booked twice"):
        profile.book(1, 5, 6)


@pytest.mark.parametrize("text", ["", "v100", "v100=", "v100=-1", "v100=0", "a=1,a=2", "/x=3", "a=x"])
def test_a_fleet_no_one_could_mean_is_refused(text: str) -> None:
    with pytest.raises(RefusedError, match="BadFleet"):
        parse_pools(text)


def test_a_generated_queue_is_the_same_for_a_seed_and_drains() -> None:
    made = generate(40, 7, ("fast", "slow"), gap=60_000)
    assert made == generate(40, 7, ("fast", "slow"), gap=60_000)
    assert made != generate(40, 8, ("fast", "slow"), gap=60_000)
    jobs = [each.job for each in made]
    digests = {blob.digest for each in jobs for blob in each.inputs}
    links = [Link("store", cluster, 1 << 30) for cluster in ("fast", "slow")]
    network = Network(links, [("store", digest) for digest in digests])
    report = Simulation(jobs, POOLS, network=network).run(policy("hcs", SMALL))
    assert len(report.outcomes) == 40
    assert report.out_of_memory == 0


def test_shortest_first_and_a_full_place_for_each_of_a_long_queue() -> None:
    jobs = tuple(job(f"j{at}", 1 + at % 4, fast=10 + at % 37, slow=5 + at % 91) for at in range(1000))
    plan = Planner(Settings(window=1000)).decide(Snapshot(now=0, pools=POOLS, waiting=jobs, patience=HOUR))
    assert len(plan.expected) == 1000
    assert shortest(jobs[0]) == 5
