"""``hcs guard`` as a program: known to be alive exactly as long as the runtime asks it."""

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

from tests.nri.runtime import OLD, stub_runtime
from tests.waiting import until

from hcs.agent.guard import guarded


def start(folder: Path, lock: Path) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(
        [sys.executable, "-m", "hcs", "guard", "--nri-socket", str(folder / "nri.sock"), "--lock", str(lock)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        stderr=subprocess.DEVNULL,
    )


def test_the_agent_sees_whether_a_guard_is_asked(folder: Path) -> None:
    async def whole() -> None:
        lock = folder / "run" / "guard.lock"
        assert not guarded(lock)
        async with stub_runtime(folder, OLD) as runtime:
            guard = start(folder, lock)
            try:
                await runtime.plugin("hcs-guard")
                await until(lambda: guarded(lock))
                await runtime.stop()
                await until(lambda: not guarded(lock))
                await runtime.start()
                await runtime.plugin("hcs-guard")
                await until(lambda: guarded(lock))
                guard.send_signal(signal.SIGTERM)
                assert await asyncio.to_thread(guard.wait, 30) == 0
            finally:
                guard.kill()
            assert not guarded(lock), "a lock goes with its process"

    asyncio.run(whole())


def test_a_lock_that_cannot_be_is_a_word_and_no_traceback(folder: Path) -> None:
    (folder / "file").touch()
    told = subprocess.run(
        [sys.executable, "-m", "hcs", "guard", "--lock", str(folder / "file" / "guard.lock")],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert told.returncode == 2
    assert "cannot be written" in told.stderr
    assert "Traceback" not in told.stderr
