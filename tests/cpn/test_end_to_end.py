"""Two sandbox clusters with routers, agents and kubelets, a real Prometheus, real processes, stores and a real queue.

Nothing is emulated but the cards and what their exporters say. What is asserted is what happened, never how fast.
"""

import asyncio
import contextlib
import functools
import hashlib
import math
import os
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import msgspec
import pytest
from tests.observed import NO_PROMETHEUS, Observed, observed
from tests.waiting import until

from hcs.cpn.assembly import Parts, Settings, wall_clock
from hcs.cpn.blobs import BlobFiles, BlobStore
from hcs.cpn.collect.cluster import LiveCluster, Timing
from hcs.cpn.collect.figures import Bounds
from hcs.cpn.controller import Settings as Controlling
from hcs.cpn.limits import Settings as Dispatching
from hcs.cpn.transfers import Settings as Transfers
from hcs.kube.connection import connect
from hcs.kube.resources import ComputeNode
from hcs.predict.jobs import Run
from hcs.process.serving import Endpoint, serve
from hcs.sandbox.cluster import Sandbox
from hcs.sandbox.fleet import Cards, Fleet, FleetNode
from hcs.store.clusters import ClusterConfig
from hcs.store.queue import QueueStore
from hcs.wide.entries import Entry
from hcs.wide.submissions import read_submission

FLEETS = {
    "east": Fleet((FleetNode("gpu-a", (Cards("nvidia", "A100-SXM4-80GB", 2),)),)),
    "west": Fleet((FleetNode("npu-a", (Cards("ascend", "Ascend910B2", 2),)),)),
}
DATA = os.urandom(3 << 20)
DIGEST = f"sha256:{hashlib.sha256(DATA).hexdigest()}"
SECONDS_A_STEP = {"alpha": 0.002, "beta": 0.006}


def job_file(number: int, model: str, steps: int, script: str = "", **annotations: str) -> dict[str, Any]:
    """A job that takes a while, says how much memory it took, and ends; unless another script is given."""
    pace = SECONDS_A_STEP.get(model, 0)
    script = script or f"echo hcs.progress 50%; sleep {pace * steps:.3f}; echo hcs.peak-memory 2Gi"
    pod_annotations = {key: annotations.pop(key) for key in list(annotations) if key.startswith("ai.compute/")}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": f"{model}-{number}",
            "annotations": {
                "model_name": model,
                "data_size": str(steps * 8),
                "batch_size": "8",
                "epoch": "1",
                **annotations,
            },
        },
        "spec": {
            "template": {
                "metadata": {"annotations": pod_annotations},
                "spec": {
                    "containers": [
                        {"name": "main", "image": "registry.example/base/plain:1", "command": ["sh", "-c", script]}
                    ]
                },
            }
        },
    }


class Stage:
    """Everything that runs during the test."""

    def __init__(self, folder: Path, prometheus: Observed) -> None:
        self.folder, self.prometheus = folder, prometheus
        self.sandboxes = {name: Sandbox(folder / name, fleet) for name, fleet in FLEETS.items()}
        self.stores: dict[str, str] = {}
        self.tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        await asyncio.gather(*(sandbox.start(lambda _: None) for sandbox in self.sandboxes.values()))
        for name in FLEETS:
            self.stores[name] = await self._blob_store(name)
        self.queue = QueueStore.open(self.folder / "queue.db", make_id=lambda: os.urandom(6).hex())
        for name, sandbox in self.sandboxes.items():
            config = ClusterConfig(
                name,
                kubeconfig=str(sandbox.kubeconfig),
                blobs=self.stores[name],
                prometheus=self.prometheus.url,
                prometheus_labels={"cluster": name},
            )
            self.queue.put_cluster(config)
        settings = Settings(
            transfers=Transfers(listing=1.0, poll=0.05),
            controller=Controlling(dispatching=Dispatching(progress_seconds=0.5)),
        )
        quick = functools.partial(LiveCluster, timing=Timing(metrics=Bounds(every=0.5)))
        self.parts = Parts(self.queue, settings=settings, make_cluster=quick)
        self.tasks += [asyncio.create_task(task()) for task in self.parts.tasks()]  # type: ignore[arg-type]

    async def _blob_store(self, name: str) -> str:
        ready = self.folder / f"{name}.ready"
        store = BlobStore(BlobFiles(self.folder / f"{name}-blobs"))
        self.tasks.append(asyncio.create_task(serve(store.application(), Endpoint(), ready=ready)))
        await until(ready.exists)
        return str(msgspec.json.decode(ready.read_bytes())["url"])

    def submit(self, manifest: dict[str, Any]) -> Entry:
        asked = read_submission(manifest, wall_clock())
        return self.queue.submit(manifest, asked.submission, key=None, now=wall_clock())[0]

    def entry(self, id: str) -> Entry:
        found = self.queue.get(id)
        assert found is not None
        return found

    async def all_succeeded(self, entries: list[Entry]) -> None:
        def over() -> bool:
            for task in self.tasks:
                assert not task.done(), task
            states = [self.entry(entry.id) for entry in entries]
            failed = [entry for entry in states if entry.state in ("Failed", "Refused") or entry.attempts]
            assert not failed, [(entry.id, entry.reason, entry.message) for entry in failed]
            return all(entry.state == "Succeeded" for entry in states)

        await until(over)

    def surprise(self, entries: list[Entry]) -> float:
        """How far the times that decisions were made with were from what the runs took: the mean logarithm."""
        runs = {(run.model, run.steps): run.seconds for run in self.queue.runs(Run)}
        found = []
        for entry in entries:
            placement, asked = self.entry(entry.id).placement, entry.submission
            assert placement is not None
            expected = (placement.expected - placement.decided) / 1000
            found.append(abs(math.log(expected / runs[asked.model, asked.steps])))
        return sum(found) / len(found)

    async def stop(self) -> None:
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        with contextlib.suppress(AttributeError):
            self.queue.close()
        await asyncio.gather(*(sandbox.stop() for sandbox in self.sandboxes.values()))


@contextlib.asynccontextmanager
async def stage(folder: Path, prometheus: Observed) -> AsyncIterator[Stage]:
    made = Stage(folder, prometheus)
    try:
        await made.start()
        yield made
    finally:
        await made.stop()


def round_of(begin: int, count: int) -> list[dict[str, Any]]:
    """Jobs of two models, each with another amount of work."""
    models = ("alpha", "beta")
    return [job_file(number, models[number % 2], 60 + 7 * number) for number in range(begin, begin + count)]


async def measured(s: Stage) -> None:
    """What a job does not say itself, its cluster's metrics do: the exporter shows 3 GiB on each card."""
    [exporter] = s.prometheus.exporters["east"]
    cards = sorted((s.sandboxes["east"].cards("gpu-a")).glob("*.card"))
    client = connect(str(s.sandboxes["east"].kubeconfig))
    devices = [device async for node in client.list(ComputeNode) for device in node.status.devices]
    await client.close()
    assert len(devices) == len(cards) == 2
    for device in devices:
        labels = {"device": device.id, "model": device.model, "vendor": device.vendor, "node": "gpu-a"}
        exporter.set("hcs_card_memory_used_bytes", 3 << 30, **labels)
    flag = s.folder / "seen"
    script = f"until [ -e {flag} ]; do sleep 0.1; done"
    quiet = s.submit(job_file(99, "gamma", 100, script, **{"ai.compute/models": "A100-SXM4-80GB"}))
    peaks = s.parts.controller.dispatcher.peaks

    def seen() -> bool:
        placement = s.entry(quiet.id).placement
        return placement is not None and peaks.of(placement.uid) == 3 << 30

    await until(seen)
    flag.touch()
    await s.all_succeeded([quiet])
    [run] = [run for run in s.queue.runs(Run) if run.model == "gamma"]
    assert run.peak_memory == 3 << 30


async def story(folder: Path, prometheus: Observed) -> None:
    async with stage(folder, prometheus) as s:
        async with httpx2.AsyncClient(trust_env=False) as http:
            answer = await http.put(f"{s.stores['east']}/blobs/{DIGEST}", content=DATA)
            assert answer.status_code == 201, answer.text

        first = [s.submit(manifest) for manifest in round_of(0, 17)]
        needing = {"inputs": f"{DIGEST}={len(DATA)}", "ai.compute/models": "Ascend910B2"}
        first.append(s.submit(job_file(17, "beta", 100, **needing)))
        await s.all_succeeded(first)
        assert s.parts.mover.moved == len(DATA)
        more = [s.submit(job_file(number, "alpha", 400 + number, **needing)) for number in (18, 19)]
        await s.all_succeeded(more)
        assert s.parts.mover.moved == len(DATA), "what is there is not moved again"
        first += more

        assert {entry.placement.cluster for e in first if (entry := s.entry(e.id)).placement} == {"east", "west"}
        assert len(list(s.queue.runs(Run))) == 20
        assert all(run.peak_memory == 2 << 30 for run in s.queue.runs(Run))
        assert "hcs.peak-memory 2Gi" in (s.queue.log(first[0].id, 0) or "")

        await measured(s)

        fitted = s.parts.forecasts.revision
        await until(lambda: s.parts.controller.learner.learnt == 21 and s.parts.forecasts.revision >= fitted)
        second = [s.submit(manifest) for manifest in round_of(20, 12)]
        await s.all_succeeded(second)
        assert s.surprise(second) < s.surprise(first)
        assert s.queue.kept("model"), "what was learnt is kept"


@pytest.mark.skipif(shutil.which("prometheus") is None, reason=NO_PROMETHEUS)
def test_twenty_jobs_run_on_two_clusters_and_the_second_round_is_foreseen_better(tmp_path: Path) -> None:
    with observed(tmp_path, {"east": 1, "west": 1}) as prometheus:
        asyncio.run(story(tmp_path, prometheus))
