"""Pods as kube-scheduler sees them: whole, because the extender is sent all of it.

The programs of HCS decode only the fields they use; here ``spec`` and ``status`` stay plain data, so that a field
nobody declared still reaches the extender.
"""

from collections.abc import Iterator
from typing import Any

import msgspec
from lightkube.core.resource import ApiInfo, NamespacedResourceG, ResourceDef

from hcs.model.pods import ObjectMeta


class WholePod(msgspec.Struct, NamespacedResourceG, frozen=True, kw_only=True, omit_defaults=True):
    """A pod with everything in it."""

    apiVersion: str | None = None
    kind: str | None = None
    metadata: ObjectMeta = ObjectMeta()
    spec: dict[str, Any] = {}
    status: dict[str, Any] = {}
    _api_info = ApiInfo(
        resource=ResourceDef("", "v1", "Pod"),
        plural="pods",
        verbs=["get", "list", "watch", "global_list", "global_watch"],
    )

    @property
    def uid(self) -> str:
        """The pod's UID: the one thing that tells a pod from a later one of the same name."""
        return self.metadata.uid

    @property
    def namespace(self) -> str:
        """Its namespace."""
        return self.metadata.namespace or "default"

    @property
    def key(self) -> str:
        """``namespace/name``."""
        return f"{self.namespace}/{self.metadata.name}"

    @property
    def node(self) -> str:
        """The node it is bound to, or the empty string."""
        return str(self.spec.get("nodeName") or "")

    @property
    def scheduler(self) -> str:
        """The profile it names."""
        return str(self.spec.get("schedulerName") or "default-scheduler")

    @property
    def priority(self) -> int:
        """Higher goes first."""
        return int(self.spec.get("priority") or 0)

    @property
    def gated(self) -> bool:
        """Whether a scheduling gate still holds it."""
        return bool(self.spec.get("schedulingGates"))

    @property
    def finished(self) -> bool:
        """Whether all its containers have ended for good."""
        return self.status.get("phase") in ("Succeeded", "Failed")

    @property
    def nominated(self) -> str:
        """The node it was nominated to, or the empty string."""
        return str(self.status.get("nominatedNodeName") or "")

    def containers(self) -> Iterator[dict[str, Any]]:
        """Its containers, init containers last."""
        yield from self.spec.get("containers") or ()
        yield from self.spec.get("initContainers") or ()

    def resource_names(self) -> frozenset[str]:
        """Every resource a container requests or limits."""
        return frozenset(
            name
            for container in self.containers()
            for kind in ("requests", "limits")
            for name in (container.get("resources") or {}).get(kind) or {}
        )
