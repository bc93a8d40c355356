"""How the API answers: JSON with a status, and which status goes with which reason."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from hcs.cpn.wire import Problem
from hcs.model.refusals import Refusal, RefusedError

_STATUS: Final = {
    **dict.fromkeys(("BrokenYaml", "NotText", "BadValue", "YamlAlias", "TooDeep", "SeveralDocuments"), 400),
    **dict.fromkeys(("BadQuery", "BadKey", "MalformedCluster"), 400),
    **dict.fromkeys(("UnknownJob", "UnknownCluster", "NoLog"), 404),
    **dict.fromkeys(
        ("KeyReused", "KeySpent", "AmbiguousJob", "AlreadyEnded", "StaleEntry", "ForbiddenTransition"), 409
    ),
    "ClusterAnswers": 409,
    "TooLarge": 413,
    **dict.fromkeys(("QueueNotWritable", "QueueDamaged", "QueueClosed", "NoFreshId"), 503),
}


def answer(value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """A value as JSON."""
    return Response(msgspec.json.encode(value), status, headers, media_type="application/json")


def problem(status: int | None, refusals: Sequence[Refusal], *, headers: Mapping[str, str] | None = None) -> Response:
    """A no; without a status, the one that goes with its first reason, 422 where none is special."""
    first = refusals[0]
    body = Problem(first.reason, first.message, tuple(refusals) if len(refusals) > 1 else ())
    return answer(body, status or _STATUS.get(first.reason, 422), headers)


async def read_body(request: Request, most: int) -> bytes:
    """The request's body, as long as it is no longer than ``most`` bytes.

    Raises:
        RefusedError: it is.
    """
    too_large = Refusal("TooLarge", f"the body has more than {most} bytes; keep data out of it")
    length = request.headers.get("content-length", "0")
    if length.isdecimal() and int(length) > most:
        raise RefusedError(too_large)
    parts, size = [], 0
    async for part in request.stream():
        size += len(part)
        if size > most:
            raise RefusedError(too_large)
        parts.append(part)
    return b"".join(parts)


def read_count(request: Request, name: str, default: int, most: int) -> int:
    """A number of the query, from 0.

    Raises:
        RefusedError: not a number, or more than ``most``.
    """
    text = request.query_params.get(name)
    if text is None:
        return default
    if not text.isdecimal() or len(text) > 10 or int(text) > most:
        raise RefusedError(Refusal("BadQuery", f"{name}={text[:40]!r} is no number from 0 to {most}"))
    return int(text)
