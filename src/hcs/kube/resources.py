"""The API objects HCS reads and writes, as lightkube resources over our own small structs.

Only declared fields are decoded, so these types are for reading, for creating our own objects, and for status writes of
our own kinds. Foreign objects (pods, nodes, jobs) are changed by patches only, never by writing back what was read.
"""

from collections.abc import Mapping
from typing import Any

import msgspec
from lightkube.core.resource import (
    ApiInfo,
    GlobalResource,
    GlobalSubResource,
    NamespacedResourceG,
    NamespacedSubResource,
    ResourceDef,
)

from hcs.model import names, pods
from hcs.model.devices import (
    Abilities,
    Device,
    Latency,
    Location,
    Nic,
    NodeInventory,
    Quarantine,
    RtosHost,
    SpikingBoard,
)
from hcs.model.locations import locate
from hcs.model.preferences import read_cost

_VERBS = ["delete", "deletecollection", "get", "list", "patch", "post", "put", "watch"]
_NAMESPACED_VERBS = [*_VERBS, "global_list", "global_watch"]


def _named(group: str, version: str, kind: str, plural: str, verbs: list[str]) -> ApiInfo:
    return ApiInfo(resource=ResourceDef(group, version, kind), plural=plural, verbs=verbs)


class Pod(pods.Pod, NamespacedResourceG, frozen=True, kw_only=True, omit_defaults=True):
    """A pod."""

    apiVersion: str | None = None
    kind: str | None = None
    _api_info = _named("", "v1", "Pod", "pods", _NAMESPACED_VERBS)


class PodStatus(pods.Pod, NamespacedSubResource, frozen=True, kw_only=True, omit_defaults=True):
    """``pods/status``."""

    apiVersion: str | None = None
    kind: str | None = None
    _api_info = ApiInfo(
        resource=ResourceDef("", "v1", "Pod"),
        parent=ResourceDef("", "v1", "Pod"),
        plural="pods",
        verbs=["get", "patch", "put"],
        action="status",
    )


class ObjectReference(msgspec.Struct, frozen=True, omit_defaults=True):
    """A reference to another object."""

    kind: str = ""
    name: str = ""
    namespace: str = ""
    uid: str = ""
    apiVersion: str = ""


class Binding(msgspec.Struct, NamespacedSubResource, frozen=True, kw_only=True, omit_defaults=True):
    """``pods/binding``: node, annotations and labels reach the pod in one write."""

    apiVersion: str | None = None
    kind: str | None = None
    metadata: pods.ObjectMeta = pods.ObjectMeta()
    target: ObjectReference = ObjectReference()
    _api_info = ApiInfo(
        resource=ResourceDef("", "v1", "Binding"),
        parent=ResourceDef("", "v1", "Pod"),
        plural="pods",
        verbs=["post"],
        action="binding",
    )


class Eviction(msgspec.Struct, NamespacedSubResource, frozen=True, kw_only=True, omit_defaults=True):
    """``pods/eviction``: deletes a pod unless a disruption budget forbids it (429)."""

    apiVersion: str | None = None
    kind: str | None = None
    metadata: pods.ObjectMeta = pods.ObjectMeta()
    deleteOptions: dict[str, Any] | None = None
    _api_info = ApiInfo(
        resource=ResourceDef("policy", "v1", "Eviction"),
        parent=ResourceDef("", "v1", "Pod"),
        plural="pods",
        verbs=["post"],
        action="eviction",
    )


class Node(msgspec.Struct, GlobalResource, frozen=True, kw_only=True, omit_defaults=True):
    """A node; ``spec`` and ``status`` are read as plain data."""

    apiVersion: str | None = None
    kind: str | None = None
    metadata: pods.ObjectMeta = pods.ObjectMeta()
    spec: dict[str, Any] = {}
    status: dict[str, Any] = {}
    _api_info = _named("", "v1", "Node", "nodes", _VERBS)


class NodeStatus(Node, GlobalSubResource, frozen=True, kw_only=True, omit_defaults=True):
    """``nodes/status``."""

    _api_info = ApiInfo(
        resource=ResourceDef("", "v1", "Node"),
        parent=ResourceDef("", "v1", "Node"),
        plural="nodes",
        verbs=["get", "patch", "put"],
        action="status",
    )


class Job(msgspec.Struct, NamespacedResourceG, frozen=True, kw_only=True, omit_defaults=True):
    """A batch job; ``spec`` and ``status`` are read as plain data."""

    apiVersion: str | None = None
    kind: str | None = None
    metadata: pods.ObjectMeta = pods.ObjectMeta()
    spec: dict[str, Any] = {}
    status: dict[str, Any] = {}
    _api_info = _named("batch", "v1", "Job", "jobs", _NAMESPACED_VERBS)


class JobStatus(Job, NamespacedSubResource, frozen=True, kw_only=True, omit_defaults=True):
    """``jobs/status``."""

    _api_info = ApiInfo(
        resource=ResourceDef("batch", "v1", "Job"),
        parent=ResourceDef("batch", "v1", "Job"),
        plural="jobs",
        verbs=["get", "patch", "put"],
        action="status",
    )


class Event(msgspec.Struct, NamespacedResourceG, frozen=True, kw_only=True, omit_defaults=True):
    """A core/v1 event about one object; best effort, nothing may depend on it."""

    apiVersion: str | None = None
    kind: str | None = None
    metadata: pods.ObjectMeta = pods.ObjectMeta()
    involvedObject: ObjectReference = ObjectReference()
    reason: str = ""
    message: str = ""
    type: str = msgspec.field(default_factory=lambda: "Normal")  # made by a factory: never left out as a default
    count: int | None = None
    firstTimestamp: str | None = None
    lastTimestamp: str | None = None
    source: dict[str, str] | None = None
    reportingComponent: str = ""
    reportingInstance: str = ""
    action: str | None = None
    _api_info = _named("", "v1", "Event", "events", _NAMESPACED_VERBS)


class Lease(msgspec.Struct, NamespacedResourceG, frozen=True, kw_only=True, omit_defaults=True):
    """A heartbeat or a leadership."""

    apiVersion: str | None = None
    kind: str | None = None
    metadata: pods.ObjectMeta = pods.ObjectMeta()
    spec: dict[str, Any] = {}
    _api_info = _named("coordination.k8s.io", "v1", "Lease", "leases", _NAMESPACED_VERBS)


class PodDisruptionBudget(msgspec.Struct, NamespacedResourceG, frozen=True, kw_only=True, omit_defaults=True):
    """How many of some pods may be disrupted; ``spec`` and ``status`` are read as plain data."""

    apiVersion: str | None = None
    kind: str | None = None
    metadata: pods.ObjectMeta = pods.ObjectMeta()
    spec: dict[str, Any] = {}
    status: dict[str, Any] = {}
    _api_info = _named("policy", "v1", "PodDisruptionBudget", "poddisruptionbudgets", _NAMESPACED_VERBS)


class CoschedulingGroup(msgspec.Struct, NamespacedResourceG, frozen=True, kw_only=True, omit_defaults=True):
    """A PodGroup of scheduler-plugins."""

    apiVersion: str | None = None
    kind: str | None = None
    metadata: pods.ObjectMeta = pods.ObjectMeta()
    spec: dict[str, Any] = {}
    _api_info = _named("scheduling.x-k8s.io", "v1alpha1", "PodGroup", "podgroups", _NAMESPACED_VERBS)


class VolcanoGroup(msgspec.Struct, NamespacedResourceG, frozen=True, kw_only=True, omit_defaults=True):
    """A PodGroup of Volcano."""

    apiVersion: str | None = None
    kind: str | None = None
    metadata: pods.ObjectMeta = pods.ObjectMeta()
    spec: dict[str, Any] = {}
    _api_info = _named("scheduling.volcano.sh", "v1beta1", "PodGroup", "podgroups", _NAMESPACED_VERBS)


class Condition(msgspec.Struct, frozen=True, omit_defaults=True):
    """A metav1.Condition; ``reason`` is never empty and CamelCase."""

    type: str
    status: str
    reason: str
    message: str = ""
    lastTransitionTime: str = ""
    observedGeneration: int | None = None


class ComputeNodeSpec(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """The wish: what takes no new work (the healer and people write it), and what people know about the network."""

    quarantine: tuple[Quarantine, ...] = ()
    location: Location = Location()
    latencies: tuple[Latency, ...] = ()


class ComputeNodeState(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """The truth: what was found on the node. The agent alone writes it; ``boards`` is the neuroplugin's."""

    devices: tuple[Device, ...] = ()
    abilities: Abilities = Abilities()
    nics: tuple[Nic, ...] = ()
    latencies: tuple[Latency, ...] = ()
    conditions: tuple[Condition, ...] = ()
    driver_versions: dict[str, str] = {}
    rtos: RtosHost | None = None
    boards: tuple[SpikingBoard, ...] = ()


class ComputeNode(msgspec.Struct, GlobalResource, frozen=True, kw_only=True, omit_defaults=True):
    """Everything known about a node's cards; named like the node."""

    apiVersion: str | None = None
    kind: str | None = None
    metadata: pods.ObjectMeta = pods.ObjectMeta()
    spec: ComputeNodeSpec = ComputeNodeSpec()
    status: ComputeNodeState = ComputeNodeState()
    _api_info = _named(names.GROUP, names.VERSION, "ComputeNode", "computenodes", _VERBS)

    def inventory(self, labels: Mapping[str, str] | None = None) -> NodeInventory:
        """The value that placement works on. A node counts as ready unless its agent says otherwise.

        Args:
            labels: the Node object's; this object's own labels, and ``spec.location``, win over them.
        """
        merged = {**(labels or {}), **(self.metadata.labels or {})}
        return NodeInventory(
            name=self.metadata.name,
            devices=self.status.devices,
            quarantine=self.spec.quarantine,
            abilities=self.status.abilities,
            ready=not any(c.type == "Ready" and c.status == "False" for c in self.status.conditions),
            location=locate(merged, self.spec.location),
            nics=self.status.nics,
            latencies=(*self.status.latencies, *self.spec.latencies),
            rtos=self.status.rtos,
            boards=self.status.boards,
            labels=tuple(sorted(merged.items())),
            cost=read_cost(merged),
        )


class ComputeNodeStatus(ComputeNode, GlobalSubResource, frozen=True, kw_only=True, omit_defaults=True):
    """``computenodes/status``."""

    _api_info = ApiInfo(
        resource=ResourceDef(names.GROUP, names.VERSION, "ComputeNode"),
        parent=ResourceDef(names.GROUP, names.VERSION, "ComputeNode"),
        plural="computenodes",
        verbs=["get", "patch", "put"],
        action="status",
    )


class RuntimeProfile(msgspec.Struct, GlobalResource, frozen=True, kw_only=True, omit_defaults=True):
    """What to inject for one vendor and framework: data, so that a new vendor needs no code."""

    apiVersion: str | None = None
    kind: str | None = None
    metadata: pods.ObjectMeta = pods.ObjectMeta()
    spec: dict[str, Any] = {}
    _api_info = _named(names.GROUP, names.VERSION, "RuntimeProfile", "runtimeprofiles", _VERBS)


class ExchangeRate(msgspec.Struct, GlobalResource, frozen=True, kw_only=True, omit_defaults=True):
    """A site's own rates for a card model; they win over the catalogue's."""

    apiVersion: str | None = None
    kind: str | None = None
    metadata: pods.ObjectMeta = pods.ObjectMeta()
    spec: dict[str, Any] = {}
    _api_info = _named(names.GROUP, names.VERSION, "ExchangeRate", "exchangerates", _VERBS)
