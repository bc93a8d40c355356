"""A server that answers in the place of a Prometheus, as a test says, good or bad."""

import asyncio
import urllib.parse
from collections.abc import Callable, Mapping
from typing import Any

import httpx2
import msgspec

from hcs.cpn.collect.prometheus import Address, Prometheus
from hcs.cpn.collect.queries import METRIC

Series = tuple[dict[str, str], str]
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


class Metrics:
    """Answers as a Prometheus does that scraped these series, each some seconds ago."""

    def __init__(self) -> None:
        self.series = dict[str, tuple[Series, float]]()
        self.up = [({"job": "exporters", "instance": "10.0.0.1:9400"}, "1")]
        self.cpu: list[Series] = []
        self.broken: Reply | str = ""
        self.answering = Answering(self.reply)

    def say(self, name: str, value: float, age: float = 1.0, **labels: str) -> None:
        known = {"__name__": name, "job": "exporters", "instance": "10.0.0.1:9400", **labels}
        self.series[name + repr(sorted(labels.items()))] = (known, repr(float(value))), age

    def card(self, uuid: str, util: float, used: float, age: float = 1.0, node: str = "n1") -> None:
        """What dcgm-exporter says of a card of 80 GiB."""
        labels = {"UUID": uuid, "Hostname": node}
        self.say("DCGM_FI_DEV_GPU_UTIL", util, age, **labels)
        self.say("DCGM_FI_DEV_FB_USED", used, age, **labels)
        self.say("DCGM_FI_DEV_FB_FREE", 81920 - used, age, **labels)

    def host(self, node: str, busy: float, free: float) -> None:
        self.cpu = [({"node": node, "instance": "10.0.0.1:9100", "job": "hosts"}, f"{busy:g}")]
        self.say("node_memory_MemAvailable_bytes", free, node=node)

    def reply(self, form: Mapping[str, str]) -> Reply:
        if self.broken != "":
            return self.broken  # type: ignore[return-value]
        text = form["query"]
        if text == "up":
            return vector(*(({"__name__": "up", **labels}, up) for labels, up in self.up))
        if text.startswith("{"):
            return vector(*(series for series, _ in self.series.values()))
        if text.startswith("label_replace(time()"):
            return vector(*((_renamed(labels), f"{age:g}") for (labels, _), age in self.series.values()))
        if text.startswith("1 - avg"):
            return vector(*self.cpu)
        if text.startswith("max without"):
            return vector(*((labels, "2") for labels, _ in self.cpu))
        return vector()

    def make(self, address: Any, deadline: float) -> Any:
        return lambda: Prometheus(address, deadline=deadline, transport=self.answering)


def _renamed(labels: Mapping[str, str]) -> dict[str, str]:
    return {METRIC: labels["__name__"], **{key: value for key, value in labels.items() if key != "__name__"}}
