"""``hcs injector``: run the admission webhook."""

import asyncio
import functools
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Final

import typer

from hcs.injector import app, certificates
from hcs.injector.settings import Settings
from hcs.kube.connection import connect
from hcs.model import names
from hcs.neuro.capacities import DOMAIN as SPIKING_DOMAIN
from hcs.process import logs
from hcs.process.serving import Endpoint, Task, serve
from hcs.ura.catalogue import load_catalogue

_FOLDER: Final = Path("/run/hcs/tls")


def run(
    certificate: Annotated[str, typer.Option("--tls-cert-file", help="PEM certificate chain to serve with.")] = "",
    key: Annotated[str, typer.Option("--tls-key-file", help="PEM key of it.")] = "",
    manage_certificates: Annotated[
        bool,
        typer.Option(
            "--manage-certificates",
            help="Make the certificate, keep it in a Secret, and have the API server trust it.",
        ),
    ] = False,
    certificate_folder: Annotated[Path, typer.Option(help="Where a managed certificate is written.")] = _FOLDER,
    namespace: Annotated[str, typer.Option(help="Namespace of service and secret.")] = names.NAMESPACE,
    service: Annotated[str, typer.Option(help="Service that the API server calls.")] = "hcs-injector",
    secret: Annotated[str, typer.Option(help="Secret that holds a managed certificate.")] = "hcs-injector-tls",
    configuration: Annotated[
        str, typer.Option(help="MutatingWebhookConfiguration that must trust it.")
    ] = "hcs-injector",
    kubeconfig: Annotated[str | None, typer.Option(help="Kubeconfig, for --manage-certificates.")] = None,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "0.0.0.0",
    port: Annotated[int, typer.Option(help="Port to listen on; 0 takes a free one.")] = 8443,
    scheduler: Annotated[list[str] | None, typer.Option(help="Scheduler names that carry our extender.")] = None,
    spiking_domain: Annotated[
        str, typer.Option(help="Domain of the spiking resources; name it in the webhook's matchConditions, too.")
    ] = SPIKING_DOMAIN,
    pull_secret: Annotated[list[str] | None, typer.Option(help="Pull secret given to every managed pod.")] = None,
    ready_file: Annotated[Path | None, typer.Option(help="Write pid and address here once listening.")] = None,
    log_level: Annotated[str, typer.Option(help="debug, info, warning or error.")] = "info",
) -> None:
    """Run the admission webhook: refuse nonsense with a sentence, write defaults, totals and scheduler."""
    given = bool(certificate or key)
    if given == manage_certificates or bool(certificate) != bool(key):
        raise typer.BadParameter("give both --tls-cert-file and --tls-key-file, or --manage-certificates alone")
    logs.configure(log_level)
    settings = Settings(
        schedulers=tuple(scheduler or [names.SCHEDULER]),
        pull_secrets=tuple(pull_secret or ()),
        spiking_domain=spiking_domain,
    )
    application = app.build(load_catalogue(), settings)
    place = certificates.Place(namespace, service, secret, configuration)

    async def webhook() -> None:
        tasks: list[Task] = []
        endpoint = Endpoint(host=host, port=port, certificate=certificate, key=key)
        if manage_certificates:
            client = connect(kubeconfig)
            material = await certificates.ensure(client, place, datetime.now(UTC))
            written, written_key = material.server.write(certificate_folder, "tls")
            endpoint = Endpoint(host=host, port=port, certificate=str(written), key=str(written_key))
            tasks.append(functools.partial(certificates.keep, client, place, certificate_folder))
        await serve(application, endpoint, tasks=tasks, ready=ready_file)

    asyncio.run(webhook())
