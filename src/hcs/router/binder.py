"""Carrying a decision out: the image first, then one Binding that holds node, devices and reasons together.

Every step may be repeated, and any answer may be lost. What then counts is the pod itself: bound to the asked node by
an allocation of ours is success, whoever wrote it.
"""

import logging
from collections.abc import Mapping
from typing import Final

import httpx2
import msgspec
from lightkube import ApiError, AsyncClient
from lightkube.types import PatchType

from hcs.kube import resources
from hcs.kube.writes import bind
from hcs.model import names
from hcs.model.allocations import Allocation, AllocationError, allocation_of, encode_allocation
from hcs.model.pods import Pod
from hcs.router.annotations import AnnotationError, check_annotations
from hcs.router.images import image_patch

log = logging.getLogger(__name__)

REASON_LIMIT: Final = 1024
RESUME_LIMIT: Final = 2048


class Outcome(msgspec.Struct, frozen=True):
    """What became of a bind.

    ``bound`` is the allocation the pod has now. ``error`` says why it has none. ``unsure``: the API server did not
    answer, so the Binding may still have been written. ``gone``: there is no such pod any more.
    """

    bound: Allocation | None = None
    error: str = ""
    unsure: bool = False
    gone: bool = False


def binding_annotations(pod: Pod, allocation: Allocation, reason: str, resume: str) -> dict[str, str]:
    """What the Binding writes into the pod.

    Raises:
        AllocationError: the allocation breaks a rule of its format.
        AnnotationError: the pod could not be updated afterwards.
    """
    added = {names.ALLOCATION: encode_allocation(allocation), names.ROUTE_REASON: reason[:REASON_LIMIT]}
    if resume and len(resume) <= RESUME_LIMIT:
        added[names.RESUME] = resume
    check_annotations(pod.annotations, added)
    return added


async def carry_out(
    client: AsyncClient, pod: Pod, allocation: Allocation, *, image: str, reason: str, resume: str
) -> Outcome:
    """Rebind the image where it differs and create the Binding.

    Args:
        client: the API server.
        pod: as last seen; its UID guards both writes.
        allocation: node and devices.
        image: what the containers with devices shall run; the empty string leaves theirs.
        reason: one sentence for people.
        resume: where the work continues; the empty string: at the beginning.
    """
    try:
        annotations = binding_annotations(pod, allocation, reason, resume)
    except (AllocationError, AnnotationError) as error:
        return Outcome(error=str(error))
    patch = image_patch(pod, allocation, image)
    try:
        if patch is not None:
            await client.patch(
                resources.Pod,
                pod.metadata.name,
                patch,
                namespace=pod.metadata.namespace,
                patch_type=PatchType.STRATEGIC,
            )
        await _bind(client, pod, allocation.node, annotations)
    except ApiError as error:
        if error.status.code == 409 or (error.status.code or 500) >= 500:
            return await _look(client, pod, allocation.node, f"the API server refused: {error.status.message}")
        return Outcome(error=f"the API server refused: {error.status.message}")
    except httpx2.HTTPError as error:
        return await _look(client, pod, allocation.node, f"the API server did not answer: {error!r}", unsure=True)
    return Outcome(bound=allocation)


async def carry_out_plainly(client: AsyncClient, pod: Pod, node: str) -> Outcome:
    """Bind a pod that asks for nothing of ours: whoever asks us to bind expects it done."""
    try:
        await _bind(client, pod, node, {})
    except ApiError as error:
        return Outcome(error=f"the API server refused: {error.status.message}")
    except httpx2.HTTPError as error:
        return Outcome(error=f"the API server did not answer: {error!r}", unsure=True)
    return Outcome()


async def _bind(client: AsyncClient, pod: Pod, node: str, annotations: Mapping[str, str]) -> None:
    await bind(
        client,
        namespace=pod.metadata.namespace or "default",
        name=pod.metadata.name,
        uid=pod.metadata.uid,
        node=node,
        annotations=annotations,
    )


async def _look(client: AsyncClient, pod: Pod, node: str, why: str, *, unsure: bool = False) -> Outcome:
    """Read the pod and see whether it is bound after all."""
    try:
        seen = await client.get(resources.Pod, pod.metadata.name, namespace=pod.metadata.namespace or "default")
    except ApiError as error:
        if error.status.code == 404:
            return Outcome(error="the pod is gone", gone=True)
        return Outcome(error=why, unsure=True)
    except httpx2.HTTPError:
        return Outcome(error=why, unsure=True)
    if seen.metadata.uid != pod.metadata.uid:
        return Outcome(error="the pod is gone; another one has its name", gone=True)
    if not seen.spec.nodeName:
        return Outcome(error=why, unsure=unsure)
    bound = allocation_of(seen)
    if bound is None:
        return Outcome(error=f"the pod was bound to {seen.spec.nodeName} by somebody else")
    if bound.node != node:
        return Outcome(bound=bound, error=f"the pod is bound to {bound.node} already")
    log.info("bind found done: pod=%s node=%s", pod.key, node)
    return Outcome(bound=bound)
