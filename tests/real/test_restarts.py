"""The storm of the sandbox's restart test on a real control plane, whose own programs are killed as well."""

import asyncio
from pathlib import Path

import pytest
from tests.real.programs import control_plane
from tests.sandbox.test_restarts import PODS, storm

from hcs.placement.snapshot import Snapshot

VICTIMS = ("router", "injector", "kube-apiserver", "kube-scheduler", "router", "healer", "kube-controller-manager")


@pytest.mark.real
@pytest.mark.nightly
@pytest.mark.timeout(240)
@pytest.mark.xdist_group("sandbox")
def test_nothing_is_lost_and_nothing_is_placed_twice_on_a_real_control_plane(tmp_path: Path) -> None:
    allocations, nodes, restarts = asyncio.run(storm(tmp_path, VICTIMS, control_plane()))
    assert len({allocation.pod for allocation in allocations}) == PODS
    assert Snapshot.build([node.inventory() for node in nodes], allocations).overcommitted == ()
    assert restarts.keys() >= set(VICTIMS)
