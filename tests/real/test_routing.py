"""Gangs, offers and preemption with a real kube-scheduler, API server and Job controller, from admission to running.

Only this can catch what the sandbox's scheduler does not do as the real one: how it treats gates, held binds, nominated
nodes and evicted pods; and whether the shipped permissions suffice.
"""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from lightkube import AsyncClient
from lightkube.types import PatchType
from tests.real.programs import control_plane

from hcs.kube import manifests, resources
from hcs.kube.connection import connect
from hcs.model import names
from hcs.model.allocations import Allocation, allocation_of
from hcs.model.offers import offer_on
from hcs.sandbox import images
from hcs.sandbox.cluster import Sandbox
from hcs.sandbox.fleet import Cards, Fleet, FleetNode

FLEET = Fleet(
    (
        FleetNode("gpu-a", (Cards("nvidia", "A100-SXM4-80GB", 4),)),
        FleetNode("npu-a", (Cards("ascend", "Ascend910B2", 4),)),
    )
)
PATIENCE = 60.0


def pod(name: str, limits: dict[str, str], *, priority: str = "", **annotations: str) -> dict[str, Any]:
    """A pod as its owner writes it."""
    notes = {f"{names.DOMAIN}/{key.replace('_', '-')}": value for key, value in annotations.items()}
    container = {
        "name": "main",
        "image": images.PLAIN,
        "command": ["sleep", "600"],
        "resources": {"limits": {f"{names.DOMAIN}/{key}": value for key, value in limits.items()}},
    }
    spec: dict[str, Any] = {"containers": [container], "terminationGracePeriodSeconds": 1}
    if priority:
        spec["priorityClassName"] = priority
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "annotations": notes}, "spec": spec}


class Room:
    """A running sandbox, asked by its administrator."""

    def __init__(self, client: AsyncClient) -> None:
        self.client = client

    async def pods(self) -> dict[str, resources.Pod]:
        return {p.metadata.name: p async for p in self.client.list(resources.Pod, namespace="default")}

    async def until(self, holds: Callable[[dict[str, resources.Pod]], bool]) -> dict[str, resources.Pod]:
        """Wait until something is true of the pods."""
        pods: dict[str, resources.Pod] = {}
        try:
            async with asyncio.timeout(PATIENCE):
                while True:
                    pods = await self.pods()
                    if holds(pods):
                        return pods
                    await asyncio.sleep(0.1)
        except TimeoutError:
            seen = {n: (p.spec.nodeName, p.status.phase, p.spec.schedulingGates) for n, p in pods.items()}
            raise AssertionError(f"not within {PATIENCE} s: {seen}") from None

    async def running(self, *wanted: str) -> dict[str, Allocation]:
        """Wait until these run; what each holds."""
        pods = await self.until(
            lambda pods: all(name in pods and pods[name].status.phase == "Running" for name in wanted)
        )
        held = {name: allocation_of(pods[name]) for name in wanted}
        return {name: one for name, one in held.items() if one is not None}

    async def create(self, *bodies: dict[str, Any]) -> None:
        for body in bodies:
            await manifests.create(self.client, body)


async def story(directory: Path, kubernetes: Path | None) -> None:
    sandbox = Sandbox(directory, FLEET, kubernetes)
    try:
        await sandbox.start(lambda _: None)
        client = connect(str(sandbox.kubeconfig))
        room = Room(client)
        try:
            high = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "high"}}
            await room.create({**high, "value": 1000})
            await gang(room)
            await offer(room)
            await preemption(room)
        finally:
            await client.close()
    finally:
        await sandbox.stop()


async def gang(room: Room) -> None:
    """Three of four members wait behind their gates; with the fourth all start, each on a card of its own."""
    members = [pod(f"g-{n}", {"vram": "60Gi"}, gang="g", gang_size="4", vendors="nvidia") for n in range(4)]
    await room.create(*members[:3])
    await asyncio.sleep(3)
    pods = await room.pods()
    assert all([g.name for g in p.spec.schedulingGates or ()] == [names.GANG_GATE] for p in pods.values())
    await room.create(members[3])
    held = await room.running(*(f"g-{n}" for n in range(4)))
    assert len({device for one in held.values() for device in one.devices()}) == 4


async def offer(room: Room) -> None:
    """All A100 are taken: what could stand in is offered, and given when accepted."""
    await room.create(pod("asks", {"vram": "40Gi"}, models="A100-SXM4-80GB", substitution="ask", sharing="exclusive"))
    pods = await room.until(lambda pods: "asks" in pods and offer_on(pods["asks"]) is not None)
    made = offer_on(pods["asks"])
    assert made is not None
    assert pods["asks"].spec.nodeName is None
    answer = {"metadata": {"annotations": {names.SUBSTITUTION_ANSWER: f"accept {made.id}"}}}
    await room.client.patch(resources.Pod, "asks", answer, namespace="default", patch_type=PatchType.MERGE)
    (held,) = (await room.running("asks")).values()
    assert (held.vendor, len(held.devices()), held.exchange is not None) == ("ascend", made.cards, True)


async def preemption(room: Room) -> None:
    """A pod of high priority takes the place of one member; only one of the four has to go."""
    await room.create(pod("high", {"vram": "60Gi"}, priority="high", vendors="nvidia"))
    (held,) = (await room.running("high")).values()
    assert held.node == "gpu-a"
    pods = await room.pods()
    assert sum(name.startswith("g-") and p.metadata.deletionTimestamp is None for name, p in pods.items()) == 3


@pytest.mark.real
@pytest.mark.nightly
@pytest.mark.timeout(300)
@pytest.mark.xdist_group("sandbox")
def test_gangs_offers_and_preemption_on_a_real_control_plane(tmp_path: Path) -> None:
    asyncio.run(story(tmp_path, control_plane()))


@pytest.mark.nightly
@pytest.mark.timeout(300)
@pytest.mark.xdist_group("sandbox")
def test_gangs_offers_and_preemption_in_a_whole_sandbox(tmp_path: Path) -> None:
    """With admission, real sockets and the process kubelet, which the tests on virtual time leave out."""
    asyncio.run(story(tmp_path, None))
