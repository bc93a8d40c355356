"""Two jobs on one card: who is admitted, what each then expects, and that a promise never pays for it."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.wide.worlds import SMALL

from hcs.wide.chances import Chances
from hcs.wide.fleets import Pool, parse_pools
from hcs.wide.generation import equipped, generate, pair_rates
from hcs.wide.jobs import Job, RunTime
from hcs.wide.planner import Planner, policy
from hcs.wide.sharing import Rates, Sharing, joined, parted, symmetric, together
from hcs.wide.simulation import Simulation
from hcs.wide.snapshot import Place, Plan, Running, Snapshot

POOL = Pool("c", "fast", 1, memory=16, cpu=8000)
WELL = Rates(900, 800)
MINUTE = 60_000


def job(name: str, time: int = 10 * MINUTE, **more: object) -> Job:
    return msgspec.structs.replace(
        Job(name, 1, {"fast": RunTime.exactly(time)}, memory=8, profile=name[0], cpu=3000), **more
    )


def table(pair: Rates = WELL, **more: object) -> Sharing:
    return msgspec.structs.replace(Sharing({("fast", "g", "h"): pair}, error=0), **more)


def decided(guest: Job, host: Job, sharing: Sharing, pool: Pool = POOL, **more: object) -> Plan:
    """What the planner does one minute into the host's run."""
    running = Running(host, pool.name, 0, host.times["fast"].upper)
    snapshot = Snapshot(MINUTE, (pool,), (guest,), (running,), sharing=sharing, patience=1 << 50)
    return Planner(SMALL).decide(msgspec.structs.replace(snapshot, **more))


@pytest.mark.parametrize(
    ("guest", "host", "sharing", "pool"),
    [
        pytest.param({"memory": 9}, {}, {}, {}, id="peaks do not fit the card together"),
        pytest.param({"memory": None}, {}, {}, {}, id="a peak is not known and nobody vouches"),
        pytest.param({}, {"memory": None}, {}, {}, id="the host's is not known"),
        pytest.param({"cpu": 4500}, {}, {}, {}, id="the CPU would be busier than the threshold"),
        pytest.param({}, {}, {"cpu": 700}, {}, id="the threshold is lower"),
        pytest.param({}, {}, {}, {"busy": 2000}, id="others keep the CPU busy"),
        pytest.param({"profile": "other"}, {}, {}, {}, id="nobody knows the pair"),
        pytest.param({}, {}, {"rates": {("fast", "g", "h"): Rates(0, 900)}}, {}, id="the pair does not run"),
        pytest.param({}, {"cards": 2}, {}, {"cards": 2}, id="the host has several cards"),
    ],
)
def test_a_guest_is_not_admitted(
    guest: dict[str, object], host: dict[str, object], sharing: dict[str, object], pool: dict[str, object]
) -> None:
    there = msgspec.structs.replace(POOL, **pool)
    assert table().beside(job("g"), job("h"), POOL) == WELL
    assert table(**sharing).beside(job("g", **guest), job("h", **host), there) is None


def test_where_peaks_are_not_known_a_table_may_vouch() -> None:
    assert table(vouched=True).beside(job("g", memory=None), job("h"), POOL) == WELL
    assert table(vouched=True).beside(job("g", memory=9), job("h"), POOL) is None


def test_a_guest_joins_where_both_gain_and_the_slowed_end_is_foreseen() -> None:
    plan = decided(job("g"), job("h"), table())
    assert [(place.job, place.host, place.start) for place in plan.starts] == [("g", "h", MINUTE)]
    # The host's 9 minutes take 11.25 at 0.8, the guest 11.1 at 0.9.
    assert plan.starts[0].end == MINUTE + 666_667


@pytest.mark.parametrize(
    ("guest", "rates"),
    [
        pytest.param(job("g"), Rates(500, 500), id="both together do no more than one"),
        pytest.param(job("g", 100 * MINUTE), WELL, id="the guest would keep the card alone for long"),
        pytest.param(job("g"), Rates(999, 60), id="the host loses more than the guest gains"),
    ],
)
def test_a_guest_waits_where_sharing_does_not_pay(guest: Job, rates: Rates) -> None:
    assert decided(guest, job("h"), table(rates)).starts == ()


def test_a_pair_that_does_less_than_one_job_is_not_made_however_far_the_guest_s_turn() -> None:
    before = job("s", 594_000)
    for rates, started in ((Rates(500, 500), []), (WELL, ["g"])):
        plan = decided(job("g"), job("h"), table(rates), waiting=(before, job("g")))
        assert [place.job for place in plan.starts] == started


def test_a_promise_is_not_delayed_for_a_guest() -> None:
    promised = msgspec.structs.replace(job("p"), memory=16)
    promises = (Place("p", POOL.name, 10 * MINUTE, 20 * MINUTE),)
    plan = decided(job("g"), job("h"), table(), waiting=(job("g"), promised), promises=promises)
    assert plan.starts == ()
    assert plan.promises == promises


def test_with_an_unsure_rate_the_upper_end_is_later() -> None:
    sure, unsure = (decided(job("g"), job("h"), table(error=error)).starts[0].end for error in (0, 200))
    assert unsure > sure


@given(
    works=st.tuples(st.integers(1, 10**7), st.integers(1, 10**7)),
    rates=st.tuples(st.integers(1, 1000), st.integers(1, 1000)),
)
def test_work_done_together_is_neither_lost_nor_made_up(works: tuple[int, int], rates: tuple[int, int]) -> None:
    (first, second), (one, two) = works, rates
    ends = together(first, one, second, two)
    turn = min(ends)
    for work, rate, end in zip(works, rates, ends, strict=True):
        done = turn * rate / 1000 + (end - turn)
        assert work <= done + 1
        assert done <= work + 2


@given(
    left=st.integers(1, 10**6), own=st.integers(1, 10**6), rates=st.tuples(st.integers(1, 1000), st.integers(1, 1000))
)
def test_who_stays_ends_when_it_would_have_or_sooner(left: int, own: int, rates: tuple[int, int]) -> None:
    """As believed where its partner ends as believed; sooner by what sharing no longer costs where it ends at once."""
    host = Running(job("h", left), POOL.name, 0, left)
    guest, beside = joined(host, job("g", own), POOL, Rates(*rates), 0)
    first, stays = sorted((guest, beside), key=lambda running: running.until)
    assert parted(stays, first, first.until).until == stays.until
    alone = {"h": left, "g": own}[stays.job.id]
    assert abs(parted(stays, first, 0).until - alone) <= 2
    assert (parted(stays, first, 0).rate, parted(stays, first, 0).host) == (1000, None)


def test_an_end_that_is_seen_no_later_than_the_lag_moves_nobody_s_end() -> None:
    """The partner kept its interval, so its card was free by then whenever that was seen; past the lag it did not."""
    host = Running(job("h"), POOL.name, 0, 10 * MINUTE)
    guest, beside = joined(host, job("g", MINUTE), POOL, Rates(500, 500), 0)
    assert (guest.until, beside.until) == (2 * MINUTE, 11 * MINUTE)
    for seen in (guest.until, guest.until + 1, guest.until + MINUTE):
        assert parted(beside, guest, seen, lag=MINUTE).until == beside.until
    assert parted(beside, guest, guest.until - 2, lag=MINUTE).until == beside.until - 1
    assert parted(beside, guest, 4 * MINUTE, lag=MINUTE).until == beside.until + MINUTE


def test_the_simulator_keeps_belief_and_truth_apart() -> None:
    """Blind sharing meets what really does not fit; ours never tries, because it was not told that it fits."""
    truth = symmetric({("fast", "g", "h"): Rates(0, 0), ("fast", "g", "g"): Rates(900, 900), ("fast", "h", "h"): WELL})
    belief = Sharing({key: rates for key, rates in truth.items() if rates.guest}, vouched=True)
    jobs = [job(f"{'gh'[at % 2]}{at}", arrival=at, memory=None) for at in range(12)]
    pools = (Pool("c", "fast", 2),)
    runs = {
        name: Simulation(jobs, pools, chances=Chances(pairs=truth), sharing=belief).run(policy(name, SMALL))
        for name in ("fifo", "hcs", "sjf")
    }
    assert runs["fifo"].out_of_memory > 0
    assert (runs["hcs"].out_of_memory, len(runs["hcs"].outcomes)) == (0, 12)
    assert runs["hcs"].shared > 0
    ends = {name: max(outcome.ended for outcome in run.outcomes) for name, run in runs.items()}
    assert ends["hcs"] < ends["sjf"]


def test_in_a_closed_queue_guests_do_not_move_the_last_end() -> None:
    pools = equipped(parse_pools("fast=4,slow=8"))
    queue = generate(50, 1, ("fast", "slow"))
    rates = pair_rates(queue, ("fast", "slow"))
    jobs = [msgspec.structs.replace(each.job, inputs=()) for each in queue]
    alone, shared = (
        Simulation(jobs, pools, chances=Chances(pairs=rates), sharing=sharing, closed=True).run(policy("hcs", SMALL))
        for sharing in (None, Sharing(rates))
    )
    assert shared.shared > 0
    assert max(each.ended for each in shared.outcomes) <= max(each.ended for each in alone.outcomes)


def test_the_slowed_host_is_part_of_the_plan() -> None:
    # 533 333 ms of its 540 000 beside the guest, which ends after 666 667, and the rest alone.
    (host,) = decided(job("g"), job("h"), table()).slowed
    assert (host.job.id, host.rate, host.until) == ("h", 800, MINUTE + 673_334)


def test_a_busy_cpu_slows_both() -> None:
    rates = {("fast", "h", "h"): Rates(1000, 1000)}
    jobs = [job("h0"), job("h1", arrival=MINUTE)]
    ends = []
    for busy in (3000, 8000):
        chances = Chances(pairs=rates, cpu={"h0": busy, "h1": busy})
        report = Simulation(jobs, (POOL,), chances=chances, sharing=Sharing(rates)).run(policy("hcs", SMALL))
        assert report.shared == 1
        ends.append(report.outcomes[-1].ended)
    assert ends[1] > 1.5 * ends[0]
