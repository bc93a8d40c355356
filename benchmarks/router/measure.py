"""What is measured on one cluster: decisions from an empty and on a half-full fleet, over HTTP, and memory.

Each decision calls the extender's ``filter``, the function behind the HTTP verb, with the names of all nodes: request
read, place chosen, devices reserved, answer made. No API server and no kube-scheduler takes part.
"""

import asyncio
import datetime
import random
import time
from pathlib import Path
from statistics import mean
from typing import Any

import msgspec
import uvicorn
from benchmarks.router import cluster

from hcs.model.pods import Pod
from hcs.process.serving import Endpoint
from hcs.router.app import make_app
from hcs.router.extender import Extender
from hcs.router.wire import FilterArguments

LIVE = 4
"""Pods a node holds where the fleet is half full."""


async def measure(nodes: int, decisions: int, seed: int, policy: str) -> dict[str, float]:
    """Measure one size."""
    chance = random.Random(seed)
    names = tuple(cluster.node_name(number) for number in range(nodes))
    extender, sync_s, task = await _read_in(nodes, policy)
    result: dict[str, float] = {}

    cold = cluster.pods(decisions, chance, "cold")
    began = time.perf_counter()
    placed = [pod for pod in cold if _filter(extender, pod, names)]
    result["cold_per_s"] = round(len(cold) / (time.perf_counter() - began))

    for number, pod in enumerate(cluster.pods(max(LIVE * nodes - len(placed), 0), chance, "fill")):
        if _filter(extender, pod, names):
            placed.append(pod)
        if number % 256 == 0:
            await asyncio.sleep(0)
    for pod in cluster.every_shape():
        if _filter(extender, pod, names):
            extender.reservations.drop(pod.metadata.uid)
    times, warm = [], cluster.pods(decisions, chance, "warm")
    for pod in warm:
        before = time.perf_counter()
        if _filter(extender, pod, names):
            placed.append(pod)
        times.append(time.perf_counter() - before)
        leaves = placed.pop(chance.randrange(len(placed)))  # as many go as come
        extender.reservations.drop(leaves.metadata.uid)
    result["warm_per_s"] = round(len(warm) / sum(times))
    result["warm_p99_ms"] = round(sorted(times)[len(times) * 99 // 100] * 1e3, 3)

    first = []
    for number in range(20):
        before = time.perf_counter()
        pod = cluster.unseen(number)
        if _filter(extender, pod, names):
            extender.reservations.drop(pod.metadata.uid)
        first.append(time.perf_counter() - before)
    result["first_seen_ms"] = round(mean(first) * 1e3, 2)
    result["http_per_s"] = round(await _over_http(extender, cluster.pods(200, chance, "http"), names))
    result["sync_s"] = round(sync_s, 2)
    result["rss_mib"] = round(_resident("VmRSS"))
    result["peak_mib"] = round(_resident("VmHWM"))
    task.cancel()
    return {name: result[name] for name in ORDER}


ORDER = (
    "warm_per_s",
    "warm_p99_ms",
    "cold_per_s",
    "http_per_s",
    "rss_mib",
    "first_seen_ms",
    "sync_s",
    "peak_mib",
)


async def _read_in(nodes: int, policy: str) -> tuple[Extender, float, "asyncio.Task[None]"]:
    extender = Extender(
        cluster.Lists(nodes).client(),
        now=asyncio.get_running_loop().time,
        today=lambda: datetime.datetime.now(datetime.UTC),
        reservation_seconds=3600,
        policy=policy,
    )
    began = time.perf_counter()
    task = asyncio.create_task(extender.view.run())
    await extender.view.wait_synced()
    assert len(extender.view.placer.fleet.nodes) == nodes
    return extender, time.perf_counter() - began, task


def _filter(extender: Extender, pod: Pod, names: tuple[str, ...]) -> bool:
    return bool(extender.filter(FilterArguments(pod, names)).node_names)


async def _over_http(extender: Extender, pods: list[Pod], names: tuple[str, ...]) -> float:
    """Pods a second over one connection, one after the other, as kube-scheduler calls; names only."""
    listener = Endpoint().listen()
    server = uvicorn.Server(uvicorn.Config(make_app(extender), log_level="error", lifespan="off"))
    serving = asyncio.create_task(server.serve([listener]))
    reader, writer = await asyncio.open_connection(*listener.getsockname())  # it listens already
    listed = msgspec.json.encode(names)
    began = time.perf_counter()
    for pod in pods:
        body = b'{"Pod":%s,"Nodes":null,"NodeNames":%s}' % (msgspec.json.encode(pod), listed)
        writer.write(b"POST /filter HTTP/1.1\r\nHost: router\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
        answer = await _answer(reader)
        assert not answer["Error"]
    rate = len(pods) / (time.perf_counter() - began)
    writer.close()
    server.should_exit = True
    await serving
    return rate


async def _answer(reader: asyncio.StreamReader) -> dict[str, Any]:
    head = await reader.readuntil(b"\r\n\r\n")
    fields = dict(line.split(b": ", 1) for line in head.lower().split(b"\r\n")[1:] if b": " in line)
    answer: dict[str, Any] = msgspec.json.decode(await reader.readexactly(int(fields[b"content-length"])))
    return answer


def _resident(field: str) -> float:
    """MiB of this process that are in memory, or were at most."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) / 1024
    return 0.0
