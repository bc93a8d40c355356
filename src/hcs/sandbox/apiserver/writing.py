"""Create, update and patch: from a request body to one write.

The order is that of a real server: decode, defaults, mutating webhooks, defaults again, validation, admission policies,
validating webhooks, quota, storage. Awaiting a webhook lets other writes pass, so the final write compares versions: an
update that named no resourceVersion starts over on the newer object, one that named it gets 409.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from hcs.sandbox.apiserver import kindrules, metadata, patch, pods, policies, quota, schema, wiretypes
from hcs.sandbox.apiserver.attempts import Attempt, User
from hcs.sandbox.apiserver.cluster import Cluster, present, refuse_unknown_namespace, to_stored
from hcs.sandbox.apiserver.kinds import Resource
from hcs.sandbox.apiserver.status import (
    ApiError,
    Cause,
    JsonObject,
    already_exists,
    bad_request,
    conflict,
    failed_precondition,
    forbidden,
    invalid,
    invalid_value,
    required,
    unsupported_media,
)
from hcs.sandbox.apiserver.storage import ExistsError, StaleError, Stored

_NEEDS_VERSION = ("leases", "customresourcedefinitions", "priorityclasses", "poddisruptionbudgets")
_RETRIES = 8


class WriteOptions(msgspec.Struct, frozen=True):
    """Query parameters of a write."""

    dry_run: bool = False
    field_manager: str = ""
    field_validation: str = ""

    def named(self, kind: str) -> JsonObject:
        """As the ``options`` of an AdmissionReview."""
        options: JsonObject = {"kind": kind, "apiVersion": "meta.k8s.io/v1"}
        if self.dry_run:
            options["dryRun"] = ["All"]
        if self.field_manager:
            options["fieldManager"] = self.field_manager
        if self.field_validation:
            options["fieldValidation"] = self.field_validation
        return options


class Written(msgspec.Struct, frozen=True):
    """Result of a write: the object as stored (or as it would be, in a dry run) and warnings for the client."""

    stored: Stored
    warnings: list[str]
    created: bool = False


def accept_object(resource: Resource, namespace: str, name: str, object: Any) -> JsonObject:
    """Check that a body is this kind, named as the URL says. Raises ApiError 400."""
    if not isinstance(object, dict) or not isinstance(object.setdefault("metadata", {}) or {}, dict):
        raise bad_request("the body is not a Kubernetes object")
    object["metadata"] = meta = object["metadata"] or {}
    if resource.custom is not None and not (object.get("kind") and object.get("apiVersion")):
        missing = "Kind" if not object.get("kind") else "apiVersion"
        why = f"the object provided is unrecognized (must be of type {resource.kind}): Object '{missing}' is missing"
        raise bad_request(why)
    kind, version = object.setdefault("kind", resource.kind), object.setdefault("apiVersion", resource.api_version)
    if resource.custom is not None and version != resource.api_version:
        why = f"does not match the expected API version ({resource.api_version})"
        raise bad_request(f"the API version in the data ({version}) {why}")
    if resource.custom is not None and kind != resource.kind:
        cause = invalid_value("kind", kind, f"must be {resource.kind}")
        raise invalid(kind, resource.group, meta_name(object), [cause])
    if (kind, version) != (resource.kind, resource.api_version):
        raise bad_request(
            f'{kind} in version "{version}" cannot be handled as a {resource.kind}: converting ({version}.{kind}) to '
            f"({resource.api_version}.{resource.kind}): unknown conversion"
        )
    if resource.namespaced:
        if meta.setdefault("namespace", namespace) != namespace:
            raise bad_request("the namespace of the provided object does not match the namespace sent on the request")
    else:
        meta.pop("namespace", None)
    if name and meta.setdefault("name", name) != name:
        raise bad_request(f"the name of the object ({meta['name']}) does not match the name on the URL ({name})")
    check_texts(resource.kind, resource.version, meta)
    return {"kind": kind, "apiVersion": version, "metadata": meta, **object}


def meta_name(object: JsonObject) -> str:
    return str(object["metadata"].get("name", ""))


def check_texts(kind: str, version: str, meta: JsonObject) -> None:
    """See that labels and annotations are texts. Raises ApiError 400."""
    for field in ("labels", "annotations"):
        texts = meta.get(field) or {}
        wrong = [texts] if not isinstance(texts, dict) else [one for one in texts.values() if not isinstance(one, str)]
        if wrong:
            names = {bool: "bool", int: "number", float: "number", list: "array", str: "string"}
            seen, wanted = (
                names.get(type(wrong[0]), "object"),
                "string" if wrong[0] is not texts else "map[string]string",
            )
            raise bad_request(
                f'{kind} in version "{version}" cannot be handled as a {kind}: json: '
                f"cannot unmarshal {seen} into Go struct field ObjectMeta.metadata.{field} of type {wanted}"
            )


async def create(
    cluster: Cluster, resource: Resource, namespace: str, body: Any, user: User, options: WriteOptions
) -> Written:
    """Store a new object."""
    object = accept_object(resource, namespace, "", body)
    warnings = strict_fields(resource, object, options)
    object = to_stored(cluster.registry, resource, object)
    meta = object["metadata"]
    if meta.get("resourceVersion"):
        raise ApiError(500, "", "resourceVersion should not be set on objects to be created")
    asked_name = meta.get("name", "")
    if resource.namespaced:
        refuse_unknown_namespace(cluster, resource, namespace, asked_name)
    generated = not asked_name and meta.get("generateName")
    object = kindrules.normalise(resource, object)
    if resource.plural == "pods":
        object["status"] = {}
        classes = {s.name: s.object for s in cluster.store.objects("priorityclasses.scheduling.k8s.io")}
        if refusal := pods.admission_defaults(object, classes):
            raise forbidden("pods", "", asked_name, refusal)
    attempt = Attempt(
        resource, "CREATE", namespace, asked_name, user, object,
        options=options.named("CreateOptions"), dry_run=options.dry_run,
    )  # fmt: skip
    warnings += await cluster.webhooks.mutate(attempt, lambda changed: kindrules.normalise(resource, changed))
    assert attempt.object is not None
    object = attempt.object
    for _ in range(_RETRIES):
        if generated:
            object["metadata"]["name"] = object["metadata"]["generateName"][:58] + cluster.sources.suffix()
        metadata.prepare_create(resource, object, cluster.sources)
        kindrules.prepare_create(resource, object, cluster.sources.timestamp())
        kindrules.check(resource, object, None)
        attempt.object, attempt.name = object, object["metadata"]["name"]
        warnings += policies.enforce(cluster.store, cluster.namespace, attempt)
        warnings += await cluster.webhooks.validate(attempt)
        quota.admit(cluster.store, resource, namespace, object)
        try:
            stored = _store_new(cluster, resource, namespace, object, dry_run=options.dry_run)
        except ExistsError:
            if generated:
                continue
            raise already_exists(resource.plural, resource.group, attempt.name) from None
        if resource.plural == "customresourcedefinitions" and not options.dry_run:
            cluster.settle_definition(stored)
        return Written(stored, warnings, created=True)
    raise already_exists(resource.plural, resource.group, attempt.name)


def _store_new(cluster: Cluster, resource: Resource, namespace: str, object: JsonObject, *, dry_run: bool) -> Stored:
    name = object["metadata"]["name"]
    if dry_run:
        if cluster.store.get(resource.storage_key, namespace, name):
            raise ExistsError(name)
        return Stored(resource.storage_key, namespace, name, 0, msgspec.json.encode(object), object)
    return cluster.store.create(resource.storage_key, namespace, name, object)


async def update(
    cluster: Cluster, resource: Resource, namespace: str, name: str, subresource: str, body: Any, user: User,
    options: WriteOptions,
) -> Written:  # fmt: skip
    """Replace an object; with a resourceVersion in the body only that version is replaced."""
    object = accept_object(resource, namespace, name, body)
    warnings = strict_fields(resource, object, options)
    object = to_stored(cluster.registry, resource, object)
    version = object["metadata"].get("resourceVersion", "")
    if not version and (resource.custom or resource.plural in _NEEDS_VERSION):
        cluster.must_get(resource, namespace, name)
        cause = invalid_value("metadata.resourceVersion", 0, "must be specified for an update")
        raise invalid(resource.plural, resource.group, name, [cause])
    raw = msgspec.json.encode(object)
    return await _change(
        cluster, resource, namespace, name, subresource, user, options.named("UpdateOptions"), options.dry_run,
        lambda old: msgspec.json.decode(raw), warnings,
    )  # fmt: skip


async def apply_patch(
    cluster: Cluster, resource: Resource, namespace: str, name: str, subresource: str, content_type: str, body: Any,
    user: User, options: WriteOptions,
) -> Written:  # fmt: skip
    """Patch an object; an apply patch creates it when it is missing."""
    accepted = [patch.JSON_PATCH, patch.MERGE_PATCH, patch.APPLY_PATCH]
    if resource.custom is None:
        accepted.append(patch.STRATEGIC_PATCH)
    if content_type not in accepted:
        raise unsupported_media(accepted, patch=resource.custom is None)
    if content_type != patch.JSON_PATCH and not isinstance(body, dict):
        raise bad_request("error decoding patch: a patch of this type is an object")
    if content_type == patch.APPLY_PATCH:
        if not options.field_manager:
            raise invalid("PatchOptions", "meta.k8s.io", "", [required("fieldManager", "is required for apply patch")])
        if not subresource and cluster.store.get(resource.storage_key, namespace, name) is None:
            meta = body.get("metadata") or {}
            if not isinstance(meta, dict):
                raise bad_request("the body is not a Kubernetes object")
            named = {**body, "metadata": {**meta, "name": name}}
            try:
                return await create(cluster, resource, namespace, named, user, options)
            except ApiError as error:  # somebody else made it while a webhook was asked: then it is changed
                if error.reason != "AlreadyExists":
                    raise

    warnings: list[str] = []

    def patched(old: Stored) -> JsonObject:
        shown = present(resource, old.copy())
        if content_type == patch.JSON_PATCH:
            result = patch.apply_json_patch(shown, body)
        elif content_type == patch.MERGE_PATCH:
            result = patch.apply_merge_patch(shown, body)
        elif content_type == patch.APPLY_PATCH:
            result = patch.apply_configuration(shown, body, list_keys=resource.custom is None)
        else:
            result = patch.apply_strategic_patch(shown, body)
        warnings[:] = strict_fields(resource, result, options, patched=True)
        return to_stored(cluster.registry, resource, accept_object(resource, namespace, name, result))

    return await _change(
        cluster, resource, namespace, name, subresource, user, options.named("UpdateOptions"), options.dry_run, patched,
        warnings, from_patch=True,
    )  # fmt: skip


async def _change(
    cluster: Cluster, resource: Resource, namespace: str, name: str, subresource: str, user: User,
    options: JsonObject, dry_run: bool, produce: Callable[[Stored], JsonObject], warnings: list[str], *,
    from_patch: bool = False,
) -> Written:  # fmt: skip
    for _ in range(_RETRIES):
        old = cluster.must_get(resource, namespace, name)
        new = produce(old)
        meta = new["metadata"]
        asked_version = meta.get("resourceVersion", "")
        if asked_version and asked_version != str(old.version):
            raise conflict(resource.plural, resource.group, name)
        if meta.get("uid") and meta["uid"] != old.uid and from_patch:
            raise invalid(
                resource.kind, resource.group, name, [invalid_value("metadata.uid", meta["uid"], "field is immutable")]
            )
        if meta.get("uid") and meta["uid"] != old.uid:
            key = resource.registry_key(namespace, name)
            raise failed_precondition(resource.plural, resource.group, key, name, "UID", meta["uid"], old.uid)

        def refresh(object: JsonObject, old: Stored = old) -> JsonObject:
            object = kindrules.normalise(resource, object)
            object["metadata"]["resourceVersion"] = str(old.version)
            metadata.prepare_update(object, old.object)
            if resource.plural == "pods" and not subresource:
                pods.tolerate_lost_nodes(object["spec"])
            return kindrules.prepare_update(resource, subresource, object, old.object)

        attempt = Attempt(
            resource, "UPDATE", namespace, name, user, refresh(new), old.object, subresource, options, dry_run
        )
        noted = list(warnings) + await cluster.webhooks.mutate(attempt, refresh)
        assert attempt.object is not None
        kindrules.check(resource, attempt.object, old.object, subresource)
        noted += policies.enforce(cluster.store, cluster.namespace, attempt)
        noted += await cluster.webhooks.validate(attempt)
        try:
            return Written(_store_changed(cluster, old, attempt.object, dry_run=dry_run), noted)
        except StaleError:
            continue  # the object moved while a webhook was asked: decide again on the newer one
    raise conflict(resource.plural, resource.group, name)


def _store_changed(cluster: Cluster, old: Stored, object: JsonObject, *, dry_run: bool) -> Stored:
    if object == old.object:
        if cluster.store.get(old.resource, old.namespace, old.name) is not old:
            raise StaleError(old.name)
        return old  # nothing changes: no write, no event
    if dry_run:
        return Stored(old.resource, old.namespace, old.name, old.version, msgspec.json.encode(object), object)
    meta = object["metadata"]
    if meta.get("deletionTimestamp") and not meta.get("finalizers") and not meta.get("deletionGracePeriodSeconds"):
        return cluster.store.remove(old, object)
    stored = cluster.store.replace(old, object)
    if old.resource.startswith("customresourcedefinitions."):
        cluster.settle_definition(stored)
    return stored


def strict_fields(resource: Resource, object: JsonObject, options: WriteOptions, *, patched: bool = False) -> list[str]:
    """Fields nobody knows: dropped, warned about or refused, as ``fieldValidation`` asks."""
    if options.field_validation == "Ignore":
        return []
    if resource.custom is not None:
        unknown = schema.prune(msgspec.json.decode(msgspec.json.encode(object)), resource.custom.schema)
    else:
        _, unknown = wiretypes.conform(resource, object)
    subject = f'{resource.kind} in version "{resource.version}" cannot be handled as a {resource.kind}: '
    sentences = [f'unknown field "{field}"' for field in unknown]
    if sentences and options.field_validation == "Strict" and patched:
        why = "strict decoding error: " + ", ".join(sentences)
        raise invalid("", "", "", [Cause("patch", "FieldValueInvalid", f"Invalid value: {why}")])
    if sentences and options.field_validation == "Strict":
        raise bad_request(f"{subject}strict decoding error: " + ", ".join(sentences))
    return sentences
