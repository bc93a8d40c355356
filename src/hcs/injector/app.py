"""The webhook as an ASGI application: ``/mutate``, health and metrics."""

import logging
from typing import Final

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Histogram, generate_latest
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from hcs.injector.review import ReviewError, answer
from hcs.injector.settings import Settings
from hcs.ura.catalogue import Catalogue

log = logging.getLogger(__name__)

MAX_BODY: Final = 8 << 20
"""Bytes of a review: an API server takes objects of at most 3 MiB, and a review may hold two."""


class OversizedError(ValueError):
    """A body that no API server would send."""


def build(catalogue: Catalogue, settings: Settings) -> Starlette:
    """Make the application; it holds no state beyond its metrics, so that any number of replicas may run."""
    registry = CollectorRegistry()
    reviews = Counter("hcs_injector_reviews", "Admission reviews answered.", ["outcome"], registry=registry)
    seconds = Histogram("hcs_injector_review_seconds", "Seconds to answer a review.", registry=registry)

    async def review(request: Request) -> Response:
        try:
            body = await _read(request)
        except OversizedError as error:
            reviews.labels("malformed").inc()
            return PlainTextResponse(str(error), status_code=413)
        with seconds.time():
            try:
                verdict = await run_in_threadpool(answer, body, catalogue, settings)
            except ReviewError as error:
                reviews.labels("malformed").inc()
                return PlainTextResponse(str(error), status_code=400)
        reviews.labels(verdict.outcome).inc()
        level = logging.INFO if verdict.outcome in ("mutated", "refused") else logging.DEBUG
        log.log(
            level,
            "pod reviewed: outcome=%s pod=%s user=%s message=%r",
            verdict.outcome,
            verdict.pod,
            verdict.user,
            verdict.message,
        )
        return JSONResponse(verdict.reply)

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


async def _read(request: Request) -> bytes:
    """The body, read no further than allowed: anybody in the cluster can reach this port.

    Raises:
        OversizedError: it is longer than :data:`MAX_BODY`.
    """
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > MAX_BODY:
            raise OversizedError(f"the body is longer than {MAX_BODY} bytes")
    return bytes(body)
