"""Programs are started, restarted and ended: small real processes, watched through what they write."""

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.waiting import until

from hcs.sandbox.supervisor import Program, StartError, Supervisor, inherited_environment, start_together

READY = "import json,os,pathlib,sys,time; pathlib.Path(sys.argv[1]).write_text(json.dumps({'pid': os.getpid()}));"
SERVE = READY + "time.sleep(60)"
STUBBORN = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN);" + SERVE
NOTES_ITS_END = (
    "import pathlib,signal,sys,time\n"
    "def end(*_):\n"
    "    pathlib.Path(sys.argv[2]).write_text(str(time.monotonic_ns())); sys.exit()\n"
    "signal.signal(signal.SIGTERM, end)\n" + SERVE
)
SECONDS = 20.0


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("ready", "logs"):
        (tmp_path / name).mkdir()
    return tmp_path


def program(name: str, script: str, *arguments: str) -> Program:
    return Program(name, ("-S", "-c", script, "{ready}", *arguments))


def alive(pid: int) -> bool:
    """Whether a process runs; one that has ended and was not yet asked for its status does not."""
    try:
        return b") Z " not in Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return False


def test_a_program_that_dies_is_started_again_and_none_is_left_in_the_end(folder: Path) -> None:
    async def story() -> tuple[int, int]:
        supervisor = Supervisor(folder, os.environ)
        try:
            facts = await supervisor.start(program("p", SERVE))
            first = facts["pid"]
            assert supervisor.pid("p") == first
            os.kill(first, signal.SIGKILL)
            await until(lambda: supervisor.pid("p") != first and supervisor.ready_file("p").exists())
            assert supervisor.restarts == {"p": 1}
            second = supervisor.pid("p")
            assert second is not None
        finally:
            await supervisor.stop()
        return first, second

    assert not any(map(alive, asyncio.run(story())))


def test_all_are_asked_to_end_and_the_stubborn_one_is_killed(folder: Path) -> None:
    async def story() -> int | None:
        supervisor = Supervisor(folder, os.environ, stop_seconds=2.0)
        try:
            await supervisor.start(program("stubborn", STUBBORN))
            pid = supervisor.pid("stubborn")
            told: list[str] = []
            both = [program(name, NOTES_ITS_END, str(folder / name)) for name in ("one", "two")]
            await start_together(supervisor, both, told.append)
            assert sorted(told) == ["one", "two"]
        finally:
            await supervisor.stop()
        return pid

    pid = asyncio.run(story())
    assert pid is not None
    assert not alive(pid)
    assert all((folder / name).exists() for name in ("one", "two"))


@pytest.mark.parametrize(
    ("script", "said"),
    [
        pytest.param("import sys; sys.exit('no such fleet')", ["p ended with 1", "no such fleet"], id="ended"),
        pytest.param(
            "import time; print('still thinking', flush=True); time.sleep(60)",
            ["p was not ready after 0.5 s", "still thinking"],
            id="hangs",
        ),
    ],
)
def test_a_program_that_does_not_come_up_is_named_with_the_end_of_its_log(
    folder: Path, script: str, said: list[str]
) -> None:
    async def story() -> None:
        supervisor = Supervisor(folder, os.environ, start_seconds=0.5 if "sleep" in script else SECONDS)
        try:
            with pytest.raises(StartError) as caught:
                await start_together(supervisor, [program("good", SERVE), program("p", script)], lambda _: None)
            for words in said:
                assert words in str(caught.value)
        finally:
            await supervisor.stop()

    asyncio.run(story())


def test_programs_end_with_whoever_started_them(folder: Path) -> None:
    """Killed outright, it can end nobody; the kernel does."""
    script = f"""
import asyncio, os
from pathlib import Path
from hcs.sandbox.supervisor import Program, Supervisor
async def main():
    supervisor = Supervisor(Path({str(folder)!r}), os.environ)
    facts = await supervisor.start(Program("p", ("-S", "-c", {SERVE!r}, "{{ready}}")))
    print(facts["pid"], flush=True)
    await asyncio.sleep(60)
asyncio.run(main())
"""
    search = os.pathsep.join(path for path in sys.path if path)
    with subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": search}
    ) as starter:
        assert starter.stdout is not None
        pid = int(starter.stdout.readline())
        assert alive(pid)
        starter.kill()
    asyncio.run(until(lambda: not alive(pid)))


def test_what_would_mislead_the_programs_is_not_inherited(monkeypatch: pytest.MonkeyPatch) -> None:
    misleading = ("LD_PRELOAD", "HCS_QUOTA_FILE", "HCS_ROOT", "KUBECONFIG", "CUDA_VISIBLE_DEVICES")
    for name in misleading:
        monkeypatch.setenv(name, "x")
    monkeypatch.setenv("LANG", "C.UTF-8")
    inherited = inherited_environment()
    assert not inherited.keys() & set(misleading)
    assert inherited["LANG"] == "C.UTF-8"
