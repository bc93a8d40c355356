"""Deleting: grace, finalizers, preconditions and propagation.

A pod on a node only gets a deletionTimestamp and goes when the kubelet deletes it with grace 0; a pod without a node,
or one that has finished, goes at once. Anything with finalizers waits for them. Dependents are the garbage
collector's work.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import msgspec

from hcs.sandbox.apiserver import policies
from hcs.sandbox.apiserver.attempts import Attempt, User
from hcs.sandbox.apiserver.cluster import Cluster
from hcs.sandbox.apiserver.kinds import Resource
from hcs.sandbox.apiserver.metadata import timestamp
from hcs.sandbox.apiserver.status import JsonObject, bad_request, conflict, read_integer
from hcs.sandbox.apiserver.storage import StaleError, Stored


class _Preconditions(msgspec.Struct, frozen=True, rename="camel"):
    uid: str | None = None
    resource_version: str | None = None


class _Body(msgspec.Struct, frozen=True, rename="camel"):
    """A DeleteOptions object as clients send it."""

    grace_period_seconds: int | None = None
    preconditions: _Preconditions | None = None
    propagation_policy: str | None = None
    orphan_dependents: bool | None = None
    dry_run: list[str] | None = None


class DeleteOptions(msgspec.Struct, frozen=True):
    """What a client may ask of a deletion. None means: as the kind does by default."""

    grace_seconds: int | None = None
    propagation: str = ""
    uid: str = ""
    version: str = ""
    dry_run: bool = False

    @classmethod
    def read(cls, raw: Any, query: Mapping[str, str]) -> DeleteOptions:
        """From a DeleteOptions body and query parameters, the body first. Raises ApiError 400."""
        try:
            body = msgspec.convert(raw, _Body)
        except msgspec.ValidationError as error:
            raise bad_request(f"the body is no DeleteOptions: {error}") from None
        grace = body.grace_period_seconds
        if grace is None and query.get("gracePeriodSeconds"):
            grace = read_integer(query, "gracePeriodSeconds")
        conditions = body.preconditions or _Preconditions()
        policy = body.propagation_policy or query.get("propagationPolicy") or ""
        if body.orphan_dependents is True:
            policy = "Orphan"
        return cls(
            grace,
            policy,
            conditions.uid or "",
            conditions.resource_version or "",
            bool(body.dry_run or query.get("dryRun")),
        )


async def delete(
    cluster: Cluster, resource: Resource, namespace: str, name: str, user: User, options: DeleteOptions
) -> tuple[Stored, bool]:
    """Delete as a client asks, through admission; returns the last state and whether the object is gone."""
    stored = cluster.must_get(resource, namespace, name)
    _check_preconditions(resource, stored, options)
    named: JsonObject = {"kind": "DeleteOptions", "apiVersion": "meta.k8s.io/v1"}
    if options.grace_seconds is not None:
        named["gracePeriodSeconds"] = options.grace_seconds
    if options.propagation:
        named["propagationPolicy"] = options.propagation
    attempt = Attempt(
        resource, "DELETE", namespace, name, user, None, stored.object, options=named, dry_run=options.dry_run
    )
    await cluster.webhooks.mutate(attempt, lambda changed: changed)
    policies.enforce(cluster.store, cluster.namespace, attempt)
    await cluster.webhooks.validate(attempt)
    if options.dry_run:
        return stored, False
    while True:
        stored = cluster.must_get(resource, namespace, name)
        _check_preconditions(resource, stored, options)
        try:
            return carry_out(cluster, resource, stored, options)
        except StaleError:
            continue


def _check_preconditions(resource: Resource, stored: Stored, options: DeleteOptions) -> None:
    for field, asked, seen, guess in (
        ("UID", options.uid, stored.uid, "deleted and then recreated"),
        ("ResourceVersion", options.version, str(stored.version), "modified"),
    ):
        if asked and asked != seen:
            why = f"the {field} in the precondition ({asked}) does not match the {field} in record ({seen})"
            raise conflict(resource.kind, resource.group, stored.name, f"{why}. The object might have been {guess}")


def carry_out(cluster: Cluster, resource: Resource, stored: Stored, options: DeleteOptions) -> tuple[Stored, bool]:
    """Delete without asking admission (also used by the garbage collector). Raises StaleError."""
    object = stored.copy()
    meta = object["metadata"]
    finalizers = list(meta.get("finalizers") or [])
    for policy, finalizer in (("Orphan", "orphan"), ("Foreground", "foregroundDeletion")):
        if options.propagation == policy and finalizer not in finalizers:
            finalizers.append(finalizer)
        elif options.propagation and options.propagation != policy and finalizer in finalizers:
            finalizers.remove(finalizer)
    if finalizers:
        meta["finalizers"] = finalizers
    else:
        meta.pop("finalizers", None)
    grace = _grace_seconds(resource, object, options)
    waits_for_contents = resource.plural == "namespaces" and bool((object.get("spec") or {}).get("finalizers"))
    stays = bool(grace or finalizers or waits_for_contents)
    if stays or grace is not None:
        _mark(cluster, meta, grace, timed=not waits_for_contents)
    if waits_for_contents:
        object["status"] = {**(object.get("status") or {}), "phase": "Terminating"}
    if object != stored.object and (stays or grace is not None):
        stored = cluster.store.replace(stored, object)
    return (stored, False) if stays else (cluster.store.remove(stored), True)


def _mark(cluster: Cluster, meta: JsonObject, grace: int | None, *, timed: bool) -> None:
    """Set the deletion fields, or bring an earlier deletion forward; later ones never lengthen the grace."""
    held = meta.get("deletionGracePeriodSeconds")
    first = "deletionTimestamp" not in meta
    if not first and (grace is None or held is None or grace >= held):
        return
    if first and "generation" in meta:
        meta["generation"] += 1
    meta["deletionTimestamp"] = timestamp(cluster.sources.now() + timedelta(seconds=grace or 0))
    if timed:
        meta["deletionGracePeriodSeconds"] = grace or 0


def _grace_seconds(resource: Resource, object: JsonObject, options: DeleteOptions) -> int | None:
    """Seconds a pod may take to stop; None for kinds that go at once."""
    if resource.plural != "pods":
        return None
    spec, status = object.get("spec") or {}, object.get("status") or {}
    if not spec.get("nodeName") or status.get("phase") in ("Succeeded", "Failed"):
        return 0
    asked = options.grace_seconds
    grace = spec.get("terminationGracePeriodSeconds", 30) if asked is None else asked
    return 1 if grace < 0 else int(grace)
