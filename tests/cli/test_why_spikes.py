"""``hcs why`` for pods that ask for spikes or RTOS guests: the router's answer, as for cards."""

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.cli.room import CRDS, Hcs
from tests.neuro.boards import board

from hcs.cli.cluster import Cluster, read_cluster
from hcs.cli.explaining import explain_pod
from hcs.cli.why import screen
from hcs.kube import manifests
from hcs.kube.connection import connect
from hcs.kube.resources import Node
from hcs.model import names
from hcs.model.allocations import VERSION, Allocation, CoreGrant, encode_allocation
from hcs.model.devices import NodeInventory, RtosHost, SpikingBoard
from hcs.model.pods import ObjectMeta, Pod
from hcs.neuro.occupancy import report
from hcs.neuro.sites import Site
from hcs.sandbox.apiserver.server import Settings, running

KSPS, CORES = "snn.ai.compute/ksps", "snn.ai.compute/cores"


def shown(**changes: Any) -> SpikingBoard:
    found = report(Site(board(width=4, height=4)), unit=1)
    assert found is not None
    return msgspec.structs.replace(found, **changes)


INVENTORIES = (
    NodeInventory("large", capacities=((CORES, 16), (KSPS, 500)), boards=(shown(),)),
    NodeInventory("small", capacities=((KSPS, 100),)),
    NodeInventory("striped", capacities=((CORES, 8),), boards=(shown(busy="aaaa"),)),
)
NODES = tuple(Node(metadata=ObjectMeta(name=name)) for name in ("large", "none", "small", "striped"))


def manifest(name: str, asked: dict[str, str], *, scheduler: str = names.SCHEDULER, **spec: Any) -> dict[str, Any]:
    container = {"name": "main", "image": "i", "resources": {"limits": asked}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "uid": name},
        "spec": {"schedulerName": scheduler, "containers": [container], **spec},
    }


def pod(name: str, asked: dict[str, str], **changes: Any) -> Pod:
    return msgspec.convert(manifest(name, asked, **changes), Pod)


def holding(made: Pod, node: str, drawn: dict[str, tuple[CoreGrant, ...]] | None = None, **amounts: int) -> Pod:
    """The pod bound to a node by the router."""
    capacities = {f"snn.ai.compute/{word}": amount for word, amount in amounts.items()}
    held = Allocation(VERSION, made.metadata.uid, node, "", "", {}, capacities=capacities, cores=drawn or {})
    notes = {names.ALLOCATION: encode_allocation(held), names.ROUTE_REASON: f"placed on {node}"}
    metadata = msgspec.structs.replace(made.metadata, annotations=notes)
    spec = msgspec.structs.replace(made.spec, nodeName=node)
    status = msgspec.structs.replace(made.status, phase="Running")
    return msgspec.structs.replace(made, metadata=metadata, spec=spec, status=status)


def told(asking: Pod, *others: Pod, inventories: tuple[NodeInventory, ...] = INVENTORIES) -> tuple[str, str]:
    cluster = Cluster("default", nodes=NODES, inventories=inventories, pods=(asking, *others))
    answer = explain_pod(asking, cluster)
    return answer.state, "\n".join(text for text, _ in screen(answer))


def test_a_bound_pod_shows_its_amounts_and_its_rectangle() -> None:
    grant = CoreGrant(CORES, "b0", 4, 2, 2, 1, 0)
    state, text = told(holding(pod("p", {CORES: "4", KSPS: "50"}), "large", {"main": (grant,)}, cores=4, ksps=50))
    assert state == "Bound"
    assert "pod default/p is on large (Running)" in text
    assert "asks     4 snn.ai.compute/cores + 50 snn.ai.compute/ksps" in text
    assert "node     large" in text
    assert "main: cores 2x2 at (1,0) of board b0" in text
    assert "card" not in text


def test_a_place_that_exists_is_named_with_its_rectangle() -> None:
    state, text = told(pod("p", {CORES: "8"}))
    assert state == "Placeable"
    assert "large" in text
    assert "of board b0" in text


@pytest.mark.parametrize("scheduler", [names.SCHEDULER, "default-scheduler"])
def test_what_others_hold_counts_whoever_scheduled_them(scheduler: str) -> None:
    other = pod("other", {KSPS: "450"}, scheduler=scheduler, nodeName="large")
    if scheduler == names.SCHEDULER:
        other = holding(other, "large", ksps=450)
    state, text = told(pod("p", {KSPS: "101"}), other)
    assert state == "Unplaceable"
    assert "is pending: 0 of 4 nodes can serve it" in text
    assert "CapacityTaken on large" in text
    assert "CapacityTooSmall on small" in text
    assert text.index("CapacityTaken") < text.index("CapacityTooSmall"), "the nearest miss first"
    assert "NotManaged on none" in text
    assert "try      wait, end another pod, or ask for less" in text


def test_enough_cores_without_a_rectangle_are_told_apart_from_too_few() -> None:
    state, text = told(pod("p", {CORES: "8"}), inventories=INVENTORIES[1:])
    assert state == "Unplaceable"
    assert "Fragmented on striped" in text


def test_rectangles_of_others_are_in_the_way() -> None:
    grant = CoreGrant(CORES, "b0", 8, 4, 2, 0, 1)
    other = holding(pod("other", {CORES: "8"}), "large", {"main": (grant,)}, cores=8)
    _, text = told(pod("p", {CORES: "8"}), other, inventories=INVENTORIES[:2])
    assert "Fragmented on large" in text


def test_nonsense_and_the_business_of_others_are_named() -> None:
    assert told(pod("p", {"snn.ai.compute/kspss": "1"}))[0] == "Refused"
    assert told(pod("p", {KSPS: "1"}, scheduler="default-scheduler"))[0] == "NotOurs"


def test_a_pod_with_rtos_guests_hears_which_nodes_cannot_host_it() -> None:
    hosts = (
        NodeInventory("large", rtos=RtosHost("xen", pcpus=4, total_memory_mb=1024, free_memory_mb=1024, ready=True)),
        NodeInventory("small"),
    )
    asking = pod("p", {names.RTOS_GUESTS: "1", "memory": "512Mi"})
    state, text = told(asking, inventories=hosts)
    assert state == "Hostable"
    assert "NoRtosHost on none, small, striped" in text
    state, text = told(asking, inventories=hosts[1:])
    assert state == "Unplaceable"


def test_the_command_reads_nodes_that_only_a_kubelet_describes(tmp_path: Path) -> None:
    """A node without our agent offers spikes in its status alone; the router counts it, and so does ``hcs why``."""

    async def furnish(kubeconfig: str) -> None:
        client = connect(kubeconfig)
        for crd in manifests.read_manifests(CRDS):
            await manifests.create(client, crd)
        amounts = {"cpu": "8", "memory": "8Gi", "pods": "110", KSPS: "500"}
        status = {"allocatable": amounts, "capacity": amounts}
        await manifests.create(
            client, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "edge"}, "spec": {}, "status": status}
        )
        for name, asked in (("fits", "500"), ("large", "501")):
            body = manifest(name, {KSPS: asked})
            del body["metadata"]["uid"]
            await manifests.create(client, body)
        await client.close()

    with running(Settings(data=tmp_path / "data")) as server:
        kubeconfig = tmp_path / "kubeconfig"
        kubeconfig.write_text(server.kubeconfig("admin-token"))
        asyncio.run(furnish(str(kubeconfig)))
        hcs = Hcs(kubeconfig)
        assert "has a place now" in hcs.text("why", "fits")
        assert "CapacityTooSmall on edge" in hcs.text("why", "large")
        assert "asks HCS for nothing" in hcs.text("why", "large", "--spiking-domain", "other.example")
        assert read_cluster(str(kubeconfig), None, domain="other.example").inventories == ()
