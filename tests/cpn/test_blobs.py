"""A store of bytes: only what has its digest is ever served, and a fetch goes on where it stopped."""

import asyncio
import hashlib
import os
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any

import httpx2
import msgspec
import pytest
from tests.waiting import until

from hcs.cpn.blobs import BlobFiles, BlobStore, Progress
from hcs.process.serving import Endpoint, serve

DATA = bytes(range(256)) * 20_000


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


class Site:
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


def play(folder: Path, story: Callable[[Site], Coroutine[Any, Any, None]]) -> None:
    async def whole() -> None:
        site = Site(folder)
        try:
            await story(site)
        finally:
            await site.close()

    asyncio.run(whole())


def test_what_is_put_is_served_whole_and_in_parts(tmp_path: Path) -> None:
    async def story(s: Site) -> None:
        await s.open("east")
        await s.put("east", DATA)
        url = f"http://east/blobs/{digest_of(DATA)}"
        assert (await s.http.get(url)).content == DATA
        assert (await s.http.get(url, headers={"Range": "bytes=5-9"})).content == DATA[5:10]
        assert (await s.http.head(url)).headers["content-length"] == str(len(DATA))
        assert (await s.http.get("http://east/blobs")).json() == {"blobs": {digest_of(DATA): len(DATA)}}

    play(tmp_path, story)


@pytest.mark.parametrize(
    ("method", "path", "code", "reason"),
    [
        pytest.param("GET", "/blobs/sha256:xyz", 400, "BadDigest", id="no-digest"),
        pytest.param("GET", "/blobs/..%2f..%2fetc%2fpasswd", 404, None, id="a-path"),
        pytest.param("GET", f"/blobs/{digest_of(b'?')}", 404, "UnknownBlob", id="unknown"),
        pytest.param("PUT", f"/blobs/{digest_of(b'?')}", 422, "WrongDigest", id="other-bytes"),
        pytest.param("POST", "/fetch", 400, "BadRequest", id="no-json"),
        pytest.param("GET", f"/fetch/{digest_of(b'?')}", 404, "UnknownFetch", id="never-asked"),
    ],
)
def test_nonsense_gets_a_reason(tmp_path: Path, method: str, path: str, code: int, reason: str | None) -> None:
    async def story(s: Site) -> None:
        await s.open("east")
        answer = await s.http.request(method, f"http://east{path}", content=b"not it")
        assert answer.status_code == code
        if reason is not None:
            assert answer.json()["reason"] == reason
        assert (await s.http.get("http://east/blobs")).json() == {"blobs": {}}

    play(tmp_path, story)


def test_a_fetch_goes_on_where_the_line_broke(tmp_path: Path) -> None:
    async def story(s: Site) -> None:
        await s.open("east")
        west = await s.open("west")
        await s.put("east", DATA)
        s.wires.cuts = [3_000_000, 1_000_000]
        found = await s.fetched("west", DATA, "east")
        assert found.state == "done"
        assert west.files.listing() == {digest_of(DATA): len(DATA)}
        ranges = [asked for method, _, asked in s.wires.asked if method == "GET"]
        assert ranges[0] == ""
        assert all(asked.startswith("bytes=") and asked != "bytes=0-" for asked in ranges[1:])

    play(tmp_path, story)


def test_a_killed_store_goes_on_from_what_it_has(tmp_path: Path) -> None:
    async def story(s: Site) -> None:
        await s.open("east")
        west = await s.open("west")
        await s.put("east", DATA)
        part = west.files.part(digest_of(DATA))
        part.write_bytes(DATA[:4_000_000])  # as the process left it
        await s.open("west")
        assert (await s.fetched("west", DATA, "east")).state == "done"
        assert [asked for *_, asked in s.wires.asked][-1] == "bytes=4000000-"

    play(tmp_path, story)


def test_a_damaged_part_is_noticed_and_fetched_anew(tmp_path: Path) -> None:
    async def story(s: Site) -> None:
        await s.open("east")
        west = await s.open("west")
        await s.put("east", DATA)
        west.files.part(digest_of(DATA)).write_bytes(b"x" * 1000)
        assert (await s.fetched("west", DATA, "east")).state == "done"
        path = west.files.path(digest_of(DATA))
        assert path is not None
        assert path.read_bytes() == DATA

    play(tmp_path, story)


def test_a_source_that_serves_something_else_is_not_believed(tmp_path: Path) -> None:
    async def story(s: Site) -> None:
        east = await s.open("east")
        west = await s.open("west")
        await s.put("east", DATA)
        path = east.files.path(digest_of(DATA))
        assert path is not None
        path.write_bytes(DATA[:-1] + b"!")
        found = await s.fetched("west", DATA, "east")
        assert found.state == "failed"
        assert "WrongDigest" in found.message
        assert west.files.listing() == {}

    play(tmp_path, story)


def test_two_who_ask_wait_for_one_transfer(tmp_path: Path) -> None:
    async def story(s: Site) -> None:
        await s.open("east")
        west = await s.open("west")
        await s.put("east", DATA)
        for _ in range(3):
            west.fetch(digest_of(DATA), "http://east")
        assert (await s.fetched("west", DATA, "east")).state == "done"
        assert sum(method == "GET" for method, *_ in s.wires.asked) == 1

    play(tmp_path, story)


def test_the_disk_is_bounded_and_what_was_not_used_goes_first(tmp_path: Path) -> None:
    async def story(s: Site) -> None:
        store = await s.open("east", limit=2500)
        one, two, three = (bytes([number]) * 1000 for number in range(3))
        for at, data in enumerate((one, two)):
            await s.put("east", data)
            path = store.files.path(digest_of(data))
            assert path is not None
            os.utime(path, (at, at))
        await s.http.get(f"http://east/blobs/{digest_of(one)}")
        await s.put("east", three)
        assert set(store.files.listing()) == {digest_of(one), digest_of(three)}
        answer = await s.http.put(f"http://east/blobs/{digest_of(DATA)}", content=DATA)
        assert (answer.status_code, answer.json()["reason"]) == (507, "TooLarge")
        assert len(store.files.listing()) == 2, "and nothing was dropped for what could never fit"

    play(tmp_path, story)


def test_writers_show_a_token_and_sources_are_those_allowed(tmp_path: Path) -> None:
    async def story(s: Site) -> None:
        await s.open("east", token="t0ken", sources=("http://east/",))
        url = f"http://east/blobs/{digest_of(DATA)}"
        assert (await s.http.put(url, content=DATA)).json()["reason"] == "NotAllowed"
        bearer = {"Authorization": "Bearer t0ken"}
        assert (await s.http.put(url, content=DATA, headers=bearer)).status_code == 201
        for source, reason in (("http://metadata/", "SourceNotAllowed"), ("file:///etc", "BadSource")):
            body = {"digest": digest_of(b"other"), "source": source}
            answer = await s.http.post("http://east/fetch", json=body, headers=bearer)
            assert answer.json()["reason"] == reason

    play(tmp_path, story)
