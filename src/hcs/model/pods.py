"""The part of a Kubernetes pod that HCS reads, decoded straight from the API's JSON.

Only the fields we use are declared; all others are skipped at almost no cost. Field names are the API's own.
"""

from typing import Any

import msgspec


class OwnerReference(msgspec.Struct, frozen=True, omit_defaults=True):
    """The object that created this one."""

    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool | None = None
    apiVersion: str = ""


class ObjectMeta(msgspec.Struct, frozen=True, omit_defaults=True):
    """``metadata`` of any object."""

    name: str = ""
    generateName: str | None = None
    namespace: str | None = None
    uid: str = ""
    resourceVersion: str = ""
    generation: int | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    creationTimestamp: str | None = None
    deletionTimestamp: str | None = None
    ownerReferences: list[OwnerReference] | None = None


class Resources(msgspec.Struct, frozen=True, omit_defaults=True):
    """``resources`` of a container; a quantity may be a string or, from careless clients, a number."""

    limits: dict[str, str | int | float] | None = None
    requests: dict[str, str | int | float] | None = None


class EnvVar(msgspec.Struct, frozen=True, omit_defaults=True):
    """One variable of a container."""

    name: str
    value: str | None = None
    valueFrom: Any = None


class VolumeMount(msgspec.Struct, frozen=True, omit_defaults=True):
    """Where a volume appears in a container."""

    name: str
    mountPath: str = ""
    subPath: str | None = None
    readOnly: bool | None = None


class Container(msgspec.Struct, frozen=True, omit_defaults=True):
    """One container of a pod."""

    name: str
    image: str = ""
    command: list[str] | None = None
    args: list[str] | None = None
    env: list[EnvVar] | None = None
    workingDir: str | None = None
    volumeMounts: list[VolumeMount] | None = None
    resources: Resources = Resources()
    restartPolicy: str | None = None  # "Always" on an init container: it runs beside the main ones, as a sidecar


class Toleration(msgspec.Struct, frozen=True, omit_defaults=True):
    """A taint the pod accepts."""

    key: str | None = None
    operator: str | None = None
    value: str | None = None
    effect: str | None = None
    tolerationSeconds: int | None = None


class Named(msgspec.Struct, frozen=True, omit_defaults=True):
    """Anything listed by name only: gates, pull secrets."""

    name: str


class PodSpec(msgspec.Struct, frozen=True, omit_defaults=True):
    """``spec`` of a pod."""

    containers: list[Container] = []
    initContainers: list[Container] | None = None
    nodeName: str | None = None
    nodeSelector: dict[str, str] | None = None
    affinity: dict[str, Any] | None = None
    overhead: dict[str, str | int | float] | None = None
    schedulerName: str | None = None
    schedulingGates: list[Named] | None = None
    tolerations: list[Toleration] | None = None
    volumes: list[dict[str, Any]] | None = None
    restartPolicy: str | None = None
    priority: int | None = None
    preemptionPolicy: str | None = None
    schedulingGroup: Any = None
    workloadRef: Any = None
    terminationGracePeriodSeconds: int | None = None


class PodCondition(msgspec.Struct, frozen=True, omit_defaults=True):
    """One condition of a pod."""

    type: str
    status: str = ""
    reason: str | None = None
    message: str | None = None


class PodStatus(msgspec.Struct, frozen=True, omit_defaults=True):
    """``status`` of a pod."""

    phase: str = ""
    reason: str | None = None
    message: str | None = None
    nominatedNodeName: str | None = None
    startTime: str | None = None
    conditions: list[PodCondition] | None = None
    containerStatuses: list[dict[str, Any]] | None = None
    podIP: str | None = None
    podIPs: list[dict[str, Any]] | None = None


class Pod(msgspec.Struct, frozen=True, omit_defaults=True):
    """A pod as far as HCS looks at it."""

    metadata: ObjectMeta = ObjectMeta()
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()

    @property
    def annotations(self) -> dict[str, str]:
        """The annotations, empty when there are none."""
        return self.metadata.annotations or {}

    @property
    def labels(self) -> dict[str, str]:
        """The labels, empty when there are none."""
        return self.metadata.labels or {}

    @property
    def key(self) -> str:
        """``namespace/name``."""
        return f"{self.metadata.namespace or 'default'}/{self.metadata.name}"

    @property
    def finished(self) -> bool:
        """Whether all containers have ended for good, so that nothing is held any more."""
        return self.status.phase in ("Succeeded", "Failed")

    @property
    def controller(self) -> OwnerReference | None:
        """The owner that would create a replacement, if any."""
        return next((owner for owner in self.metadata.ownerReferences or () if owner.controller), None)
