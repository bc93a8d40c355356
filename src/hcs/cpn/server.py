"""The controller over HTTP: submit, list, explain, cancel, clusters, live changes; JSON in and out.

It holds no state of its own: what it answers is in the store, or is asked of the controller through
:class:`hcs.cpn.service.Service`. Every no is ``{"reason", "message"}`` with a fitting status, never a traceback.
"""

import logging
from collections.abc import Iterator

from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from hcs.cpn.server_access import Access, Tokens
from hcs.cpn.server_answers import answer, problem
from hcs.cpn.server_clusters import cluster_routes
from hcs.cpn.server_events import event_routes
from hcs.cpn.server_jobs import GROUPS, job_routes
from hcs.cpn.service import Service
from hcs.cpn.wire import glance
from hcs.model.refusals import Refusal, RefusedError
from hcs.store.errors import StoreError

log = logging.getLogger(__name__)


def make_app(service: Service, *, tokens: Tokens | None = None) -> Starlette:
    """Make the ASGI application.

    Args:
        service: the store and what the controller adds to it.
        tokens: the token every request must bear; None: only this machine is heard.
    """
    service.registry.register(_QueueMetrics(service))
    return Starlette(
        routes=[
            *job_routes(service),
            *cluster_routes(service),
            *event_routes(service),
            *_whole_routes(service),
        ],
        middleware=[Middleware(Access, tokens=tokens)],
        exception_handlers={RefusedError: _refused, HTTPException: _no_such_route, Exception: _broken},
    )


def _whole_routes(service: Service) -> list[Route]:
    async def queue(_: Request) -> Response:
        store = service.store
        return answer(
            glance(
                store.queue_id,
                service.now(),
                store.counts(),
                store.entries(GROUPS["live"]),
                service.expectations(),
                service.ready(),
            )
        )

    async def healthy(_: Request) -> Response:
        return PlainTextResponse("ok")

    async def ready(_: Request) -> Response:
        try:
            service.store.counts()
        except StoreError as error:
            return problem(503, error.refusals)
        refusal = service.ready()
        return PlainTextResponse("ok") if refusal is None else problem(503, (refusal,))

    async def metrics(_: Request) -> Response:
        return Response(generate_latest(service.registry), media_type=CONTENT_TYPE_LATEST)

    return [Route("/queue", queue), Route("/healthz", healthy), Route("/readyz", ready), Route("/metrics", metrics)]


class _QueueMetrics(Collector):
    """Figures that are read from the store when somebody asks."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def describe(self) -> Iterator[Metric]:
        yield GaugeMetricFamily("hcs_cpn_jobs", "Jobs of the queue by state.", labels=["state"])

    def collect(self) -> Iterator[Metric]:
        for family in self.describe():
            for state, count in self._service.store.counts().items():
                family.add_metric([state], count)  # type: ignore[attr-defined]
            yield family


async def _refused(_: Request, error: Exception) -> Response:
    assert isinstance(error, RefusedError)
    return problem(None, error.refusals)


async def _no_such_route(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    message = f"there is no {request.method} {request.url.path[:120]} here; docs/cpn.md lists what there is"
    return problem(error.status_code, (Refusal("NoSuchRoute", message),), headers=error.headers)


async def _broken(request: Request, error: Exception) -> Response:
    log.error("request failed: method=%s path=%s", request.method, request.url.path, exc_info=error)
    message = f"the controller failed at this request ({type(error).__name__}); its log says where, nothing was changed"
    return problem(500, (Refusal("InternalError", message),))
