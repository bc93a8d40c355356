"""What is served, for kubectl and client libraries: /api, /apis, /version and as much OpenAPI as ``kubectl apply`` asks
for.

The OpenAPI documents name each kind and say that field validation happens on the server; they carry no field schemas,
so ``kubectl explain`` has nothing to show here.
"""

from __future__ import annotations

import hashlib

import msgspec

from hcs.sandbox.apiserver.kinds import ALL_VERBS, Registry, Resource
from hcs.sandbox.apiserver.status import JsonObject, PathUnknownError

VERSION = {
    "major": "1", "minor": "36", "gitVersion": "v1.36.0+hcs-sandbox-emulated", "gitCommit": "", "gitTreeState": "clean",
    "buildDate": "2026-01-01T00:00:00Z", "goVersion": "none", "compiler": "python", "platform": "linux/amd64",
}  # fmt: skip
_SUBRESOURCE_KINDS = {"binding": ("", "v1", "Binding"), "eviction": ("policy", "v1", "Eviction")}
_SUBRESOURCE_VERBS = {"binding": ["create"], "eviction": ["create"], "log": ["get"], "finalize": ["update"]}


def core_versions(address: str) -> JsonObject:
    return {
        "kind": "APIVersions",
        "versions": ["v1"],
        "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": address}],
    }


def group_list(registry: Registry) -> JsonObject:
    groups = [_group(name, versions) for name, versions in registry.groups().items()]
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}


def group(registry: Registry, name: str) -> JsonObject:
    versions = registry.groups().get(name)
    if versions is None:
        raise PathUnknownError
    return {"kind": "APIGroup", "apiVersion": "v1", **_group(name, versions)}


def _group(name: str, versions: list[str]) -> JsonObject:
    listed = [{"groupVersion": f"{name}/{version}", "version": version} for version in versions]
    return {"name": name, "versions": listed, "preferredVersion": listed[0]}


def resource_list(registry: Registry, group: str, version: str) -> JsonObject:
    """The resources of one group and version, subresources included. Raises ApiError 404."""
    served = [resource for resource in registry if (resource.group, resource.version) == (group, version)]
    if not served:
        raise PathUnknownError
    entries = []
    for resource in served:
        entries.append(_entry(resource))
        entries.extend(_subentry(resource, subresource) for subresource in resource.subresources)
    name = f"{group}/{version}" if group else version
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": name, "resources": entries}


def _entry(resource: Resource) -> JsonObject:
    entry: JsonObject = {
        "name": resource.plural,
        "singularName": resource.singular or resource.kind.lower(),
        "namespaced": resource.namespaced,
        "kind": resource.kind,
        "verbs": list(ALL_VERBS),
        "storageVersionHash": _hash(f"{resource.group}/{resource.version}/{resource.kind}"),
    }
    if resource.short:
        entry["shortNames"] = list(resource.short)
    if resource.categories:
        entry["categories"] = list(resource.categories)
    return entry


def _subentry(resource: Resource, subresource: str) -> JsonObject:
    entry: JsonObject = {
        "name": f"{resource.plural}/{subresource}",
        "singularName": "",
        "namespaced": resource.namespaced,
        "kind": resource.kind,
        "verbs": _SUBRESOURCE_VERBS.get(subresource, ["get", "patch", "update"]),
    }
    if subresource in _SUBRESOURCE_KINDS:
        group, version, kind = _SUBRESOURCE_KINDS[subresource]
        entry["kind"] = kind
        if group:
            entry |= {"group": group, "version": version}
    return entry


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def openapi_index(registry: Registry) -> JsonObject:
    """/openapi/v3: one document per group and version."""
    paths = {"api/v1"} | {f"apis/{name}/{v}" for name, versions in registry.groups().items() for v in versions}
    urls = {path: {"serverRelativeURL": f"/openapi/v3/{path}?hash={_hash(path)}"} for path in sorted(paths)}
    return {"paths": urls}


def openapi_document(registry: Registry, path: str) -> JsonObject:
    """/openapi/v3/api/v1 and the like: per kind a PATCH that takes fieldValidation. Raises ApiError 404."""
    served = [resource for resource in registry if _document_path(resource) == path]
    if not served:
        raise PathUnknownError
    return {
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes (emulated by the HCS sandbox)", "version": VERSION["gitVersion"]},
        "paths": {_url(resource): _operations(resource) for resource in served},
        "components": {"schemas": {}},
    }


def _document_path(resource: Resource) -> str:
    return f"apis/{resource.group}/{resource.version}" if resource.group else "api/v1"


def _url(resource: Resource) -> str:
    scope = "/namespaces/{namespace}" if resource.namespaced else ""
    return f"/{_document_path(resource)}{scope}/{resource.plural}/{{name}}"


def _operations(resource: Resource) -> JsonObject:
    kind = {"group": resource.group, "version": resource.version, "kind": resource.kind}
    names = ("dryRun", "fieldManager", "fieldValidation", "force")
    parameters = [{"name": name, "in": "query", "schema": {"type": "string", "uniqueItems": True}} for name in names]
    operation = {
        "parameters": parameters,
        "responses": {"200": {"description": "OK"}},
        "x-kubernetes-action": "patch",
        "x-kubernetes-group-version-kind": kind,
    }
    return {"patch": operation}


def openapi_v2(*, protobuf: bool) -> bytes:
    """/openapi/v2 without definitions: kubectl before 1.27 then leaves validation to the server."""
    title = "Kubernetes (emulated by the HCS sandbox)"
    if not protobuf:
        info = {"title": title, "version": VERSION["gitVersion"]}
        return msgspec.json.encode({"swagger": "2.0", "info": info, "paths": {}, "definitions": {}})
    info_message = _field(1, title.encode()) + _field(2, VERSION["gitVersion"].encode())
    return _field(1, b"2.0") + _field(2, info_message)


def _field(number: int, content: bytes) -> bytes:
    """A length-delimited protobuf field; contents here stay under 128 bytes."""
    return bytes([number << 3 | 2, len(content)]) + content
