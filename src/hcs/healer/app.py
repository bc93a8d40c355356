"""Health and metrics of the healer over HTTP."""

from collections.abc import Callable

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route


def build(registry: CollectorRegistry, synced: Callable[[], bool]) -> Starlette:
    """Make the application; ready means that the informers have held a full list."""

    async def healthy(_: Request) -> Response:
        return PlainTextResponse("ok")

    async def ready(_: Request) -> Response:
        return PlainTextResponse("ok") if synced() else PlainTextResponse("not synced yet", status_code=503)

    async def metrics(_: Request) -> Response:
        return Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)

    return Starlette(routes=[Route("/healthz", healthy), Route("/readyz", ready), Route("/metrics", metrics)])
