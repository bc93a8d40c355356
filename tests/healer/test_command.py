"""``hcs healer`` as a process beside a real API server: ready, healthy, measured, and gone when asked."""

import asyncio
import signal
import sys
from pathlib import Path

import httpx2
import msgspec
import pytest
from prometheus_client import CollectorRegistry, Counter

from hcs.healer import app
from hcs.sandbox.apiserver import Settings, running


def ask(application: object, path: str) -> httpx2.Response:
    async def request() -> httpx2.Response:
        transport = httpx2.ASGITransport(application)  # type: ignore[arg-type]
        async with httpx2.AsyncClient(transport=transport, base_url="http://healer") as client:
            return await client.get(path)

    return asyncio.run(request())


def test_it_is_ready_once_it_has_seen_everything() -> None:
    synced = False
    registry = CollectorRegistry()
    Counter("hcs_healer_evictions", "Pods.", ["result"], registry=registry).labels("evicted").inc()
    application = app.build(registry, lambda: synced)
    assert ask(application, "/healthz").status_code == 200
    assert ask(application, "/readyz").status_code == 503
    synced = True
    assert ask(application, "/readyz").status_code == 200
    assert 'hcs_healer_evictions_total{result="evicted"} 1.0' in ask(application, "/metrics").text


@pytest.mark.xdist_group("sandbox")
def test_the_program_serves_and_ends_when_asked(tmp_path: Path) -> None:
    """Only a process can show that options reach the healer and that SIGTERM ends it with status 0."""

    async def story(kubeconfig: Path) -> None:
        ready = tmp_path / "ready.json"
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "hcs", "healer", "--kubeconfig", str(kubeconfig), "--ready-file", str(ready),
            "--probation-seconds", "5", "--evictions", "3",
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        try:
            async with asyncio.timeout(30):
                while not ready.exists():
                    assert process.returncode is None, await process.communicate()
                    await asyncio.sleep(0.05)
                url = msgspec.json.decode(ready.read_bytes())["url"]
                async with httpx2.AsyncClient(base_url=url, trust_env=False) as client:
                    assert (await client.get("/healthz")).status_code == 200
                    assert "hcs_healer_quarantined_cards" in (await client.get("/metrics")).text
                process.send_signal(signal.SIGTERM)
                await process.communicate()
        finally:
            if process.returncode is None:
                process.kill()
        assert process.returncode == 0

    with running(Settings(tmp_path / "data")) as server:
        path = tmp_path / "kubeconfig"
        path.write_text(server.kubeconfig("admin-token"))
        asyncio.run(story(path))
