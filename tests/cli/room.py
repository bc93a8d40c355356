"""A small machine room for commands that look at a cluster: four nodes with cards, one without, and their pods."""

from pathlib import Path
from typing import Any

import msgspec
from lightkube.types import PatchType
from typer.testing import CliRunner

import hcs
from hcs.cli.main import build
from hcs.kube import manifests, resources, writes
from hcs.kube.connection import connect
from hcs.model import names
from hcs.model.allocations import encode_allocation
from hcs.model.devices import Device, NodeInventory
from hcs.model.pods import ObjectMeta, Pod
from hcs.placement.snapshot import Snapshot
from hcs.router.decisions import Chosen, decide
from hcs.ura.catalogue import as_device, load_catalogue

CRDS = Path(hcs.__file__).parents[2] / "config" / "crds"
CATALOGUE = load_catalogue()
UNMEASURED = Device(id="mlu-0", index=0, vendor="cambricon", model="MLU590", vram=96 << 30, verdict="Healthy")


def cards(model: str, count: int, prefix: str, **changes: Any) -> tuple[Device, ...]:
    """Healthy emulated cards of a model."""
    card = CATALOGUE.find(model)
    return tuple(
        as_device(card, f"{prefix}-{index}", index, verdict=changes.get("verdict", "Healthy"), emulated=True)
        for index in range(count)
    )


NODES = {
    "gpu-a": (cards("A100-SXM4-80GB", 2, "GPU"), ()),
    "gpu-b": (cards("L40S", 2, "GPU"), ({"device": "GPU-1", "reason": "Xid79", "by": "healer"},)),
    "mlu-a": ((UNMEASURED,), ()),
    "npu-a": (cards("910B2", 4, "npu"), ()),
}
BARE = "cpu-a"
"""A node without an agent."""


def manifest(name: str, asked: dict[str, str], *, scheduler: str = names.SCHEDULER, **notes: str) -> dict[str, Any]:
    """A pod as it is after admission, in short names of ours."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": "default",
            "annotations": {f"{names.DOMAIN}/{key.replace('_', '-')}": value for key, value in notes.items()},
        },
        "spec": {
            "schedulerName": scheduler,
            "containers": [
                {
                    "name": "main",
                    "image": "train",
                    "resources": {"limits": {f"{names.DOMAIN}/{key}": value for key, value in asked.items()}},
                }
            ],
        },
    }


BOUND = (
    manifest("share-1", {"vram": "16Gi"}, vendors="nvidia", models="A100-SXM4-80GB"),
    manifest("share-2", {"vram": "24Gi", "acu": "40"}, vendors="nvidia", models="A100-SXM4-80GB"),
    manifest("whole", {"cards": "1"}, vendors="nvidia", models="A100-SXM4-80GB"),
    manifest("swapped", {"cards": "2"}, models="A100-SXM4-80GB", substitution="auto"),
    manifest("done", {"vram": "4Gi"}, models="L40S"),
)
PENDING = (
    manifest("lost", {"vram": "40Gi"}, vendors="mthreads"),
    manifest("wants", {"cards": "2"}, models="A100-SXM4-80GB"),
    manifest("fits", {"vram": "8Gi"}),
    manifest("gated", {"vram": "8Gi"}),
    manifest("picky", {"vram": "8Gi"}),
    manifest("astray", {"vram": "8Gi"}, scheduler="default-scheduler"),
    manifest("plain", {}),
)


async def furnish(kubeconfig: str) -> None:
    """Create all of it on an empty API server."""
    client = connect(kubeconfig)
    for crd in manifests.read_manifests(CRDS):
        await manifests.create(client, crd)
    inventories = []
    for name in (*NODES, BARE):
        status = {key: {"cpu": "64", "memory": "512Gi", "pods": "110"} for key in ("allocatable", "capacity")}
        await manifests.create(
            client, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "spec": {}, "status": status}
        )
    for name, (devices, quarantine) in NODES.items():
        node = resources.ComputeNode(
            apiVersion=f"{names.GROUP}/{names.VERSION}",
            kind="ComputeNode",
            metadata=ObjectMeta(name=name),
            spec=msgspec.convert({"quarantine": quarantine}, resources.ComputeNodeSpec),
        )
        await client.create(node)
        status = {"status": {"devices": msgspec.to_builtins(devices)}}
        await client.patch(resources.ComputeNodeStatus, name, status, patch_type=PatchType.MERGE)
        inventories.append(NodeInventory(name, devices, node.spec.quarantine))
    held = []
    for body in BOUND:
        pod = msgspec.convert(await manifests.create(client, body), Pod)
        decision = decide(pod, sorted(NODES), Snapshot.build(inventories, held))
        assert isinstance(decision, Chosen), decision
        held.append(decision.allocation)
        notes = {names.ALLOCATION: encode_allocation(decision.allocation), names.ROUTE_REASON: decision.reason}
        await writes.bind(
            client,
            namespace="default",
            name=pod.metadata.name,
            uid=pod.metadata.uid,
            node=decision.node,
            annotations=notes,
        )
        phase = "Succeeded" if pod.metadata.name == "done" else "Running"
        await _set_status(client, pod.metadata.name, phase=phase)
    for body in PENDING:
        if body["metadata"]["name"] == "gated":
            body["spec"]["schedulingGates"] = [{"name": f"{names.DOMAIN}/offer"}]
        if body["metadata"]["name"] == "picky":
            body["spec"]["nodeSelector"] = {"zone": "north"}
        await manifests.create(client, body)
    said = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/5 nodes are available"}
    await _set_status(client, "lost", conditions=[said])
    await _set_status(client, "fits", conditions=[said])
    await client.close()


async def _set_status(client: Any, name: str, **status: Any) -> None:
    await client.patch(resources.PodStatus, name, {"status": status}, namespace="default", patch_type=PatchType.MERGE)


class Hcs:
    """Calls commands on a cluster."""

    def __init__(self, kubeconfig: Path) -> None:
        self.kubeconfig = kubeconfig

    def __call__(self, *arguments: str) -> Any:
        return CliRunner().invoke(build(), [*arguments, "--kubeconfig", str(self.kubeconfig)], prog_name="hcs")

    def text(self, *arguments: str) -> str:
        """What a command that works writes to stdout."""
        result = self(*arguments)
        assert result.exit_code == 0, result.stderr or result.exception
        return result.stdout

    def data(self, *arguments: str) -> Any:
        """The same, as data."""
        return msgspec.json.decode(self.text(*arguments, "--json"))
