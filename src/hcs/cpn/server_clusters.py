"""``/clusters``: named objects that come and go while everything runs.

A kubeconfig goes in and never comes out. One that is sent may hold certificates and tokens, but nothing that makes the
controller run a program or read a file of its own machine; who needs that names a file there.
"""

import asyncio
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from hcs.cpn.jobmanifest import Overlay
from hcs.cpn.server_answers import answer, read_body
from hcs.cpn.service import Service
from hcs.cpn.wire import ClusterList, ClusterRow
from hcs.model.refusals import Refusal, RefusedError
from hcs.store.clusters import ClusterConfig, read_cluster
from hcs.wide.lifecycle import PLACED
from hcs.wide.manifests import MAX_BYTES, read_manifest


def cluster_routes(service: Service) -> list[Route]:
    """The routes."""

    def rows() -> dict[str, ClusterRow]:
        views = {view.name: view for view in service.views()}
        placed = [entry.placement.cluster for entry in service.store.entries(PLACED) if entry.placement is not None]
        return {
            config.name: ClusterRow(
                msgspec.structs.replace(config, kubeconfig_text=""),
                views.get(config.name),
                placed.count(config.name),
                bool(config.kubeconfig_text),
            )
            for config in service.store.clusters()
        }

    async def clusters(_: Request) -> Response:
        return answer(ClusterList(tuple(rows().values())))

    async def cluster(request: Request) -> Response:
        return answer(_known(rows(), request))

    async def put(request: Request) -> Response:
        name = request.path_params["name"]
        document = await _document(request)
        config = read_cluster(name, document)
        _check_overlay(config)
        old = next((known for known in service.store.clusters() if known.name == name), None)
        if old is not None and not config.kubeconfig and not config.kubeconfig_text:
            # What is never shown cannot be sent back: whoever changes the rest keeps the access.
            config = msgspec.structs.replace(config, kubeconfig=old.kubeconfig, kubeconfig_text=old.kubeconfig_text)
        if config.gone and any(view.name == name and view.reachable for view in service.views()):
            message = f"cluster {name} answers, so it is not gone: what runs there would run twice; cancel its jobs"
            raise RefusedError(Refusal("ClusterAnswers", message))
        service.store.put_cluster(config)
        service.wake()
        return answer(rows()[name], 201 if old is None else 200)

    async def drop(request: Request) -> Response:
        known = _known(rows(), request)
        service.store.drop_cluster(known.config.name)
        service.wake()
        return answer(known)

    return [
        Route("/clusters", clusters, methods=["GET"]),
        Route("/clusters/{name}", cluster, methods=["GET"]),
        Route("/clusters/{name}", put, methods=["PUT"]),
        Route("/clusters/{name}", drop, methods=["DELETE"]),
    ]


async def _document(request: Request) -> dict[str, Any]:
    raw = await read_body(request, MAX_BYTES)
    try:
        return await asyncio.to_thread(read_manifest, raw) if raw.strip() else {}
    except RefusedError as error:
        said = "; ".join(refusal.message for refusal in error.refusals)
        raise RefusedError(Refusal("MalformedCluster", said.replace("the manifest", "the cluster object"))) from error


def _known(rows: dict[str, ClusterRow], request: Request) -> ClusterRow:
    name = request.path_params["name"]
    if name not in rows:
        names = ", ".join(rows) or "there is none yet"
        raise RefusedError(Refusal("UnknownCluster", f"there is no cluster {name[:80]!r}; known: {names}"))
    return rows[name]


def _check_overlay(config: ClusterConfig) -> None:
    try:
        msgspec.convert(config.overlay, Overlay)
    except msgspec.ValidationError as error:
        raise RefusedError(
            Refusal(
                "MalformedCluster",
                f"overlay: {error}; it may hold metadata and spec as merge patches of the pod template's, and limits",
            )
        ) from error
