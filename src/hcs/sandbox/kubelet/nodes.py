"""The emulated nodes as the cluster sees them: their Node objects and their heartbeats."""

import asyncio
import datetime
import logging
import platform
from collections.abc import Awaitable, Callable
from typing import Any, Final

import httpx2
import msgspec
from lightkube import ApiError, AsyncClient
from lightkube.types import PatchType

from hcs.kube import resources
from hcs.model import names, pods
from hcs.sandbox.kubelet.status import HOST_IP, stamp

log = logging.getLogger(__name__)

LEASE_NAMESPACE: Final = "kube-node-lease"
LEASE_SECONDS: Final = 40
HEARTBEAT_SECONDS: Final = 10.0
VERSION: Final = "v1.36.0-emulated"


class EmulatedNode(msgspec.Struct, frozen=True):
    """One node: ``socket`` is its agent's, ``port`` its log endpoint's, None when it has none.

    Quantities are written as Kubernetes writes them.
    """

    name: str
    socket: str | None = None
    cpu: str = "64"
    memory: str = "512Gi"
    pods: str = "110"
    labels: dict[str, str] = {}
    port: int | None = None


def node_manifest(node: EmulatedNode, now: datetime.datetime) -> dict[str, Any]:
    """The Node object. A node with an agent carries the taint that keeps other people's pods off its cards."""
    capacity = {"cpu": node.cpu, "memory": node.memory, "pods": node.pods}
    labels = {
        "kubernetes.io/hostname": node.name,
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine()),
        f"{names.DOMAIN}/emulated": "true",
        **node.labels,
    }
    ready = {
        "type": "Ready",
        "status": "True",
        "reason": "KubeletReady",
        "message": "the emulated kubelet is ready",
        "lastHeartbeatTime": stamp(now),
        "lastTransitionTime": stamp(now),
    }
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": node.name, "labels": labels},
        "spec": {"taints": [{"key": names.MANAGED_TAINT, "effect": "NoSchedule"}]} if node.socket else {},
        "status": {
            "capacity": capacity,
            "allocatable": capacity,
            "conditions": [ready],
            **({"daemonEndpoints": {"kubeletEndpoint": {"Port": node.port}}} if node.port is not None else {}),
            "addresses": [{"type": "InternalIP", "address": HOST_IP}, {"type": "Hostname", "address": node.name}],
            "nodeInfo": {
                "architecture": labels["kubernetes.io/arch"],
                "bootID": "",
                "containerRuntimeVersion": "emulated://process",
                "kernelVersion": platform.release(),
                "kubeProxyVersion": "",
                "kubeletVersion": VERSION,
                "machineID": "",
                "operatingSystem": "linux",
                "osImage": "emulated node",
                "systemUUID": "",
            },
        },
    }


async def register(client: AsyncClient, node: EmulatedNode, now: datetime.datetime) -> None:
    """Create the Node, or bring the one that is there up to date.

    Raises:
        ApiError: refused.
    """
    manifest = node_manifest(node, now)
    metadata = pods.ObjectMeta(name=node.name, labels=manifest["metadata"]["labels"])
    try:
        await client.create(
            resources.Node(apiVersion="v1", kind="Node", metadata=metadata, spec=manifest["spec"], status={})
        )
    except ApiError as error:
        if error.status.code != 409:
            raise
        change = {"metadata": {"labels": manifest["metadata"]["labels"]}, "spec": manifest["spec"]}
        await client.patch(resources.Node, node.name, change, patch_type=PatchType.MERGE)
    await client.patch(resources.NodeStatus, node.name, {"status": manifest["status"]}, patch_type=PatchType.MERGE)


async def renew(client: AsyncClient, node: EmulatedNode, now: datetime.datetime) -> None:
    """Renew the node's lease, or create it.

    Raises:
        ApiError: refused.
    """
    spec = {
        "holderIdentity": node.name,
        "leaseDurationSeconds": LEASE_SECONDS,
        "renewTime": now.astimezone(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
    }
    try:
        await client.patch(
            resources.Lease, node.name, {"spec": spec}, namespace=LEASE_NAMESPACE, patch_type=PatchType.MERGE
        )
    except ApiError as error:
        if error.status.code != 404:
            raise
        metadata = pods.ObjectMeta(name=node.name, namespace=LEASE_NAMESPACE)
        await client.create(
            resources.Lease(apiVersion="coordination.k8s.io/v1", kind="Lease", metadata=metadata, spec=spec)
        )


async def keep_alive(
    client: AsyncClient,
    node: EmulatedNode,
    registered: Callable[[], None],
    *,
    pause: Callable[[float], Awaitable[Any]] = asyncio.sleep,
) -> None:
    """Register a node and renew its lease until cancelled; a node that someone deleted is registered again.

    Args:
        client: the connection.
        node: which node.
        registered: called once, when the node is there.
        pause: how to wait; tests pass their own.
    """
    known, failures = False, 0
    while True:
        now = datetime.datetime.now(datetime.UTC)
        try:
            if not known:
                await register(client, node, now)
                registered()
                known = True
            await renew(client, node, now)
            await client.get(resources.Node, node.name)
            failures = 0
        except (ApiError, httpx2.HTTPError) as error:
            known = known and not (isinstance(error, ApiError) and error.status.code == 404)
            failures += 1
            log.log(
                logging.WARNING if failures > 1 else logging.DEBUG,
                "heartbeat failed: node=%s error=%r attempt=%d",
                *(node.name, error, failures),
            )
        await pause(HEARTBEAT_SECONDS if not failures else min(5.0, 0.1 * 2.0 ** min(failures, 6)))
