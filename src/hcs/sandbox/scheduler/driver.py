"""The scheduling loop: one pod at a time is decided, its bind runs beside the next decisions.

What the real one does and extenders rely on, or trip over: own checks first and the extender only for pods that name
its resources; victims chosen for CPU and memory are shown to the extender; a nominated node is probed alone before all
others; equal nodes are chosen among at random; a pod is assumed before it is bound; a failed call puts the pod into the
error back-off with condition ``SchedulerError``; a refusal writes the condition ``Unschedulable`` only when its text is
new, and that very write wakes the pod again; a lost bind answer leaves the pod bound, with a condition that says
otherwise.
"""

import asyncio
import contextlib
import datetime
import logging
import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import httpx2
from lightkube import ApiError, AsyncClient
from lightkube.types import PatchType

from hcs.kube.informer import ChangeKind, Informer
from hcs.kube.resources import Node, ObjectReference, Pod, PodStatus
from hcs.kube.writes import EventRecorder, bind
from hcs.sandbox.scheduler.cluster import Cluster
from hcs.sandbox.scheduler.configuration import Configuration
from hcs.sandbox.scheduler.extenders import ExtenderCaller, ExtenderError
from hcs.sandbox.scheduler.nodes import NodeView, emptiness, shape, why_not
from hcs.sandbox.scheduler.objects import WholePod
from hcs.sandbox.scheduler.preemption import choose
from hcs.sandbox.scheduler.queue import Entry, SchedulingQueue

log = logging.getLogger(__name__)

UNSCHEDULABLE: Final = "Unschedulable"
SCHEDULER_ERROR: Final = "SchedulerError"


class SchedulerDriver:
    """A running stand-in for kube-scheduler."""

    def __init__(
        self,
        client: AsyncClient,
        configuration: Configuration,
        *,
        http: httpx2.AsyncClient,
        rng: random.Random,
        now: Callable[[], float],
        today: Callable[[], datetime.datetime],
    ) -> None:
        """Prepare; nothing is asked before :meth:`run`.

        Args:
            client: the API server.
            configuration: profiles, back-offs and extenders.
            http: how extenders are called.
            rng: decides among equal nodes.
            now: seconds on a clock that only goes forward, the event loop's own.
            today: the wall clock, for conditions and events.
        """
        self._client, self._configuration = client, configuration
        self._extenders = [ExtenderCaller(extender, http) for extender in configuration.extenders]
        self._rng, self._now, self._today = rng, now, today
        self.queue = SchedulingQueue(
            initial_backoff=configuration.pod_initial_backoff_seconds, max_backoff=configuration.pod_max_backoff_seconds
        )
        self._cluster = Cluster()
        self._pods = Informer(client, WholePod)
        self._nodes = Informer(client, Node, namespace=None)
        self._pods.on_change(self._pod_changed)
        self._nodes.on_change(self._node_changed)
        self._stirred = asyncio.Event()
        self._binding: set[asyncio.Task[None]] = set()
        self._events = EventRecorder(client, "emulated-scheduler")
        self.ready = asyncio.Event()

    async def run(self) -> None:
        """Schedule until cancelled."""
        async with asyncio.TaskGroup() as group:
            watches = [group.create_task(self._nodes.run()), group.create_task(self._pods.run())]
            try:
                await self._nodes.synced.wait()
                await self._pods.synced.wait()
                self.ready.set()
                await self._loop()
            finally:
                for task in (*watches, *self._binding):
                    task.cancel()

    async def _loop(self) -> None:
        while True:
            entry = self.queue.pop(self._now())
            if entry is None:
                self._stirred.clear()
                wake = self.queue.next_wake(self._now())
                with contextlib.suppress(TimeoutError):
                    # A timer may ring a hair before its time; a hair more, so that it is then really over.
                    async with asyncio.timeout(None if wake is None else wake + 1e-6):
                        await self._stirred.wait()
                continue
            await self._cycle(entry)

    async def _cycle(self, entry: Entry) -> None:
        pod = entry.pod
        try:
            feasible, reasons, total = await self._find(pod)
        except ExtenderError as error:
            await self._failed(entry, str(error))
            return
        if not feasible:
            nominated = await self._preempt(pod, reasons)
            await self._refused(entry, explain(reasons, total), nominated)
            return
        best = max(emptiness(view) for view in feasible)
        node = self._rng.choice([view.name for view in feasible if emptiness(view) == best])
        self._cluster.assume(pod, node)
        task = asyncio.create_task(self._bind(entry, node))
        self._binding.add(task)
        task.add_done_callback(self._binding.discard)

    async def _find(self, pod: WholePod) -> tuple[list[NodeView], dict[str, Sequence[str]], int]:
        """The nodes that pass, why the others do not, and how many there are."""
        views = self._cluster.views()
        nominated = [view for view in views if view.name == pod.nominated]
        if nominated:
            passed, _ = await self._pass(pod, nominated)
            if passed:
                return passed, {}, len(views)
        passed, reasons = await self._pass(pod, views)
        return passed, reasons, len(views)

    async def _pass(self, pod: WholePod, views: Sequence[NodeView]) -> tuple[list[NodeView], dict[str, Sequence[str]]]:
        reasons: dict[str, Sequence[str]] = {}
        feasible = []
        for view in views:
            found = why_not(pod, view, self._configuration.ignored)
            if found:
                reasons[view.name] = found
            else:
                feasible.append(view)
        names = pod.resource_names()
        for caller in self._extenders:
            if not feasible:
                break
            if not caller.extender.filter_verb or not caller.extender.wants(names):
                continue
            try:
                answer = await caller.filter(pod, [view.name for view in feasible])
            except ExtenderError:
                if caller.extender.ignorable:
                    continue
                raise
            reasons.update({name: (text,) for name, text in answer.refused.items()})
            feasible = [view for view in feasible if view.name in answer.nodes]
        return feasible, reasons

    async def _bind(self, entry: Entry, node: str) -> None:
        pod = entry.pod
        binder = next(
            (c for c in self._extenders if c.extender.bind_verb and c.extender.wants(pod.resource_names())), None
        )
        try:
            if binder is not None:
                await binder.bind(pod, node)
            else:
                await bind(
                    self._client,
                    namespace=pod.namespace,
                    name=pod.metadata.name,
                    uid=pod.uid,
                    node=node,
                    annotations={},
                )
        except (ExtenderError, ApiError, httpx2.HTTPError) as error:
            self._cluster.forget(pod.uid)
            self.queue.wake_all(self._now(), besides=pod.uid)
            await self._failed(entry, f"binding rejected: {error}")
            return
        finally:
            self._stirred.set()
        await self._tell(pod, "Scheduled", f"Successfully assigned {pod.key} to {node}", warning=False)

    async def _preempt(self, pod: WholePod, reasons: Mapping[str, Sequence[str]]) -> str:
        """Evict for CPU, memory or pod slots; the nominated node, or the empty string."""
        try:
            chosen = await choose(pod, self._cluster, reasons, self._extenders, self._configuration.ignored)
        except ExtenderError as error:
            log.warning("preemption failed: pod=%s error=%s", pod.key, error)
            return ""
        if chosen is None or chosen.node == pod.nominated:
            return ""
        for victim in chosen.victims:
            await self._tell(victim, "Preempted", f"Preempted by pod {pod.uid} on node {chosen.node}", warning=False)
            with contextlib.suppress(ApiError, httpx2.HTTPError):
                await self._client.delete(Pod, victim.metadata.name, namespace=victim.namespace)
        return chosen.node

    async def _refused(self, entry: Entry, message: str, nominated: str = "") -> None:
        """Back to the queue first, then the condition: so the write itself is an event that wakes the pod."""
        entry.pod = self._latest(entry.pod)
        self.queue.refused(entry, self._now())
        if nominated:
            await self._nominate(entry.pod, nominated)
        await self._set_condition(entry.pod, UNSCHEDULABLE, message)

    async def _nominate(self, pod: WholePod, node: str) -> None:
        with contextlib.suppress(ApiError, httpx2.HTTPError):
            await self._client.patch(
                PodStatus,
                pod.metadata.name,
                {"metadata": {"uid": pod.uid}, "status": {"nominatedNodeName": node}},
                namespace=pod.namespace,
                patch_type=PatchType.STRATEGIC,
            )

    async def _failed(self, entry: Entry, message: str) -> None:
        entry.pod = self._latest(entry.pod)
        if entry.pod.node:
            self.queue.remove(entry.pod.uid)  # bound after all, only the answer was lost; the condition is cosmetic
        else:
            self.queue.failed(entry, self._now())
        self._stirred.set()
        await self._set_condition(entry.pod, SCHEDULER_ERROR, message)

    def _latest(self, pod: WholePod) -> WholePod:
        seen = self._pods.get(pod.metadata.name, pod.metadata.namespace)
        return seen if seen is not None and seen.uid == pod.uid else pod

    async def _set_condition(self, pod: WholePod, reason: str, message: str) -> None:
        await self._tell(pod, "FailedScheduling", message, warning=True)
        before: Mapping[str, Any] = next(
            (c for c in pod.status.get("conditions") or () if c.get("type") == "PodScheduled"), {}
        )
        if (before.get("status"), before.get("reason"), before.get("message")) == ("False", reason, message):
            return
        stamp = self._today().astimezone(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        condition = {"type": "PodScheduled", "status": "False", "reason": reason, "message": message}
        condition["lastTransitionTime"] = (
            str(before.get("lastTransitionTime") or stamp) if before.get("status") == "False" else stamp
        )
        try:
            await self._client.patch(
                PodStatus,
                pod.metadata.name,
                {"metadata": {"uid": pod.uid}, "status": {"conditions": [condition]}},
                namespace=pod.namespace,
                patch_type=PatchType.STRATEGIC,
            )
        except (ApiError, httpx2.HTTPError) as error:
            log.info("condition not written: pod=%s error=%r", pod.key, error)

    async def _tell(self, pod: WholePod, reason: str, message: str, *, warning: bool) -> None:
        about = ObjectReference(
            apiVersion="v1", kind="Pod", name=pod.metadata.name, namespace=pod.namespace, uid=pod.uid
        )
        await self._events.tell(about, reason=reason, message=message, now=self._today(), warning=warning)

    def _pod_changed(self, kind: ChangeKind, pod: WholePod, _before: WholePod | None) -> None:
        if kind == "DELETED" or pod.finished:
            self.queue.remove(pod.uid)
            if self._cluster.drop_pod(pod.uid):
                self.queue.wake_all(self._now())
        elif pod.node:
            self.queue.remove(pod.uid)
            self._cluster.set_bound(pod)
        elif pod.scheduler not in self._configuration.schedulers or self._cluster.assumes(pod.uid):
            return
        elif pod.gated or pod.metadata.deletionTimestamp:
            self.queue.remove(pod.uid)
        else:
            self.queue.put(pod, self._now())
        self._stirred.set()

    def _node_changed(self, kind: ChangeKind, node: Node, before: Node | None) -> None:
        if kind == "DELETED":
            self._cluster.drop_node(node.metadata.name)
            return
        self._cluster.set_node(node)
        if before is None or shape(before) != shape(node):
            self.queue.wake_all(self._now())
            self._stirred.set()


def explain(reasons: Mapping[str, Sequence[str]], total: int) -> str:
    """The one message for all nodes: each text with the number of nodes it stands for, sorted as text.

    >>> explain({"a": ["Insufficient cpu"], "b": ["Insufficient cpu"]}, 2)
    '0/2 nodes are available: 2 Insufficient cpu.'
    """
    if not total:
        return "no nodes available to schedule pods"
    counted = Counter(text for texts in reasons.values() for text in texts)
    return f"0/{total} nodes are available: {', '.join(sorted(f'{n} {text}' for text, n in counted.items()))}."
