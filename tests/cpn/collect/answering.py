"""A server that answers in the place of a Prometheus, as a test says, good or bad."""

import asyncio
import urllib.parse
from collections.abc import Callable, Mapping
from typing import Any

import httpx2
import msgspec

from hcs.cpn.collect.prometheus import Address, Prometheus

Reply = tuple[int, bytes] | httpx2.Response | None


class Answering(httpx2.AsyncBaseTransport):
    """Answers each query by a function of its form; None: not at all."""

    def __init__(self, reply: Callable[[Mapping[str, str]], Reply]) -> None:
        self.reply, self.asked = reply, list[dict[str, str]]()

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        form = dict(urllib.parse.parse_qsl((await request.aread()).decode()))
        self.asked.append(form)
        reply = self.reply(form)
        if reply is None:
            await asyncio.Event().wait()
        if isinstance(reply, httpx2.Response):
            return reply
        assert reply is not None
        return httpx2.Response(reply[0], stream=httpx2.ByteStream(reply[1]), request=request)

    def client(self, **settings: Any) -> Prometheus:
        return Prometheus(Address("http://prometheus"), transport=self, **settings)


def vector(*series: tuple[Mapping[str, str], str], at: float = 1000.0, **more: Any) -> tuple[int, bytes]:
    """A good answer."""
    result = [{"metric": dict(labels), "value": [at, value]} for labels, value in series]
    return 200, msgspec.json.encode({"status": "success", "data": {"resultType": "vector", "result": result}, **more})


def refusal(status: int, kind: str, text: str) -> tuple[int, bytes]:
    """A refusal in Prometheus's words."""
    return status, msgspec.json.encode({"status": "error", "errorType": kind, "error": text})
