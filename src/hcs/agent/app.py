"""The agent's socket: a container runtime asks, ``delivery`` answers. HTTP and JSON, see ``hcs.inject.protocol``."""

from collections.abc import Callable

import msgspec
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from hcs.agent.delivery import Delivery, NotNowError
from hcs.inject.protocol import CONTAINERS, READY, AdjustmentAnswer, ContainerCreation
from hcs.model.refusals import Refusal, RefusedError

_DECODER = msgspec.json.Decoder(ContainerCreation)


def build(delivery: Delivery, registry: CollectorRegistry, ready: Callable[[], bool]) -> Starlette:
    """Make the application; ready means that the agent knows its pods and its cards."""

    async def create(request: Request) -> Response:
        try:
            creation = _DECODER.decode(await request.body())
        except msgspec.DecodeError as error:
            return _json(400, Refusal("MalformedRequest", f"not a question about a container: {error}"))
        if not ready():
            return _json(503, Refusal("AgentNotReady", "the agent does not know its pods and cards yet; ask again"))
        try:
            adjustment = await delivery.create(creation)
        except RefusedError as error:
            return _json(409, error.refusals[0])
        except NotNowError as error:
            return _json(503, Refusal("NotNow", f"{error}; ask again"))
        except OSError as error:
            return _json(503, Refusal("FilesNotWritten", f"the container's files could not be written: {error}"))
        return _json(200, AdjustmentAnswer(msgspec.structs.replace(adjustment, files=())))

    async def remove(request: Request) -> Response:
        delivery.remove(request.path_params["pod_uid"], request.path_params["name"])
        try:
            await delivery.write()
        except OSError as error:
            return _json(503, Refusal("FilesNotWritten", f"what is running could not be written down: {error}"))
        return Response(status_code=204)

    async def healthy(_: Request) -> Response:
        if ready():
            return PlainTextResponse("ok")
        return PlainTextResponse("pods or cards not known yet", status_code=503)

    async def metrics(_: Request) -> Response:
        return Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)

    return Starlette(
        routes=[
            Route(CONTAINERS, create, methods=["POST"]),
            Route(f"{CONTAINERS}/{{pod_uid}}/{{name}}", remove, methods=["DELETE"]),
            Route(READY, healthy),
            Route("/metrics", metrics),
        ]
    )


def _json(status: int, body: msgspec.Struct) -> Response:
    return Response(msgspec.json.encode(body), status_code=status, media_type="application/json")
