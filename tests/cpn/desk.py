"""A controller's desk without a controller: the real store and server, and expectations that a test sets."""

import asyncio
import contextlib
import itertools
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from prometheus_client import CollectorRegistry
from tests.waiting import SECONDS

from hcs.cpn.server import make_app
from hcs.cpn.server_access import Tokens
from hcs.cpn.service import Expectation, Why
from hcs.cpn.views import ClusterView
from hcs.model.refusals import Refusal
from hcs.process.serving import Endpoint, serve
from hcs.store.queue import QueueStore
from hcs.wide.entries import Entry

NOW = 1_900_000_000_000


class Desk:
    """A :class:`hcs.cpn.service.Service`."""

    def __init__(self, store: QueueStore) -> None:
        self.registry = CollectorRegistry()
        self.begin(store)

    def begin(self, store: QueueStore) -> None:
        """Begin anew with another store, so that tests may share a server."""
        self.store = store
        self.moment, self.woken = NOW, 0
        self.expected: dict[str, Expectation] = {}
        self.seen: list[ClusterView] = []
        self.trouble: Refusal | None = None
        self.reason = Why("waits for cards")

    def now(self) -> int:
        return self.moment

    def wake(self) -> None:
        self.woken += 1

    def ready(self) -> Refusal | None:
        return self.trouble

    def views(self) -> Sequence[ClusterView]:
        return self.seen

    def expectations(self) -> Mapping[str, Expectation]:
        return self.expected

    def why(self, entry: Entry) -> Why:
        return self.reason


def opened(path: Path) -> QueueStore:
    """A store whose ids are counted."""
    numbers = itertools.count()
    return QueueStore.open(path, make_id=lambda: f"j{next(numbers):07d}")


@contextlib.contextmanager
def served(desk: Desk, folder: Path, tokens: Tokens | None = None, *, port: int = 0) -> Iterator[str]:
    """The real server on a free port of loopback, on a thread of its own; gives its URL."""
    ready = folder / "ready.json"
    ready.unlink(missing_ok=True)
    loops: list[tuple[asyncio.AbstractEventLoop, asyncio.Task[None]]] = []

    async def main() -> None:
        serving = asyncio.create_task(serve(make_app(desk, tokens=tokens), Endpoint(port=port), ready=ready))
        loops.append((asyncio.get_running_loop(), serving))
        with contextlib.suppress(asyncio.CancelledError):
            await serving

    thread = threading.Thread(target=lambda: asyncio.run(main()))
    thread.start()
    try:
        end = time.monotonic() + SECONDS
        while not ready.exists() and thread.is_alive() and time.monotonic() < end:
            time.sleep(0.005)
        yield msgspec.json.decode(ready.read_bytes())["url"]
    finally:
        for loop, serving in loops:
            loop.call_soon_threadsafe(serving.cancel)
        thread.join()


def job(name: str = "train", *, limits: Mapping[str, Any] | None = None, **annotations: Any) -> dict[str, Any]:
    """A Job manifest with everything said that a prediction wants."""
    said = {"model_name": "resnet50", "data_size": 50_000, "epoch": 10, "batch_size": 100, **annotations}
    container = {
        "name": "main",
        "image": "train:1",
        "resources": {"limits": dict(limits or {"ai.compute/vram": "8Gi"})},
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "annotations": said},
        "spec": {"template": {"spec": {"containers": [container], "restartPolicy": "Never"}}},
    }
