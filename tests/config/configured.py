"""What the tests of ``config/`` share: its files as objects, and a place to run a program of ours in."""

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import Any

import yaml
from tests.clusters import CONFIG, Object

OPTIONAL = ("volcano.yaml", "cpn/cluster.yaml", "cpn/home.yaml")
"""Files for those who have what they are for."""
RIGHTS = ("cpn/cluster.yaml", "cpn/home.yaml")
"""Those of them that a bare server takes."""


def manifests(*files: str) -> list[Object]:
    """All objects of our YAML files, in order; without files those of every file that every cluster needs."""
    paths = [CONFIG / name for name in files] or sorted(
        path
        for path in CONFIG.rglob("*.yaml")
        if path.name != "kustomization.yaml" and path.relative_to(CONFIG).as_posix() not in OPTIONAL
    )
    return [item for path in paths for item in yaml.safe_load_all(path.read_text()) if item]


class InThread:
    """An asyncio program in a thread of its own; stopped by cancellation."""

    def __init__(self, program: Callable[[], Any]) -> None:
        self._loop = asyncio.new_event_loop()
        self._task = self._loop.create_task(program())
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        with contextlib.suppress(asyncio.CancelledError):
            self._loop.run_until_complete(self._task)

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._task.cancel)
        self._thread.join(30)
        assert not self._thread.is_alive()
        self._loop.run_until_complete(self._loop.shutdown_default_executor())
        self._loop.close()
