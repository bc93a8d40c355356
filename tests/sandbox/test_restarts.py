"""Programs are killed while pods are created and bound: nothing is lost, and nothing is placed twice.

Only a whole sandbox can catch this: what one program remembers and another has stored must agree again after any of
them has been killed outright, in the middle of whatever it did.
"""

import asyncio
import os
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx2
import pytest
from lightkube import ApiError, AsyncClient

from hcs.kube import manifests, resources
from hcs.kube.connection import connect
from hcs.kube.informer import Informer
from hcs.model import names
from hcs.model.allocations import Allocation, allocation_of
from hcs.placement.snapshot import Snapshot
from hcs.sandbox import images
from hcs.sandbox.cluster import Sandbox
from hcs.sandbox.fleet import Cards, Fleet, FleetNode

FLEET = Fleet(
    (
        FleetNode("gpu-a", (Cards("nvidia", "A100-SXM4-80GB", 2),)),
        FleetNode("npu-a", (Cards("ascend", "Ascend910B2", 2),)),
    )
)
PODS = 16
"""Of 16Gi: 10 fit on the two A100, 6 more on the Ascend cards."""
VICTIMS = ("router", "injector", "apiserver", "scheduler", "router", "healer", "apiserver")
PATIENCE = 60.0


def _pod(number: int) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": f"share-{number}"},
        "spec": {
            "containers": [
                {
                    "name": "main",
                    "image": images.PLAIN,
                    "command": ["sleep", "600"],
                    "resources": {"limits": {names.VRAM: "16Gi"}},
                }
            ]
        },
    }


async def _insist(client: AsyncClient, manifest: dict[str, Any]) -> None:
    """Create as a person does who is told "try again": until it is there."""
    async with asyncio.timeout(PATIENCE):
        while True:
            try:
                await manifests.create(client, manifest)
                return
            except ApiError as error:
                if error.status.code == 409:
                    return
            except httpx2.HTTPError:
                pass
            await asyncio.sleep(0.05)


async def storm(
    directory: Path, victims: Sequence[str] = VICTIMS, kubernetes: Path | None = None
) -> tuple[list[Allocation], list[resources.ComputeNode], dict[str, int]]:
    """Kill one victim after every second pod; what was allocated, on which nodes, and who was started again."""
    sandbox = Sandbox(directory, FLEET, kubernetes)
    try:
        await sandbox.start(lambda _: None)
        client = connect(str(sandbox.kubeconfig))
        running = asyncio.Event()
        pods, nodes = Informer(client, resources.Pod), Informer(client, resources.ComputeNode, namespace=None)

        def count(*_: object) -> None:
            if sum(pod.status.phase == "Running" for pod in pods.values()) == PODS:
                running.set()

        pods.on_change(count)
        following = [asyncio.create_task(pods.run()), asyncio.create_task(nodes.run())]
        for number in range(PODS):
            await _insist(client, _pod(number))
            if number % 2 and number // 2 < len(victims):
                victim = sandbox.supervisor.pid(victims[number // 2])
                assert victim is not None
                os.kill(victim, signal.SIGKILL)
        async with asyncio.timeout(PATIENCE):
            await running.wait()
        allocations = [found for pod in pods.values() if (found := allocation_of(pod)) is not None]
        for follower in following:
            follower.cancel()
        await asyncio.gather(*following, return_exceptions=True)
        await client.close()
        return allocations, list(nodes.values()), sandbox.supervisor.restarts
    finally:
        await sandbox.stop()


@pytest.mark.xdist_group("sandbox")
@pytest.mark.timeout(180)
def test_nothing_is_lost_and_nothing_is_placed_twice(tmp_path: Path) -> None:
    allocations, nodes, restarts = asyncio.run(storm(tmp_path))
    assert len({allocation.pod for allocation in allocations}) == PODS
    snapshot = Snapshot.build([node.inventory() for node in nodes], allocations)
    assert snapshot.overcommitted == ()
    assert restarts.keys() >= {"router", "injector", "apiserver", "scheduler"}
