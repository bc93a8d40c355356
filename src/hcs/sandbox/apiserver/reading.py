"""Lists: whole, selected, or page by page at one version.

A page's ``continue`` token names the version of the first page, and later pages show the cluster as it stood then;
once that version is no longer kept the answer is 410 and the client starts over.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping

import msgspec

from hcs.sandbox.apiserver.cluster import Cluster, encode, present
from hcs.sandbox.apiserver.kinds import Resource
from hcs.sandbox.apiserver.selectors import predicate
from hcs.sandbox.apiserver.status import ApiError, JsonObject, bad_request, expired, read_integer
from hcs.sandbox.apiserver.storage import ExpiredError, Stored

_TOKEN_EXPIRED = (
    "The provided continue parameter is too old to display a consistent list result. You can start a new list without "
    "the continue parameter, or use the continue token in this response to retrieve the remainder of the results. "
    "Continuing with the provided token results in an inconsistent list - objects that were created, modified, or "
    "deleted between the time the first chunk was returned and now may show up in the list."
)


class Page(msgspec.Struct, frozen=True):
    """Selected objects and the list's own metadata."""

    items: list[Stored]
    metadata: JsonObject


class _Continue(msgspec.Struct):
    v: int
    after: tuple[str, str]


def select(cluster: Cluster, resource: Resource, namespace: str, query: Mapping[str, str]) -> Page:
    """The objects a list request means. Raises ApiError 400 and 410."""
    store = cluster.store
    test = predicate(resource, query.get("labelSelector", ""), query.get("fieldSelector", ""))
    limit, token = read_integer(query, "limit"), query.get("continue", "")
    version, after = store.version, None
    _refuse_future(query.get("resourceVersion") or "0", version)
    if token:
        try:
            cursor = msgspec.json.decode(base64.urlsafe_b64decode(token), type=_Continue)
        except (ValueError, msgspec.DecodeError):
            raise bad_request("continue key is not valid") from None
        version, after = cursor.v, cursor.after
    elif query.get("resourceVersionMatch") == "Exact":
        version = read_integer(query, "resourceVersion")
    try:
        found = (
            store.objects(resource.storage_key, namespace)
            if version == store.version
            else store.list_at(resource.storage_key, namespace, version)
        )
    except ExpiredError as error:
        raise expired(_TOKEN_EXPIRED if token else str(error)) from None
    if after is not None:
        found = [stored for stored in found if stored.key > after]
    chosen = [stored for stored in found if test is None or test(stored.object)]
    metadata: JsonObject = {"resourceVersion": str(version)}
    if limit and len(chosen) > limit:
        cursor = _Continue(version, chosen[limit - 1].key)
        metadata["continue"] = base64.urlsafe_b64encode(msgspec.json.encode(cursor)).decode()
        if test is None:
            metadata["remainingItemCount"] = len(chosen) - limit
        chosen = chosen[:limit]
    return Page(chosen, metadata)


def _refuse_future(asked: str, current: int) -> None:
    """A version nobody has written yet: a real server waits a moment for it and then gives up like this."""
    if asked.isdecimal() and int(asked) > current:
        message = f"Too large resource version: {asked}, current: {current}"
        cause = {"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}
        raise ApiError(504, "Timeout", f"Timeout: {message}", {"causes": [cause], "retryAfterSeconds": 1})


def encode_page(resource: Resource, page: Page) -> bytes:
    """A ``…List`` document; items of built-in kinds carry no kind and apiVersion, as on a real server."""
    head = {
        "kind": resource.list_kind or f"{resource.kind}List",
        "apiVersion": resource.api_version,
        "metadata": page.metadata,
    }
    items = b",".join(_item(resource, stored) for stored in page.items)
    return msgspec.json.encode(head)[:-1] + b',"items":[' + items + b"]}"


def _item(resource: Resource, stored: Stored) -> bytes:
    if resource.custom is not None:
        return encode(resource, stored)
    prefix = f'{{"kind":"{resource.kind}","apiVersion":"{resource.api_version}",'.encode()
    if stored.raw.startswith(prefix):
        return b"{" + stored.raw[len(prefix) :]
    object = present(resource, stored.object)
    return msgspec.json.encode({k: v for k, v in object.items() if k not in ("kind", "apiVersion")})
