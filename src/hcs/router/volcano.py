"""The calls of Volcano's ``extender`` plug-in: choose with it, hold devices while it decides, record before it binds.

Volcano differs from kube-scheduler in what an extender must know. It asks about one task and one node at a time. It
binds by itself, after a whole gang has been *allocated* in its session, and tells the extender of each allocation and
of each that it takes back, but not of the bind. And its Binding carries the pod's annotations *as its session saw
them*, which the API server merges into the pod.

So ``allocate`` reserves the devices and writes the allocation on the pod before it is bound. There it has no effect
until Volcano's Binding names the same node, which makes bind and record one again: either both hold or neither. An
allocation that Volcano's session already saw would come back with its Binding and could overwrite a newer one; the
admission policy forbids that, and ``predicate`` and ``allocate`` refuse such a task and have the old record taken off
first. ``predicate`` lets a few seconds go by before that, in which a Binding of the session that made the record may
still arrive. Volcano's gangs are Volcano's: ours are not led by it.

Field names are Go's where Volcano's types have no tags. Any case is read.
"""

import logging
from collections.abc import Callable
from typing import Any, Final

import httpx2
import msgspec
from lightkube import ApiError
from lightkube.types import PatchType

from hcs.kube import resources
from hcs.model import names
from hcs.model.allocations import AllocationError, decode_allocation
from hcs.model.pods import Pod
from hcs.model.refusals import RefusedError
from hcs.router.annotations import AnnotationError
from hcs.router.binder import binding_annotations
from hcs.router.decisions import Chosen, NotOurs, Refused
from hcs.router.desk import Desk
from hcs.router.images import image_for, image_patch
from hcs.router.resumption import note_for

log = logging.getLogger(__name__)

UNSCHEDULABLE: Final = 2
"""Volcano's status code for "not now"; nothing but 0 lets a task pass."""
BEST: Final = 1000.0
"""The score of the one node we would choose; Volcano adds the scores of all plug-ins, each some hundreds at most."""
ON_ITS_WAY_SECONDS: Final = 5.0
"""How long after a record was made its Binding may still arrive."""
RECORDED: Final = (names.ALLOCATION, names.ROUTE_REASON, names.RESUME)


class Task(msgspec.Struct, frozen=True):
    """A ``TaskInfo`` as far as we look at it."""

    pod: Pod
    nodename: str = ""


class VolcanoVerbs:
    """The verbs, on the router's desk."""

    def __init__(self, desk: Desk, stir: Callable[[], None]) -> None:
        """Prepare.

        Args:
            desk: the router.
            stir: has what is doubtful looked into soon.
        """
        self._desk, self._stir = desk, stir
        self._found: set[str] = set()

    def pod_changed(self, pod: Pod) -> None:
        """Volcano's pod without a node: a record on it, made by a router before us, keeps its devices promised.

        The watch shows the past: a record that was taken off a moment ago may still come by. So a promise made here
        ends as soon as the pod is seen without the record, which is always later.
        """
        uid, text = pod.metadata.uid, pod.annotations.get(names.ALLOCATION)
        if text is None:
            if uid in self._found:
                self.forget(uid)
                self._desk.release([uid])
            return
        if self._desk.reservations.get(uid, self._desk.now()) is not None:
            return
        try:
            allocation = decode_allocation(text)
        except AllocationError:
            return
        if allocation.pod == uid:
            self._found.add(uid)
            self._desk.commit(pod, allocation, pod.annotations.get(names.ROUTE_REASON, ""))

    def forget(self, uid: str) -> None:
        """The pod is bound or gone."""
        self._found.discard(uid)

    def predicate(self, body: bytes) -> dict[str, Any]:
        """May this task go to this node?

        Raises:
            ValueError: no such request.
        """
        fields = _fields(body)
        task, node = _task(fields), _node_name(fields.get("node"))
        if stale := _recorded(task.pod):
            self._doubt(task.pod.metadata.uid)
            return {"status": stale, "code": UNSCHEDULABLE}
        decision = self._desk.decide(task.pod, [node])
        if isinstance(decision, Refused):
            why = decision.nodes.get(node)
            return {"status": str(why) if why else decision.summary, "code": UNSCHEDULABLE}
        return {"status": "", "code": 0}

    def prioritize(self, body: bytes) -> dict[str, Any]:
        """Score the nodes: all for the one that we would choose.

        Raises:
            ValueError: no such request.
        """
        fields = _fields(body)
        nodes = [_node_name(raw) for raw in msgspec.json.decode(fields.get("nodes", b"[]"), type=list[msgspec.Raw])]
        decision = self._desk.decide(_task(fields).pod, nodes)
        best = decision.node if isinstance(decision, Chosen) else ""
        return {"nodeScore": {name: BEST if name == best else 0.0 for name in nodes}, "errorMessage": ""}

    async def allocate(self, body: bytes) -> dict[str, Any]:
        """Volcano gives this task its node, for now: hold devices there and record them on the pod.

        Raises:
            ValueError: no such request.
        """
        task = _task(_fields(body))
        node = task.nodename or task.pod.spec.nodeName or ""
        pod = _unbound(task.pod)
        uid = pod.metadata.uid
        if _recorded(pod):
            await self._erase(pod)
            return {"errorMessage": "the record of an earlier attempt is being taken off the pod; try again"}
        decision = self._desk.confirm(pod, node)
        if isinstance(decision, NotOurs):
            return {"errorMessage": ""}
        if isinstance(decision, Refused):
            self._desk.release([uid])
            return {"errorMessage": decision.summary}
        self._found.discard(uid)
        self._desk.commit(pod, decision.allocation, decision.reason)
        try:
            await self._record(pod, decision)
        except (AllocationError, AnnotationError, RefusedError, ApiError, httpx2.HTTPError) as error:
            log.warning("allocation not recorded: pod=%s error=%r", pod.key, error)
            await self._give_back(pod)
            return {"errorMessage": f"the devices could not be recorded on the pod: {error}"}
        log.info("recorded for volcano: pod=%s node=%s", pod.key, node)
        return {"errorMessage": ""}

    async def deallocate(self, body: bytes) -> dict[str, Any]:
        """Volcano takes the node back: the devices are free again, once the pod no longer says otherwise.

        Raises:
            ValueError: no such request.
        """
        await self._give_back(_unbound(_task(_fields(body)).pod))
        return {"errorMessage": ""}

    def _doubt(self, uid: str) -> None:
        """Volcano would not ask about a task whose Binding it has sent: nobody will bind what the pod carries."""
        now, held = self._desk.now(), self._desk.reservations
        since = held.committed_since(uid)
        if since is not None and since + ON_ITS_WAY_SECONDS <= now:
            held.doubt(uid, now)
            self._stir()

    async def _record(self, pod: Pod, decision: Chosen) -> None:
        note = note_for(pod, self._desk.view.inventories)
        added = binding_annotations(pod, decision.allocation, decision.reason, note.resume_from if note else "")
        request = self._desk.request_of(pod)
        image = image_for(self._desk.view.offers, request, decision.allocation.vendor) if request else ""
        body = image_patch(pod, decision.allocation, image) or {"metadata": {"uid": pod.metadata.uid}}
        body["metadata"] = {**body["metadata"], "annotations": added}
        await self._desk.client.patch(
            resources.Pod,
            pod.metadata.name,
            body,
            namespace=pod.metadata.namespace,
            patch_type=PatchType.STRATEGIC,
        )

    async def _give_back(self, pod: Pod) -> None:
        """First the record goes, then the promise: the other way round two pods could be bound to one device.

        Where the record cannot be taken off now, the promise stays, and the router looks after it.
        """
        if await self._erase(pod):
            self._desk.release([pod.metadata.uid])

    async def _erase(self, pod: Pod) -> bool:
        return await erase(self._desk, pod)


async def erase(desk: Desk, pod: Pod) -> bool:
    """Take our record off a pod that is not bound; tells whether it is off (a bound pod keeps it)."""
    try:
        seen: Pod = await desk.client.get(
            resources.Pod, pod.metadata.name, namespace=pod.metadata.namespace or "default"
        )
        if seen.metadata.uid != pod.metadata.uid:
            return True
        if seen.spec.nodeName:
            return False
        present = {key: None for key in RECORDED if key in seen.annotations}
        if present:
            # The version guards against a bind in between: then the record must stay.
            body = {"metadata": {"resourceVersion": seen.metadata.resourceVersion, "annotations": present}}
            await desk.client.patch(
                resources.Pod, pod.metadata.name, body, namespace=pod.metadata.namespace, patch_type=PatchType.MERGE
            )
    except ApiError as error:
        return error.status.code == 404
    except httpx2.HTTPError:
        return False
    return True


def is_volcano(pod: Pod) -> bool:
    """Whether Volcano binds the pod."""
    return pod.spec.schedulerName == names.VOLCANO


def _fields(body: bytes) -> dict[str, msgspec.Raw]:
    try:
        found = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
    except msgspec.DecodeError as error:
        raise ValueError(f"the body is no request of Volcano's extender plug-in: {error}") from error
    return {key.lower(): raw for key, raw in found.items()}


def _task(fields: dict[str, msgspec.Raw]) -> Task:
    try:
        raw = msgspec.json.decode(fields.get("task", b"null"), type=dict[str, msgspec.Raw])
        known = {key.lower(): raw[key] for key in raw}
        return Task(
            pod=msgspec.json.decode(known["pod"], type=Pod),
            nodename=msgspec.json.decode(known.get("nodename", b'""'), type=str),
        )
    except (KeyError, msgspec.DecodeError) as error:
        raise ValueError(f"the request has no task with a pod: {error!r}") from error


def _node_name(raw: Any) -> str:
    try:
        found = msgspec.json.decode(raw if raw is not None else b"{}", type=dict[str, Any])
    except msgspec.DecodeError as error:
        raise ValueError(f"the request has no node: {error}") from error
    return str(next((value for key, value in found.items() if key.lower() == "name"), ""))


def _recorded(pod: Pod) -> str:
    if not any(key in pod.annotations for key in RECORDED):
        return ""
    return "EarlierRecord: the pod still carries the devices of an earlier attempt; they are taken off it first"


def _unbound(pod: Pod) -> Pod:
    """The task's pod as the API server has it: Volcano writes the node it has in mind into its own copy."""
    return msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, nodeName=None))
