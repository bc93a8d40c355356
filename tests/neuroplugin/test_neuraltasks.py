"""NeuralTask objects: made, run, refused, moved out of the way, and gone without a trace."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import yaml
from tests.clusters import CONFIG
from tests.neuro.boards import board
from tests.neuroplugin.room import node
from tests.router.scene import Scene, scene, virtual

from hcs.neuroplugin.neuraltasks import NeuralTask
from hcs.neuroplugin.node import NeuroNode

PATH = "/apis/ai.compute/v1alpha1/namespaces/default/neuraltasks"
CORES = [{"neurons": 8}, {"neurons": 8}]


def task(name: str, **spec: Any) -> dict[str, Any]:
    model = {"name": "m", "cores": CORES, "ksps": spec.pop("ksps", 10)}
    package = {"name": name, "version": "1", "models": [model]}
    return {
        "apiVersion": "ai.compute/v1alpha1",
        "kind": "NeuralTask",
        "metadata": {"name": name},
        "spec": {"package": package, **spec},
    }


async def at_once(work: Any, *arguments: Any) -> Any:
    """Virtual time knows no threads."""
    return work(*arguments)


@asynccontextmanager
async def plugin(s: Scene, name: str = "node-1", **changes: Any) -> AsyncIterator[NeuroNode]:
    made, _ = node(board(ksps=100, **changes), client=s.connect(s.api), node=name, call=at_once)
    running = [asyncio.ensure_future(work()) for work in made.tasks()]
    try:
        yield made
    finally:
        for work in running:
            work.cancel()
        await asyncio.gather(*running, return_exceptions=True)


async def define(s: Scene) -> None:
    await s.post(
        "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
        yaml.safe_load((CONFIG / "crds" / "neuraltasks.yaml").read_text()),
    )


async def status(s: Scene, name: str) -> dict[str, Any]:
    found = await s.client.get(NeuralTask, name, namespace="default")
    return found.status


async def becomes(s: Scene, name: str, **wanted: Any) -> dict[str, Any]:
    now: dict[str, Any] = {}
    for _ in range(100):
        now = await status(s, name)
        if all(now.get(key) == value for key, value in wanted.items()):
            return now
        await asyncio.sleep(0.5)
    raise AssertionError(f"{name} is {now}, never {wanted}")


@virtual
async def test_an_object_is_placed_run_paused_and_freed(tmp_path: Path) -> None:
    async with scene(tmp_path) as s:
        await define(s)
        async with plugin(s) as made:
            await s.post(PATH, task("one", desired="Running"))
            now = await becomes(s, "one", state="Running")
            assert (now["node"], now["board"], now["task"], now["grid"]) == ("node-1", "b0", 1, "1x2")
            await s.merge(f"{PATH}/one", {"spec": {"desired": "Paused"}})
            await becomes(s, "one", state="Paused")
            await s.client.delete(NeuralTask, "one", namespace="default")
            for _ in range(100):
                if not [o async for o in s.client.list(NeuralTask, namespace="default")]:
                    break
                await asyncio.sleep(0.5)
            assert not made.service.tasks
            assert made.service.sites["b0"].cores.held == {}


@virtual
async def test_what_does_not_fit_says_so_and_is_placed_when_room_comes(tmp_path: Path) -> None:
    async with scene(tmp_path) as s:
        await define(s)
        async with plugin(s):
            await s.post(PATH, task("one", ksps=80))
            await becomes(s, "one", state="Ready")
            await s.post(PATH, task("two", ksps=30))
            now = await becomes(s, "two", state="Pending", reason="CapacityTaken")
            assert "has 20 of 100 left" in now["message"]
            await s.client.delete(NeuralTask, "one", namespace="default")
            now = await becomes(s, "two", state="Ready")
            assert "reason" not in now


@virtual
async def test_one_node_takes_an_object_and_the_other_leaves_it(tmp_path: Path) -> None:
    async with scene(tmp_path) as s:
        await define(s)
        async with plugin(s, "node-1") as first, plugin(s, "node-2") as second:
            for number in range(4):
                await s.post(PATH, task(f"t{number}"))
            for number in range(4):
                await becomes(s, f"t{number}", state="Ready")
            held = len(first.service.tasks) + len(second.service.tasks)
            assert held == 4, "each exactly once"


@virtual
async def test_a_malformed_package_is_refused_in_the_status(tmp_path: Path) -> None:
    async with scene(tmp_path) as s:
        await define(s)
        async with plugin(s):
            wrong = task("wrong")
            wrong["spec"]["package"]["models"] = []
            await s.post(PATH, wrong)
            now = await becomes(s, "wrong", reason="MalformedPackage")
            assert "at least one model" in now["message"]
