"""Programs listen where they say, tell it once they do, and end cleanly whatever ends them."""

import asyncio
import contextlib
import logging
import os
import signal
import socket
import ssl
import stat
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx2
import msgspec
import pytest
from tests.waiting import until

from hcs.process.certificates import Authority
from hcs.process.serving import Endpoint, run_until_stopped, serve, write_ready

NO_TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
"""For clients that speak plain HTTP: without it each would read all authorities of the machine."""


async def hello(scope: Any, receive: Any, send: Any) -> None:
    """The smallest ASGI application."""
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"hello"})


async def served(ready: Path) -> dict[str, Any]:
    await until(ready.exists)
    facts: dict[str, Any] = msgspec.json.decode(ready.read_bytes())
    return facts


def test_the_ready_file_names_the_port_that_was_bound(tmp_path: Path) -> None:
    ready = tmp_path / "ready"

    async def story() -> None:
        serving = asyncio.create_task(serve(hello, Endpoint(), ready=ready))
        facts = await served(ready)
        assert facts["pid"] == os.getpid()
        async with httpx2.AsyncClient(verify=NO_TLS, trust_env=False) as client:
            assert (await client.get(facts["url"])).text == "hello"
        serving.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await serving

    asyncio.run(story())
    assert list(tmp_path.iterdir()) == [ready], "the partial file was replaced, not left behind"


def test_the_ready_file_is_replaced_in_one_step(tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    ready.write_text("an earlier run")
    earlier = ready.open()
    write_ready(ready, {"url": "http://127.0.0.1:1"})
    with earlier:
        assert earlier.read() == "an earlier run", "a reader that opened it before keeps a whole file"
    assert msgspec.json.decode(ready.read_bytes()) == {"pid": os.getpid(), "url": "http://127.0.0.1:1"}


def test_no_ready_file_is_written_where_none_is_wanted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_ready(None, {})
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_server_and_its_tasks_and_returns(tmp_path: Path, signum: signal.Signals) -> None:
    ended = []

    async def task() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("task")

    async def story() -> None:
        serving = asyncio.create_task(serve(hello, Endpoint(), tasks=[task], ready=tmp_path / "ready"))
        facts = await served(tmp_path / "ready")
        os.kill(os.getpid(), signum)
        await serving
        ended.append("serve")
        async with httpx2.AsyncClient(verify=NO_TLS, trust_env=False) as client:
            with pytest.raises(httpx2.ConnectError):
                await client.get(facts["url"])

    asyncio.run(story())
    assert ended == ["task", "serve"]
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


def test_a_failing_task_stops_everything_and_is_reported(tmp_path: Path) -> None:
    async def failing() -> None:
        await until((tmp_path / "ready").exists)
        raise RuntimeError("the fleet is gone")

    with pytest.raises(ExceptionGroup) as caught:
        asyncio.run(serve(hello, Endpoint(), tasks=[failing], ready=tmp_path / "ready"))
    assert [str(error) for error in caught.value.exceptions] == ["the fleet is gone"]


def test_a_running_request_gets_its_answer_before_the_end(tmp_path: Path) -> None:
    entered = []

    async def slow(scope: Any, receive: Any, send: Any) -> None:
        entered.append(True)
        await asyncio.sleep(0.05)
        await hello(scope, receive, send)

    async def story() -> None:
        serving = asyncio.create_task(serve(slow, Endpoint(), ready=tmp_path / "ready"))
        facts = await served(tmp_path / "ready")
        async with httpx2.AsyncClient(verify=NO_TLS, trust_env=False) as client:
            asking = asyncio.create_task(client.get(facts["url"]))
            await until(lambda: bool(entered))
            os.kill(os.getpid(), signal.SIGTERM)
            assert (await asking).text == "hello"
        await serving

    asyncio.run(story())


def test_a_stream_that_never_ends_is_told_that_its_client_has_gone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    seen = []

    async def endless(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"one", "more_body": True})
        await receive()  # the request itself
        seen.append((await receive())["type"])

    async def story() -> None:
        serving = asyncio.create_task(serve(endless, Endpoint(), ready=tmp_path / "ready"))
        facts = await served(tmp_path / "ready")
        async with (
            httpx2.AsyncClient(verify=NO_TLS, trust_env=False) as client,
            client.stream("GET", facts["url"]) as answer,
        ):
            pieces = answer.aiter_bytes()
            assert await anext(pieces) == b"one"
            os.kill(os.getpid(), signal.SIGTERM)
            with pytest.raises(httpx2.HTTPError):
                await anext(pieces)
            await serving

    asyncio.run(story())
    assert seen == ["http.disconnect"]
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR] == []


def test_a_taken_port_is_an_error_at_once() -> None:
    with Endpoint().listen() as listener, pytest.raises(OSError, match="in use"):
        Endpoint(port=listener.getsockname()[1]).listen()


def test_a_unix_socket_is_for_its_owner_alone_and_removed_at_the_end(tmp_path: Path) -> None:
    path = tmp_path / "agent.sock"
    endpoint = Endpoint(unix_socket=str(path))
    modes = []

    async def look() -> None:
        await until((tmp_path / "ready").exists)
        modes.append(stat.S_IMODE(path.stat().st_mode))
        transport = httpx2.AsyncHTTPTransport(uds=str(path), verify=NO_TLS)
        async with httpx2.AsyncClient(transport=transport) as client:
            assert (await client.get("http://agent/")).text == "hello"
        os.kill(os.getpid(), signal.SIGTERM)

    asyncio.run(serve(hello, endpoint, tasks=[look], ready=tmp_path / "ready"))
    assert modes == [0o600]
    assert msgspec.json.decode((tmp_path / "ready").read_bytes())["url"] == f"unix://{path}"
    assert not path.exists()


def test_a_socket_left_by_a_killed_run_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "agent.sock"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    with Endpoint(unix_socket=str(path)).listen():
        assert stat.S_ISSOCK(path.stat().st_mode)


def test_a_file_that_is_no_socket_is_never_removed(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("mine")
    with pytest.raises(OSError, match="in use"):
        Endpoint(unix_socket=str(path)).listen()
    assert path.read_text() == "mine"


@pytest.mark.parametrize(
    ("endpoint", "beginning"),
    [
        pytest.param(Endpoint(), "http://127.0.0.1:", id="plain"),
        pytest.param(Endpoint(certificate="a", key="b"), "https://127.0.0.1:", id="tls"),
    ],
)
def test_the_address_is_written_as_others_use_it(endpoint: Endpoint, beginning: str) -> None:
    with endpoint.listen() as listener:
        assert endpoint.url(listener).startswith(beginning)


def test_a_missing_certificate_is_said_before_anything_listens(tmp_path: Path) -> None:
    endpoint = Endpoint(certificate=str(tmp_path / "no.crt"), key=str(tmp_path / "no.key"))
    with pytest.raises(FileNotFoundError):
        asyncio.run(serve(hello, endpoint, ready=tmp_path / "ready"))
    assert not (tmp_path / "ready").exists()


def test_https_is_served_with_the_given_certificate(tmp_path: Path) -> None:
    authority = Authority.create("test")
    certificate, key = authority.issue(["127.0.0.1"]).write(tmp_path, "tls")

    async def story() -> None:
        endpoint = Endpoint(certificate=str(certificate), key=str(key))
        serving = asyncio.create_task(serve(hello, endpoint, ready=tmp_path / "ready"))
        facts = await served(tmp_path / "ready")
        async with httpx2.AsyncClient(verify=authority.client_context(), trust_env=False) as client:
            assert (await client.get(facts["url"])).text == "hello"
        serving.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await serving

    asyncio.run(story())


def test_tasks_that_all_return_end_the_program() -> None:
    done = []

    def doing(name: str) -> Callable[[], Awaitable[None]]:
        async def task() -> None:
            done.append(name)

        return task

    asyncio.run(run_until_stopped([doing("one"), doing("two")]))
    assert sorted(done) == ["one", "two"]


def test_outside_the_main_thread_cancellation_is_the_way_to_stop() -> None:
    async def story() -> None:
        async def forever() -> None:
            await asyncio.Event().wait()

        running = asyncio.create_task(run_until_stopped([forever]))
        await asyncio.sleep(0)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    async def elsewhere() -> None:
        await asyncio.to_thread(asyncio.run, story())

    asyncio.run(elsewhere())
