"""The kubelet as a process of its own, against the sandbox's real API server.

Only this shows that statuses pass the server's validation, that logs come out of it, and what is left of a node's
containers when its kubelet is killed.
"""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from lightkube import AsyncClient
from tests.sandbox.kubelet.scene import shell
from tests.waiting import until

from hcs.kube import manifests, resources
from hcs.kube.connection import connect
from hcs.kube.informer import Informer
from hcs.model import names
from hcs.sandbox.images import PLAIN, ImageStore
from hcs.sandbox.jobs.controller import JobController
from hcs.sandbox.jobs.decisions import finished
from hcs.sandbox.kubelet.pods import BoundPod

pytestmark = pytest.mark.xdist_group("kubelet")


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A running API server; the directory holds ``admin.yaml`` and ``logs``."""
    directory = tmp_path_factory.mktemp("api")
    server = subprocess.Popen(
        [
            *(sys.executable, "-m", "hcs.sandbox.apiserver", "--data", str(directory / "data")),
            *("--ready-file", str(directory / "ready"), "--kubeconfig", str(directory / "admin.yaml")),
            *("--pod-log-dir", str(directory / "logs")),
        ],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    try:
        asyncio.run(until((directory / "ready").exists))
        yield directory
    finally:
        server.terminate()
        server.wait(60)


class Running:
    """A kubelet process and a client that follows the pods."""

    def __init__(self, api: Path, root: Path, images: ImageStore, client: AsyncClient) -> None:
        self._api, self._root, self._images, self.client = api, root, images, client
        self._pods = Informer(client, BoundPod)
        self._changed = asyncio.Event()
        self._pods.on_change(lambda *_: self._changed.set())
        self.process: asyncio.subprocess.Process | None = None

    async def start(self, node: str) -> None:
        ready = self._root / "ready"
        ready.unlink(missing_ok=True)
        self.process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "hcs.sandbox.kubelet", "--kubeconfig", str(self._api / "admin.yaml")),
            *("--node", node, "--node", f"{node}-cards=/nonexistent/agent.sock", "--root", str(self._root / "pods")),
            *("--images", str(self._images.directory), "--pod-log-dir", str(self._api / "logs")),
            *("--ready-file", str(ready)),
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
        await until(ready.exists)

    async def end(self, number: int) -> None:
        assert self.process is not None
        self.process.send_signal(number)
        async with asyncio.timeout(60):
            await self.process.wait()

    async def until(self, name: str, look: Callable[[BoundPod | None], bool]) -> BoundPod | None:
        """Wait until a pod looks as wanted."""
        async with asyncio.timeout(60):
            while True:
                self._changed.clear()
                pod = self._pods.get(name, "default")
                if look(pod):
                    return pod
                await self._changed.wait()

    @contextlib.asynccontextmanager
    async def following(self) -> AsyncIterator[None]:
        follower = asyncio.create_task(self._pods.run())
        try:
            yield
        finally:
            follower.cancel()
            await asyncio.gather(follower, return_exceptions=True)
            if self.process is not None and self.process.returncode is None:
                await self.end(signal.SIGKILL)


def manifest(name: str, node: str, container: dict[str, Any], **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {"nodeName": node, "containers": [{"name": "main", "image": PLAIN, **container}], **spec},
    }


async def log_of(client: AsyncClient, name: str) -> list[str]:
    """The lines a pod has written, at least one: a container that runs may not have come to its first one yet."""
    async with asyncio.timeout(60):
        lines: list[str] = []
        while not lines:
            lines = [line.strip() async for line in client.log(name, namespace="default")]
            await asyncio.sleep(0.02)
    return lines


def test_the_life_of_a_node(api: Path, images: ImageStore, tmp_path: Path) -> None:
    async def story() -> None:
        client = connect(str(api / "admin.yaml"))
        node = Running(api, tmp_path, images, client)
        async with node.following():
            await node.start("life")

            # The nodes are there: one free for all, one that belongs to an agent.
            plain, managed = await client.get(resources.Node, "life"), await client.get(resources.Node, "life-cards")
            assert not plain.spec.get("taints")
            assert [taint["key"] for taint in managed.spec["taints"]] == [names.MANAGED_TAINT]
            assert "emulated" in plain.status["nodeInfo"]["kubeletVersion"]
            assert (await client.get(resources.Lease, "life", namespace="kube-node-lease")).spec["holderIdentity"]

            # A pod runs to its end and its output comes out of the API.
            await manifests.create(client, manifest("short", "life", shell("echo out; exit 4"), restartPolicy="Never"))
            short = await node.until("short", lambda pod: pod is not None and pod.finished)
            assert short is not None
            assert short.status.phase == "Failed"
            assert (short.status.containerStatuses or [{}])[0]["state"]["terminated"]["exitCode"] == 4
            assert await log_of(client, "short") == ["out"]

            # A killed kubelet takes its containers with it; the next one runs them again.
            endless = shell("echo $$$$; trap 'echo bye; exit 0' TERM; while :; do sleep 0.05; done")
            await manifests.create(client, manifest("long", "life", endless))
            await node.until("long", ready_with(restarts=0))
            first = int((await log_of(client, "long"))[0])
            assert Path(f"/proc/{first}").exists()
            await node.end(signal.SIGKILL)
            await until(lambda: not Path(f"/proc/{first}").exists())
            await node.start("life")
            await node.until("long", ready_with(restarts=1))

            # Deletion: asked, ended, removed.
            await client.delete(resources.Pod, "long", namespace="default")
            await node.until("long", lambda pod: pod is None)

            # A stopped kubelet leaves nothing running.
            await manifests.create(client, manifest("left", "life", endless))
            await node.until("left", ready_with(restarts=0))
            last = int((await log_of(client, "left"))[0])
            await node.end(signal.SIGTERM)
            assert not Path(f"/proc/{last}").exists()
        await client.close()

    asyncio.run(story())


def ready_with(restarts: int) -> Callable[[BoundPod | None], bool]:
    """Whether a pod is ready, after so many restarts."""

    def look(pod: BoundPod | None) -> bool:
        if pod is None or not any(c.type == "Ready" and c.status == "True" for c in pod.status.conditions or ()):
            return False
        return bool((pod.status.containerStatuses or [{}])[0].get("restartCount") == restarts)

    return look


def test_the_job_controller_replaces_a_pod_that_was_deleted(api: Path, images: ImageStore, tmp_path: Path) -> None:
    async def story() -> None:
        client = connect(str(api / "admin.yaml"))
        controller = JobController(client)
        node = Running(api, tmp_path, images, client)
        async with node.following():
            await node.start("jobs")
            serving = asyncio.create_task(controller.run())
            flag = tmp_path / "flag"
            script = f"[ -e {flag} ] && exit 0; trap 'exit 143' TERM; echo runs; while :; do sleep 0.05; done"
            spec = manifest("", "jobs", shell(script), restartPolicy="OnFailure")["spec"]
            body = {"backoffLimit": 0, "template": {"spec": spec}}
            await manifests.create(
                client, {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "train"}, "spec": body}
            )

            def members() -> list[BoundPod]:
                found = [pod for pod in node._pods.values() if (pod.metadata.labels or {}).get("job-name") == "train"]
                return [pod for pod in found if pod.metadata.deletionTimestamp is None]

            await node.until("", lambda _: any(map(ready_with(0), members())))
            (first,) = members()
            await log_of(client, first.metadata.name)  # it has looked for the flag
            flag.touch()
            await client.delete(resources.Pod, first.metadata.name, namespace="default")
            await node.until("", lambda _: any(pod.status.phase == "Succeeded" for pod in members()))
            (second,) = members()
            assert second.metadata.uid != first.metadata.uid

            changes: Any = client.watch(resources.Job, namespace="default", resource_version="0")
            async with contextlib.aclosing(changes):
                async for _, job in changes:
                    if finished(job):
                        break
            assert job.status["conditions"][-1]["type"] == "Complete"
            assert (job.status["succeeded"], job.status["failed"]) == (1, 0), "the deleted pod is no failure"
            serving.cancel()
            await asyncio.gather(serving, return_exceptions=True)
        await client.close()

    asyncio.run(story())
