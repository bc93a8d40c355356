"""What is free is counted once: by the cluster's view, and by what we sent since."""

from typing import Any

import msgspec
import pytest

from hcs.cpn.deciding import Situation, ask
from hcs.cpn.ledger import BLACKOUT, closed_pools, host_memory_left, pools_of
from hcs.cpn.views import ClusterView, PoolView, Reading
from hcs.wide.entries import Entry, Placement, Submission

NOW = 1_000_000


def view(usable: int = 4, taken: int = 0, **fields: Any) -> ClusterView:
    return ClusterView("east", fields.pop("reachable", True), (PoolView("A100", usable, taken),), seen=NOW, **fields)


def sent(id: str, cards: int = 1, host: str | None = None, **fields: Any) -> Entry:
    placement = Placement("east", "A100", fields.pop("decided", NOW), NOW + 10, NOW + 20, f"cpn-{id}-0", host=host)
    submission = Submission(id, cards=cards, **fields)
    return Entry(id, {}, submission, "Placing", 2, NOW, NOW, 1, placement=placement)


def free_now(seen: ClusterView, *placed: Entry) -> int:
    found = ask(Situation(NOW, (seen,), (), placed, {})).snapshot
    [profile] = found.profiles().values()
    return profile.free[0]


def test_a_job_sent_a_moment_ago_is_counted_although_no_view_shows_it() -> None:
    assert free_now(view()) == 4
    assert free_now(view(), sent("a"), sent("b", 2)) == 1


def test_cards_of_others_are_not_ours_to_give() -> None:
    assert free_now(view(taken=2), sent("a")) == 1
    assert free_now(view(taken=9)) == 0


def test_two_on_one_card_hold_one_card() -> None:
    assert free_now(view(), sent("a"), sent("b", host="a")) == 3
    assert free_now(view(), sent("b", host="a")) == 3, "the host has ended, its guest has the card alone"


def test_cards_that_fail_under_our_jobs_leave_nothing_free_and_nothing_negative() -> None:
    assert free_now(view(usable=1), sent("a", 3)) == 0


def test_nothing_starts_on_a_cluster_out_of_reach_or_too_busy() -> None:
    for seen, threshold, reason in (
        (view(reachable=False), 1.0, "ClusterUnreachable"),
        (view(cpu_busy=Reading(0.95, 3000)), 0.9, "CpuBusy"),
    ):
        blocked, why = closed_pools([seen], pools_of([seen], [], NOW), [], NOW, threshold)
        assert [(live.job.cards, live.until) for live in blocked] == [(4, NOW + BLACKOUT)]
        assert why["east"][0] == reason
    assert closed_pools([view(cpu_busy=Reading(0.5))], pools_of([view()], [], NOW), [], NOW, 0.9) == ([], {})


@pytest.mark.parametrize(
    ("seen", "hosts"),
    [
        pytest.param({}, ["m"], id="open"),
        pytest.param({"reachable": False}, [""], id="out of reach"),
        pytest.param({"cpu_busy": Reading(0.95)}, [""], id="too busy"),
    ],
)
def test_nobody_is_a_guest_where_nothing_may_start(seen: dict[str, Any], hosts: list[str]) -> None:
    host = sent("a", model="m")
    host = msgspec.structs.replace(host, placement=msgspec.structs.replace(host.placement, shared=True))
    found = ask(Situation(NOW, (view(usable=1, **seen),), (), (host,), {}, threshold=0.9)).snapshot
    assert [live.job.profile for live in found.running if live.job.id == "a"] == hosts


def test_why_a_cluster_is_out_of_reach_is_said_once() -> None:
    seen = view(reachable=False, message="cluster east at https://10.0.0.1 cannot be used: no answer in time")
    _, why = closed_pools([seen], pools_of([seen], [], NOW), [], NOW, 1.0)
    assert why["east"][1] == "cluster east is out of reach: at https://10.0.0.1 cannot be used: no answer in time"


def test_host_memory_is_what_was_measured_less_what_was_sent_since() -> None:
    seen = view(host_free=Reading(100, 5000))
    old, new = sent("old", host_memory=30, decided=NOW - 9000), sent("new", host_memory=10, pods=2, cards=2)
    assert host_memory_left(seen, [old, new], NOW) == 80
    assert host_memory_left(view(), [new], NOW) is None


LONG_AGO = NOW - 500_000


@pytest.mark.parametrize(
    ("cpu", "ours", "busy"),
    [
        pytest.param({"cpu": None, "cpu_busy": Reading(0.9)}, {}, 0, id="what a node offers is not known"),
        pytest.param({"cpu_asked": 1500}, {}, 1500, id="what pods of others ask for"),
        pytest.param({"cpu_busy": Reading(0.5)}, {}, 4000, id="measured and nothing of it asked for by anybody"),
        pytest.param({"cpu_asked": 4500, "cpu_busy": Reading(0.5)}, {}, 4500, id="they ask for more than they take"),
        pytest.param({"cpu_busy": Reading(0.5)}, {"decided": LONG_AGO, "cpu": 8000}, 2000, id="ours was measured too"),
        pytest.param({"cpu_busy": Reading(0.5)}, {"cpu": 8000}, 4000, id="ours is not in the figure yet"),
        pytest.param({"cpu_busy": Reading(0.5, 90_000)}, {"decided": NOW - 10**5, "cpu": 8000}, 4000, id="old figure"),
        pytest.param({}, {"decided": LONG_AGO, "cpu": 8000}, 0, id="ours counts as host or guest and not here"),
        pytest.param({}, {"cpu": 9000}, 250, id="ours beyond the share of its card"),
        pytest.param({}, {"cpu": 9000, "pods": 2, "cards": 2}, 500, id="of a job with two pods on two cards"),
    ],
)
def test_the_cpu_that_others_keep_busy_beside_a_card(cpu: dict[str, Any], ours: dict[str, Any], busy: int) -> None:
    seen = ClusterView("east", True, (PoolView("A100", 4, **{"cpu": 8000, **cpu}),), seen=NOW)
    [pool] = pools_of([seen], [sent("a", **ours)], NOW)
    assert (pool.cpu, pool.busy) == (cpu.get("cpu", 8000), busy)


def test_two_on_one_card_have_one_share_of_the_cpu_together() -> None:
    seen = ClusterView("east", True, (PoolView("A100", 4, cpu=8000),), seen=NOW)
    host, guest = sent("a", cpu=5000), sent("b", cpu=5000, host="a")
    assert [pool.busy for pool in pools_of([seen], [host, guest], NOW)] == [500]
    assert [pool.busy for pool in pools_of([seen], [guest], NOW)] == [0], "the host has ended"
