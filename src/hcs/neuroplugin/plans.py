"""Which rectangle the router chose for whom: read from the pods of this node when the kubelet hands out cores.

``Allocate`` names no pod. But the kubelet admits only pods that are bound here, so whoever asks is one of those that
have no cores yet; among equals the oldest is taken, as the kubelet does. They are listed at each call: cores are
handed out once in a pod's life, and a fresh list is never older than what the kubelet itself acts on. If two equal
pods are mistaken for each other, each has a rectangle for as many cores, and both are booked.
"""

import logging
from collections.abc import Collection, Iterable
from typing import Any, Protocol

import httpx2
import msgspec
from lightkube import ApiError, AsyncClient

from hcs.deviceplugin.podresources import Holder
from hcs.kube.resources import Pod as PodResource
from hcs.model.allocations import CoreGrant, allocation_of
from hcs.model.pods import Pod
from hcs.model.refusals import RefusedError
from hcs.neuro.grids import Rectangle
from hcs.neuro.occupancy import core_needs, rectangle_of

log = logging.getLogger(__name__)


class Plan(msgspec.Struct, frozen=True):
    """A container of a pod that is bound here and asks for cores; ``grant`` is what the router chose, None: nothing."""

    pod: str
    holder: Holder
    resource: str
    ids: int
    grant: CoreGrant | None = None

    @property
    def key(self) -> tuple[str, str]:
        """The pod's UID and the container's name."""
        return self.pod, self.holder.container

    @property
    def rectangle(self) -> Rectangle | None:
        """What the router chose."""
        return rectangle_of(self.grant) if self.grant is not None else None


class Plans(Protocol):
    """Who says what was planned."""

    async def look(self) -> tuple[Plan, ...]:
        """All containers on this node that ask for cores, the oldest pod first."""


class PodPlans:
    """Plans of the pods that the API server shows on a node."""

    def __init__(self, client: AsyncClient, node: str, domain: str) -> None:
        """Prepare.

        Args:
            client: the connection.
            node: this node's name.
            domain: of the resources.
        """
        self._client, self._node, self._domain = client, node, domain

    async def look(self) -> tuple[Plan, ...]:
        """See :class:`Plans`. Where the API server does not answer nothing is planned, and the plugin chooses."""
        try:
            fields: dict[str, Any] = {"spec.nodeName": self._node}
            pods = [pod async for pod in self._client.list(PodResource, namespace="*", fields=fields)]
        except (ApiError, httpx2.HTTPError) as error:
            log.warning("the router's choices are not known, choosing here: %r", error)
            return ()
        pods.sort(key=lambda pod: (pod.metadata.creationTimestamp or "", pod.metadata.namespace, pod.metadata.name))
        return tuple(plan for pod in pods if not pod.finished for plan in plans_of(pod, self._domain))


def plans_of(pod: Pod, domain: str) -> list[Plan]:
    """What a bound pod's containers ask for, with what the router chose for each."""
    try:
        needs = core_needs(pod, domain=domain)
    except RefusedError:
        return []
    held = allocation_of(pod)
    found = []
    for need in needs:
        grants = held.cores.get(need.container, ()) if held is not None else ()
        grant = next((one for one in grants if one.resource == need.resource), None)
        holder = Holder(pod.metadata.namespace or "default", pod.metadata.name, need.container)
        found.append(Plan(pod.metadata.uid, holder, need.resource, need.ids, grant))
    return found


def next_in_line(
    plans: Iterable[Plan], resource: str, ids: int, served: Collection[tuple[str, str]], board: str = ""
) -> Plan | None:
    """Whom the kubelet means that hands out so many ids: the first of that size that has none yet.

    Args:
        plans: what the containers here ask for, the oldest first.
        resource: what is handed out.
        ids: how many.
        served: the keys of those that have theirs.
        board: where the ids are; those planned for another board come last.
    """
    able = [plan for plan in plans if plan.resource == resource and plan.ids == ids and plan.key not in served]
    return min(able, key=lambda one: bool(board and one.grant and one.grant.board != board), default=None)
