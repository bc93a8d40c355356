"""A sandbox together: sums, unions, pools."""

import pytest

from hcs.model.refusals import RefusedError
from hcs.rtos.annotations import Annotations
from hcs.rtos.configuration import Config
from hcs.rtos.cpusets import parse_cpuset
from hcs.rtos.sandboxes import Member, Sandbox, is_pooled, overlaps, pool_changes, total

MEMBERS = [
    Member("a", parse_cpuset("0-1"), vcpus=2, capacity=200, limit_mb=64, hugepages=32 << 20),
    Member("b", parse_cpuset("1,3"), vcpus=1, capacity=50, limit_mb=128),
    Member("c", parse_cpuset(""), vcpus=1, capacity=0),
]


def test_a_sandbox_is_the_sum_of_its_guests() -> None:
    assert total(MEMBERS, Config()) == Sandbox(4, 192, "0-1,3", 3)
    assert total(MEMBERS, Config(sandbox_minimum_vcpu=6, hugepage_enable=True)) == Sandbox(6, 224, "0-1,3", 3)
    assert total(MEMBERS, Config(), hugepages=True).memory_mb == 224
    assert total([], Config()) == Sandbox(1, 0, "", None)
    assert total([MEMBERS[2], Member("d", parse_cpuset(""), 1, 250)], Config()).pcpus_served == 3


def test_a_pool_needs_the_site_and_the_guest() -> None:
    pinned = Annotations(enable_vcpus_pinning=True)
    assert is_pooled(Config(shared_cpu_pool=True), pinned)
    assert is_pooled(Config(shared_cpu_pool=True), Annotations(vcpu_pcpu_binding=True))
    assert not is_pooled(Config(), pinned)
    assert not is_pooled(Config(shared_cpu_pool=True), Annotations())


def test_only_who_is_pinned_elsewhere_is_pinned_anew() -> None:
    pool = parse_cpuset("0-3")
    assert pool_changes({"a": "0-3", "b": "1", "c": ""}, pool) == [("b", "0-3"), ("c", "0-3")]
    assert pool_changes({"a": "1"}, parse_cpuset("")) == []
    long = parse_cpuset("0,2,4,6,8,10,12,14,16,18")
    assert pool_changes({"a": str(long)}, long) == []
    with pytest.raises(RefusedError):
        pool_changes({"a": "1"}, long)


def test_overlapping_pools_are_reported() -> None:
    assert overlaps({"x": "0-3", "y": "2-5", "z": "9"}) == [("x", "y", "2-3")]
