"""The process that holds a sandbox: ``python -m hcs.sandbox --directory D --fleet F``.

It tells its starter on stdout, a JSON line each, what became ready, and at last ``{"up": true}`` or ``{"error": …}``.
With ``--leash`` it ends when its stdin closes and removes its directory, so that a demo that is killed leaves nothing
behind; without, on SIGTERM.
"""

import argparse
import asyncio
import os
import shutil
import signal
import sys
from pathlib import Path
from typing import Any

import msgspec

from hcs.process import logs
from hcs.sandbox.cluster import Sandbox
from hcs.sandbox.fleet import FleetError, load_fleet


def main() -> None:
    """Read the arguments and hold the sandbox until told to stop."""
    parser = argparse.ArgumentParser(prog="python -m hcs.sandbox", description="Hold one sandbox.")
    parser.add_argument("--directory", type=Path, required=True, help="where everything is written")
    parser.add_argument("--fleet", type=Path, required=True, help="YAML file with nodes and cards")
    parser.add_argument("--kubernetes", type=Path, help="folder with the programs of a real control plane")
    parser.add_argument("--leash", action="store_true", help="end when stdin closes")
    arguments = parser.parse_args()
    logs.configure("info")
    try:
        sandbox = Sandbox(arguments.directory, load_fleet(arguments.fleet), arguments.kubernetes)
    except FleetError as error:
        _tell({"error": str(error)})
        sys.exit(2)
    sys.exit(asyncio.run(_hold(sandbox, leash=arguments.leash)))


async def _hold(sandbox: Sandbox, *, leash: bool) -> int:
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for signum in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(signum, stopped.set)
    if leash:
        loop.add_reader(sys.stdin.fileno(), lambda: None if os.read(sys.stdin.fileno(), 4096) else stopped.set())
    starting = asyncio.create_task(sandbox.start(lambda part: _tell({"ready": part})))
    waiting = asyncio.create_task(stopped.wait())
    try:
        await asyncio.wait({starting, waiting}, return_when=asyncio.FIRST_COMPLETED)
        if not starting.done():
            starting.cancel()
            await asyncio.gather(starting, return_exceptions=True)
            return 130
        failure = starting.exception()
        if failure is not None:
            _tell({"error": str(failure)})
            return 1
        _tell({"up": True, "kubeconfig": str(sandbox.kubeconfig)})
        await waiting
        return 0
    finally:
        if leash:
            loop.remove_reader(sys.stdin.fileno())
        await sandbox.stop()
        if leash:  # whoever held it may be gone, and cannot clean up any more
            shutil.rmtree(sandbox.directory, ignore_errors=True)


def _tell(line: dict[str, Any]) -> None:
    sys.stdout.buffer.write(msgspec.json.encode(line) + b"\n")
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
