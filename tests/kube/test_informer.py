"""The local copy never misses a change: not over lost connections, expired versions, or a server that is down."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx2
import msgspec
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route
from tests.router.scene import Scene, scene, virtual

from hcs.kube.informer import ChangeKind, Informer
from hcs.kube.resources import Node, Pod
from hcs.sandbox.scheduler.inprocess import InProcessTransport

Seen = list[tuple[ChangeKind, str, str]]


def watch(s: Scene, transport: httpx2.AsyncBaseTransport | None = None, **settings: Any) -> tuple[Informer[Pod], Seen]:
    """A running informer on pods and what its handlers saw: kind, name, annotation ``x``."""
    informer = Informer(s.connect(transport or s.api), Pod, **settings)
    seen: Seen = []
    informer.on_change(lambda kind, pod, _: seen.append((kind, pod.metadata.name, pod.annotations.get("x", ""))))
    s.spawn(informer.run())
    return informer, seen


@virtual
async def test_what_is_there_and_what_changes_reaches_the_handlers_in_order(tmp_path: Path) -> None:
    async with scene(tmp_path) as s:
        await s.add_pod("old")
        informer, seen = watch(s)
        await informer.synced.wait()
        assert seen == [("ADDED", "old", "")]
        await s.add_pod("new")
        for number in range(3):
            await s.annotate("new", {"x": str(number)})
        await s.delete_pod("old")
        await asyncio.sleep(1)
        seen.remove(("MODIFIED", "old", ""))  # a deletion is announced by a deletionTimestamp first
        assert seen[1:] == [
            ("ADDED", "new", ""),
            ("MODIFIED", "new", "0"),
            ("MODIFIED", "new", "1"),
            ("MODIFIED", "new", "2"),
            ("DELETED", "old", ""),
        ]
        assert [pod.metadata.name for pod in informer.values()] == ["new"]
        assert informer.get("new", "default") is not None
        assert informer.get("old", "default") is None


@virtual
async def test_a_late_handler_is_told_what_is_known(tmp_path: Path) -> None:
    async with scene(tmp_path) as s:
        await s.add_pod("p")
        informer, _ = watch(s)
        await informer.synced.wait()
        told: list[str] = []
        informer.on_change(lambda kind, pod, before: told.append(f"{kind} {pod.metadata.name} {before}"))
        assert told == ["ADDED p None"]


@virtual
async def test_changes_during_a_lost_connection_are_found_by_comparison(tmp_path: Path) -> None:
    async with scene(tmp_path) as s:
        down = False
        transport = s.faulty(lambda _: "refuse" if down else None)
        for name in ("stays", "changes", "goes", "replaced"):
            await s.add_pod(name)
        informer, seen = watch(s, transport)
        await informer.synced.wait()
        await asyncio.sleep(1)
        seen.clear()
        down = True
        transport.cut()
        await s.annotate("changes", {"x": "1"})
        await s.delete_pod("goes")
        await s.delete_pod("replaced")
        await s.add_pod("replaced")
        await s.add_pod("comes")
        await asyncio.sleep(20)
        assert seen == []
        down = False
        await asyncio.sleep(6)
        assert sorted(seen) == [
            ("ADDED", "comes", ""),
            ("ADDED", "replaced", ""),
            ("DELETED", "goes", ""),
            ("DELETED", "replaced", ""),
            ("MODIFIED", "changes", "1"),
        ]
        assert seen.index(("DELETED", "replaced", "")) < seen.index(("ADDED", "replaced", ""))


@virtual
async def test_pauses_grow_to_five_seconds_and_start_anew_after_success(tmp_path: Path) -> None:
    async with scene(tmp_path) as s:
        pauses: list[float] = []
        down = True

        async def pause(seconds: float) -> None:
            pauses.append(seconds)
            await asyncio.sleep(seconds)

        transport = s.faulty(lambda _: "refuse" if down else None)
        informer, _ = watch(s, transport, pause=pause)
        await asyncio.sleep(60)
        assert not informer.synced.is_set()
        assert pauses[:8] == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0]
        assert max(pauses) == 5.0
        down = False
        await informer.synced.wait()
        await asyncio.sleep(1)
        pauses.clear()
        transport.cut()
        await asyncio.sleep(1)
        assert pauses == [0.1]


@virtual
async def test_an_expired_version_leads_to_a_new_list_without_a_pause(tmp_path: Path) -> None:
    """The watch ends after its five minutes; meanwhile so much happened elsewhere that its version is forgotten."""
    async with scene(tmp_path, history=10) as s:
        pauses: list[float] = []

        async def pause(seconds: float) -> None:
            pauses.append(seconds)
            await asyncio.sleep(seconds)

        await s.add_pod("p")
        await s.add_node("busy")
        lists = 0

        def count(request: httpx2.Request) -> None:
            nonlocal lists
            lists += request.url.path.endswith("/pods") and "watch" not in request.url.params

        informer, seen = watch(s, s.faulty(count), pause=pause)
        await informer.synced.wait()
        for number in range(30):
            await s.node_patch("busy", {"metadata": {"annotations": {"x": str(number)}}})
        await asyncio.sleep(295)
        assert lists == 2
        assert pauses == [0.0]
        await s.annotate("p", {"x": "after"})
        await asyncio.sleep(1)
        assert seen == [("ADDED", "p", ""), ("MODIFIED", "p", "after")]


@virtual
async def test_selectors_are_kept_over_lists_and_watches(tmp_path: Path) -> None:
    async with scene(tmp_path) as s:
        _, seen = watch(s, fields={"spec.schedulerName": "hcs-scheduler"})
        await s.add_pod("ours")
        await s.add_pod("theirs", scheduler="default-scheduler")
        await asyncio.sleep(1)
        assert seen == [("ADDED", "ours", "")]


@virtual
async def test_a_handler_that_fails_does_not_stop_the_others(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with scene(tmp_path) as s:
        informer: Informer[Pod] = Informer(s.client, Pod)
        seen: list[str] = []

        def fail(*_: object) -> None:
            raise ValueError("oh")

        informer.on_change(fail)
        informer.on_change(lambda kind, pod, _: seen.append(pod.metadata.name))
        s.spawn(informer.run())
        await s.add_pod("a")
        await s.add_pod("b")
        await asyncio.sleep(1)
        assert seen == ["a", "b"]
        assert "handler failed" in caplog.text


@virtual
async def test_a_watch_that_died_without_a_word_does_not_stay_silent_for_ever(tmp_path: Path) -> None:
    """Something between dropped the connection and told nobody: nothing comes, not even the end."""

    class Dropped(httpx2.AsyncByteStream):
        async def __aiter__(self) -> AsyncIterator[bytes]:
            await asyncio.Event().wait()
            yield b""

    class Dropping(httpx2.AsyncBaseTransport):
        dropped = False

        async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
            if "watch" in request.url.params and not self.dropped:
                self.dropped = True
                return httpx2.Response(200, stream=Dropped(), request=request)
            return await s.api.handle_async_request(request)

    async with scene(tmp_path) as s:
        _, seen = watch(s, Dropping())
        await asyncio.sleep(1)
        await s.add_pod("p")
        await s.until(lambda: seen == [("ADDED", "p", "")], seconds=400)


def _node(name: str, version: int) -> dict[str, Any]:
    return {
        "kind": "Node",
        "apiVersion": "v1",
        "metadata": {"name": name, "uid": name, "resourceVersion": str(version)},
    }


class ScriptedServer:
    """Answers lists with fixed nodes and each watch with the next script, noting the versions asked for."""

    def __init__(self, *scripts: list[dict[str, Any]] | int) -> None:
        self.scripts = list(scripts)
        self.lists = 0
        self.watched: list[str | None] = []
        self.app = Starlette(routes=[Route("/api/v1/nodes", self.nodes)])

    async def nodes(self, request: Request) -> Response:
        if "watch" not in request.query_params:
            self.lists += 1
            metadata = {"resourceVersion": "10"}
            return JSONResponse(
                {"kind": "NodeList", "apiVersion": "v1", "metadata": metadata, "items": [_node("a", 5)]}
            )
        self.watched.append(request.query_params.get("resourceVersion"))
        script: list[dict[str, Any]] | int = self.scripts.pop(0) if self.scripts else [{}]
        if isinstance(script, int):
            return JSONResponse({"kind": "Status", "code": script, "message": "too old"}, script)

        async def lines() -> AsyncIterator[bytes]:
            for event in script:
                if not event:
                    await asyncio.Event().wait()
                yield msgspec.json.encode(event) + b"\n"

        return StreamingResponse(lines(), media_type="application/json")


def _event(kind: str, item: dict[str, Any]) -> dict[str, Any]:
    return {"type": kind, "object": item}


BOOKMARK = _event("BOOKMARK", {"kind": "Node", "apiVersion": "v1", "metadata": {"resourceVersion": "40"}})
GONE = _event("ERROR", {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 410, "reason": "Expired"})
Pause = Callable[[float], Awaitable[None]]


@pytest.mark.parametrize(
    ("scripts", "lists", "watched", "seen"),
    [
        pytest.param(
            ([BOOKMARK, _event("MODIFIED", _node("a", 41)), {}],), 1, ["10"], ["ADDED a", "MODIFIED a"], id="bookmark"
        ),
        pytest.param(([BOOKMARK], [{}]), 1, ["10", "40"], ["ADDED a"], id="continues-from-a-bookmark"),
        pytest.param(([_event("ADDED", _node("a", 5)), {}],), 1, ["10"], ["ADDED a"], id="nothing-new"),
        pytest.param(([GONE], [{}]), 2, ["10", "10"], ["ADDED a"], id="410-as-an-event"),
        pytest.param((410, [{}]), 2, ["10", "10"], ["ADDED a"], id="410-as-an-answer"),
        pytest.param((500, [{}]), 2, ["10", "10"], ["ADDED a"], id="500"),
        pytest.param(
            ([_event("DELETED", _node("a", 12)), _event("ADDED", _node("a", 13)), {}],),
            1,
            ["10"],
            ["ADDED a", "DELETED a", "ADDED a"],
            id="deleted-and-made-again",
        ),
    ],
)
@virtual
async def test_what_a_watch_may_say(
    scripts: tuple[Any, ...], lists: int, watched: list[str], seen: list[str], tmp_path: Path
) -> None:
    async with scene(tmp_path) as s:
        server, found = ScriptedServer(*scripts), list[str]()
        informer = Informer(s.connect(InProcessTransport(server.app)), Node, namespace=None)
        informer.on_change(lambda kind, node, _: found.append(f"{kind} {node.metadata.name}"))
        s.spawn(informer.run())
        await asyncio.sleep(5)
        assert (server.lists, server.watched, found) == (lists, watched, seen)


def spoil(s: Scene, name: str, grace: Any) -> None:
    """Write a pod as a server of another version might: past all checks, straight into the store."""
    store = s.server.cluster.store
    stored = store.get("pods", "default", name)
    assert stored is not None
    pod = stored.copy()
    pod["spec"]["terminationGracePeriodSeconds"] = grace
    store.replace(stored, pod)


@virtual
async def test_an_object_that_cannot_be_read_stays_as_it_was_and_all_others_fresh(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with scene(tmp_path) as s:
        await s.add_pod("odd")
        await s.add_pod("plain")
        informer, seen = watch(s)
        await informer.synced.wait()
        spoil(s, "odd", "soon")
        await s.annotate("plain", {"x": "1"})
        await s.until(lambda: ("MODIFIED", "plain", "1") in seen)
        assert [name for kind, name, _ in seen if name == "odd"] == ["odd"], "as it was last read"
        assert any("object=default/odd" in record.getMessage() for record in caplog.records)
        spoil(s, "odd", 7)
        await s.until(lambda: ("MODIFIED", "odd", "") in seen)
        pod = informer.get("odd", "default")
        assert pod is not None
        assert pod.spec.terminationGracePeriodSeconds == 7


@virtual
async def test_one_that_cannot_be_read_from_the_beginning_is_not_there_and_goes_quietly(tmp_path: Path) -> None:
    async with scene(tmp_path) as s:
        await s.add_pod("odd")
        await s.add_pod("plain")
        spoil(s, "odd", "soon")
        informer, seen = watch(s)
        await informer.synced.wait()
        assert seen == [("ADDED", "plain", "")]
        await s.delete_pod("odd")
        await s.annotate("plain", {"x": "1"})
        await s.until(lambda: ("MODIFIED", "plain", "1") in seen)
        assert [name for _, name, _ in seen if name == "odd"] == []
