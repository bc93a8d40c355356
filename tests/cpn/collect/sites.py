"""Clusters for tests of the collectors: how to reach them, and an API on virtual time."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import httpx2
from lightkube import AsyncClient
from tests.router.scene import Scene

from hcs.cpn.collect.cluster import LiveCluster, Timing
from hcs.cpn.collect.connection import Site
from hcs.store.clusters import ClusterConfig
from hcs.wide.entries import LABEL_ENTRY, LABEL_QUEUE

QUEUE = "q1"
OURS = {LABEL_QUEUE: QUEUE, LABEL_ENTRY: "e1"}


def live(s: Scene, site: Site | None = None, **settings: Any) -> LiveCluster:
    """A cluster over the scene's API, running until the scene ends."""
    transport = settings.pop("transport", s.api)

    def connect(_: Site) -> AsyncClient:
        return s.connect(transport)

    cluster = LiveCluster(
        site or ClusterConfig("east"),
        **{"queue": QUEUE, "connect": connect, "timing": Timing(), "now": lambda: moment(s), **settings},
    )
    s.spawn(cluster.run())
    return cluster


def moment(s: Scene) -> int:
    """Milliseconds since 1970 on the scene's clock."""
    return int(s.today().timestamp() * 1000)


def job(name: str, **changes: Any) -> dict[str, Any]:
    """A Job's manifest."""
    labels = changes.pop("labels", {})
    template = {
        "metadata": {"labels": changes.pop("pod_labels", {})},
        "spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "example.invalid/t:1"}]},
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": "default", "labels": labels},
        "spec": {"template": template, **changes},
    }


class Silent(httpx2.AsyncBaseTransport):
    """A way on which, once it is deaf, nothing arrives any more and nothing is refused. What was open then is dead."""

    def __init__(self, inner: httpx2.AsyncBaseTransport) -> None:
        self.inner, self.deaf, self.outages = inner, False, 0

    def lose(self) -> None:
        self.deaf, self.outages = True, self.outages + 1

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        if self.deaf:
            await asyncio.Event().wait()
        answer = await self.inner.handle_async_request(request)
        return httpx2.Response(answer.status_code, headers=answer.headers, stream=_Heard(answer, self))


class _Heard(httpx2.AsyncByteStream):
    def __init__(self, answer: httpx2.Response, way: Silent) -> None:
        self._answer, self._way, self._outages = answer, way, way.outages

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for piece in self._answer.aiter_raw():
            if self._way.outages != self._outages:
                await asyncio.Event().wait()
            yield piece

    async def aclose(self) -> None:
        await self._answer.aclose()


class Refusing(httpx2.AsyncBaseTransport):
    """A way on which one path and what is below it is answered with an error, as an API server words it."""

    def __init__(self, inner: httpx2.AsyncBaseTransport, path: str, code: int) -> None:
        self.inner, self.path, self.code = inner, path, code

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        if request.url.path.startswith(self.path):
            status = {"kind": "Status", "status": "Failure", "code": self.code, "message": "not for you"}
            return httpx2.Response(self.code, json=status, request=request)
        return await self.inner.handle_async_request(request)
