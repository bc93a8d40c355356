"""The few writes HCS makes to objects that are not its own: bind, evict, annotate, tell.

Each is one request with one meaning; what a refusal means is said here once, so that callers branch on values and not
on status codes.
"""

import datetime
import hashlib
import logging
from collections.abc import Mapping
from typing import Any, Final, Literal

import httpx2
from lightkube import ApiError, AsyncClient
from lightkube.types import PatchType

from hcs.kube import resources
from hcs.model import names, pods

log = logging.getLogger(__name__)

Evicted = Literal["evicted", "gone", "blocked"]
MESSAGE_LIMIT: Final = 1024
"""Characters of an event's message that the API accepts."""
_NAME_LIMIT: Final = 253 - 17
"""Characters of an object's name that leave room for a dot and our digest behind them."""


async def bind(
    client: AsyncClient, *, namespace: str, name: str, uid: str, node: str, annotations: Mapping[str, str]
) -> None:
    """Bind a pod to a node; node and annotations arrive in one write.

    The UID guards against a pod of the same name that was made meanwhile.

    Raises:
        ApiError: 409 when the pod is bound, gated, being deleted or another one; 404 when it is gone.
    """
    await client.create(
        resources.Binding(
            apiVersion="v1",
            kind="Binding",
            metadata=pods.ObjectMeta(name=name, namespace=namespace, uid=uid, annotations=dict(annotations)),
            target=resources.ObjectReference(apiVersion="v1", kind="Node", name=node),
        ),
        name,
        namespace=namespace,
    )


async def evict(client: AsyncClient, pod: pods.Pod, *, grace_seconds: int | None = None) -> Evicted:
    """Ask for a pod's eviction.

    Returns:
        ``evicted``; ``gone`` when it, or this UID of it, no longer exists; ``blocked`` when a disruption budget says
        not now (try again later).
    """
    namespace, name = pod.metadata.namespace or "default", pod.metadata.name
    options: dict[str, Any] = {"preconditions": {"uid": pod.metadata.uid}}
    if grace_seconds is not None:
        options["gracePeriodSeconds"] = grace_seconds
    try:
        await client.create(
            resources.Eviction(
                apiVersion="policy/v1",
                kind="Eviction",
                metadata=pods.ObjectMeta(name=name, namespace=namespace),
                deleteOptions=options,
            ),
            name,
            namespace=namespace,
        )
    except ApiError as error:
        if error.status.code in (404, 409):
            return "gone"
        if error.status.code == 429:
            return "blocked"
        raise
    return "evicted"


async def delete(client: AsyncClient, pod: pods.Pod) -> bool:
    """Delete a pod, with its own grace. The UID is compared just before, as the client has no precondition for it.

    Returns:
        Whether it was there; one of the same name and another UID is left alone.
    """
    namespace, name = pod.metadata.namespace or "default", pod.metadata.name
    try:
        found = await client.get(resources.Pod, name, namespace=namespace)
        if found.metadata.uid != pod.metadata.uid:
            return False
        await client.delete(resources.Pod, name, namespace=namespace)
    except ApiError as error:
        if error.status.code == 404:
            return False
        raise
    return True


async def annotate(client: AsyncClient, pod: pods.Pod, annotations: Mapping[str, str | None]) -> None:
    """Set (or with None remove) annotations of a pod. Write only what changed: any update wakes a pending pod."""
    body = {"metadata": {"uid": pod.metadata.uid, "annotations": dict(annotations)}}
    await client.patch(
        resources.Pod, pod.metadata.name, body, namespace=pod.metadata.namespace, patch_type=PatchType.MERGE
    )


class EventRecorder:
    """Tells the story of objects as events; the same event again only raises its count. Never fails its caller."""

    def __init__(self, client: AsyncClient, component: str) -> None:
        self._client, self._component = client, component
        self._counts: dict[str, int] = {}

    async def tell(
        self,
        about: resources.ObjectReference,
        *,
        reason: str,
        message: str,
        now: datetime.datetime,
        warning: bool = False,
    ) -> None:
        """Record one event.

        Args:
            about: the object; cluster-scoped ones are told about in namespace ``default``.
            reason: CamelCase.
            message: one sentence, cut at :data:`MESSAGE_LIMIT` characters.
            now: the time of it.
            warning: whether the type is Warning rather than Normal.
        """
        namespace = about.namespace or "default"
        message = message[:MESSAGE_LIMIT]
        digest = hashlib.sha256(
            "\0".join((self._component, about.kind, about.uid, about.name, reason, message)).encode()
        ).hexdigest()[:16]
        name = f"{about.name[:_NAME_LIMIT].rstrip('.-')}.{digest}"
        stamp = now.astimezone(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        count = self._counts[digest] = self._counts.get(digest, 0) + 1
        if len(self._counts) > 4096:
            self._counts.clear()
        try:
            if count > 1:
                try:
                    await self._client.patch(
                        resources.Event,
                        name,
                        {"count": count, "lastTimestamp": stamp},
                        namespace=namespace,
                        patch_type=PatchType.MERGE,
                    )
                    return
                except ApiError as error:
                    if error.status.code != 404:
                        raise
            await self._client.create(
                resources.Event(
                    apiVersion="v1",
                    kind="Event",
                    metadata=pods.ObjectMeta(name=name, namespace=namespace),
                    involvedObject=about,
                    reason=reason,
                    message=message,
                    type="Warning" if warning else "Normal",
                    count=1,
                    firstTimestamp=stamp,
                    lastTimestamp=stamp,
                    source={"component": self._component},
                    reportingComponent=f"{names.DOMAIN}/{self._component}",
                    reportingInstance=self._component,
                )
            )
        except (ApiError, httpx2.HTTPError) as error:
            if not (isinstance(error, ApiError) and error.status.code == 409):
                log.warning("event not recorded: object=%s reason=%s error=%r", about.name, reason, error)


def reference(pod: pods.Pod) -> resources.ObjectReference:
    """Refer to a pod, for events."""
    return resources.ObjectReference(
        apiVersion="v1",
        kind="Pod",
        name=pod.metadata.name,
        namespace=pod.metadata.namespace or "default",
        uid=pod.metadata.uid,
    )
