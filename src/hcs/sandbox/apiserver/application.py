"""The HTTP face: paths, media types and status codes around the handlers.

One ASGI application. Promises: every refusal is a Status object, every request but health needs a token, and the
paths are those of a real API server, so that kubectl and client libraries need no setting but the address.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Mapping
from typing import Any

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from hcs.sandbox.apiserver import binding, deletion, discovery, eviction, logs, reading, tables, writing
from hcs.sandbox.apiserver.attempts import User
from hcs.sandbox.apiserver.authentication import OPEN_PATHS, Tokens
from hcs.sandbox.apiserver.cluster import Cluster, encode
from hcs.sandbox.apiserver.kinds import Resource
from hcs.sandbox.apiserver.patch import decode_patch
from hcs.sandbox.apiserver.selectors import predicate
from hcs.sandbox.apiserver.status import (
    ApiError,
    JsonObject,
    PathUnknownError,
    bad_request,
    internal,
    method_not_allowed,
    no_such_path,
    read_integer,
    success,
    unsupported_media,
)
from hcs.sandbox.apiserver.storage import Stored
from hcs.sandbox.apiserver.watching import Watches, WatchRequest

log = logging.getLogger(__name__)
_MOST_BYTES = 3 * 1024 * 1024
_SELF_DELETING = ("pods", "serviceaccounts", "resourcequotas")  # deleting these answers with the object, not a Status


class Target(msgspec.Struct, frozen=True):
    """What a path points at."""

    resource: Resource
    namespace: str = ""
    name: str = ""
    subresource: str = ""


class Application:
    """The ASGI application of one cluster."""

    def __init__(self, cluster: Cluster, tokens: Tokens, watches: Watches) -> None:
        self.cluster, self.tokens, self.watches = cluster, tokens, watches
        self.address = "127.0.0.1"
        self.running = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        self.running += 1
        try:
            await self._respond(scope, receive, send)
        finally:
            self.running -= 1

    async def _respond(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        try:
            response = await self._answer(request)
        except ClientDisconnect:
            return
        except PathUnknownError as error:
            response = Response(error.message, 404, media_type="text/plain")
        except ApiError as error:
            response = _json(error.body, error.code)
            if error.details and error.details.get("retryAfterSeconds"):
                response.headers["Retry-After"] = str(error.details["retryAfterSeconds"])
        except Exception as error:
            log.exception("request failed method=%s path=%s", request.method, request.url.path)
            response = _json(internal(f"{type(error).__name__}: {error}").body, 500)
        await response(scope, receive, send)

    async def _answer(self, request: Request) -> Response:
        path = request.url.path
        if path.rstrip("/") in OPEN_PATHS or path.startswith(("/healthz/", "/readyz/", "/livez/")):
            return _json(discovery.VERSION) if path == "/version" else Response("ok", media_type="text/plain")
        user = self.tokens.authenticate(request.headers.get("authorization"))
        parts = [part for part in path.split("/") if part]
        if request.method == "GET" and (found := self._discovery(parts, request)) is not None:
            return found
        target = self._target(parts)
        return await self._dispatch(request, target, user)

    def _discovery(self, parts: list[str], request: Request) -> Response | None:
        registry = self.cluster.registry
        match parts:
            case []:
                return _json({"paths": ["/api", "/apis", "/healthz", "/openapi/v2", "/openapi/v3", "/version"]})
            case ["api"]:
                return _json(discovery.core_versions(self.address))
            case ["apis"]:
                return _json(discovery.group_list(registry))
            case ["apis", group]:
                return _json(discovery.group(registry, group))
            case ["api", version]:
                return _json(discovery.resource_list(registry, "", version))
            case ["apis", group, version]:
                return _json(discovery.resource_list(registry, group, version))
            case ["openapi", "v2"]:
                protobuf = "proto" in request.headers.get("accept", "")
                kind = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf" if protobuf else "application/json"
                return Response(discovery.openapi_v2(protobuf=protobuf), media_type=kind)
            case ["openapi", "v3"]:
                return _json(discovery.openapi_index(registry))
            case ["openapi", "v3", *rest]:
                return _json(discovery.openapi_document(registry, "/".join(rest)))
        return None

    def _target(self, parts: list[str]) -> Target:
        match parts:
            case ["api", version, *rest]:
                group = ""
            case ["apis", group, version, *rest]:
                pass
            case _:
                raise PathUnknownError
        if not self.cluster.registry.serves(group, version):
            raise PathUnknownError
        namespace = ""
        if len(rest) >= 3 and rest[0] == "namespaces" and rest[2] not in ("status", "finalize"):
            namespace, rest = rest[1], rest[2:]
        resource = self.cluster.registry.find(group, version, rest[0]) if rest else None
        if resource is None and group and rest:
            raise PathUnknownError
        if resource is None or len(rest) > 3 or (namespace and not resource.namespaced):
            raise no_such_path()
        target = Target(resource, namespace, *rest[1:])
        if target.subresource and target.subresource not in resource.subresources:
            raise no_such_path()
        if target.name and resource.namespaced and not namespace:
            raise no_such_path()
        return target

    async def _dispatch(self, request: Request, target: Target, user: User) -> Response:
        query = dict(request.query_params)
        match request.method:
            case "GET" if target.subresource == "log":
                return self._log(target, query)
            case "GET" if target.name:
                return await self._get(request, target, query)
            case "GET":
                return self._list_or_watch(request, target, query)
            case "POST" if target.subresource in ("binding", "eviction"):
                return await self._act(request, target, user, query)
            case "POST" if not target.name:
                return await self._create(request, target, user, query)
            case "PUT" if target.name:
                body = await _body(request)
                options = _write_options(query)
                written = await writing.update(
                    self.cluster,
                    target.resource,
                    target.namespace,
                    target.name,
                    target.subresource,
                    body,
                    user,
                    options,
                )
                return self._written(request, target, written)
            case "PATCH" if target.name:
                return await self._patch(request, target, user, query)
            case "DELETE" if target.name and not target.subresource:
                return await self._delete(request, target, user, query)
            case "DELETE" if not target.name:
                return await self._delete_collection(request, target, user, query)
        raise method_not_allowed()

    async def _get(self, request: Request, target: Target, query: Mapping[str, str]) -> Response:
        if target.subresource not in ("", "status"):
            raise method_not_allowed()
        stored = self.cluster.must_get(target.resource, target.namespace, target.name)
        return self._object(request, target.resource, stored, query=query)

    def _object(
        self, request: Request, resource: Resource, stored: Stored, code: int = 200,
        query: Mapping[str, str] | None = None,
    ) -> Response:  # fmt: skip
        if tables.wanted(request.headers.get("accept", "")):
            metadata = {"resourceVersion": str(stored.version)}
            include = (query or {}).get("includeObject", "Metadata")
            return _json(tables.table(resource, [stored], metadata, self.cluster.sources.now(), include), code)
        return Response(encode(resource, stored), code, media_type="application/json")

    def _list_or_watch(self, request: Request, target: Target, query: Mapping[str, str]) -> Response:
        as_table = tables.wanted(request.headers.get("accept", ""))
        include = query.get("includeObject", "Metadata")
        if query.get("watch") in ("true", "1"):
            return self._watch(target, query, as_table=as_table, include=include)
        page = reading.select(self.cluster, target.resource, target.namespace, query)
        if as_table:
            now = self.cluster.sources.now()
            return _json(tables.table(target.resource, page.items, page.metadata, now, include))
        return Response(reading.encode_page(target.resource, page), media_type="application/json")

    def _watch(self, target: Target, query: Mapping[str, str], *, as_table: bool, include: str) -> Response:
        resource = target.resource
        version_text = query.get("resourceVersion") or "0"
        if not version_text.isdecimal():
            raise bad_request(f"invalid resource version {version_text!r}")
        headed = False

        def as_row(stored: Stored) -> bytes:
            nonlocal headed
            items = [] if stored.name == "" else [stored]
            made = tables.table(
                resource, items, {"resourceVersion": str(stored.version)}, self.cluster.sources.now(), include
            )
            if headed:
                made["columnDefinitions"] = None
            headed = True
            return msgspec.json.encode(made)

        stream = self.watches.stream(
            WatchRequest(
                resource,
                target.namespace,
                predicate(resource, query.get("labelSelector", ""), query.get("fieldSelector", "")),
                int(version_text),
                query.get("allowWatchBookmarks") in ("true", "1"),
                query.get("sendInitialEvents") in ("true", "1"),
                float(read_integer(query, "timeoutSeconds")),
                as_row if as_table else None,
            )
        )
        return StreamingResponse(stream, media_type="application/json")

    def _log(self, target: Target, query: Mapping[str, str]) -> Response:
        lines: AsyncIterator[bytes] = logs.open_log(self.cluster, target.resource, target.namespace, target.name, query)
        return StreamingResponse(lines, media_type="text/plain")

    async def _create(self, request: Request, target: Target, user: User, query: Mapping[str, str]) -> Response:
        body = await _body(request)
        namespace = target.namespace
        if target.resource.namespaced and not namespace:
            raise bad_request("an empty namespace may not be set during creation")
        written = await writing.create(self.cluster, target.resource, namespace, body, user, _write_options(query))
        return self._written(request, target, written)

    async def _patch(self, request: Request, target: Target, user: User, query: Mapping[str, str]) -> Response:
        kind = _media_type(request)
        body = decode_patch(kind, await _bytes(request))
        written = await writing.apply_patch(
            self.cluster, target.resource, target.namespace, target.name, target.subresource, kind, body, user,
            _write_options(query),
        )  # fmt: skip
        return self._written(request, target, written)

    def _written(self, request: Request, target: Target, written: writing.Written) -> Response:
        response = self._object(request, target.resource, written.stored, 201 if written.created else 200)
        for warning in dict.fromkeys(written.warnings):
            escaped = warning.replace("\\", "\\\\").replace('"', '\\"')
            response.headers.append("Warning", f'299 - "{escaped}"')
        return response

    async def _act(self, request: Request, target: Target, user: User, query: Mapping[str, str]) -> Response:
        body = await _body(request)
        action = binding.bind if target.subresource == "binding" else eviction.evict
        await action(self.cluster, target.resource, target.namespace, target.name, body, user, _write_options(query))
        return _json(success(201), 201)

    async def _delete(self, request: Request, target: Target, user: User, query: Mapping[str, str]) -> Response:
        options = deletion.DeleteOptions.read(await _body(request, optional=True), dict(query))
        resource = target.resource
        stored, gone = await deletion.delete(self.cluster, resource, target.namespace, target.name, user, options)
        if gone and resource.plural not in _SELF_DELETING:
            details: JsonObject = {
                "name": target.name,
                "group": resource.group,
                "kind": resource.plural,
                "uid": stored.uid,
            }
            if not resource.group:
                del details["group"]
            return _json(success(200, details))
        return self._object(request, resource, stored)

    async def _delete_collection(
        self, request: Request, target: Target, user: User, query: Mapping[str, str]
    ) -> Response:
        options = deletion.DeleteOptions.read(await _body(request, optional=True), dict(query))
        page = reading.select(self.cluster, target.resource, target.namespace, query)
        for stored in page.items:
            try:
                await deletion.delete(self.cluster, target.resource, stored.namespace, stored.name, user, options)
            except ApiError as error:
                if error.code != 404:
                    raise
        return Response(reading.encode_page(target.resource, page), media_type="application/json")


def _write_options(query: Mapping[str, str]) -> writing.WriteOptions:
    return writing.WriteOptions(
        query.get("dryRun") == "All", query.get("fieldManager", ""), query.get("fieldValidation", "")
    )


def _media_type(request: Request) -> str:
    return request.headers.get("content-type", "application/json").partition(";")[0].strip()


async def _bytes(request: Request) -> bytes:
    body = await request.body()
    if len(body) > _MOST_BYTES:
        message = f"Request entity too large: limit is {_MOST_BYTES}"
        raise ApiError(413, "RequestEntityTooLarge", message, {})
    return body


async def _body(request: Request, *, optional: bool = False) -> Any:
    """The decoded JSON (or YAML) body. Raises ApiError 400, 413, 415."""
    raw = await _bytes(request)
    if not raw and optional:
        return {}
    kind = _media_type(request)
    if kind in ("application/yaml", "application/apply-patch+yaml"):
        return decode_patch("application/apply-patch+yaml", raw)
    if kind != "application/json":
        raise unsupported_media(["application/json", "application/yaml"])
    try:
        return msgspec.json.decode(raw)
    except msgspec.DecodeError as error:
        raise bad_request(f"couldn't get version/kind; json parse error: {error}") from None


def _json(body: JsonObject, code: int = 200) -> Response:
    return Response(msgspec.json.encode(body), code, media_type="application/json")
