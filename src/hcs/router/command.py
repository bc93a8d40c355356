"""``hcs router``: run the extender beside a kube-scheduler."""

import asyncio
import datetime
from pathlib import Path
from typing import Annotated

import typer

from hcs.kube.connection import connect
from hcs.neuro.capacities import DOMAIN
from hcs.placement.policies import POLICIES
from hcs.process import logs
from hcs.process.checkpoints import written_at
from hcs.process.serving import Endpoint, serve
from hcs.router.app import make_app
from hcs.router.asking import OFFER_SECONDS
from hcs.router.extender import Extender
from hcs.router.references import reference_rates


def run(
    kubeconfig: Annotated[str | None, typer.Option(help="Kubeconfig file; without it the usual places.")] = None,
    context: Annotated[str | None, typer.Option(help="Context of the kubeconfig.")] = None,
    host: Annotated[str, typer.Option(help="Address to listen on; kube-scheduler calls over loopback.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen on; 0 takes a free one.")] = 0,
    reservation_seconds: Annotated[
        float, typer.Option(help="How long devices stay promised to a pod that is not bound.")
    ] = 60.0,
    offer_seconds: Annotated[float, typer.Option(help="How long a substitution offer stands.")] = OFFER_SECONDS,
    policy: Annotated[str, typer.Option(help=f"How places are chosen: {', '.join(POLICIES)}.")] = "hcs",
    spiking_domain: Annotated[
        str, typer.Option(help="Domain of the spiking resources, as the neuroplugin's --domain.")
    ] = DOMAIN,
    ready_file: Annotated[Path | None, typer.Option(help="Write pid and address here once listening.")] = None,
    log_level: Annotated[str, typer.Option(help="debug, info, warning or error.")] = "info",
) -> None:
    """Run the router: the extender that tells kube-scheduler which node has the devices, and binds pods to them."""
    logs.configure(log_level)
    if policy not in POLICIES:
        raise typer.BadParameter(
            f"there is no policy {policy!r}; there are {', '.join(POLICIES)}", param_hint="--policy"
        )

    async def router() -> None:
        extender = Extender(
            connect(kubeconfig, context),
            now=asyncio.get_running_loop().time,
            today=lambda: datetime.datetime.now(datetime.UTC),
            reservation_seconds=reservation_seconds,
            offer_seconds=offer_seconds,
            reference_rates=reference_rates(),
            policy=policy,
            locate=written_at,
            spiking_domain=spiking_domain,
        )
        await serve(make_app(extender), Endpoint(host=host, port=port), tasks=[extender.run], ready=ready_file)

    asyncio.run(router())
