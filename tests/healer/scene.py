"""A cluster in one process on virtual time, with a healer in it: the sandbox's API server, cards, and pods that hold
them.

Built on the router's scene; pods are bound here by hand where a story is not about the router.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import httpx2
from lightkube import ApiError
from lightkube.types import PatchType
from prometheus_client import CollectorRegistry
from tests.router.scene import GIB, Scene, card

from hcs.healer.healing import Healer
from hcs.health.budget import EvictionBudget
from hcs.kube import resources
from hcs.kube.informer import Informer
from hcs.kube.writes import bind
from hcs.model import names
from hcs.model.allocations import Allocation, Grant, encode_allocation
from hcs.model.devices import Device, Quarantine
from hcs.model.pods import Pod
from hcs.sandbox.scheduler.inprocess import Fault

PROBATION = 60.0
CHECKPOINTS = "/ckpt"


def failed(index: int, vendor: str = "nvidia", **changes: Any) -> Device:
    """A card that fell off the bus."""
    return card(
        index, vendor, verdict="Failed", verdict_reason="FellOffTheBus", verdict_message="it fell off", **changes
    )


class Ward(Scene):
    """The running cluster, and what the healer is told of checkpoints."""

    def __init__(self, data: Path) -> None:
        super().__init__(data)
        self.steps: dict[str, int] = {}
        """By pod name: the newest checkpoint that storage shows."""
        self.storage = asyncio.Event()
        """Storage answers while this is set."""
        self.storage.set()
        self.registry = CollectorRegistry()
        self.healer: Healer | None = None
        self._healing: asyncio.Task[None] | None = None

    async def locate(self, pod: Pod, before: str) -> str:
        """Where a pod should resume; stands for :func:`hcs.healer.resume.resume_point`."""
        place = pod.annotations.get(names.CHECKPOINT, "")
        await self.storage.wait()
        step = self.steps.get(pod.metadata.name)
        return f"{place}/step-{step}" if place and step is not None else place

    async def start_healer(
        self,
        *,
        budget: EvictionBudget | None = None,
        fault: Fault | None = None,
        transport: httpx2.AsyncBaseTransport | None = None,
        probation: float = PROBATION,
    ) -> None:
        """Start a healer that knows nothing; one that runs is ended first, as if it were killed."""
        await self.stop_healer()
        client = self.connect(transport or (self.faulty(fault) if fault else self.api))
        nodes, pods = Informer(client, resources.ComputeNode, namespace=None), Informer(client, resources.Pod)
        self.healer = Healer(
            client,
            nodes,
            pods,
            locate=self.locate,
            now=self.today,
            probation=probation,
            budget=budget or EvictionBudget(32, 60.0),
            registry=CollectorRegistry(),
        )

        async def together() -> None:
            assert self.healer is not None
            await asyncio.gather(nodes.run(), pods.run(), self.healer.run())

        self._healing = self.spawn(together())

    async def stop_healer(self) -> None:
        """Kill the healer."""
        if self._healing is not None:
            self._healing.cancel()
            await asyncio.gather(self._healing, return_exceptions=True)
            self._healing = None

    async def hold(
        self,
        name: str,
        node: str,
        *devices: Device,
        owner: str | None = "job",
        kind: str = "Job",
        checkpoint: bool = True,
        labels: Mapping[str, str] | None = None,
        resume: str = "",
        phase: str = "Running",
    ) -> Pod:
        """A pod that holds cards and runs."""
        pod = await self.wait_for_place(name, owner=owner, kind=kind, checkpoint=checkpoint, labels=labels)
        grants = tuple(Grant(device.id, 16 * GIB, 0) for device in devices)
        allocation = Allocation("v1", pod.metadata.uid, node, devices[0].vendor, devices[0].model, {"main": grants})
        annotations = {names.ALLOCATION: encode_allocation(allocation)} | ({names.RESUME: resume} if resume else {})
        await bind(
            self.client,
            namespace="default",
            name=name,
            uid=pod.metadata.uid,
            node=node,
            annotations=annotations,
        )
        await self.set_status(name, phase=phase)
        return await self.get_pod(name)

    async def wait_for_place(
        self,
        name: str,
        *,
        owner: str | None = "job",
        kind: str = "Job",
        checkpoint: bool = True,
        labels: Mapping[str, str] | None = None,
    ) -> Pod:
        """A pod that no node has been found for."""
        owners = [{"apiVersion": "batch/v1", "kind": kind, "name": owner, "uid": f"{owner}-uid", "controller": True}]
        return await self.add_pod(
            name,
            annotations={names.CHECKPOINT: CHECKPOINTS} if checkpoint else {},
            **({"ownerReferences": owners} if owner else {}),
            **({"labels": dict(labels)} if labels else {}),
        )

    async def end(self, name: str) -> None:
        """The kubelet's last word on a pod that was told to stop."""
        await self.delete_pod(name)

    async def fail_by_itself(self, name: str) -> None:
        """The program in a pod died."""
        ended = {"exitCode": 1, "reason": "Error", "finishedAt": self.today().strftime("%Y-%m-%dT%H:%M:%SZ")}
        await self.set_status(
            name, phase="Failed", containerStatuses=[{"name": "main", "state": {"terminated": ended}}]
        )

    async def entries(self, node: str) -> dict[str, Quarantine]:
        """The quarantine of a node, by device."""
        found = await self.client.get(resources.ComputeNode, node)
        return {entry.device: entry for entry in found.spec.quarantine}

    async def notes(self, node: str, device: str) -> dict[str, tuple[str, str]]:
        """By lost pod: where to resume, and which pod took over."""
        entry = (await self.entries(node)).get(device)
        return {note.pod: (note.resume_from, note.replaced_by) for note in entry.evicted} if entry else {}

    async def leaving(self, name: str) -> bool:
        """Whether a pod was told to stop, or is gone."""
        try:
            return (await self.get_pod(name)).metadata.deletionTimestamp is not None
        except ApiError as error:
            if error.status.code != 404:
                raise
            return True

    async def told(self, about: str) -> list[str]:
        """Reasons of what the healer told about an object, in the order it was told."""
        found = [
            event
            async for event in self.client.list(resources.Event, namespace="default")
            if event.involvedObject.name == about and event.source == {"component": "healer"}
        ]
        return [
            event.reason for event in sorted(found, key=lambda e: (e.firstTimestamp, int(e.metadata.resourceVersion)))
        ]

    async def set_condition(self, node: str, kind: str, status: str) -> None:
        """What the agent of a node says of itself."""
        condition = {"type": kind, "status": status, "reason": "Test"}
        await self.client.patch(
            resources.ComputeNodeStatus, node, {"status": {"conditions": [condition]}}, patch_type=PatchType.MERGE
        )

    async def delete_node(self, node: str) -> None:
        """Take a ComputeNode away."""
        await self.client.delete(resources.ComputeNode, node)

    async def settle(self, seconds: float = 3.0) -> None:
        """Let some time go by."""
        await asyncio.sleep(seconds)

    async def patch_budget(self, name: str, allowed: int) -> None:
        """What the disruption controller of a cluster would write."""
        async with httpx2.AsyncClient(transport=self.api, base_url="https://kubernetes") as http:
            answer = await http.patch(
                f"/apis/policy/v1/namespaces/default/poddisruptionbudgets/{name}/status",
                json={"status": {"observedGeneration": 1, "disruptionsAllowed": allowed}},
                headers={"Authorization": "Bearer admin-token", "Content-Type": PatchType.MERGE.value},
            )
        assert answer.status_code == 200, answer.text


@contextlib.asynccontextmanager
async def ward(data: Path) -> AsyncIterator[Ward]:
    """A cluster with two nodes: two NVIDIA cards on ``gpu``, two Ascend cards on ``npu``."""
    made = Ward(data)
    try:
        await made.define()
        await made.add_node("gpu", card(0), card(1))
        await made.add_node("npu", card(0, "ascend"), card(1, "ascend"))
        yield made
    finally:
        await made.stop_healer()
        await made.close()
