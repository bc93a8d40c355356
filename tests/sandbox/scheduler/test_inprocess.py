"""Requests without sockets: streamed, lost, refused, cut."""

import asyncio
from collections.abc import AsyncIterator

import httpx2
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route
from tests.router.scene import virtual

from hcs.sandbox.scheduler.inprocess import Fault, InProcessTransport


class Server:
    """Counts what it did."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.left = False
        self.app = Starlette(
            routes=[
                Route("/echo", self.echo, methods=["POST"]),
                Route("/slow", self.slow),
                Route("/watch", self.watch),
                Route("/broken", self.broken),
            ]
        )

    async def echo(self, request: Request) -> Response:
        self.done.append((await request.body()).decode())
        return PlainTextResponse(f"{request.url.path}?{request.url.query} {self.done[-1]}", 201, {"x-a": "b"})

    async def slow(self, _: Request) -> Response:
        await asyncio.sleep(60)
        self.done.append("slow")
        return PlainTextResponse("late")

    async def watch(self, _: Request) -> Response:
        async def lines() -> AsyncIterator[bytes]:
            try:
                for number in range(1000):
                    yield b"%d\n" % number
                    await asyncio.sleep(1)
            finally:
                self.left = True

        return StreamingResponse(lines())

    async def broken(self, _: Request) -> Response:
        raise ValueError("oh")

    def client(self, fault: Fault | None = None) -> tuple[httpx2.AsyncClient, InProcessTransport]:
        transport = InProcessTransport(self.app, fault=fault)
        return httpx2.AsyncClient(transport=transport, base_url="http://server", timeout=5), transport


@virtual
async def test_a_request_arrives_whole() -> None:
    server = Server()
    http, _ = server.client()
    answer = await http.post("/echo?a=1&b=%2F", content=b"hello")
    assert (answer.status_code, answer.text, answer.headers["x-a"]) == (201, "/echo?a=1&b=%2F hello", "b")


@virtual
async def test_an_endless_answer_is_handed_over_line_by_line() -> None:
    server = Server()
    http, _ = server.client()
    async with http.stream("GET", "/watch") as answer:
        lines = answer.aiter_lines()
        assert [await anext(lines) for _ in range(3)] == ["0", "1", "2"]
        assert asyncio.get_running_loop().time() == 2
    await asyncio.sleep(2)
    assert server.left


@virtual
async def test_a_cut_ends_streams_with_an_error() -> None:
    server = Server()
    http, transport = server.client()
    async with http.stream("GET", "/watch") as answer:
        lines = answer.aiter_lines()
        await anext(lines)
        transport.cut()
        with pytest.raises(httpx2.ReadError):
            await anext(lines)


@virtual
async def test_a_lost_answer_was_carried_out_and_a_refused_request_was_not() -> None:
    server = Server()
    lossy, _ = server.client(lambda request: "lose")
    closed, _ = server.client(lambda request: "refuse")
    with pytest.raises(httpx2.ReadError):
        await lossy.post("/echo", content=b"lost")
    with pytest.raises(httpx2.ConnectError):
        await closed.post("/echo", content=b"refused")
    assert server.done == ["lost"]


@virtual
async def test_a_slow_answer_times_out_and_the_server_goes_on() -> None:
    server = Server()
    http, _ = server.client()
    with pytest.raises(httpx2.ReadTimeout):
        await http.get("/slow")
    await asyncio.sleep(60)
    assert server.done == ["slow"]


@virtual
async def test_a_server_that_breaks_is_an_error() -> None:
    http, _ = Server().client()
    answer = await http.get("/broken")
    assert answer.status_code == 500
