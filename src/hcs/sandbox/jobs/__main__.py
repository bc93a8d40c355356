"""``python -m hcs.sandbox.jobs``: run the Job controller until SIGTERM."""

import argparse
import asyncio
from collections.abc import Sequence
from pathlib import Path

from hcs.kube.connection import connect
from hcs.process import logs
from hcs.process.serving import run_until_stopped, write_ready
from hcs.sandbox.jobs.controller import JobController
from hcs.sandbox.jobs.decisions import Pace


def main(arguments: Sequence[str] | None = None) -> None:
    """Read the arguments and serve."""
    parser = argparse.ArgumentParser(prog="python -m hcs.sandbox.jobs", description=__doc__)
    parser.add_argument("--kubeconfig", required=True)
    parser.add_argument("--ready-file", type=Path)
    parser.add_argument(
        "--back-off",
        type=float,
        default=Pace().initial,
        metavar="SECONDS",
        help="pause before a failed pod's replacement, doubled each time (a real controller: 10)",
    )
    parser.add_argument("--log-level", default="info", choices=logs.LEVELS)
    options = parser.parse_args(arguments)
    logs.configure(options.log_level)
    asyncio.run(_serve(options))


async def _serve(options: argparse.Namespace) -> None:
    client = connect(options.kubeconfig)
    controller = JobController(client, pace=Pace(options.back_off))

    async def announce() -> None:
        await controller.ready.wait()
        write_ready(options.ready_file, {})

    try:
        await run_until_stopped([controller.run, announce])
    finally:
        await client.close()


if __name__ == "__main__":
    main()
