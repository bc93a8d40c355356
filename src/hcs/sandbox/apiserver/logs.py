"""pods/log: what a container has written.

The process kubelet of the sandbox writes ``DIR/NAMESPACE_POD_UID/CONTAINER.log``; this serves those files, whole, the
last lines, or followed until the container ends.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path

from hcs.sandbox.apiserver.cluster import Cluster
from hcs.sandbox.apiserver.kinds import Resource
from hcs.sandbox.apiserver.status import JsonObject, bad_request, not_found, read_integer
from hcs.sandbox.apiserver.storage import Stored

_POLL_SECONDS = 0.1


def open_log(
    cluster: Cluster, pods: Resource, namespace: str, name: str, query: Mapping[str, str]
) -> AsyncIterator[bytes]:
    """The log a request means, as chunks. Raises ApiError 400 and 404 before the first chunk."""
    stored = cluster.must_get(pods, namespace, name)
    container = query.get("container") or _only_container(stored)
    known = [c["name"] for field in ("initContainers", "containers") for c in stored.object["spec"].get(field) or ()]
    if container not in known:
        raise bad_request(f"container {container} is not valid for pod {name}")
    if not stored.object["spec"].get("nodeName"):
        raise bad_request(f"pod {name} does not have a host assigned")
    if cluster.pod_logs is None:
        raise not_found("pods/log", "", name)
    path = cluster.pod_logs / f"{namespace}_{name}_{stored.uid}" / f"{container}.log"
    if query.get("previous") in ("true", "1"):
        path = path.with_suffix(".previous.log")
        if not path.exists():
            raise bad_request(f'previous terminated container "{container}" in pod "{name}" not found')
    if not path.exists() and not _follows(query):
        raise bad_request(f'container "{container}" in pod "{name}" is waiting to start: ContainerCreating')

    def ended() -> bool:
        current = cluster.store.get(stored.resource, namespace, name)
        return current is None or current.uid != stored.uid or _terminated(current.object, container)

    tail = read_integer(query, "tailLines") if query.get("tailLines") else None
    most = read_integer(query, "limitBytes") if query.get("limitBytes") else None
    return _read(path, tail, most, ended if _follows(query) else None)


def _follows(query: Mapping[str, str]) -> bool:
    return query.get("follow") in ("true", "1")


def _only_container(stored: Stored) -> str:
    names = [container["name"] for container in stored.object["spec"]["containers"]]
    if len(names) > 1:
        raise bad_request(
            f"a container name must be specified for pod {stored.name}, choose one of: [{' '.join(names)}]"
        )
    return str(names[0])


def _terminated(pod: JsonObject, container: str) -> bool:
    status = pod.get("status") or {}
    if status.get("phase") in ("Succeeded", "Failed"):
        return True
    statuses = [*(status.get("containerStatuses") or ()), *(status.get("initContainerStatuses") or ())]
    return any(s["name"] == container and "terminated" in (s.get("state") or {}) for s in statuses)


async def _read(
    path: Path, tail: int | None, most: int | None, ended: Callable[[], bool] | None
) -> AsyncIterator[bytes]:
    whole = _from(path, 0)
    position = len(whole)
    shown = whole if tail is None else b"".join(whole.splitlines(keepends=True)[-tail:] if tail else [])
    if shown:
        yield shown[:most]
    while ended is not None:
        last_round = ended()  # asked before reading, so that the last words are read too
        if fresh := _from(path, position):
            position += len(fresh)
            yield fresh
        if last_round:
            return
        await asyncio.sleep(_POLL_SECONDS)


def _from(path: Path, position: int) -> bytes:
    """What a local file holds after a position; nothing while it does not exist."""
    try:
        with path.open("rb") as file:
            file.seek(position)
            return file.read()
    except FileNotFoundError:
        return b""
