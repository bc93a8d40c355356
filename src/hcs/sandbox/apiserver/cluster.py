"""Everything one sandbox cluster consists of, in one place: store, registry, webhooks, clock.

Handlers take a ``Cluster`` and keep no state themselves, so a restart is: open the same store again.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec

from hcs.sandbox.apiserver import customresources, kindrules, metadata
from hcs.sandbox.apiserver.kinds import Registry, Resource
from hcs.sandbox.apiserver.metadata import Sources
from hcs.sandbox.apiserver.status import ApiError, JsonObject, not_found
from hcs.sandbox.apiserver.storage import Change, ExistsError, StaleError, Store, Stored
from hcs.sandbox.apiserver.webhooks import Webhooks

INITIAL_NAMESPACES = ("default", "kube-system", "kube-public", "kube-node-lease", "hcs-system")
_CRDS = "customresourcedefinitions.apiextensions.k8s.io"


class Cluster:
    """Shared state of the handlers."""

    def __init__(
        self, store: Store, *, sources: Sources | None = None, services: Mapping[str, str] | None = None,
        pod_logs: Path | None = None,
    ) -> None:  # fmt: skip
        self.store, self.sources, self.pod_logs = store, sources or Sources(), pod_logs
        self.services = dict(services or {})
        self.registry = Registry()
        self.webhooks = Webhooks(store, self.namespace, self.services)
        for stored in store.objects(_CRDS):
            self._serve(stored.object)
        store.listen(self._follow_definitions)
        for name in INITIAL_NAMESPACES:
            self._ensure("namespaces", name)
        for name, value in (("system-cluster-critical", 2_000_000_000), ("system-node-critical", 2_000_001_000)):
            self._ensure("priorityclasses", name, value=value)

    def _ensure(self, plural: str, name: str, **fields: object) -> None:
        resource = next(r for r in self.registry if r.plural == plural)
        object: JsonObject = {"kind": resource.kind, "apiVersion": resource.api_version, "metadata": {"name": name}}
        object = kindrules.normalise(resource, object | fields)
        metadata.prepare_create(resource, object, self.sources)
        kindrules.prepare_create(resource, object, self.sources.timestamp())
        try:
            self.store.create(resource.storage_key, "", name, object)
        except ExistsError:
            return  # an earlier run made it

    def namespace(self, name: str) -> JsonObject | None:
        stored = self.store.get("namespaces", "", name)
        return stored.object if stored else None

    def must_get(self, resource: Resource, namespace: str, name: str) -> Stored:
        """The object, or a 404 in the server's words."""
        stored = self.store.get(resource.storage_key, namespace, name)
        if stored is None:
            raise not_found(resource.plural, resource.group, name)
        return stored

    def settle_definition(self, stored: Stored) -> None:
        """Write the status of a definition that was just created or changed, which starts serving it."""
        conflict = customresources.conflicting_name(stored.object, self.registry)
        status = customresources.status(stored.object, conflict, self.sources.timestamp())
        if status != stored.object.get("status"):
            try:
                self.store.replace(stored, {**stored.copy(), "status": status})
            except StaleError:
                return  # the newer write settles itself

    def _serve(self, definition: JsonObject) -> None:
        conditions = (definition.get("status") or {}).get("conditions") or ()
        if any(c["type"] == "Established" and c["status"] == "True" for c in conditions):
            self.registry.define(definition["metadata"]["name"], customresources.resources(definition))

    def _follow_definitions(self, change: Change) -> None:
        if change.new.resource != _CRDS:
            return
        if change.type == "DELETED":
            self.registry.withdraw(change.new.name)
        else:
            self._serve(change.new.object)


def encode(resource: Resource, stored: Stored) -> bytes:
    """An object as this served resource shows it; conversion only where the stored form differs."""
    if stored.object.get("apiVersion") == resource.api_version:
        return stored.raw
    return msgspec.json.encode(present(resource, stored.object))


def present(resource: Resource, object: JsonObject) -> JsonObject:
    """Convert a stored object to the version served (custom resources) or to events.k8s.io."""
    if object.get("apiVersion") == resource.api_version:
        return object
    if resource.group == "events.k8s.io":
        object = _renamed(object, _EVENT_FIELDS)
    return {**object, "apiVersion": resource.api_version}


def to_stored(registry: Registry, resource: Resource, object: JsonObject) -> JsonObject:
    """Convert an object that came in through ``resource`` to its stored form."""
    stored = registry.stored_as(resource.storage_key)
    if stored is None or stored.api_version == resource.api_version:
        return object
    if resource.group == "events.k8s.io":
        object = _renamed(object, {new: old for old, new in _EVENT_FIELDS.items()})
    return {**object, "apiVersion": stored.api_version}


_EVENT_FIELDS = {
    "involvedObject": "regarding", "message": "note", "source": "deprecatedSource", "count": "deprecatedCount",
    "firstTimestamp": "deprecatedFirstTimestamp", "lastTimestamp": "deprecatedLastTimestamp",
    "reportingComponent": "reportingController",
}  # fmt: skip


def _renamed(object: JsonObject, names: Mapping[str, str]) -> JsonObject:
    return {names.get(field, field): value for field, value in object.items()}


def refuse_unknown_namespace(cluster: Cluster, resource: Resource, namespace: str, name: str) -> None:
    """New objects need a namespace that exists and is not going away."""
    held = cluster.namespace(namespace)
    if held is None:
        raise not_found("namespaces", "", namespace)
    if held["metadata"].get("deletionTimestamp"):
        subject = f"{resource.plural}.{resource.group}" if resource.group else resource.plural
        why = f"unable to create new content in namespace {namespace} because it is being terminated"
        message = f"namespace {namespace} is being terminated"
        cause = {"reason": "NamespaceTerminating", "message": message, "field": "metadata.namespace"}
        details = {"name": name, "kind": resource.plural, "causes": [cause]}
        raise ApiError(403, "Forbidden", f'{subject} "{name}" is forbidden: {why}', details)
