"""``python -m hcs.sandbox.scheduler``: run the driver as a process."""

import argparse
import asyncio
import datetime
import random
from pathlib import Path

import httpx2

from hcs.kube.connection import connect
from hcs.process import logs
from hcs.process.serving import run_until_stopped, write_ready
from hcs.sandbox.scheduler.configuration import Configuration, ConfigurationError, load_configuration
from hcs.sandbox.scheduler.driver import SchedulerDriver


def main() -> None:
    """Read the arguments and run until asked to end."""
    parser = argparse.ArgumentParser(prog="hcs.sandbox.scheduler", description="Emulated kube-scheduler.")
    parser.add_argument("--kubeconfig", help="kubeconfig file; without it the usual places")
    parser.add_argument("--config", type=Path, required=True, help="YAML that holds a KubeSchedulerConfiguration")
    parser.add_argument("--extender-url", help="call every extender here instead of at its urlPrefix")
    parser.add_argument("--seed", type=int, default=0, help="seed of the choice among equal nodes")
    parser.add_argument("--ready-file", type=Path, help="write pid here once the cluster is read")
    parser.add_argument("--log-level", default="info", choices=logs.LEVELS)
    arguments = parser.parse_args()
    logs.configure(arguments.log_level)
    try:
        configuration = load_configuration(arguments.config, extender_url=arguments.extender_url)
    except ConfigurationError as error:
        parser.error(str(error))
    asyncio.run(_run(arguments.kubeconfig, configuration, arguments.seed, arguments.ready_file))


async def _run(kubeconfig: str | None, configuration: Configuration, seed: int, ready_file: Path | None) -> None:
    async with httpx2.AsyncClient(trust_env=False) as http:
        driver = SchedulerDriver(
            connect(kubeconfig),
            configuration,
            http=http,
            rng=random.Random(seed),
            now=asyncio.get_running_loop().time,
            today=lambda: datetime.datetime.now(datetime.UTC),
        )

        async def announce() -> None:
            await driver.ready.wait()
            write_ready(ready_file, {"schedulers": sorted(configuration.schedulers)})

        await run_until_stopped([driver.run, announce])


if __name__ == "__main__":
    main()
