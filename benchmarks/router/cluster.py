"""A cluster of any size for the router to read: an API server that answers lists and nothing else, and pods to place.

The router reads it with its own informers, so what it holds in memory is what it holds in production.
"""

import asyncio
import random
from collections.abc import AsyncIterator
from typing import Any, Final

import httpx2
import msgspec
from lightkube import AsyncClient, KubeConfig
from lightkube.config.models import Cluster, User

from hcs.model import names
from hcs.model.pods import Pod

CARDS: Final = (
    ("nvidia", "A100-SXM4-80GB", 80, 100_000),
    ("ascend", "910B2", 64, 121_558),
    ("nvidia", "T4", 16, 20_800),
)
DEVICES: Final = 8
PAGE: Final = 500

SHARES: Final = tuple((vram, acu) for vram in (2, 4, 8, 16, 24, 32) for acu in (0, 3, 10))
WHOLE: Final = (1, 1, 2, 4, 8)


class Lists(httpx2.AsyncBaseTransport):
    """Lists of ComputeNodes, page by page; everything else is empty, and nothing ever changes."""

    def __init__(self, nodes: int) -> None:
        """Prepare a cluster with so many nodes."""
        self._nodes = nodes

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Answer one request."""
        query = request.url.params
        if request.method != "GET":
            return httpx2.Response(201, content=await request.aread() or b"{}", request=request)
        if query.get("watch"):
            return httpx2.Response(200, stream=_Silence(), request=request)
        first = int(query.get("continue") or 0)
        last, items = self._nodes, []
        if request.url.path.endswith("/computenodes"):
            last = min(first + PAGE, self._nodes)
            items = [compute_node(number) for number in range(first, last)]
        metadata = {"resourceVersion": "1", **({"continue": str(last)} if last < self._nodes else {})}
        answer = {"apiVersion": "v1", "kind": "List", "metadata": metadata, "items": items}
        return httpx2.Response(
            200, content=msgspec.json.encode(answer), headers={"content-type": "application/json"}, request=request
        )

    def client(self) -> AsyncClient:
        """A client of it."""
        config = KubeConfig.from_one(cluster=Cluster(server="https://cluster"), user=User())
        return AsyncClient(config=config, transport=self, trust_env=False)


class _Silence(httpx2.AsyncByteStream):
    """A watch on which nothing happens."""

    async def __aiter__(self) -> AsyncIterator[bytes]:
        await asyncio.Event().wait()
        yield b""


def node_name(number: int) -> str:
    """The name of a node; kinds of cards take turns."""
    return f"node-{number:05}"


def compute_node(number: int) -> dict[str, Any]:
    """What an agent says of a node."""
    vendor, model, gi, milliacu = CARDS[number % len(CARDS)]
    name = node_name(number)
    return {
        "apiVersion": f"{names.GROUP}/{names.VERSION}",
        "kind": "ComputeNode",
        "metadata": {"name": name, "uid": f"node-{number}", "resourceVersion": "1"},
        "status": {
            "devices": [
                {
                    "id": f"{name}-{index}",
                    "index": index,
                    "vendor": vendor,
                    "model": model,
                    "vram": gi << 30,
                    "rates": [{"workload": "gemm", "milliacu": milliacu, "source": "measured"}],
                    "numa": index // 4,
                    "verdict": "Healthy",
                }
                for index in range(DEVICES)
            ]
        },
    }


def pods(count: int, chance: random.Random, prefix: str) -> list[Pod]:
    """Pods as kube-scheduler sends them, of 22 shapes: three quarters ask for a share, the others for whole cards."""
    return [msgspec.convert(_pod(f"{prefix}-{number}", _asks(chance)), Pod) for number in range(count)]


def unseen(number: int) -> Pod:
    """A pod of a shape that no other has."""
    return msgspec.convert(_pod(f"unseen-{number}", {names.VRAM: str((1 << 30) + (number << 20))}), Pod)


def every_shape() -> list[Pod]:
    """One pod of each shape."""
    shapes = [_share(vram, acu) for vram, acu in SHARES] + [_cards(cards) for cards in sorted(set(WHOLE))]
    return [msgspec.convert(_pod(f"shape-{number}", asks), Pod) for number, asks in enumerate(shapes)]


def _asks(chance: random.Random) -> dict[str, str]:
    if chance.random() < 0.75:
        return _share(*chance.choice(SHARES))
    return _cards(chance.choice(WHOLE))


def _share(vram: int, acu: int) -> dict[str, str]:
    return {names.VRAM: f"{vram}Gi", **({names.ACU: str(acu)} if acu else {})}


def _cards(cards: int) -> dict[str, str]:
    return {names.CARDS: str(cards)}


def _pod(name: str, asks: dict[str, str]) -> dict[str, Any]:
    return {
        "metadata": {
            "name": name,
            "namespace": "default",
            "uid": name,
            "ownerReferences": [{"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "j", "controller": True}],
        },
        "spec": {
            "schedulerName": names.SCHEDULER,
            "containers": [{"name": "main", "image": "image", "resources": {"limits": asks}}],
        },
    }
