"""``GET /events``: every change of a job or a cluster as it happens, as server-sent events.

``job`` events carry the job's row, ``cluster`` events a name, ``lost`` says that this client was too slow and should
list again. A comment every few seconds keeps the line open. ``?job=ID`` tells of one job alone.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any, Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from hcs.cpn.service import Service
from hcs.cpn.wire import row
from hcs.store.database import Change

KEEP_ALIVE_SECONDS: Final = 10.0
_BACKLOG: Final = 1000
"""Events a client may be behind; then it has lost some."""


def event_routes(service: Service) -> list[Route]:
    """The route."""

    async def events(request: Request) -> Response:
        only = request.query_params.get("job", "")
        line = _Line(asyncio.get_running_loop(), only)
        # Heard from before the answer begins: a client that lists after it was greeted misses nothing.
        stop = service.store.on_change(line.put)
        return StreamingResponse(
            _stream(service, line, stop), media_type="text/event-stream", headers={"cache-control": "no-store"}
        )

    return [Route("/events", events, methods=["GET"])]


async def _stream(service: Service, line: "_Line", stop: Callable[[], None]) -> AsyncIterator[bytes]:
    try:
        yield _event("hello", {"queue": service.store.queue_id, "now": service.now()})
        while True:
            try:
                change = await asyncio.wait_for(line.get(), KEEP_ALIVE_SECONDS)
            except TimeoutError:
                yield b": still here\n\n"
                continue
            if change is None:
                yield _event("lost", {})
            elif change.entry is not None:
                yield _event("job", row(change.entry, service.expectations().get(change.entry.id)))
            else:
                yield _event("cluster", {"name": change.cluster})
    finally:
        stop()


class _Line:
    """What one client has yet to be told. Changes may be made on any thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop, only: str) -> None:
        self._loop, self._only = loop, only
        self._waiting: asyncio.Queue[Change | None] = asyncio.Queue()

    def put(self, change: Change) -> None:
        if self._only and (change.entry is None or change.entry.id != self._only):
            return
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._put, change)

    def _put(self, change: Change) -> None:
        if self._waiting.qsize() >= _BACKLOG:
            while not self._waiting.empty():
                self._waiting.get_nowait()
            self._waiting.put_nowait(None)
            return
        self._waiting.put_nowait(change)

    async def get(self) -> Change | None:
        return await self._waiting.get()


def _event(kind: str, data: Any) -> bytes:
    return b"event: " + kind.encode() + b"\ndata: " + msgspec.json.encode(data) + b"\n\n"
