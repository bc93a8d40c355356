"""Pods a second with a real kube-scheduler, API server and etcd: with our extender, and the same without us.

Nodes and their cards are emulated objects and no kubelet runs: a pod is done when it is bound. All pods wait before the
scheduler starts, so that what is measured is how fast it gets through them; the first tenth warms everything up and is
not counted. With us: the extender as its own process, the shipped permissions, policies and scheduler configuration.
Without us: the same pods less what they ask of us, the same configuration less our extender. kube-scheduler allows
itself 50 requests a second by default; both set-ups lift that, else it alone would be measured.
"""

import asyncio
import contextlib
import random
import tempfile
from collections.abc import AsyncIterator, Awaitable, Iterable
from pathlib import Path
from time import perf_counter
from typing import Any, Final

import msgspec
import yaml
from benchmarks.router import cluster
from lightkube import AsyncClient
from lightkube.types import PatchType

from hcs.kube import resources
from hcs.kube.connection import connect
from hcs.kube.manifests import create, create_or_replace, read_manifests
from hcs.model import names
from hcs.model.pods import Pod
from hcs.process.certificates import Authority
from hcs.sandbox.controlplane import ControlPlane, Ports, check_programs, scheduler_configuration, version
from hcs.sandbox.files import config_directory
from hcs.sandbox.identities import ADMINISTRATOR, kubeconfig, make_identities, token_file, write_kubeconfig
from hcs.sandbox.ports import HeldPorts
from hcs.sandbox.readiness import kinds_served
from hcs.sandbox.supervisor import Program, Supervisor, inherited_environment

SECONDS: Final = 120.0
"""How long the pods of one set-up may take."""
_AT_ONCE: Final = 16
_PLAIN: Final = "default-scheduler"
_REQUESTS_PER_SECOND: Final = 5000
_PERMISSIONS: Final = ("ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding")


class UnboundError(RuntimeError):
    """Not all pods were bound in time; the message says how many."""


async def measure_real(binaries: Path, nodes: int, pods: int, seed: int, policy: str) -> dict[str, Any]:
    """Measure both set-ups on one control plane, and end all programs.

    Args:
        binaries: the folder with etcd, kube-apiserver and kube-scheduler.
        nodes: how many nodes, of 8 cards each.
        pods: how many pods.
        seed: for what the pods ask.
        policy: how our extender chooses places.

    Raises:
        MissingProgramsError: the folder lacks programs.
        StartError: one of them did not become ready.
        UnboundError: not all pods were bound in time.
    """
    check_programs(binaries)
    with tempfile.TemporaryDirectory(prefix="hcs-bench-") as folder:
        stage = _Stage(Path(folder), binaries, policy)
        try:
            async with stage.control_plane() as client:
                await stage.furnish(client, nodes)
                wanted = cluster.pods(pods, random.Random(seed), "pod")
                without = await stage.play(client, [_plain(pod) for pod in wanted], ours=False)
                ours = await stage.play(client, [_asking(pod) for pod in wanted], ours=True)
        finally:
            await stage.end()
    return {
        "nodes": nodes,
        "pods": pods,
        "with_per_s": round(ours, 1),
        "without_per_s": round(without, 1),
        "ratio": round(ours / without, 3),
        "kubernetes": version(binaries).removeprefix("Kubernetes "),
    }


class _Stage:
    """One control plane under a directory, and the schedulers that play on it one after the other."""

    def __init__(self, directory: Path, binaries: Path, policy: str) -> None:
        self._directory, self._policy, self._ports = directory, policy, HeldPorts()
        for folder in ("apiserver", "logs", "ready", "pki", "users"):
            (directory / folder).mkdir()
        self._identities = make_identities()
        (directory / "tokens.csv").write_text(token_file(self._identities))
        self._authority = Authority.load_or_create(directory / "apiserver")
        ports = Ports(*(self._ports.take() for _ in Ports.__struct_fields__))
        self._plane = ControlPlane(binaries, directory, self._authority, ports)
        for name, identity in self._identities.items():
            config = kubeconfig(identity, self._plane.server, self._authority.pair.certificate)
            write_kubeconfig(self._user(name), config)
        self._supervisors: list[Supervisor] = []

    def _user(self, name: str) -> Path:
        return self._directory / "users" / f"{name}.yaml"

    def _supervisor(self) -> Supervisor:
        self._supervisors.append(Supervisor(self._directory, inherited_environment()))
        return self._supervisors[-1]

    async def end(self) -> None:
        """End whatever still runs, the schedulers before what they stand on."""
        while self._supervisors:
            await self._supervisors.pop().stop()
        self._ports.release()

    @contextlib.asynccontextmanager
    async def control_plane(self) -> AsyncIterator[AsyncClient]:
        """etcd and the API server, with our kinds, policies and permissions; gives the administrator's connection."""
        programs = self._supervisor()
        await asyncio.gather(*(programs.start(one) for one in (self._plane.etcd(), self._plane.apiserver())))
        client, config = connect(str(self._user(ADMINISTRATOR))), config_directory()
        try:
            manifests = [*read_manifests(config / "namespace.yaml")]
            manifests += [one for one in read_manifests(config) if one["kind"] in _PERMISSIONS]
            manifests += [*read_manifests(config / "crds"), *read_manifests(config / "policies.yaml")]
            manifests.append({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}})
            for manifest in manifests:
                await create_or_replace(client, manifest)
            await kinds_served(client)
            yield client
        finally:
            await client.close()

    async def furnish(self, client: AsyncClient, nodes: int) -> None:
        """Create the nodes, ready and without the taint of new ones, and what their agents would say."""
        allocatable = {"cpu": "64", "memory": "512Gi", "pods": "110"}
        ready = {"type": "Ready", "status": "True", "reason": "Emulated", "message": "no kubelet"}

        async def one(number: int) -> None:
            name = cluster.node_name(number)
            await create(client, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})
            status = {"status": {"allocatable": allocatable, "capacity": allocatable, "conditions": [ready]}}
            await client.patch(resources.NodeStatus, name, status, patch_type=PatchType.MERGE)
            await client.patch(resources.Node, name, {"spec": {"taints": None}}, patch_type=PatchType.MERGE)
            manifest = cluster.compute_node(number)
            manifest["metadata"] = {"name": name}
            await create(client, manifest)
            devices = {"status": manifest["status"]}
            await client.patch(resources.ComputeNodeStatus, name, devices, patch_type=PatchType.MERGE)

        await _side_by_side(one(number) for number in range(nodes))

    async def play(self, client: AsyncClient, pods: list[dict[str, Any]], *, ours: bool) -> float:
        """Let these pods wait, start the scheduler, and see how many it binds a second; they are gone afterwards."""
        await _side_by_side(create(client, pod) for pod in pods)
        programs = self._supervisor()
        watching = asyncio.create_task(_bound(client, len(pods)))
        try:
            port = self._ports.take() if ours else 0
            if ours:
                arguments = ("-m", "hcs", "router", "--kubeconfig", str(self._user("router")), "--port", str(port))
                arguments += ("--policy", self._policy, "--ready-file", "{ready}")
                await programs.start(Program("router", arguments))
            scheduler = self._plane.scheduler(self._user("router"), self._configuration(port))
            await programs.start(msgspec.structs.replace(scheduler, name=f"scheduler-{'ours' if ours else 'plain'}"))
            times = await watching
        finally:
            watching.cancel()
            await programs.stop()
            self._supervisors.remove(programs)
        gone = (pod["metadata"]["name"] for pod in pods)
        await _side_by_side(client.delete(resources.Pod, name, namespace="default", grace_period=0) for name in gone)
        warm = len(pods) // 10
        return (len(pods) - warm - 1) / (times[-1] - times[warm])

    def _configuration(self, port: int) -> Path:
        """The shipped configuration with our extender at this port; without one where the port is 0."""
        for manifest in read_manifests(config_directory() / "router.yaml"):
            if manifest["kind"] == "ConfigMap":
                shipped = yaml.safe_load(manifest["data"]["scheduler.yaml"])
        if port:
            shipped["extenders"][0]["urlPrefix"] = f"http://127.0.0.1:{port}"
        else:
            del shipped["extenders"]
            shipped["leaderElection"] = {"leaderElect": False}
            shipped["profiles"] = [{"schedulerName": _PLAIN}]
        shipped = scheduler_configuration(shipped, self._user("router"))
        shipped["clientConnection"] |= {"qps": _REQUESTS_PER_SECOND, "burst": _REQUESTS_PER_SECOND}
        path = self._directory / f"scheduler-{port}.yaml"
        path.write_text(yaml.safe_dump(shipped))
        return path


async def _bound(client: AsyncClient, pods: int) -> list[float]:
    """When each pod was bound, in the order in which it happened, in seconds of no particular beginning."""
    times: dict[str, float] = {}
    refused = ""
    try:
        async with asyncio.timeout(SECONDS):
            async for _, pod in client.watch(resources.Pod, namespace="default"):
                if pod.spec.nodeName:
                    times.setdefault(pod.metadata.name, perf_counter())
                elif conditions := pod.status.conditions:
                    refused = next((str(c.get("message")) for c in conditions if c.get("status") == "False"), refused)
                if len(times) == pods:
                    break
    except TimeoutError:
        raise UnboundError(
            f"{len(times)} of {pods} pods were bound within {SECONDS:g} s; the last refusal: {refused or 'none'}; "
            "give more nodes or fewer pods"
        ) from None
    return list(times.values())


def _asking(pod: Pod) -> dict[str, Any]:
    """The pod as admission leaves it."""
    return _manifest(pod.metadata.name, names.SCHEDULER, dict(pod.spec.containers[0].resources.limits or {}))


def _plain(pod: Pod) -> dict[str, Any]:
    """The pod without what it asks of us."""
    return _manifest(pod.metadata.name, _PLAIN, {})


def _manifest(name: str, scheduler: str, asked: dict[str, str]) -> dict[str, Any]:
    container = {
        "name": "main",
        "image": "example.invalid/job:1",
        "resources": {"requests": {"cpu": "100m"}, "limits": asked},
    }
    spec = {"schedulerName": scheduler, "containers": [container]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


async def _side_by_side(calls: Iterable[Awaitable[object]]) -> None:
    """All of them, a few at a time."""
    room = asyncio.Semaphore(_AT_ONCE)

    async def one(call: Awaitable[object]) -> None:
        async with room:
            await call

    await asyncio.gather(*(one(call) for call in calls))
