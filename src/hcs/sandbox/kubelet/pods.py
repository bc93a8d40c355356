"""The pod as its kubelet reads it: the common part and the few fields only a kubelet needs."""

# ruff: noqa: N815 - the API's own field names

from typing import Any

import msgspec
from lightkube.core.resource import ApiInfo, NamespacedResourceG, NamespacedSubResource, ResourceDef

from hcs.kube import resources
from hcs.model import pods


class Metadata(pods.ObjectMeta, frozen=True, omit_defaults=True):
    """``metadata``; the grace period is the deletion's, in seconds."""

    deletionGracePeriodSeconds: int | None = None


class Container(pods.Container, frozen=True, omit_defaults=True):
    """One container."""

    imagePullPolicy: str | None = None


class PodSpec(pods.PodSpec, frozen=True, omit_defaults=True):
    """``spec``."""

    containers: list[Container] = []  # type: ignore[assignment]  # noqa: RUF012 - narrower than the model's; structs copy defaults
    initContainers: list[Container] | None = None  # type: ignore[assignment]
    serviceAccountName: str | None = None


class PodStatus(pods.PodStatus, frozen=True, omit_defaults=True):
    """``status``, as far as a kubelet that starts anew reads back what it wrote."""

    startTime: str | None = None
    initContainerStatuses: list[dict[str, Any]] | None = None


class BoundPod(pods.Pod, NamespacedResourceG, frozen=True, kw_only=True, omit_defaults=True):
    """A pod of this kubelet's node."""

    apiVersion: str | None = None
    kind: str | None = None
    metadata: Metadata = Metadata()
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()
    _api_info = resources.Pod._api_info


class ConfigMap(msgspec.Struct, NamespacedResourceG, frozen=True, kw_only=True, omit_defaults=True):
    """A config map, for the volumes made of one."""

    apiVersion: str | None = None
    kind: str | None = None
    metadata: pods.ObjectMeta = pods.ObjectMeta()
    data: dict[str, str] = {}
    _api_info = ApiInfo(resource=ResourceDef("", "v1", "ConfigMap"), plural="configmaps", verbs=["get"])


class TokenRequest(msgspec.Struct, NamespacedSubResource, frozen=True, kw_only=True, omit_defaults=True):
    """``serviceaccounts/token``: asks for a token, and holds it in the answer."""

    apiVersion: str | None = None
    kind: str | None = None
    metadata: pods.ObjectMeta = pods.ObjectMeta()
    spec: dict[str, Any] = {}
    status: dict[str, Any] = {}
    _api_info = ApiInfo(
        resource=ResourceDef("authentication.k8s.io", "v1", "TokenRequest"),
        parent=ResourceDef("", "v1", "ServiceAccount"),
        plural="serviceaccounts",
        verbs=["post"],
        action="token",
    )
