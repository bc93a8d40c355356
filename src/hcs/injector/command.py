"""``hcs injector``: run the admission webhook."""

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from hcs.injector import app
from hcs.injector.mutation import Settings
from hcs.model import names
from hcs.process import logs
from hcs.process.serving import Endpoint, serve
from hcs.ura.catalogue import load_catalogue


def run(
    certificate: Annotated[str, typer.Option("--tls-cert-file", help="PEM certificate chain; admission needs TLS.")],
    key: Annotated[str, typer.Option("--tls-key-file", help="PEM key of it.")],
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "0.0.0.0",
    port: Annotated[int, typer.Option(help="Port to listen on; 0 takes a free one.")] = 8443,
    scheduler: Annotated[list[str] | None, typer.Option(help="Scheduler names that carry our extender.")] = None,
    pull_secret: Annotated[list[str] | None, typer.Option(help="Pull secret given to every managed pod.")] = None,
    ready_file: Annotated[Path | None, typer.Option(help="Write pid and address here once listening.")] = None,
    log_level: Annotated[str, typer.Option(help="debug, info, warning or error.")] = "info",
) -> None:
    """Run the admission webhook: refuse nonsense with a sentence, write defaults, totals and scheduler."""
    logs.configure(log_level)
    settings = Settings(schedulers=tuple(scheduler or [names.SCHEDULER]), pull_secrets=tuple(pull_secret or ()))
    application = app.build(load_catalogue(), settings)
    asyncio.run(serve(application, Endpoint(host=host, port=port, certificate=certificate, key=key), ready=ready_file))
