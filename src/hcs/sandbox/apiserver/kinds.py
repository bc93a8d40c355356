"""The closed list of built-in kinds, and the registry that custom resource definitions extend.

A ``Resource`` is one served name, e.g. pods in v1. Two served names may share one storage (``events`` and
``events.events.k8s.io``; versions of one custom resource), then they convert at the edge and the store holds one form.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from hcs.sandbox.apiserver.status import JsonObject

ALL_VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")


class Column(msgspec.Struct, frozen=True):
    """A printer column of a custom resource (``additionalPrinterColumns``)."""

    name: str
    type: str
    path: str
    priority: int = 0
    description: str = ""
    format: str = ""


class CustomKind(msgspec.Struct, frozen=True):
    """What a custom resource definition adds to a served version: its schema and its columns."""

    definition: str
    schema: JsonObject
    columns: tuple[Column, ...]


class Resource(msgspec.Struct, frozen=True):
    """One served resource: path, kind and what may be done with it."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool = True
    short: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    subresources: tuple[str, ...] = ()
    list_kind: str = ""
    singular: str = ""
    storage: str = ""
    generation: bool = False
    custom: CustomKind | None = None

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def storage_key(self) -> str:
        return self.storage or (f"{self.plural}.{self.group}" if self.group else self.plural)

    @property
    def has_status(self) -> bool:
        return "status" in self.subresources

    def registry_key(self, namespace: str, name: str) -> str:
        """The key a real server would use in etcd; it appears in precondition messages."""
        prefix = {"nodes": "minions"}.get(self.plural, self.plural)
        if self.group and self.custom:
            prefix = f"{self.group}/{prefix}"
        return f"{prefix}/{namespace}/{name}" if namespace else f"{prefix}/{name}"


def _r(group: str, version: str, plural: str, kind: str, **more: Any) -> Resource:
    return Resource(group, version, plural, kind, **more)


_ADMISSION = "admissionregistration.k8s.io"
_RBAC = "rbac.authorization.k8s.io"
BUILTIN: tuple[Resource, ...] = (
    _r(
        "", "v1", "pods", "Pod", short=("po",), categories=("all",), generation=True,
        subresources=("status", "binding", "eviction", "log"),
    ),
    _r("", "v1", "nodes", "Node", namespaced=False, short=("no",), subresources=("status",)),
    _r("", "v1", "namespaces", "Namespace", namespaced=False, short=("ns",), subresources=("status", "finalize")),
    _r("", "v1", "events", "Event", short=("ev",)),
    _r("", "v1", "configmaps", "ConfigMap", short=("cm",)),
    _r("", "v1", "secrets", "Secret"),
    _r("", "v1", "serviceaccounts", "ServiceAccount", short=("sa",)),
    _r("", "v1", "resourcequotas", "ResourceQuota", short=("quota",), subresources=("status",)),
    _r("events.k8s.io", "v1", "events", "Event", short=("ev",), storage="events"),
    _r("coordination.k8s.io", "v1", "leases", "Lease"),
    _r("batch", "v1", "jobs", "Job", categories=("all",), subresources=("status",), generation=True),
    _r("scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", namespaced=False, short=("pc",), generation=True),
    _r(
        "policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget",
        short=("pdb",), subresources=("status",), generation=True,
    ),
    _r(_RBAC, "v1", "roles", "Role"),
    _r(_RBAC, "v1", "rolebindings", "RoleBinding"),
    _r(_RBAC, "v1", "clusterroles", "ClusterRole", namespaced=False),
    _r(_RBAC, "v1", "clusterrolebindings", "ClusterRoleBinding", namespaced=False),
    _r(
        _ADMISSION, "v1", "mutatingwebhookconfigurations", "MutatingWebhookConfiguration",
        namespaced=False, generation=True,
    ),
    _r(
        _ADMISSION, "v1", "validatingwebhookconfigurations", "ValidatingWebhookConfiguration",
        namespaced=False, generation=True,
    ),
    _r(
        _ADMISSION, "v1", "validatingadmissionpolicies", "ValidatingAdmissionPolicy",
        namespaced=False, generation=True, subresources=("status",),
    ),
    _r(
        _ADMISSION, "v1", "validatingadmissionpolicybindings", "ValidatingAdmissionPolicyBinding",
        namespaced=False, generation=True,
    ),
    _r(
        "apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition",
        namespaced=False, short=("crd", "crds"), generation=True, subresources=("status",),
        categories=("api-extensions",),
    ),
)  # fmt: skip


class Registry:
    """Every resource served now. Custom ones come and go with their definitions."""

    def __init__(self) -> None:
        self._served = {(r.group, r.version, r.plural): r for r in BUILTIN}
        self._by_storage: dict[str, Resource] = {}
        for resource in BUILTIN:
            self._by_storage.setdefault(resource.storage_key, resource)

    def __iter__(self) -> Iterator[Resource]:
        return iter(self._served.values())

    def find(self, group: str, version: str, plural: str) -> Resource | None:
        return self._served.get((group, version, plural))

    def stored_as(self, storage: str) -> Resource | None:
        """The resource whose form the store holds under this name."""
        return self._by_storage.get(storage)

    def by_kind(self, api_version: str, kind: str) -> Resource | None:
        return next((r for r in self if r.kind == kind and r.api_version == api_version), None)

    def serves(self, group: str, version: str) -> bool:
        return any((resource.group, resource.version) == (group, version) for resource in self)

    def groups(self) -> dict[str, list[str]]:
        """Named groups with their versions, in order of first appearance, without the core group."""
        found: dict[str, list[str]] = {}
        for resource in self:
            versions = found.setdefault(resource.group, [])
            if resource.version not in versions:
                versions.append(resource.version)
        found.pop("", None)
        return found

    def define(self, definition: str, resources: Iterable[Resource]) -> None:
        """Serve these in place of whatever the definition of this name served before; the first is the stored form."""
        self.withdraw(definition)
        for resource in resources:
            self._served[(resource.group, resource.version, resource.plural)] = resource
            self._by_storage.setdefault(resource.storage_key, resource)

    def withdraw(self, definition: str) -> None:
        for key, resource in list(self._served.items()):
            if resource.custom is not None and resource.custom.definition == definition:
                del self._served[key]
                self._by_storage.pop(resource.storage_key, None)
