"""The worked examples, everything that is refused, and what always holds of a plan."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.rtos.compact import asked, load

from hcs.model.refusals import Refusal, RefusedError
from hcs.rtos.annotations import PREFIX
from hcs.rtos.configuration import Config
from hcs.rtos.cpusets import CpuSet, parse_cpuset
from hcs.rtos.hosts import Host
from hcs.rtos.planning import WARNINGS, GuestPlan, ignored, plan
from hcs.rtos.resources import Resources, read_resources


@pytest.mark.parametrize("row", [pytest.param(row, id=row["id"]) for row in load("examples.yaml")])
def test_a_guest_gets_what_the_document_says(row: dict[str, Any]) -> None:
    one = asked(row["in"])
    made = plan(one.resources, one.annotations, one.config, one.host, mode=one.mode)
    assert isinstance(made, GuestPlan), made
    got = {
        "weight": made.cpu_weight,
        "capacity": made.cpu_capacity,
        "cpuset": made.cpuset,
        "vcpus": made.vcpus,
        "max": made.max_vcpus,
        "mem": f"{made.memory_mb}/{made.min_memory_mb}/{made.threshold_mb}",
        "warnings": list(made.warnings),
    }
    wanted = {key: value for key, value in row.items() if key not in ("id", "in")}
    assert {key: got[key] for key in wanted} == wanted
    assert set(made.warnings) <= WARNINGS.keys()


def test_every_example_of_the_document_is_here() -> None:
    here = {row["id"] for row in load("examples.yaml")}
    assert {f"E{number:02}" for number in range(1, 36)} <= here


@pytest.mark.parametrize("row", [pytest.param(row, id=row["id"]) for row in load("refused.yaml")])
def test_what_means_nothing_is_refused_with_its_reason(row: dict[str, Any]) -> None:
    try:
        one = asked(row["in"])
        answer: object = plan(one.resources, one.annotations, one.config, one.host, mode=one.mode)
    except RefusedError as error:
        answer = error.refusals[0]
    assert isinstance(answer, Refusal), answer
    assert answer.reason == row["reason"]
    assert row.get("says", "") in answer.message


def test_vcpus_are_bound_to_the_pool_that_a_sandbox_shares() -> None:
    bound = {f"{PREFIX}runtime.vcpu_pcpu_binding": "true"}
    made = plan(Resources(cpus="0-1"), bound, Config(shared_cpu_pool=True), Host(), pool=CpuSet(((1, 1), (4, 5))))
    assert isinstance(made, GuestPlan)
    assert (made.vcpus, made.cpuset, made.cpu_capacity) == (4, "0-1", 200)
    alone = plan(Resources(cpus="0-1"), bound, Config(), Host(), pool=CpuSet(((4, 5),)))
    assert isinstance(alone, GuestPlan)
    assert alone.vcpus == 2


def test_what_a_guest_cannot_have_is_named_once_and_changes_nothing() -> None:
    rest = {"pids": {"limit": 5}, "unified": {"cpu.weight": "9"}, "blockIO": {}, "devices": [{"allow": False}]}
    raw = {"cpu": {"mems": "0", "shares": 1024}, "memory": {"swap": 5, "kernel": 4, "disableOOMKiller": True}, **rest}
    resources = read_resources(raw)
    made = plan(resources, {f"{PREFIX}container.sise": "1"}, Config(), Host())
    assert made == plan(Resources(shares=1024), {}, Config(), Host())
    assert ignored(resources, {f"{PREFIX}container.sise": "1", "other/key": "x"}) == [
        "cpu.mems",
        "devices",
        "memory.disableOOMKiller",
        "memory.kernel",
        "memory.swap",
        "pids",
        "unified",
        f"annotation {PREFIX}container.sise",
    ]


amounts = st.integers(-2, 2**45) | st.none()
resources = st.builds(
    Resources,
    shares=st.integers(0, 2**62) | st.none(),
    quota=st.integers(-1, 2**62) | st.none(),
    period=st.integers(0, 2**40) | st.none(),
    cpus=st.sampled_from([None, "", "0", "0-3", "1,3", "2-5,7"]),
    limit=amounts,
    reservation=amounts,
)
hosts = st.builds(Host, pcpus=st.sampled_from([0, 1, 4, 64]), total_memory_mb=st.sampled_from([0, 16, 2048, 2**32]))
annotations = st.fixed_dictionaries(
    {},
    optional={
        f"{PREFIX}runtime.vcpu_pcpu_binding": st.sampled_from(["true", "0"]),
        f"{PREFIX}container.max_vcpu_num": st.sampled_from(["1", "3"]),
        f"{PREFIX}container.min_memory_mb": st.sampled_from(["8", "4096"]),
    },
)


@given(resources, annotations, hosts)
def test_every_plan_is_one_a_hypervisor_can_carry_out(
    asked_for: Resources, given_annotations: dict[str, str], host: Host
) -> None:
    made = plan(asked_for, given_annotations, Config(), host)
    if isinstance(made, Refusal):
        assert made.reason
        assert made.message
        return
    assert made == plan(asked_for, given_annotations, Config(), host)
    assert made.cpu_weight is not None
    assert 1 <= made.cpu_weight <= 65535
    assert 1 <= made.vcpus <= made.max_vcpus
    assert made.min_memory_mb <= made.memory_mb <= made.threshold_mb <= 2**31 - 1
    assert made.limit_mb is None or made.threshold_mb >= made.limit_mb == made.memory_mb
    if host.total_memory_mb:
        assert made.threshold_mb <= host.total_memory_mb
    if (asked_for.quota or 0) > 0 and asked_for.period:
        assert made.cpu_capacity >= 1
        assert made.cpu_capacity <= max(1, (asked_for.quota or 0) * 100 // asked_for.period)
    cpuset = parse_cpuset(made.cpuset)
    assert str(cpuset) == made.cpuset
    if cpuset:
        assert 0 < made.cpu_capacity <= 100 * len(cpuset)
    assert ("capacity_unreachable" in made.warnings) == (made.cpu_capacity > 100 * made.vcpus)


@given(resources, hosts)
def test_planning_what_was_planned_gives_the_same(asked_for: Resources, host: Host) -> None:
    made = plan(asked_for, {}, Config(), host)
    if isinstance(made, Refusal):
        return
    again = plan(
        Resources(
            shares=None if made.cpu_weight is None else made.cpu_weight * 4,
            quota=made.cpu_capacity * 1000 or -1,
            period=100_000,
            cpus=made.cpuset,
            limit=None if made.limit_mb is None else made.limit_mb << 20,
            reservation=made.min_memory_mb << 20,
        ),
        {},
        Config(),
        host,
    )
    assert isinstance(again, GuestPlan)
    quiet = {"cpuset_filtered", "quota_without_period", "reservation_clamped"}
    assert again.warnings == tuple(w for w in made.warnings if w not in quiet)
    assert again.__class__(**{f: getattr(again, f) for f in again.__struct_fields__ if f != "warnings"}) == (
        made.__class__(**{f: getattr(made, f) for f in made.__struct_fields__ if f != "warnings"})
    )
