"""Logs as a real API server asks for them: whole, the end, followed; and asked for by nobody else."""

import asyncio
import ssl
from pathlib import Path
from typing import Any

import httpx2
import pytest
from tests.sandbox.kubelet.scene import pod_with
from tests.waiting import until

from hcs.process.certificates import Authority
from hcs.process.serving import Endpoint, serve
from hcs.sandbox.kubelet import logserver
from hcs.sandbox.kubelet.pods import BoundPod

RUNNING = {"phase": "Running", "containerStatuses": [{"name": "c0", "state": {"running": {}}}]}
ENDED = {"phase": "Running", "containerStatuses": [{"name": "c0", "state": {"terminated": {"exitCode": 0}}}]}


class Node:
    """The endpoint of a node with one pod, whose status can change."""

    def __init__(self, logs: Path, status: dict[str, Any]) -> None:
        self.logs, self.pod = logs, pod_with({}, status=status)
        app = logserver.make_app(self.find, lambda _: logs)
        self.client = httpx2.AsyncClient(transport=httpx2.ASGITransport(app=app), base_url="http://node")

    def find(self, namespace: str, name: str) -> BoundPod | None:
        return self.pod if (namespace, name) == ("default", "web") else None

    async def get(self, query: str = "", pod: str = "web") -> tuple[int, str]:
        response = await self.client.get(f"/containerLogs/default/{pod}/c0{query}")
        return response.status_code, response.text


@pytest.mark.parametrize(
    ("query", "answer"),
    [
        pytest.param("", (200, "one\ntwo\nthree\n"), id="whole"),
        pytest.param("?tailLines=2", (200, "two\nthree\n"), id="end"),
        pytest.param("?tailLines=0", (200, ""), id="nothing"),
        pytest.param("?limitBytes=5", (200, "one\nt"), id="limited"),
        pytest.param("?follow=true&limitBytes=5", (200, "one\nt"), id="limited-while-followed"),
        pytest.param("?previous=true", (200, "before\n"), id="of-the-run-before"),
        pytest.param(
            "?tailLines=x",
            (400, "tailLines and limitBytes are whole numbers: invalid literal for int() with base 10: 'x'"),
            id="nonsense",
        ),
    ],
)
def test_a_log_is_read_as_asked(query: str, answer: tuple[int, str], tmp_path: Path) -> None:
    (tmp_path / "c0.log").write_text("one\ntwo\nthree\n")
    (tmp_path / "c0.previous.log").write_text("before\n")
    assert asyncio.run(Node(tmp_path, RUNNING).get(query)) == answer


def test_what_is_not_there_is_said(tmp_path: Path) -> None:
    node = Node(tmp_path, RUNNING)
    assert asyncio.run(node.get(pod="other"))[0] == 404
    assert asyncio.run(node.get()) == (400, 'container "c0" in pod "web" is waiting to start: ContainerCreating')
    assert asyncio.run(node.get("?previous=true"))[0] == 400


def test_a_followed_log_ends_with_the_last_words_of_the_container(tmp_path: Path) -> None:
    log = tmp_path / "c0.log"
    log.write_text("one\n")

    async def story() -> tuple[int, str]:
        node = Node(tmp_path, RUNNING)
        following = asyncio.create_task(node.get("?follow=true"))
        await asyncio.sleep(0)
        log.write_text("one\ntwo\n")
        node.pod = pod_with({}, status=ENDED)
        return await following

    assert asyncio.run(story()) == (200, "one\ntwo\n")


def test_only_the_api_server_is_heard(tmp_path: Path) -> None:
    authority, stranger = Authority.create("cluster"), Authority.create("stranger")
    ca = str(authority.pair.write(tmp_path, "ca")[0])
    certificate, key = authority.issue(["127.0.0.1"]).write(tmp_path, "kubelet")
    (tmp_path / "c0.log").write_text("one\n")
    endpoint = Endpoint(certificate=str(certificate), key=str(key), client_authority=ca)
    app = logserver.make_app(lambda *_: pod_with({}, status=ENDED), lambda _: tmp_path)
    ready = tmp_path / "ready"

    def as_client(of: Authority | None, name: str) -> httpx2.AsyncClient:
        context = ssl.create_default_context(cafile=ca)
        if of is not None:
            context.load_cert_chain(*of.issue([name], client=True).write(tmp_path, name))
        return httpx2.AsyncClient(verify=context, trust_env=False)

    async def story() -> None:
        serving = asyncio.create_task(serve(app, endpoint, ready=ready))
        await until(ready.exists)
        address = httpx2.Response(200, content=ready.read_bytes()).json()["url"] + "/containerLogs/default/web/c0"
        async with as_client(authority, "apiserver") as client:
            assert (await client.get(address)).text == "one\n"
        for nobody in (as_client(None, ""), as_client(stranger, "stranger")):
            async with nobody:
                with pytest.raises(httpx2.TransportError):
                    await nobody.get(address)
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)

    asyncio.run(story())
