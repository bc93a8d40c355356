"""The real kubelet, standing alone: it takes our resources, and has them again after its own restart.

Only it can show that the wire is right. It needs root, containerd, and the kubelet's fixed directory for itself.
"""

import asyncio
import contextlib
import os
import shutil
import socket
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import pytest
from tests.clusters import free_port, real_binaries
from tests.neuro.boards import board
from tests.protobuf import every, text
from tests.waiting import until

from hcs.deviceplugin.plugin import DIRECTORY, KUBELET
from hcs.neuroplugin.node import NeuroNode
from hcs.neuroplugin.settings import Settings
from hcs.vendors.emulated_board import EmulatedBoard

CONFIG = """
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
failCgroupV1: false
failSwapOn: false
cgroupDriver: cgroupfs
cgroupsPerQOS: false
enforceNodeAllocatable: []
authentication: {{anonymous: {{enabled: true}}, webhook: {{enabled: false}}}}
authorization: {{mode: AlwaysAllow}}
containerRuntimeEndpoint: unix://{folder}/ctrd.sock
address: 127.0.0.1
port: {port}
healthzPort: 0
readOnlyPort: 0
localStorageCapacityIsolation: false
"""
RUNTIME = """
version = 2
root = "{folder}/root"
state = "{folder}/state"
[grpc]
  address = "{folder}/ctrd.sock"
[ttrpc]
  address = "{folder}/ctrd.ttrpc"
"""


def in_use() -> bool:
    with socket.socket(socket.AF_UNIX) as probe:
        return probe.connect_ex(str(DIRECTORY / KUBELET)) == 0


def lacking() -> str:
    """Why it cannot run here; empty where it can."""
    if real_binaries("kubelet") is None:
        return "no real Kubernetes: no kubelet in KUBEBUILDER_ASSETS or /usr/local/kubebuilder/bin"
    if os.geteuid() != 0:
        return "no kubelet without root"
    if shutil.which("containerd") is None:
        return "no containerd for the kubelet"
    return "another kubelet runs on this machine" if in_use() else ""


class Kubelet:
    """A real kubelet that nobody commands, on a containerd of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        (folder / "config.yaml").write_text(CONFIG.format(folder=folder, port=free_port()))
        (folder / "ctrd.toml").write_text(RUNTIME.format(folder=folder))

    async def start(self) -> None:
        binaries = real_binaries("kubelet")
        assert binaries is not None
        folders = ("--root-dir", str(self.folder / "kubelet"), "--cert-dir", str(self.folder / "certs"))
        named = ("--config", "config.yaml", "--hostname-override", "n1")
        self._run("kubelet", str(binaries / "kubelet"), *named, *folders)
        await until(in_use)

    async def start_runtime(self) -> None:
        self._run("containerd", "containerd", "--config", "ctrd.toml")
        await until((self.folder / "ctrd.sock").exists)

    def stop(self, name: str) -> None:
        process = self._processes.pop(name, None)
        if process is not None:
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def unmount(self) -> None:
        """It binds its own folder onto itself, so that volumes are shared."""
        subprocess.run(["umount", str(self.folder / "kubelet")], check=False, capture_output=True)

    async def allocatable(self, resource: str) -> int:
        """How many ids of a resource it would give, as its podresources socket says."""
        address = f"unix://{self.folder}/kubelet/pod-resources/kubelet.sock"
        async with grpc.aio.insecure_channel(address, options=[("grpc.default_authority", "localhost")]) as channel:
            with contextlib.suppress(grpc.aio.AioRpcError):
                answer = await channel.unary_unary("/v1.PodResourcesLister/GetAllocatableResources")(b"", timeout=5)
                return sum(len(every(d, 2)) for d in every(answer, 1) if text(d, 1) == resource)
        return -1

    def _run(self, name: str, *command: str) -> None:
        with open(self.folder / f"{name}.log", "ab") as log:
            self._processes[name] = subprocess.Popen(command, cwd=self.folder, stdout=log, stderr=log)


@contextlib.asynccontextmanager
async def alone(folder: Path) -> AsyncIterator[Kubelet]:
    kubelet = Kubelet(folder)
    try:
        await kubelet.start_runtime()
        await kubelet.start()
        yield kubelet
    finally:
        kubelet.stop("kubelet")
        kubelet.stop("containerd")
        kubelet.unmount()
        for left in () if in_use() else DIRECTORY.glob("*"):
            if left.is_socket() or left.name == "kubelet_internal_checkpoint":
                left.unlink()


@pytest.mark.real
@pytest.mark.skipif(bool(lacking()), reason=lacking() or "-")
def test_the_real_kubelet_takes_our_resources_and_again_after_its_restart(folder: Path) -> None:
    async def story() -> None:
        drivers = {"b0": EmulatedBoard(board(ksps=500))}
        async with alone(folder) as kubelet:
            node = NeuroNode(drivers, Settings(), pod_resources=folder / "kubelet" / "pod-resources" / "kubelet.sock")
            await node.publish()
            running = [asyncio.ensure_future(work()) for work in node.tasks()]
            try:
                await shows(kubelet, ksps=500, cores=64)
                drivers["b0"].fail(routers=[(0, 0)])
                await shows(kubelet, cores=63)
                kubelet.stop("kubelet")
                await kubelet.start()
                await shows(kubelet, ksps=500, cores=63, streams=12)
            finally:
                for work in running:
                    work.cancel()
                await asyncio.gather(*running, return_exceptions=True)

    async def shows(kubelet: Kubelet, **amounts: int) -> None:
        for word, amount in amounts.items():
            name = "snn.ai.compute/" + {"streams": "event-routing-streams"}.get(word, word)

            async def there(name: str = name, amount: int = amount) -> bool:
                return await kubelet.allocatable(name) == amount

            await until(there)

    asyncio.run(story())
