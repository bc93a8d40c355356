"""HTTP without sockets: a client's requests go straight into an ASGI application, watches included.

The transport of the HTTP library waits for the end of an answer before it hands it over; a watch never ends. This one
streams. Connections can be made to fail on purpose: before the request arrives, or after it was carried out.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from typing import Any, Final

import httpx2

Message = MutableMapping[str, Any]
Application = Callable[
    [MutableMapping[str, Any], Callable[[], Awaitable[Message]], Callable[[Message], Awaitable[None]]], Awaitable[None]
]
Fault = Callable[[httpx2.Request], "str | None"]
"""Says for a request: None (let it through), ``refuse`` (never arrives, which is said), ``silent`` (never arrives, and
the client waits for as long as it is ready to), ``lose`` (carried out, answer lost), or what a
proxy in between answers instead: ``page`` (200 and a web page), ``bare`` (503 and nothing, not even a type) or
``forbid`` (403, as an API server says it)."""


class InProcessTransport(httpx2.AsyncBaseTransport):
    """A transport into one ASGI application."""

    def __init__(self, application: Application, *, fault: Fault | None = None) -> None:
        """Prepare.

        Args:
            application: the server.
            fault: decides about each request; None lets all through.
        """
        self.application, self.fault = application, fault
        self._streams: set[_Exchange] = set()

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Carry out one request; returns as soon as the answer's head is there."""
        fate = self.fault(request) if self.fault else None
        if fate == "refuse":
            raise httpx2.ConnectError("connection refused (on purpose)", request=request)
        if fate == "silent":
            await asyncio.sleep((request.extensions.get("timeout") or {}).get("read") or 0)
            raise httpx2.ReadTimeout("no answer in time (on purpose)", request=request)
        if fate in _PROXIES:
            return _PROXIES[fate](request)
        exchange = _Exchange(self.application, request, await request.aread())
        self._streams.add(exchange)
        exchange.task.add_done_callback(lambda _: self._streams.discard(exchange))
        timeout = (request.extensions.get("timeout") or {}).get("read")
        try:
            async with asyncio.timeout(timeout):
                await exchange.started.wait()
        except TimeoutError:
            raise httpx2.ReadTimeout("no answer in time", request=request) from None
        except BaseException:
            exchange.task.cancel()
            raise
        if fate == "lose":
            async for _ in exchange:
                pass
            raise httpx2.ReadError("connection lost (on purpose)", request=request)
        return httpx2.Response(exchange.status, headers=exchange.headers, stream=exchange, request=request)

    def cut(self, *, halfway: bool = False) -> None:
        """Cut every open connection, watches above all, as a network fault would.

        ``halfway``: in the middle of a line and without an error, as a proxy does that is stopped.
        """
        for exchange in list(self._streams):
            exchange.cut(halfway=halfway)


class _Exchange(httpx2.AsyncByteStream):
    """One request under way: runs the application as a task and hands its answer over piece by piece."""

    def __init__(self, application: Application, request: httpx2.Request, body: bytes) -> None:
        self.started, self.status = asyncio.Event(), 500
        self.headers: list[tuple[bytes, bytes]] = []
        self._pieces: asyncio.Queue[bytes | Exception | None] = asyncio.Queue()
        self._received, self._closed, self._body, self._request = False, asyncio.Event(), body, request
        self.task = asyncio.create_task(self._run(application))

    async def _run(self, application: Application) -> None:
        url = self._request.url
        scope = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.4"},
            "http_version": "1.1",
            "method": self._request.method,
            "headers": [(key.lower(), value) for key, value in self._request.headers.raw],
            "scheme": url.scheme,
            "path": url.path,
            "raw_path": url.raw_path.split(b"?")[0],
            "query_string": url.query,
            "server": (url.host, url.port or 80),
            "client": ("127.0.0.1", 1),
            "root_path": "",
        }
        try:
            await application(scope, self._receive, self._send)
        except (Exception, asyncio.CancelledError) as error:
            broken = httpx2.RemoteProtocolError(f"server failed: {error!r}", request=self._request)
            self._pieces.put_nowait(broken)
            if isinstance(error, asyncio.CancelledError):
                raise
        finally:
            self.started.set()
            self._pieces.put_nowait(None)

    async def _receive(self) -> Message:
        if not self._received:
            self._received = True
            return {"type": "http.request", "body": self._body, "more_body": False}
        await self._closed.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Message) -> None:
        if self._closed.is_set():
            raise OSError("the client is gone")
        if message["type"] == "http.response.start":
            self.status, self.headers = message["status"], list(message.get("headers", ()))
            self.started.set()
        elif message["type"] == "http.response.body":
            if message.get("body"):
                self._pieces.put_nowait(message["body"])
            if not message.get("more_body", False):
                self._pieces.put_nowait(None)

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while (piece := await self._pieces.get()) is not None:
            if isinstance(piece, Exception):
                raise piece
            yield piece

    def cut(self, *, halfway: bool = False) -> None:
        """End the answer now: with an error, or with half a line."""
        self._closed.set()
        if halfway:
            self._pieces.put_nowait(b'{"type":"MODIFIED","obj')
            self._pieces.put_nowait(None)
            return
        self._pieces.put_nowait(httpx2.ReadError("connection cut (on purpose)", request=self._request))

    async def aclose(self) -> None:
        """The client is done with it; the server learns of it, and is stopped if it does not mind."""
        self._closed.set()
        if not self.task.done():
            await asyncio.sleep(0)
            self.task.cancel()


_PROXIES: Final[dict[str, Callable[[httpx2.Request], httpx2.Response]]] = {
    "page": lambda request: httpx2.Response(
        200, headers={"content-type": "text/html"}, content=b"<html>Sign in</html>", request=request
    ),
    "bare": lambda request: httpx2.Response(503, request=request),
    "forbid": lambda request: httpx2.Response(
        403,
        json={"kind": "Status", "code": 403, "reason": "Forbidden", "message": "it is forbidden (on purpose)"},
        request=request,
    ),
}
