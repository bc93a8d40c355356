"""Weights and capacities follow the load, within what was given."""

from hypothesis import given
from hypothesis import strategies as st

from hcs.rtos.hosts import Host
from hcs.rtos.rebalancing import Load, commands_of, rebalance

loads = st.lists(
    st.builds(
        Load,
        name=st.uuids().map(str),
        weight=st.integers(1, 65535),
        limit=st.integers(0, 800),
        present_weight=st.integers(1, 65535),
        present_capacity=st.integers(0, 800),
        used=st.integers(0, 900),
        vcpus=st.integers(1, 8),
    ),
    max_size=6,
)


@given(loads, st.integers(0, 8))
def test_nobody_gets_more_than_its_container_was_given(given_loads: list[Load], pcpus: int) -> None:
    for load, one in zip(given_loads, rebalance(given_loads, Host(pcpus=pcpus)), strict=True):
        sent = dict(one.commands)
        assert 1 <= int(sent.get("cpuweight", 1)) <= 65535
        if load.limit and "cpucapacity" in sent:
            assert 0 < int(sent["cpucapacity"]) <= load.limit
        if "cpuweight" in sent:
            assert load.weight // 2 <= int(sent["cpuweight"]) <= 2 * load.weight


def test_without_pressure_everything_returns_to_what_was_given() -> None:
    held = Load("a", weight=256, limit=200, present_weight=300, present_capacity=50, used=10, vcpus=2)
    (one,) = rebalance([held], Host(pcpus=4))
    assert commands_of([one]) == ["a: set cpucapacity 200", "a: set cpuweight 256"]
    assert rebalance([Load("a", 256, 200, 256, 200, 10, 2)], Host(pcpus=4))[0].commands == ()


def test_under_pressure_the_idle_guest_is_held_and_the_busy_one_weighs_more() -> None:
    idle = Load("idle", weight=256, limit=200, present_weight=256, present_capacity=200, used=5, vcpus=2)
    busy = Load("busy", weight=256, limit=200, present_weight=256, present_capacity=200, used=195, vcpus=2)
    held, free = rebalance([idle, busy], Host(pcpus=2))
    assert (held.capacity, free.capacity) == (20, 200)
    assert held.weight < 256 < free.weight
    assert dict(free.commands).keys() == {"cpuweight"}


def test_a_guest_that_runs_against_its_bound_gets_its_limit_back() -> None:
    other = Load("other", weight=256, limit=200, present_weight=256, present_capacity=200, used=190, vcpus=2)
    held = Load("held", weight=256, limit=200, present_weight=256, present_capacity=20, used=19, vcpus=2)
    assert rebalance([other, held], Host(pcpus=2))[1].capacity == 200


def test_a_small_difference_is_not_worth_a_command() -> None:
    loads = [Load(name, 256, 100, 250, 96, 96, 1) for name in "abc"]
    assert all(not one.commands for one in rebalance(loads, Host(pcpus=2)))
