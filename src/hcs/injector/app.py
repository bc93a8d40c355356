"""The webhook as an ASGI application: ``/mutate``, health and metrics."""

import logging

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Histogram, generate_latest
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from hcs.injector.mutation import Settings
from hcs.injector.review import ReviewError, answer
from hcs.ura.catalogue import Catalogue

log = logging.getLogger(__name__)


def build(catalogue: Catalogue, settings: Settings) -> Starlette:
    """Make the application; it holds no state beyond its metrics, so that any number of replicas may run."""
    registry = CollectorRegistry()
    reviews = Counter("hcs_injector_reviews", "Admission reviews answered.", ["outcome"], registry=registry)
    seconds = Histogram("hcs_injector_review_seconds", "Seconds to answer a review.", registry=registry)

    async def review(request: Request) -> Response:
        body = await request.body()
        with seconds.time():
            try:
                reply, outcome = await run_in_threadpool(answer, body, catalogue, settings)
            except ReviewError as error:
                reviews.labels("malformed").inc()
                return PlainTextResponse(str(error), status_code=400)
        reviews.labels(outcome).inc()
        if outcome == "refused":
            log.info("pod refused: message=%s", reply["response"]["status"]["message"])
        return JSONResponse(reply)

    async def healthy(_: Request) -> Response:
        return PlainTextResponse("ok")

    async def metrics(_: Request) -> Response:
        return Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)

    return Starlette(
        routes=[
            Route("/mutate", review, methods=["POST"]),
            Route("/healthz", healthy),
            Route("/readyz", healthy),
            Route("/metrics", metrics),
        ]
    )
