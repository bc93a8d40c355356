"""Programs that are not ours: when they count as ready, and in which order they end."""

import asyncio
from pathlib import Path

from tests.process.test_serving import hello, until

from hcs.process.certificates import Authority
from hcs.process.serving import Endpoint, serve
from hcs.sandbox.ports import HeldPorts
from hcs.sandbox.supervisor import Health, Program, Supervisor

LASTS = "trap 'echo $0 >> $1/ends; exit 0' TERM; touch $1/$0.runs; while :; do sleep 0.05; done"


def test_a_program_is_ready_when_its_health_says_so_and_what_others_stand_on_ends_last(tmp_path: Path) -> None:
    for folder in ("ready", "logs"):
        (tmp_path / folder).mkdir()
    authority = Authority.create("test")
    certificate, key = authority.issue(["127.0.0.1"]).write(tmp_path, "server")
    ports = HeldPorts()
    endpoint = Endpoint(port=ports.take(), certificate=str(certificate), key=str(key))
    health = Health(f"https://127.0.0.1:{endpoint.port}/readyz", authority.pair.certificate)

    def lasting(name: str, depth: int, health: Health | None = None) -> Program:
        arguments = ("-c", LASTS, name, str(tmp_path))
        return Program(name, arguments, executable="/bin/sh", depth=depth, health=health)

    async def story() -> None:
        supervisor = Supervisor(tmp_path, {"PATH": "/usr/bin:/bin"})
        store = await supervisor.start(lasting("store", 2))
        assert store["pid"] == supervisor.pid("store")
        starting = asyncio.create_task(supervisor.start(lasting("server", 1, health)))
        await until((tmp_path / "server.runs").exists)
        assert not starting.done(), "it runs, and nobody has answered for it"
        serving = asyncio.create_task(serve(hello, endpoint))
        await starting
        await supervisor.start(lasting("client", 0))
        await until(lambda: len(list(tmp_path.glob("*.runs"))) == 3)
        await supervisor.stop()
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)

    asyncio.run(story())
    ports.release()
    assert (tmp_path / "ends").read_text().split() == ["client", "server", "store"]
