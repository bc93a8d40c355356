"""What the agent adds to the creation of a container, in milliseconds.

The whole agent (arbiter, injector, record on disk) answers a container runtime over NRI: a pod comes, and its container
with a share of a card is created, validated and removed. Once with the protocol-true stub of the tests, in a process of
its own: the time of the two questions with everything in between. And where a containerd from 2.2 on is found
(``HCS_CONTAINERD``), the time of CRI's CreateContainer with the agent less that without it. ``added_ms`` compares
medians, ``added_quiet_ms`` lower quartiles, in which what else a busy machine does counts less; the limit of 3 ms is
held against the latter. Prints one JSON line.

    python benchmarks/nri.py [CREATIONS]
"""

import asyncio
import contextlib
import json
import os
import platform
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import grpc

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.agent.scene import GIB, NodeScene, scene  # noqa: E402
from tests.nri.containerd import lacking, real_containerd  # noqa: E402
from tests.nri.runtime import stub_runtime  # noqa: E402
from tests.waiting import until  # noqa: E402

from hcs.model.pods import Pod  # noqa: E402
from hcs.native import interceptor_path  # noqa: E402

LIMIT_MS = 3.0
ROUNDS = 4
WARM = 3


def main() -> int:
    """Measure and print."""
    if sys.argv[1:2] in (["--ask"], ["--create"]):
        play = ask if sys.argv[1] == "--ask" else create
        asyncio.run(play(Path(sys.argv[2]), json.loads(sys.argv[3]), int(sys.argv[4])))
        return 0
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 40
    figures: dict[str, Any] = {"stub": asyncio.run(with_stub(count))}
    problem = lacking()
    figures["containerd"] = {"skipped": problem} if problem else asyncio.run(with_containerd(count))
    added = [figure["added_quiet_ms"] for figure in figures.values() if "added_quiet_ms" in figure]
    line = {
        "benchmark": "nri",
        "limit_ms": LIMIT_MS,
        "within_limit": max(added) <= LIMIT_MS,
        "creations": count,
        **figures,
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}",
        "command": "python benchmarks/nri.py",
        "seed": None,
    }
    print(json.dumps(line))
    return 0


async def with_stub(count: int) -> dict[str, float]:
    """The stub asks from a process of its own."""
    with tempfile.TemporaryDirectory(prefix="hcs-") as folder:
        place = Path(folder)
        async with scene(place) as node:
            node.interceptor = interceptor_path()
            pod = await bound(node, "one")
            await node.start_agent(nri_socket=place / "nri.sock", poll=5.0)
            described = json.dumps({"uid": pod.metadata.uid, "annotations": pod.annotations})
            child = await asyncio.create_subprocess_exec(
                sys.executable, __file__, "--ask", folder, described, str(count), stdout=asyncio.subprocess.PIPE
            )
            out, _ = await child.communicate()
            return dict(json.loads(out))


async def ask(folder: Path, pod: dict[str, Any], count: int) -> None:
    """The stub's process: create the container again and again, and print what it took."""
    async with stub_runtime(folder) as runtime:
        empty = await runtime.run_pod("web")
        before = [await timed(runtime.create(empty)) for _ in range(count)]
        await runtime.plugin()
        sandbox = await runtime.run_pod("one", pod["uid"], pod["annotations"])
        await runtime.remove(await runtime.create(sandbox))
        spent = []
        for _ in range(count):
            began = time.perf_counter()
            container = await runtime.create(sandbox)
            spent.append((time.perf_counter() - began) * 1000)
            await runtime.remove(container)
        assert "HCS_DEVICES" in container.env
    print(json.dumps({**added_by(spent, before), "p95_ms": p95(spent)}))


async def with_containerd(count: int) -> dict[str, Any]:
    """A real containerd, asked by a process of its own, which says when the agent shall be there and when not."""
    with tempfile.TemporaryDirectory(prefix="hcs-", ignore_cleanup_errors=True) as folder:
        place = Path(folder)
        async with scene(place) as node:
            node.interceptor = interceptor_path()
            pod = await bound(node, "one")
            described = json.dumps({"uid": pod.metadata.uid, "annotations": pod.annotations})
            child = await asyncio.create_subprocess_exec(
                sys.executable,
                __file__,
                "--create",
                folder,
                described,
                str(count),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
            )
            assert child.stdin is not None
            assert child.stdout is not None
            while (word := (await child.stdout.readline()).decode().strip()) in ("start", "stop"):
                if word == "start":
                    await node.start_agent(nri_socket=place / "nri" / "nri.sock", poll=5.0)
                    await until(lambda: node.agent.link is not None and node.agent.link.runtime is not None)
                else:
                    await node.stop_agent()
                child.stdin.write(b"done\n")
            await child.wait()
            return dict(json.loads(word))


async def create(folder: Path, pod: dict[str, Any], count: int) -> None:
    """The process that plays the kubelet: create containers with and without the agent, and print what it took."""

    async def ask_for(word: str) -> None:
        print(word, flush=True)
        await asyncio.to_thread(sys.stdin.readline)

    async with real_containerd(folder, validator=False) as containerd:
        sandbox = await containerd.run_pod("one", pod["uid"], pod["annotations"])

        async def creations() -> list[float]:
            spent = []
            for number in range(count // ROUNDS + WARM):
                began = time.perf_counter()
                container = await sandbox.create()
                if number >= WARM:
                    spent.append((time.perf_counter() - began) * 1000)
                await containerd.call("RemoveContainer", [(1, container)])
            return spent

        without, added = [], []
        for _ in range(ROUNDS):  # in turn, so that what else the machine does falls on both
            without += await creations()
            await ask_for("start")
            added += await creations()
            await ask_for("stop")
            with contextlib.suppress(grpc.aio.AioRpcError):  # the first one after it has gone is refused
                await sandbox.create()
        result = {
            "version": ".".join(map(str, containerd.version)),
            "without_ms": round(statistics.median(without), 2),
            "with_ms": round(statistics.median(added), 2),
            **added_by(added, without),
        }
    print(json.dumps(result), flush=True)


async def bound(node: NodeScene, name: str) -> Pod:
    """A pod with a share of the first card."""
    return await node.bound_pod(name, 0, amount=10 * GIB)


async def timed(work: Any) -> float:
    """Milliseconds."""
    began = time.perf_counter()
    await work
    return (time.perf_counter() - began) * 1000


def added_by(spent: list[float], without: list[float]) -> dict[str, float]:
    """How much longer it took, by the medians and by the lower quartiles."""
    quiet = statistics.quantiles(spent, n=4)[0] - statistics.quantiles(without, n=4)[0]
    return {
        "added_ms": round(statistics.median(spent) - statistics.median(without), 2),
        "added_quiet_ms": round(quiet, 2),
    }


def p95(values: list[float]) -> float:
    """The 95th percentile."""
    return round(sorted(values)[int(len(values) * 0.95)], 2)


if __name__ == "__main__":
    sys.exit(main())
