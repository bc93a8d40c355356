"""Real stores of bytes on loopback, and wires between them that break when told."""

import asyncio
import hashlib
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any

import httpx2
import msgspec
from tests.waiting import until

from hcs.cpn.blobs import BlobFiles, BlobStore, Progress
from hcs.process.serving import Endpoint, serve

DATA = bytes(range(256)) * 5_200


def digest_of(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


async def soon(_: float) -> None:
    """Pauses between attempts are not what is tested."""
    await asyncio.sleep(0)


class Wires(httpx2.AsyncBaseTransport):
    """Leads to stores by host name; cuts an answer after so many bytes as often as told."""

    def __init__(self) -> None:
        self.stores: dict[str, httpx2.URL] = {}
        self.inner = httpx2.AsyncHTTPTransport()
        self.cuts: list[int] = []
        self.asked: list[tuple[str, str, str]] = []

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        self.asked.append((request.method, str(request.url), request.headers.get("range", "")))
        there = self.stores[request.url.host]
        request.url = request.url.copy_with(host=there.host, port=there.port)
        answer = await self.inner.handle_async_request(request)
        if self.cuts and request.method == "GET" and "/blobs/" in request.url.path:
            answer.stream = _Cut(answer.stream, self.cuts.pop(0))
        return answer


class _Cut(httpx2.AsyncByteStream):
    def __init__(self, stream: Any, left: int) -> None:
        self.stream, self.left = stream, left

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for piece in self.stream:
            yield piece[: self.left]
            self.left -= len(piece)
            if self.left <= 0:
                raise httpx2.ReadError("cut (on purpose)")

    async def aclose(self) -> None:
        await self.stream.aclose()


class _Shared(httpx2.AsyncBaseTransport):
    """The wires, for a client that closes its transport when it is done."""

    def __init__(self, wires: Wires) -> None:
        self.wires = wires

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        return await self.wires.handle_async_request(request)


class Depot:
    """Stores on virtual wires."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.wires = folder, Wires()
        self.stores: dict[str, BlobStore] = {}
        self.tasks: list[asyncio.Task[None]] = []
        self.http = self._client()

    def _client(self) -> httpx2.AsyncClient:
        return httpx2.AsyncClient(transport=_Shared(self.wires), timeout=60)

    async def open(self, name: str, limit: int | None = None, **more: Any) -> BlobStore:
        store = BlobStore(BlobFiles(self.folder / name, limit=limit), http=self._client, pause=soon, **more)
        self.stores[name] = store
        ready = self.folder / f"{name}{len(self.tasks)}.ready"
        self.tasks.append(asyncio.create_task(serve(store.application(), Endpoint(), ready=ready)))
        await until(ready.exists)
        self.wires.stores[name] = httpx2.URL(msgspec.json.decode(ready.read_bytes())["url"])
        return store

    async def put(self, name: str, data: bytes) -> None:
        answer = await self.http.put(f"http://{name}/blobs/{digest_of(data)}", content=data)
        assert answer.status_code == 201, answer.text

    async def fetched(self, name: str, data: bytes, source: str) -> Progress:
        store = self.stores[name]
        store.fetch(digest_of(data), f"http://{source}")
        while (found := store.fetch(digest_of(data), f"http://{source}")).state == "fetching":
            await asyncio.sleep(0.01)
            if not store._tasks:
                return store._progress[digest_of(data)]
        return found

    async def close(self) -> None:
        for store in self.stores.values():
            await store.close()
        await self.http.aclose()
        await self.wires.inner.aclose()
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)


def store_play(folder: Path, story: Callable[[Depot], Coroutine[Any, Any, None]]) -> None:
    async def whole() -> None:
        site = Depot(folder)
        try:
            await story(site)
        finally:
            await site.close()

    asyncio.run(whole())
