"""``hcs healer``: run the healer."""

import asyncio
import datetime
from pathlib import Path
from typing import Annotated

import typer
from prometheus_client import CollectorRegistry

from hcs.healer import app
from hcs.healer.healing import Healer
from hcs.healer.resume import resume_point
from hcs.health.budget import EvictionBudget
from hcs.kube import resources
from hcs.kube.connection import connect
from hcs.kube.informer import Informer
from hcs.process import logs
from hcs.process.serving import Endpoint, serve


def run(
    kubeconfig: Annotated[str | None, typer.Option(help="Kubeconfig file; without it the usual places.")] = None,
    context: Annotated[str | None, typer.Option(help="Context of the kubeconfig.")] = None,
    host: Annotated[str, typer.Option(help="Address for health and metrics.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port for health and metrics; 0 takes a free one.")] = 0,
    probation_seconds: Annotated[
        float, typer.Option(help="How long a failed card must be healthy before it takes work again.")
    ] = 300.0,
    evictions: Annotated[int, typer.Option(help="Pods evicted at most in a window.")] = 32,
    eviction_window_seconds: Annotated[float, typer.Option(help="Length of that window.")] = 60.0,
    ready_file: Annotated[Path | None, typer.Option(help="Write pid and address here once listening.")] = None,
    log_level: Annotated[str, typer.Option(help="debug, info, warning or error.")] = "info",
) -> None:
    """Run the healer: quarantine failed cards at once, evict their pods under a budget, say where to resume."""
    logs.configure(log_level)
    asyncio.run(
        _run(
            kubeconfig,
            context,
            Endpoint(host=host, port=port),
            probation_seconds,
            EvictionBudget(evictions, eviction_window_seconds),
            ready_file,
        )
    )


async def _run(
    kubeconfig: str | None,
    context: str | None,
    endpoint: Endpoint,
    probation: float,
    budget: EvictionBudget,
    ready_file: Path | None,
) -> None:
    registry = CollectorRegistry()
    client = connect(kubeconfig, context)
    nodes = Informer(client, resources.ComputeNode, namespace=None)
    pods = Informer(client, resources.Pod)
    healer = Healer(
        client,
        nodes,
        pods,
        locate=resume_point,
        now=lambda: datetime.datetime.now(datetime.UTC),
        probation=probation,
        budget=budget,
        registry=registry,
    )
    application = app.build(registry, lambda: nodes.synced.is_set() and pods.synced.is_set())
    await serve(application, endpoint, tasks=[nodes.run, pods.run, healer.run], ready=ready_file)
