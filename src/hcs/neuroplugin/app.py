"""The neural service over HTTP: the calls tenants know, as JSON.

    POST   /v1/tenants/T/apps               InstallApp    a package
    POST   /v1/tenants/T/tasks              TaskCreate    {"app", "model", "lease", "board", "affinity", ...}
    POST   /v1/tenants/T/tasks/N/run        TaskRun       {"steps": [[[core, neuron], ...], ...]}
    POST   /v1/tenants/T/tasks/N/start | pause | resume
    DELETE /v1/tenants/T/tasks/N            TaskDestroy
    POST   /v1/tenants/T/leases             {"cores"} or {"width", "height"};   DELETE .../leases/N
    GET    .../apps, tasks, tasks/N, leases, streams, streams/A, networkpolicy
    PUT    /v1/tenants/T/quota              {"cores", "ksps", "streams", "tasks"}      operators only
    GET    /v1/boards, POST /v1/boards/B/faults                                        operators only

Who calls is known by a bearer token. A tenant reaches its own paths only; any other answers as if it were not there.
"""

import hmac
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

import msgspec
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from hcs.model.refusals import Refusal, RefusedError
from hcs.neuro.allocator import CoreRequest
from hcs.neuro.forwarding import network_policy
from hcs.neuro.packages import MAX_BYTES, read_package
from hcs.neuro.sites import Affinity, Wish
from hcs.neuro.tenants import Quota, missing
from hcs.neuroplugin.operator import Operator, cells_of, described
from hcs.neuroplugin.overview import overview

OPERATOR: Final = "*"
"""The tenant name in the token file that may see and change everything."""
_CODES: Final = {"NotFound": 404, "UnknownBoard": 404, "WrongState": 409, "LeaseInUse": 409}

Answer = Callable[[Request], Awaitable[Response]]


class _Create(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    app: str
    model: str = ""
    lease: int | None = None
    board: str = ""
    affinity: Affinity = "any"
    numa: int | None = None
    priority: int = 0


class _Lease(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    cores: int = 0
    width: int = 0
    height: int = 0
    board: str = ""


class _Run(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    steps: tuple[tuple[tuple[int, int], ...], ...]


class _Faults(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    cores: tuple[tuple[int, int], ...] = ()
    routers: tuple[tuple[int, int], ...] = ()


def build(operator: Operator, *, tokens: Mapping[str, str], registry: CollectorRegistry | None = None) -> Starlette:
    """Make the application.

    Args:
        operator: who acts.
        tokens: bearer token → tenant, or :data:`OPERATOR`. Empty: everybody who reaches the socket may do everything,
            so listen on loopback alone.
        registry: metrics to show.
    """
    service = operator.service

    def caller(request: Request) -> str:
        if not tokens:
            return OPERATOR
        word = request.headers.get("authorization", "").removeprefix("Bearer ").strip()
        for token, tenant in tokens.items():
            if hmac.compare_digest(token.encode(), word.encode()):
                return tenant
        raise RefusedError(Refusal("Unauthorized", "no valid bearer token; ask your operator for one"))

    def tenant(request: Request) -> str:
        who, asked = caller(request), str(request.path_params["tenant"])
        if who not in (OPERATOR, asked):
            raise missing("tenant", asked)
        return asked

    def only_operators(request: Request) -> None:
        if caller(request) != OPERATOR:
            raise missing("page", request.url.path)

    async def body(request: Request, kind: Any) -> Any:
        content = b""
        async for chunk in request.stream():
            content += chunk
            if len(content) > MAX_BYTES:
                raise RefusedError(Refusal("TooLarge", f"more than {MAX_BYTES} bytes; send less"))
        if kind is bytes:
            return content
        try:
            return msgspec.json.decode(content or b"{}", type=kind)
        except (msgspec.DecodeError, RecursionError) as error:
            raise RefusedError(Refusal("MalformedRequest", f"cannot read the request: {error}")) from error

    def number(request: Request) -> int:
        text = str(request.path_params["number"])
        if not text.isdecimal() or len(text) > 12:
            raise missing("number", text)
        return int(text)

    async def install(request: Request) -> Response:
        who = tenant(request)
        package = await operator.install(who, read_package(await body(request, bytes)))
        models = [model.name for model in package.models]
        return _json(201, {"app": package.name, "version": package.version, "models": models})

    async def apps(request: Request) -> Response:
        packages = service.apps(tenant(request))
        return _json(
            200, [{"app": p.name, "version": p.version, "models": [m.name for m in p.models]} for p in packages]
        )

    async def create(request: Request) -> Response:
        who, wanted = tenant(request), await body(request, _Create)
        wish = Wish(wanted.board, wanted.affinity, wanted.numa)
        task = await operator.create(
            who, wanted.app, wanted.model, lease=wanted.lease, wish=wish, priority=wanted.priority
        )
        return _json(201, described(task))

    async def tasks(request: Request) -> Response:
        return _json(200, [described(task) for task in service.list(tenant(request))])

    async def one_task(request: Request) -> Response:
        return _json(200, described(service.get(tenant(request), number(request))))

    async def run(request: Request) -> Response:
        who, n = tenant(request), number(request)
        service.get(who, n)
        outputs = await operator.run(who, n, (await body(request, _Run)).steps)
        return _json(200, {"steps": outputs})

    def on_task(act: Callable[[str, int], Awaitable[Any]]) -> Answer:
        async def answer(request: Request) -> Response:
            return _json(200, described(await act(tenant(request), number(request))))

        return answer

    async def lease(request: Request) -> Response:
        who, wanted = tenant(request), await body(request, _Lease)
        exact = CoreRequest(wanted.width, wanted.height) if wanted.width or wanted.height else None
        cores = exact.cores if exact is not None and min(wanted.width, wanted.height) > 0 else wanted.cores
        n, made = await operator.lease(who, cores, request=exact, wish=Wish(wanted.board))
        return _json(201, _described_lease(n, made))

    async def leases(request: Request) -> Response:
        owner = service.tenants.get(tenant(request))
        found = sorted(owner.leases.items()) if owner is not None else []
        return _json(200, [_described_lease(n, service.leases[id]) for n, id in found])

    async def end_lease(request: Request) -> Response:
        await operator.end_lease(tenant(request), number(request))
        return Response(status_code=204)

    async def streams(request: Request) -> Response:
        found = service.streams(tenant(request))
        return _json(200, [{"address": a, "ksps": e.ksps, "task": _number(e.task)} for a, e in sorted(found.items())])

    def _number(id: int) -> int:
        task = service.tasks.get(id)
        return task.number if task is not None else 0

    async def forward(request: Request) -> Response:
        who, address = tenant(request), number(request)
        endpoint = service.table.forward(who, address)
        if endpoint is None:
            raise missing("stream", address)
        return _json(
            200, {"address": address, "ksps": endpoint.ksps, "port": endpoint.port, "channel": endpoint.channel}
        )

    async def policy(request: Request) -> Response:
        return _json(200, network_policy(tenant(request)))

    async def quota(request: Request) -> Response:
        only_operators(request)
        wanted = await body(request, Quota)
        await operator.set_quota(str(request.path_params["tenant"]), wanted)
        return _json(200, wanted)

    async def boards(request: Request) -> Response:
        only_operators(request)
        return _json(200, overview(service, operator.usage()))

    async def faults(request: Request) -> Response:
        only_operators(request)
        wanted = await body(request, _Faults)
        board = str(request.path_params["board"])
        hurt = await operator.fault(board, cores=cells_of(wanted.cores), routers=cells_of(wanted.routers))
        moved = await operator.look()
        return _json(200, {"hurt": [task.id for task in hurt], "moved": [task.id for task in moved]})

    async def healthy(_: Request) -> Response:
        return PlainTextResponse("ok")

    async def metrics(_: Request) -> Response:
        content = generate_latest(registry) if registry is not None else b""
        return Response(content, media_type=CONTENT_TYPE_LATEST)

    at = "/v1/tenants/{tenant}"
    return Starlette(
        routes=[
            Route(f"{at}/apps", _safe(install), methods=["POST"]),
            Route(f"{at}/apps", _safe(apps)),
            Route(f"{at}/tasks", _safe(create), methods=["POST"]),
            Route(f"{at}/tasks", _safe(tasks)),
            Route(f"{at}/tasks/{{number}}", _safe(one_task)),
            Route(f"{at}/tasks/{{number}}", _safe(on_task(operator.destroy)), methods=["DELETE"]),
            Route(f"{at}/tasks/{{number}}/run", _safe(run), methods=["POST"]),
            Route(f"{at}/tasks/{{number}}/start", _safe(on_task(operator.start)), methods=["POST"]),
            Route(f"{at}/tasks/{{number}}/pause", _safe(on_task(operator.pause)), methods=["POST"]),
            Route(f"{at}/tasks/{{number}}/resume", _safe(on_task(operator.resume)), methods=["POST"]),
            Route(f"{at}/leases", _safe(lease), methods=["POST"]),
            Route(f"{at}/leases", _safe(leases)),
            Route(f"{at}/leases/{{number}}", _safe(end_lease), methods=["DELETE"]),
            Route(f"{at}/streams", _safe(streams)),
            Route(f"{at}/streams/{{number}}", _safe(forward)),
            Route(f"{at}/networkpolicy", _safe(policy)),
            Route(f"{at}/quota", _safe(quota), methods=["PUT"]),
            Route("/v1/boards", _safe(boards)),
            Route("/v1/boards/{board}/faults", _safe(faults), methods=["POST"]),
            Route("/healthz", healthy),
            Route("/metrics", metrics),
        ]
    )


def _safe(answer: Answer) -> Answer:
    """Refusals as JSON with the right status."""

    async def guarded(request: Request) -> Response:
        try:
            return await answer(request)
        except RefusedError as error:
            reason = error.refusals[0].reason
            code = 401 if reason == "Unauthorized" else _CODES.get(reason, 409 if reason in _NOT_NOW else 422)
            return _json(code, {"refusals": error.refusals})

    return guarded


_NOT_NOW: Final = frozenset(
    {"CapacityTaken", "CoresTaken", "Fragmented", "LeaseFull", "QuotaExceeded", "StreamsExhausted", "PortRateExhausted",
     "RelaysExhausted", "NoRoute", "LoadFailed", "RunFailed"}
)  # fmt: skip


def _described_lease(number: int, lease: Any) -> dict[str, Any]:
    return {
        "lease": number,
        "board": lease.board,
        "grid": f"{lease.rectangle.width}x{lease.rectangle.height}",
        "cores": lease.cores,
        "free": lease.inner.free_cores,
    }


def _json(status: int, content: Any) -> Response:
    return Response(msgspec.json.encode(content), status_code=status, media_type="application/json")
