"""What a kubelet asks of the API server about one pod: write its status, remove it, read a config map, tell events."""

import datetime
from collections.abc import Mapping
from typing import Any, Protocol

from lightkube import ApiError, AsyncClient
from lightkube.types import PatchType

from hcs.kube import resources
from hcs.kube.writes import EventRecorder, reference
from hcs.model import pods
from hcs.sandbox.kubelet.pods import ConfigMap, TokenRequest


class PodGoneError(LookupError):
    """This pod, of this UID, is no longer there."""


class Cluster(Protocol):
    """The API server, as far as a pod's worker needs it."""

    async def write_status(self, pod: pods.Pod, status: Mapping[str, Any]) -> None:
        """Merge a status into the pod; :class:`PodGoneError` when it is gone."""

    async def remove(self, pod: pods.Pod) -> None:
        """Delete the pod for good; nothing to do when it is gone."""

    async def config_map(self, namespace: str, name: str) -> Mapping[str, str] | None:
        """The data of a config map, or None."""

    async def token(self, pod: pods.Pod, source: Mapping[str, Any]) -> str:
        """A service-account token for the pod alone."""

    async def tell(self, pod: pods.Pod, reason: str, message: str, *, warning: bool = False) -> None:
        """Record an event; never raises."""


class ApiCluster:
    """The real thing, over lightkube. Errors other than those named are lightkube's and httpx2's."""

    def __init__(self, client: AsyncClient) -> None:
        self._client, self._events = client, EventRecorder(client, "kubelet")

    async def write_status(self, pod: pods.Pod, status: Mapping[str, Any]) -> None:
        """Strategic merge, so that conditions of others stay; the UID guards against a pod of the same name."""
        body = {"metadata": {"uid": pod.metadata.uid}, "status": dict(status)}
        try:
            await self._client.patch(
                resources.PodStatus,
                pod.metadata.name,
                body,
                namespace=pod.metadata.namespace,
                patch_type=PatchType.STRATEGIC,
            )
        except ApiError as error:
            if error.status.code in (404, 409):
                raise PodGoneError(pod.key) from error
            raise

    async def remove(self, pod: pods.Pod) -> None:
        """Delete with no grace, after a look that it is still this pod: the client cannot send preconditions."""
        namespace, name = pod.metadata.namespace or "default", pod.metadata.name
        try:
            there = await self._client.get(resources.Pod, name, namespace=namespace)
            if there.metadata.uid == pod.metadata.uid:
                await self._client.delete(resources.Pod, name, namespace=namespace, grace_period=0)
        except ApiError as error:
            if error.status.code not in (404, 409):
                raise

    async def config_map(self, namespace: str, name: str) -> Mapping[str, str] | None:
        """Read it."""
        try:
            return (await self._client.get(ConfigMap, name, namespace=namespace)).data
        except ApiError as error:
            if error.status.code == 404:
                return None
            raise

    async def token(self, pod: pods.Pod, source: Mapping[str, Any]) -> str:
        """Ask for one that ends with the pod."""
        audience = source.get("audience")
        account = getattr(pod.spec, "serviceAccountName", None) or "default"
        bound = {"apiVersion": "v1", "kind": "Pod", "name": pod.metadata.name, "uid": pod.metadata.uid}
        request = TokenRequest(
            apiVersion="authentication.k8s.io/v1",
            kind="TokenRequest",
            spec={
                "audiences": [audience] if audience else [],
                "expirationSeconds": int(source.get("expirationSeconds") or 3600),
                "boundObjectRef": bound,
            },
        )
        namespace = pod.metadata.namespace or "default"
        granted = await self._client.create(request, account, namespace=namespace)
        return str(granted.status["token"])

    async def tell(self, pod: pods.Pod, reason: str, message: str, *, warning: bool = False) -> None:
        """Record it, with a count for repetitions."""
        now = datetime.datetime.now(datetime.UTC)
        await self._events.tell(reference(pod), reason=reason, message=message, now=now, warning=warning)
