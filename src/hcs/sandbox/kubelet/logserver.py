"""The kubelet's log endpoint: what a real API server asks when somebody says ``kubectl logs``.

Only the API server is heard, by its client certificate; who may read which log it has checked by then. The answers are
those of a real kubelet's ``/containerLogs``: the whole file, its end, or followed until the container ends.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Final

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from hcs.sandbox.kubelet.pods import BoundPod

_POLL_SECONDS: Final = 0.1

FindPod = Callable[[str, str], BoundPod | None]
"""Finds a pod of this kubelet by namespace and name."""


def make_app(find: FindPod, place: Callable[[BoundPod], Path]) -> Starlette:
    """The endpoint.

    Args:
        find: the pods of this kubelet.
        place: where a pod's log files are.
    """

    async def container_logs(request: Request) -> Response:
        namespace, name, container = (request.path_params[key] for key in ("namespace", "pod", "container"))
        pod = find(namespace, name)
        if pod is None:
            return PlainTextResponse(f'pod "{namespace}/{name}" is not on this node', 404)
        query = request.query_params
        follow = query.get("follow") == "true"
        previous = query.get("previous") == "true"
        path = place(pod) / f"{container}{'.previous' if previous else ''}.log"
        if previous and not path.exists():
            text = f'previous terminated container "{container}" in pod "{name}" not found'
            return PlainTextResponse(text, 400)
        if not path.exists() and not follow:
            text = f'container "{container}" in pod "{name}" is waiting to start: ContainerCreating'
            return PlainTextResponse(text, 400)
        try:
            tail, most = _number(query, "tailLines"), _number(query, "limitBytes")
        except ValueError as error:
            return PlainTextResponse(f"tailLines and limitBytes are whole numbers: {error}", 400)

        def ended() -> bool:
            now = find(namespace, name)
            return now is None or now.metadata.uid != pod.metadata.uid or has_ended(now, container)

        return StreamingResponse(_read(path, tail, most, ended if follow else None), media_type="text/plain")

    return Starlette(routes=[Route("/containerLogs/{namespace}/{pod}/{container}", container_logs)])


def has_ended(pod: BoundPod, container: str) -> bool:
    """Whether a container writes no more, as far as the pod's status says."""
    if pod.finished:
        return True
    statuses = [*(pod.status.containerStatuses or ()), *(pod.status.initContainerStatuses or ())]
    return any(status.get("name") == container and "terminated" in (status.get("state") or {}) for status in statuses)


def _number(query: Mapping[str, str], name: str) -> int | None:
    return int(query[name]) if query.get(name) else None


async def _read(
    path: Path, tail: int | None, most: int | None, ended: Callable[[], bool] | None
) -> AsyncIterator[bytes]:
    content = path.read_bytes() if path.exists() else b""
    position = len(content)
    if tail is not None:
        content = b"".join(content.splitlines(keepends=True)[-tail:]) if tail else b""
    left = most
    while True:
        if left is not None:
            content, left = content[:left], left - len(content[:left])
        if content:
            yield content
        if ended is None or left == 0:
            return
        last = ended()  # asked before reading, so that the last words are read too
        await asyncio.sleep(0 if last else _POLL_SECONDS)
        if path.exists():
            with path.open("rb") as file:
                file.seek(position)
                content = file.read()
            position += len(content)
        else:
            content = b""
        if last:
            ended = None
