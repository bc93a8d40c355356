"""The router as a process. Only this catches a broken start, ready file or end."""

import asyncio
import signal
import sys
from pathlib import Path

import httpx2
import msgspec
from tests.router.scene import definition
from tests.waiting import until

from hcs.sandbox.apiserver.server import ApiServer, Settings

PROGRAM = "import typer; from hcs.router.command import run; typer.run(run)"


async def create_definitions(server: ApiServer) -> None:
    """The kinds the router watches, straight into the application."""
    transport = httpx2.ASGITransport(server.application)
    async with httpx2.AsyncClient(transport=transport, base_url="http://api") as http:
        for plural in ("computenodes", "exchangerates", "runtimeprofiles"):
            answer = await http.post(
                "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
                json=definition(plural),
                headers={"Authorization": "Bearer admin-token"},
            )
            assert answer.status_code == 201, answer.text


def test_it_starts_says_where_it_listens_becomes_ready_and_ends_cleanly(tmp_path: Path) -> None:
    async def story() -> None:
        server = ApiServer(Settings(data=tmp_path / "api"))
        await server.start()
        await create_definitions(server)
        (tmp_path / "kubeconfig").write_text(server.kubeconfig("admin-token"))
        ready = tmp_path / "ready"
        arguments = ("--kubeconfig", str(tmp_path / "kubeconfig"), "--ready-file", str(ready))
        process = await asyncio.create_subprocess_exec(sys.executable, "-c", PROGRAM, *arguments)
        try:
            await until(ready.exists)
            url = msgspec.json.decode(ready.read_bytes())["url"]
            async with httpx2.AsyncClient(trust_env=False) as http:

                async def is_ready() -> bool:
                    return (await http.get(f"{url}/readyz")).status_code == 200

                await until(is_ready)
            process.send_signal(signal.SIGTERM)
            assert await asyncio.wait_for(process.wait(), 30) == 0
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
            await server.stop()

    asyncio.run(story())
