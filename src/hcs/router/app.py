"""The extender over HTTP on loopback: the verbs, health, metrics, and a snapshot that can be replayed.

Everything kube-scheduler must not read as an answer is a status other than 200: it then tries the pod again.
"""

import logging

import httpx2
import msgspec
from lightkube import ApiError
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from hcs.router.extender import Extender, NotSyncedError
from hcs.router.wire import BindAnswer, BindArguments, FilterArguments, PreemptArguments, WireError, read_arguments

log = logging.getLogger(__name__)


def make_app(extender: Extender) -> Starlette:
    """Make the ASGI application around a running extender."""

    async def filter_(request: Request) -> Response:
        try:
            return _json(extender.filter(read_arguments(await request.body(), FilterArguments)))
        except WireError as error:
            return PlainTextResponse(str(error), 400)
        except NotSyncedError as error:
            return PlainTextResponse(str(error), 503)

    async def bind(request: Request) -> Response:
        try:
            return _json(await extender.bind(read_arguments(await request.body(), BindArguments)))
        except WireError as error:
            return PlainTextResponse(str(error), 400)
        except NotSyncedError as error:
            return PlainTextResponse(str(error), 503)
        except (ApiError, httpx2.HTTPError) as error:
            return _json(BindAnswer(error=f"the API server did not answer: {error!r}"))

    async def preempt(request: Request) -> Response:
        try:
            return _json(extender.preempt(read_arguments(await request.body(), PreemptArguments)))
        except WireError as error:
            return PlainTextResponse(str(error), 400)
        except NotSyncedError as error:
            return PlainTextResponse(str(error), 503)

    async def volcano(request: Request) -> Response:
        body = await request.body()
        try:
            extender.require_sync()
            match request.path_params["verb"]:
                case "predicate":
                    return _json(extender.volcano.predicate(body))
                case "prioritize":
                    return _json(extender.volcano.prioritize(body))
                case "allocate":
                    return _json(await extender.volcano.allocate(body))
                case "deallocate":
                    return _json(await extender.volcano.deallocate(body))
        except ValueError as error:
            return PlainTextResponse(str(error), 400)
        except NotSyncedError as error:
            return PlainTextResponse(str(error), 503)
        return PlainTextResponse("the verbs are predicate, prioritize, allocate and deallocate\n", 404)

    async def healthz(_request: Request) -> Response:
        return PlainTextResponse("ok\n")

    async def readyz(_request: Request) -> Response:
        synced = extender.view.synced
        return PlainTextResponse("ok\n" if synced else "the cluster is not read yet\n", 200 if synced else 503)

    async def metrics(_request: Request) -> Response:
        return Response(generate_latest(extender.meters.registry), media_type=CONTENT_TYPE_LATEST)

    async def snapshot(_request: Request) -> Response:
        return _json(extender.replayable())

    return Starlette(
        routes=[
            Route("/filter", filter_, methods=["POST"]),
            Route("/bind", bind, methods=["POST"]),
            Route("/preempt", preempt, methods=["POST"]),
            Route("/volcano/{verb}", volcano, methods=["POST"]),
            Route("/healthz", healthz),
            Route("/readyz", readyz),
            Route("/metrics", metrics),
            Route("/debug/snapshot", snapshot),
        ]
    )


def _json(answer: object) -> Response:
    return Response(msgspec.json.encode(answer), media_type="application/json")
