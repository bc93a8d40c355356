"""The two verbs: ``filter`` decides and reserves, ``bind`` carries out.

A decision is one stretch of code without a pause in it, so decisions never overlap: whatever the order in which calls
arrive, two pods are never promised the same memory. All that is remembered between the calls can be lost: a restarted
router reads from the pods what is taken, and a pod without a promise is placed anew inside ``bind``.
"""

import asyncio
import contextlib
import datetime
import logging
from collections.abc import Callable, Sequence

import httpx2
import msgspec
from lightkube import ApiError, AsyncClient

from hcs.kube import resources
from hcs.kube.informer import ChangeKind
from hcs.kube.writes import EventRecorder, annotate, reference
from hcs.model import names
from hcs.model.allocations import Allocation
from hcs.model.devices import NodeInventory
from hcs.model.pods import Pod
from hcs.model.requests import ComputeRequest, asks_for_compute, read_request
from hcs.placement.alternatives import Alternative, alternatives
from hcs.placement.appraisals import ReferenceRates
from hcs.placement.snapshot import Snapshot
from hcs.router.asking import OFFER_SECONDS
from hcs.router.binder import Outcome, carry_out, carry_out_plainly
from hcs.router.decisions import NOT_CHOSEN, Chosen, Decision, NotOurs, Refused, decide, vendor_bound
from hcs.router.guests import ExpectedGuests
from hcs.router.images import RuntimeImage, image_for
from hcs.router.meters import Meters
from hcs.router.offers import Offers
from hcs.router.reservations import Reservation, Reservations
from hcs.router.resumption import note_for
from hcs.router.view import FleetView, Held
from hcs.router.waiting import Waiting, WaitingRoom
from hcs.router.wire import BindAnswer, BindArguments, FilterAnswer, FilterArguments
from hcs.rtos.hosting import asks_for_guests

log = logging.getLogger(__name__)

TEND_SECONDS = 5.0
"""How often lapsed promises and unseen bindings are looked for when nothing else happens."""


class NotSyncedError(RuntimeError):
    """The view has not been read yet: deciding now would be guessing."""


class Replayable(msgspec.Struct, frozen=True):
    """The input of the next decision: with it and a pod anybody can repeat it. ``waiting`` are the pods refused."""

    nodes: tuple[NodeInventory, ...]
    allocations: tuple[Allocation, ...]
    reservations: tuple[Allocation, ...]
    offers: tuple[RuntimeImage, ...]
    waiting: tuple[Pod, ...] = ()


class Extender:
    """The router's state and its two verbs."""

    def __init__(
        self,
        client: AsyncClient,
        *,
        now: Callable[[], float],
        today: Callable[[], datetime.datetime],
        reservation_seconds: float = 60.0,
        reference_rates: ReferenceRates | None = None,
        offer_seconds: float = OFFER_SECONDS,
    ) -> None:
        """Prepare; nothing is read before :meth:`run`.

        Args:
            client: the API server.
            now: seconds on a clock that only goes forward.
            today: the wall clock, for events.
            reservation_seconds: how long a promise holds without a bind.
            reference_rates: of models outside the fleet.
            offer_seconds: how long an offer stands.
        """
        self._client, self._now, self._today = client, now, today
        self.view = FleetView(
            client,
            on_pod=self._pod_changed,
            on_fleet=self._fleet_changed,
            on_machine=self._machine_changed,
            now=now,
            today=today,
            reference_rates=reference_rates,
        )
        self.reservations = Reservations(reservation_seconds)
        self.waiting = WaitingRoom()
        self.guests = ExpectedGuests()
        self.meters = Meters()
        self.offers = Offers(client, self, now=now, today=today, count=self.meters.offers, seconds=offer_seconds)
        self._binding: set[str] = set()
        self._events = EventRecorder(client, "router")
        self._telling: set[asyncio.Task[None]] = set()
        self._fitting: tuple[int, list[Allocation]] = (-1, [])
        self._stirred = asyncio.Event()

    async def run(self) -> None:
        """Keep the view fresh and tend what is held, until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.view.run())
            group.create_task(self._tend())

    def filter(self, arguments: FilterArguments) -> FilterAnswer:
        """Choose one node and reserve its devices, or say for each why not.

        Raises:
            NotSyncedError: the view is not there yet.
        """
        self._require_sync()
        pod, nodes = arguments.pod, arguments.nodenames or ()
        uid = pod.metadata.uid
        if uid in self._binding:
            return FilterAnswer(error="a binding of this pod is under way")
        held = self.view.allocations.get(uid)
        if held is not None:
            return FilterAnswer(error=f"the pod is bound to {held.node} already")
        sent = self.reservations.get(uid, self._now())
        if sent is not None and sent.committed:
            self._stirred.set()
            return FilterAnswer(error="what became of the pod's last binding is not known yet")
        with self.meters.filter_seconds.time():
            decision = self._decide(pod, nodes)
        self.meters.filters.labels(type(decision).__name__.lower()).inc()
        self._released(uid)
        if isinstance(decision, NotOurs):
            return FilterAnswer(
                node_names=tuple(name for name in nodes if name not in decision.unable),
                failed_and_unresolvable_nodes={name: str(why) for name, why in decision.unable.items()},
            )
        if isinstance(decision, Refused):
            return self._refuse(pod, nodes, decision)
        self.reservations.hold(pod.key, decision.allocation, decision.reason, self._now())
        self._count()
        log.info("reserved: pod=%s node=%s devices=%s", pod.key, decision.node, sorted(decision.allocation.devices()))
        return FilterAnswer(
            node_names=(decision.node,), failed_nodes={name: NOT_CHOSEN for name in nodes if name != decision.node}
        )

    async def bind(self, arguments: BindArguments) -> BindAnswer:
        """Commit a pod to a node: check the promise against the view, or place anew on that node, and bind.

        Raises:
            NotSyncedError: the view is not there yet.
        """
        self._require_sync()
        uid = arguments.poduid
        if uid in self._binding:
            return self._bound("busy", "a binding of this pod is under way")
        self._binding.add(uid)
        try:
            return await self._bind(arguments)
        finally:
            self._binding.discard(uid)
            self._count()

    def replayable(self) -> Replayable:
        """What the next decision would be made from."""
        return Replayable(
            nodes=self.view.inventories,
            allocations=tuple(self.view.allocations.values()),
            reservations=tuple(held.allocation for held in self.reservations.others("", self._now())),
            offers=self.view.offers,
            waiting=tuple(_bare(pod) for uid in self.waiting if (pod := self.view.pod(uid)) is not None),
        )

    def exact_place(self, pod: Pod) -> Chosen | None:
        """Where a pod would go now without any substitution that its owner has not accepted."""
        decision = self._decide(pod, self.view.machines.open_to(pod, self.view.node_names))
        return decision if isinstance(decision, Chosen) else None

    def alternatives(self, pod: Pod, request: ComputeRequest) -> tuple[Alternative, ...]:
        """What could stand in for the cards that a pod names, the fairest first."""
        note = note_for(pod, self.view.inventories)
        return alternatives(
            self._snapshot(pod),
            request,
            nodes=[n for n in self.view.machines.open_to(pod, self.view.node_names) if n not in self.view.silent],
            reference_rates=self.view.reference_rates,
            bound=vendor_bound(request, self.view.offers, note),
        )

    def promise(self, pod: Pod, allocation: Allocation, reason: str) -> None:
        """Hold devices for a pod, which will be filtered soon; the promise lapses like any other."""
        self.reservations.hold(pod.key, allocation, reason, self._now())
        self._count()

    def tell(self, pod: Pod, reason: str, message: str, *, warning: bool) -> None:
        """Record an event about a pod, in the background."""
        self._tell(pod, reason, message, warning=warning)

    async def _bind(self, arguments: BindArguments) -> BindAnswer:
        uid, node = arguments.poduid, arguments.node
        held = self.view.allocations.get(uid)
        if held is not None:
            if held.node == node:
                return self._bound("already")
            return self._bound("elsewhere", f"the pod is bound to {held.node} already")
        pod = self.view.pod(uid) or await self._read(arguments)
        if pod is None:
            self._released(uid)
            return self._bound("gone", f"pod {arguments.podnamespace}/{arguments.podname} of UID {uid} is gone")
        decision = self._confirm(pod, node)
        if isinstance(decision, NotOurs):
            self.guests.expect(pod, node)
            outcome = await carry_out_plainly(self._client, pod, node)
            if outcome.error and not outcome.unsure:
                self.guests.forget(uid)
            return self._bound("refused" if outcome.error else "bound", outcome.error)
        if isinstance(decision, Refused):
            self._released(uid)
            return self._bound("stale", f"{node} cannot take the pod any more: {decision.summary}")
        self.reservations.commit(pod.key, decision.allocation, decision.reason, self._now())
        request = read_request(pod)
        note = note_for(pod, self.view.inventories)
        outcome = await carry_out(
            self._client,
            pod,
            decision.allocation,
            image=image_for(self.view.offers, request, decision.allocation.vendor) if request else "",
            reason=decision.reason,
            resume=note.resume_from if note else "",
        )
        return self._conclude(pod, decision, outcome)

    def _conclude(self, pod: Pod, decision: Chosen, outcome: Outcome) -> BindAnswer:
        uid = pod.metadata.uid
        if outcome.unsure:
            self.reservations.doubt(uid, self._now())
            self._stirred.set()
            return self._bound("unsure", outcome.error)
        if outcome.bound is None:
            self._released(uid)
            return self._bound("refused", outcome.error)
        if uid in self.view.allocations:
            self._released(uid)
        else:
            self.reservations.commit(pod.key, outcome.bound, decision.reason, self._now())
        if outcome.error:
            return self._bound("elsewhere", outcome.error)
        self.waiting.leave(uid)
        self._tell(pod, "Substituted" if outcome.bound.exchange else "Placed", decision.reason, warning=False)
        log.info("bound: pod=%s node=%s devices=%s", pod.key, outcome.bound.node, sorted(outcome.bound.devices()))
        return self._bound("bound")

    def _taken(self, pod: Pod) -> list[Allocation]:
        """What is promised to other pods and not seen bound yet."""
        return [
            held.allocation
            for held in self.reservations.others(pod.metadata.uid, self._now())
            if held.allocation.pod not in self.view.allocations
        ]

    def _snapshot(self, pod: Pod) -> Snapshot:
        """The fleet as this pod may use it: without what is promised to others."""
        snapshot = self.view.snapshot
        for allocation in self._taken(pod):
            snapshot = snapshot.with_allocation(allocation)
        return snapshot

    def _decide(self, pod: Pod, nodes: Sequence[str], also: Sequence[Allocation] = ()) -> Decision:
        return decide(
            pod,
            nodes,
            self.view.snapshot,
            taken=[*self._taken(pod), *also],
            offers=self.view.offers,
            note=note_for(pod, self.view.inventories),
            reference_rates=self.view.reference_rates,
            guests=self.guests.by_node(self.view.pods()) if asks_for_guests(pod) else None,
            silent=self.view.silent,
        )

    def _confirm(self, pod: Pod, node: str) -> Decision:
        """Place on the asked node as things are now; where that comes to the promised devices, the promise stands."""
        decision = self._decide(pod, [node])
        promised = self.reservations.get(pod.metadata.uid, self._now())
        if (
            isinstance(decision, Chosen)
            and promised is not None
            and promised.allocation.containers == decision.allocation.containers
            and promised.allocation.node == node
        ):
            return Chosen(promised.allocation, promised.reason)
        return decision

    def _refuse(self, pod: Pod, nodes: Sequence[str], decision: Refused) -> FilterAnswer:
        """Devices are invisible to kube-scheduler's own preemption, so every no of ours is unresolvable to it."""
        if self.waiting.refuse(pod.metadata.uid, tuple(nodes), decision.summary):
            self._tell(pod, "FailedPlacement", decision.summary, warning=True)
            log.info("refused: pod=%s why=%s", pod.key, decision.summary)
        self._count()
        return FilterAnswer(failed_and_unresolvable_nodes={name: str(why) for name, why in decision.nodes.items()})

    def _bound(self, result: str, error: str = "") -> BindAnswer:
        self.meters.binds.labels(result).inc()
        if error:
            log.warning("bind: result=%s why=%s", result, error)
        return BindAnswer(error=error)

    async def _read(self, arguments: BindArguments) -> Pod | None:
        """Read a pod that the view does not show yet; None when it is gone."""
        try:
            pod: Pod = await self._client.get(resources.Pod, arguments.podname, namespace=arguments.podnamespace)
        except ApiError as error:
            if error.status.code == 404:
                return None
            raise
        return pod if pod.metadata.uid == arguments.poduid else None

    def _require_sync(self) -> None:
        if not self.view.synced:
            raise NotSyncedError("the router has not read the cluster yet")

    def _released(self, uid: str) -> None:
        """Whatever the pod held is free, which may help others."""
        if self.reservations.drop(uid):
            self._count()
            self._grown()

    def _grown(self) -> None:
        self.waiting.grown()
        self.offers.grown()
        self._stirred.set()

    def _count(self) -> None:
        self.meters.reservations.set(len(self.reservations))
        self.meters.waiting.set(len(self.waiting))

    def _pod_changed(self, kind: ChangeKind, pod: Pod, held: Held) -> None:
        """kube-scheduler wakes those it refused when a bound pod goes; those behind our gates it does not know."""
        uid = pod.metadata.uid
        if held == "freed":
            self.offers.grown()
            self._stirred.set()
        elif held == "taken":
            self.offers.shrunk()
        if self.offers.pod_changed(kind, pod):
            self._stirred.set()
        if kind == "DELETED" or pod.finished:
            self.guests.forget(uid)
            if asks_for_guests(pod):
                self._grown()
            self.waiting.leave(uid)
            self._released(uid)
        elif pod.spec.nodeName:
            self.waiting.leave(uid)
            if uid not in self._binding:
                self._released(uid)
        elif not self.view.synced and (asks_for_compute(pod) or asks_for_guests(pod)) and _was_refused(pod):
            self.waiting.find(uid)
        self._count()

    def _fleet_changed(self) -> None:
        self._grown()

    def _machine_changed(self) -> None:
        self.offers.grown()
        self._stirred.set()

    def _tell(self, pod: Pod, reason: str, message: str, *, warning: bool) -> None:
        task = asyncio.create_task(
            self._events.tell(reference(pod), reason=reason, message=message, now=self._today(), warning=warning)
        )
        self._telling.add(task)
        task.add_done_callback(self._telling.discard)

    async def _tend(self) -> None:
        """Look after what is held, and wake whom it would serve."""
        await self.view.wait_synced()
        while True:
            self._stirred.clear()
            now = self._now()
            if self.reservations.lapse(now):
                self._count()
                self._grown()
            for held in self.reservations.doubtful(now):
                await self._look_after(held)
            times = [await self._poke(now), await self.offers.tend()]
            again = min((time for time in times if time is not None), default=now + TEND_SECONDS)
            pause = min(TEND_SECONDS, max(0.0, again - self._now()))
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stirred.wait(), pause)

    async def _look_after(self, held: Reservation) -> None:
        """A binding was sent and its pod never seen bound: ask the API server what became of it."""
        uid = held.allocation.pod
        if uid in self._binding:
            return
        namespace, _, name = held.pod_key.partition("/")
        try:
            pod: Pod | None = await self._client.get(resources.Pod, name, namespace=namespace)
        except ApiError as error:
            if error.status.code != 404:
                return
            pod = None
        except httpx2.HTTPError:
            return
        gone = pod is None or pod.metadata.uid != uid or pod.finished
        if gone or (pod is not None and not pod.spec.nodeName):
            self._released(uid)

    async def _poke(self, now: float) -> float | None:
        if self._fitting[0] != self.waiting.round:
            self._fitting = (self.waiting.round, [])
        found = self._fitting[1]

        def fits(uid: str, waiting: Waiting) -> bool:
            pod = self.view.pod(uid)
            if pod is None or self.reservations.get(uid, now) is not None:
                return False
            nodes = waiting.nodes if waiting.nodes is not None else tuple(n.name for n in self.view.inventories)
            decision = self._decide(pod, nodes, found)
            if isinstance(decision, Chosen):
                found.append(decision.allocation)
            return isinstance(decision, Chosen | NotOurs)

        poke, again = self.waiting.due(fits, now)
        for uid in poke:
            pod = self.view.pod(uid)
            if pod is None:
                continue
            before = pod.annotations.get(names.POKE, "")
            value = str(int(before) + 1 if before.isdecimal() else 1)
            try:
                await annotate(self._client, pod, {names.POKE: value})
            except (ApiError, httpx2.HTTPError) as error:
                log.info("poke not written: pod=%s error=%r", pod.key, error)
                continue
            self.meters.pokes.inc()
            log.info("poked: pod=%s", pod.key)
        return again


def _bare(pod: Pod) -> Pod:
    """The pod without its variables and arguments: they may hold secrets, and decide nothing."""
    containers = [msgspec.structs.replace(c, env=None, command=None, args=None) for c in pod.spec.containers]
    init = pod.spec.initContainers and [
        msgspec.structs.replace(c, env=None, command=None, args=None) for c in pod.spec.initContainers
    ]
    return msgspec.structs.replace(
        pod, spec=msgspec.structs.replace(pod.spec, containers=containers, initContainers=init)
    )


def _was_refused(pod: Pod) -> bool:
    return any(c.type == "PodScheduled" and c.reason == "Unschedulable" for c in pod.status.conditions or ())
