"""The process kubelet: emulated nodes, one worker for each pod bound to them.

One process may serve several nodes. Everything it starts ends with it, in the ordinary way and when it is killed. When
it starts again it finds its pods in the API and goes by their restart policy, as after the crash of a real node.
"""

import asyncio
import logging
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from lightkube import AsyncClient

from hcs.kube.informer import ChangeKind, Informer
from hcs.sandbox.images import ImageStore
from hcs.sandbox.kubelet.agent import Agent
from hcs.sandbox.kubelet.cluster import ApiCluster
from hcs.sandbox.kubelet.nodes import EmulatedNode, keep_alive
from hcs.sandbox.kubelet.pods import BoundPod
from hcs.sandbox.kubelet.restarts import BackOff
from hcs.sandbox.kubelet.workers import PodWorker, Surroundings

log = logging.getLogger(__name__)

STOP_SECONDS: Final = 1.5
"""How long all containers together may take to die when the kubelet stops."""


class Kubelet:
    """A kubelet; ``ready`` is set when its nodes are registered and its pods known."""

    def __init__(
        self,
        client: AsyncClient,
        nodes: Sequence[EmulatedNode],
        *,
        root: Path,
        images: ImageStore,
        pod_logs: Path,
        back_off: BackOff | None = None,
    ) -> None:
        """Prepare; nothing happens before :meth:`run`.

        Args:
            client: the connection; closing it stays with the caller.
            nodes: the emulated nodes to serve.
            root: for the trees and volumes of pods.
            images: where images are found.
            pod_logs: log files go to ``<namespace>_<pod>_<uid>/<container>.log`` below it.
            back_off: the pauses between restarts; None takes the sandbox's quick ones.
        """
        self._client, self._nodes = client, {node.name: node for node in nodes}
        self._root, self._logs = root.absolute(), pod_logs.absolute()
        self._surroundings = Surroundings(ApiCluster(client), images, back_off or BackOff())
        self._agents = {node.name: Agent(node.socket) for node in nodes}
        self._pods = Informer(client, BoundPod)
        self._workers: dict[str, PodWorker] = {}
        self._lives: dict[str, asyncio.Task[None]] = {}
        self._registered: set[str] = set()
        self.ready = asyncio.Event()

    async def run(self) -> None:
        """Serve until cancelled; then everything is killed and nothing is left running."""
        self._pods.on_change(self._change)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._pods.run())
                group.create_task(self._sweep())
                for node in self._nodes.values():
                    group.create_task(keep_alive(self._client, node, lambda name=node.name: self._register(name)))  # type: ignore[misc]
        finally:
            await self._stop()

    def find(self, namespace: str, name: str) -> BoundPod | None:
        """A pod of this kubelet's nodes."""
        pod = self._pods.get(name, namespace)
        return pod if pod is not None and pod.spec.nodeName in self._nodes else None

    def _register(self, node: str) -> None:
        self._registered.add(node)
        self._look_ready()

    def _look_ready(self) -> None:
        if len(self._registered) == len(self._nodes) and self._pods.synced.is_set():
            self.ready.set()

    def _change(self, kind: ChangeKind, pod: BoundPod, before: BoundPod | None) -> None:
        uid, node = pod.metadata.uid, pod.spec.nodeName
        worker = self._workers.get(uid)
        if kind == "DELETED":
            if worker is not None:
                worker.abandon(gone=True)
            return
        if node is None or node not in self._nodes:
            return
        if worker is None:
            worker = PodWorker(pod, self._surroundings, self._agents[node], self._place(pod), self.log_place(pod))
            self._workers[uid] = worker
            life = self._lives[uid] = asyncio.create_task(worker.run(), name=f"pod {pod.key}")
            life.add_done_callback(lambda done: self._over(uid, pod, done))
        worker.update(pod)

    def _over(self, uid: str, pod: BoundPod, life: asyncio.Task[None]) -> None:
        self._lives.pop(uid, None)
        if not life.cancelled() and (error := life.exception()) is not None:
            # The worker stays in the books: a pod whose worker failed is not started over and over.
            log.error("pod worker failed: pod=%s", pod.key, exc_info=error)
            return
        self._workers.pop(uid, None)
        for place in (self._place(pod), self.log_place(pod)):
            shutil.rmtree(place, ignore_errors=True)

    async def _sweep(self) -> None:
        """Remove what pods left behind that went while no kubelet ran."""
        await self._pods.synced.wait()
        known = {pod.metadata.uid for pod in self._pods.values()}
        for node in self._nodes:
            for place in (self._root / node).glob("*"):
                if place.name not in known:
                    shutil.rmtree(place, ignore_errors=True)
        self._look_ready()

    async def _stop(self) -> None:
        for worker in self._workers.values():
            worker.abandon()
        if self._lives:
            await asyncio.wait(list(self._lives.values()), timeout=STOP_SECONDS)
        for agent in self._agents.values():
            await agent.close()

    def _place(self, pod: BoundPod) -> Path:
        return self._root / str(pod.spec.nodeName) / pod.metadata.uid

    def log_place(self, pod: BoundPod) -> Path:
        """The folder of a pod's log files."""
        return self._logs / f"{pod.metadata.namespace or 'default'}_{pod.metadata.name}_{pod.metadata.uid}"
