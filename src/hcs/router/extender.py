"""The verbs: ``filter`` decides and reserves, ``bind`` carries out, ``preempt`` looks over kube-scheduler's shoulder.

A decision is one stretch of code without a pause in it, so decisions never overlap: whatever the order in which calls
arrive, two pods are never promised the same memory. All that is remembered between the calls can be lost: a restarted
router reads from the pods what is taken, and a pod without a promise is placed anew inside ``bind``.
"""

import asyncio
import datetime
import logging
from collections.abc import Callable, Sequence

import msgspec
from lightkube import AsyncClient

from hcs.kube.informer import ChangeKind
from hcs.model import names
from hcs.model.allocations import Allocation
from hcs.model.devices import NodeInventory
from hcs.model.pods import Pod
from hcs.model.refusals import RefusedError
from hcs.model.requests import asks_for_compute
from hcs.neuro.capacities import DOMAIN
from hcs.placement.appraisals import ReferenceRates
from hcs.router.asking import OFFER_SECONDS
from hcs.router.bindings import Bindings
from hcs.router.caretaker import Caretaker
from hcs.router.conductor import Conductor
from hcs.router.decisions import Decision, NotOurs, Refused
from hcs.router.desk import Desk, Locate
from hcs.router.gangs import BARRIER_SECONDS
from hcs.router.images import RuntimeImage
from hcs.router.meters import Meters
from hcs.router.offers import Offers
from hcs.router.podgroups import PodGroups
from hcs.router.preemption import Candidate, Preemption
from hcs.router.reservations import Reservations
from hcs.router.spikes import asks_for_spikes
from hcs.router.usage import Usage
from hcs.router.view import FleetView, Held
from hcs.router.volcano import VolcanoVerbs, is_volcano
from hcs.router.waiting import WaitingRoom
from hcs.router.wire import (
    AnsweredUid,
    AnsweredVictims,
    BindAnswer,
    BindArguments,
    FilterAnswer,
    FilterArguments,
    PreemptAnswer,
    PreemptArguments,
)
from hcs.rtos.hosting import asks_for_guests

log = logging.getLogger(__name__)


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
    """The router's state and its verbs."""

    def __init__(
        self,
        client: AsyncClient,
        *,
        now: Callable[[], float],
        today: Callable[[], datetime.datetime],
        reservation_seconds: float = 60.0,
        reference_rates: ReferenceRates | None = None,
        offer_seconds: float = OFFER_SECONDS,
        barrier_seconds: float = BARRIER_SECONDS,
        locate: Locate | None = None,
        policy: str = "hcs",
        spiking_domain: str = DOMAIN,
    ) -> None:
        """Prepare; nothing is read before :meth:`run`.

        Args:
            client: the API server.
            now: seconds on a clock that only goes forward.
            today: the wall clock, for events.
            reservation_seconds: how long a promise holds without a bind.
            reference_rates: of models outside the fleet.
            offer_seconds: how long an offer stands.
            barrier_seconds: how long the first bind of a gang waits for the last.
            locate: says when a pod's newest checkpoint was written, for the choice of victims.
            policy: how places are chosen, by its name in :data:`hcs.placement.policies.POLICIES`.
            spiking_domain: of the spiking resources, as the neuroplugin is set.
        """
        self._now = now
        self._stirred = asyncio.Event()
        self.view = FleetView(
            client,
            on_pod=self._pod_changed,
            on_other=self._other_changed,
            on_fleet=self.grown,
            on_machine=self._machine_changed,
            now=now,
            today=today,
            reference_rates=reference_rates,
            policy=policy,
            domain=spiking_domain,
        )
        self.reservations = Reservations(reservation_seconds, lambda uid, held: self.view.promised(uid, held))
        self.waiting = WaitingRoom()
        self.meters = Meters()
        self.meters.registry.register(Usage(self.view))
        self.meters.reservations.set_function(lambda: len(self.reservations))
        self.meters.waiting.set_function(lambda: len(self.waiting))
        self.desk = Desk(
            client,
            self.view,
            self.reservations,
            self.meters,
            now=now,
            today=today,
            grown=self.grown,
            locate=locate,
        )
        self.offers = Offers(client, self.desk, now=now, today=today, count=self.meters.offers, seconds=offer_seconds)
        self.conductor = Conductor(
            client,
            self.desk,
            now=now,
            stir=self._stirred.set,
            count=self.meters.gangs,
            hold_seconds=reservation_seconds,
            barrier_seconds=barrier_seconds,
        )
        self.preemption = Preemption(
            client, self.desk, self, self.conductor.planner, now=now, count=self.meters.preemptions
        )
        self.volcano = VolcanoVerbs(self.desk, self._stirred.set)
        self._bindings = Bindings(
            client,
            self.desk,
            self.conductor,
            self.waiting,
            released=self.released,
            stir=self._stirred.set,
        )
        self._caretaker = Caretaker(self, self._stirred)
        self._groups = PodGroups(client, self.conductor.group_changed, self.conductor.group_refused)

    async def run(self) -> None:
        """Keep the view fresh and tend what is held, until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.view.run())
            group.create_task(self._groups.run())
            group.create_task(self._caretaker.run())

    def filter(self, arguments: FilterArguments) -> FilterAnswer:
        """Choose one node and reserve its devices, or say for each why not.

        Raises:
            NotSyncedError: the view is not there yet.
        """
        self.require_sync()
        pod, nodes = arguments.pod, arguments.nodenames or ()
        uid = pod.metadata.uid
        if self.is_binding(uid):
            return FilterAnswer(error="a binding of this pod is under way")
        held = self.view.allocations.get(uid)
        if held is not None:
            return FilterAnswer(error=f"the pod is bound to {held.node} already")
        sent = self.reservations.get(uid, self._now())
        if sent is not None and sent.committed:
            self._stirred.set()
            return FilterAnswer(error="what became of the pod's last binding is not known yet")
        with self.meters.filter_seconds.time():
            member = self.conductor.leads(pod)
            decision = self._decide(pod, nodes, member=member)
        self.meters.filters.labels(type(decision).__name__.lower()).inc()
        if not member and not self.preemption.keeps(uid):
            self.released(uid)
        if isinstance(decision, NotOurs):
            return FilterAnswer(
                node_names=tuple(name for name in nodes if name not in decision.unable),
                failed_and_unresolvable_nodes={name: str(why) for name, why in decision.unable.items()},
            )
        if isinstance(decision, Refused):
            return self._refuse(pod, nodes, decision)
        if not member:  # a gang's devices are held by its plan
            self.preemption.placed(uid)
            self.desk.hold(pod, decision.allocation, decision.reason)
        log.info("reserved: pod=%s node=%s devices=%s", pod.key, decision.node, sorted(decision.allocation.devices()))
        # Of the other nodes nothing is said: kube-scheduler asks why only where no node is left.
        return FilterAnswer(node_names=(decision.node,))

    async def bind(self, arguments: BindArguments) -> BindAnswer:
        """Commit a pod to a node: check the promise against the view, or place anew on that node, and bind.

        Raises:
            NotSyncedError: the view is not there yet.
        """
        self.require_sync()
        return await self._bindings.bind(arguments)

    def preempt(self, arguments: PreemptArguments) -> PreemptAnswer:
        """Look at the victims that kube-scheduler chose for CPU and memory: leave nodes out, or add victims.

        Raises:
            NotSyncedError: the view is not there yet.
        """
        self.require_sync()
        proposed = arguments.nodenametometavictims or {}
        uids = {node: tuple(pod.uid for pod in victims.pods or ()) for node, victims in proposed.items()}
        try:
            found = self.preemption.correct(arguments.pod, uids)
        except RefusedError as error:
            log.info("preempt: pod=%s why=%s", arguments.pod.key, error)
            found = {}
        return PreemptAnswer(
            node_name_to_meta_victims={
                node: AnsweredVictims(tuple(AnsweredUid(uid) for uid in victims), proposed[node].numpdbviolations)
                for node, victims in found.items()
            }
        )

    def candidates(self) -> list[Candidate]:
        """Who was refused for want of devices and may evict others: single pods, and gangs that are complete."""
        pods = (self.view.pod(uid) for uid in self.waiting.uids())
        single = [
            Candidate(pod.metadata.uid, (pod,))
            for pod in pods
            if pod is not None and not pod.spec.nodeName and not self.conductor.leads(pod)
        ]
        return [*single, *self.conductor.candidates()]

    def nominated(self) -> list[Candidate]:
        """Who waits and was nominated for nodes."""
        single = [
            Candidate(pod.metadata.uid, (pod,))
            for pod in self.view.pods()
            if pod.status.nominatedNodeName
            and not pod.spec.nodeName
            and not pod.finished
            and not pod.metadata.deletionTimestamp
            and pod.spec.schedulerName == names.SCHEDULER
            and not self.conductor.leads(pod)
        ]
        return [*single, *self.conductor.nominated()]

    def replayable(self) -> Replayable:
        """What the next decision would be made from."""
        return Replayable(
            nodes=self.view.inventories,
            allocations=tuple(self.view.allocations.values()),
            reservations=tuple(held.allocation for held in self.reservations.others("", self._now())),
            offers=self.view.offers,
            waiting=tuple(_bare(pod) for uid in self.waiting if (pod := self.view.pod(uid)) is not None),
        )

    def _decide(self, pod: Pod, nodes: Sequence[str], *, member: bool) -> Decision:
        """A member of a gang is led by its plan; what is wrong with a request is said either way."""
        if member:
            return self.conductor.decide(pod, nodes)
        return self.desk.decide(pod, nodes)

    def _refuse(self, pod: Pod, nodes: Sequence[str], decision: Refused) -> FilterAnswer:
        """Devices are invisible to kube-scheduler's own preemption, so every no of ours is unresolvable to it."""
        if self.waiting.refuse(pod.metadata.uid, tuple(nodes), decision.summary, self._now()):
            self.desk.tell(pod, "FailedPlacement", decision.summary, warning=True)
            self._stirred.set()  # somebody may be evicted for it
            log.info("refused: pod=%s why=%s", pod.key, decision.summary)
        return FilterAnswer(failed_and_unresolvable_nodes={name: str(why) for name, why in decision.nodes.items()})

    def require_sync(self) -> None:
        """Make sure that the cluster has been read.

        Raises:
            NotSyncedError: it has not.
        """
        if not self.view.synced:
            raise NotSyncedError("the router has not read the cluster yet")
        if not self.preemption.taken_up:
            self.preemption.take_up()

    def released(self, uid: str) -> None:
        """Whatever the pod held is free, which may help others."""
        if self.reservations.drop(uid):
            self.grown()

    def is_binding(self, uid: str) -> bool:
        """Whether a bind of this pod is under way here."""
        return self._bindings.under_way(uid)

    def grown(self) -> None:
        """More may fit than before."""
        self.waiting.grown()
        self.offers.grown()
        self.conductor.book.grown()
        self._stirred.set()

    def _pod_changed(self, kind: ChangeKind, pod: Pod, held: Held) -> None:
        """kube-scheduler wakes those it refused when a bound pod goes; those behind our gates it does not know."""
        uid = pod.metadata.uid
        ours = pod.spec.schedulerName == names.SCHEDULER  # Volcano's gangs are Volcano's
        self.conductor.pod_changed(kind, pod, ours=ours and asks_for_compute(pod))
        if is_volcano(pod):
            if kind == "DELETED" or pod.finished or pod.spec.nodeName:
                self.volcano.forget(uid)
            else:
                self.volcano.pod_changed(pod)
        if held == "freed":
            self.offers.grown()
            self.conductor.book.grown()
            self._stirred.set()
        elif held == "taken":
            self.offers.shrunk()
        if self.offers.pod_changed(kind, pod):
            self._stirred.set()
        if kind == "DELETED" or pod.finished:
            self.desk.guests.forget(uid)
            if asks_for_guests(pod):
                self.grown()
            self.waiting.leave(uid)
            self.preemption.placed(uid)
            self.released(uid)
        elif pod.spec.nodeName:
            self.waiting.leave(uid)
            self.preemption.placed(uid)
            if not self.is_binding(uid):
                self.released(uid)
        elif not self.view.synced and self._is_ours(pod) and _was_refused(pod):
            self.waiting.find(uid)

    def _is_ours(self, pod: Pod) -> bool:
        return asks_for_compute(pod) or asks_for_guests(pod) or asks_for_spikes(pod, self.view.domain)

    def _other_changed(self, kind: ChangeKind, pod: Pod) -> None:
        """Pods of others count as members of their group; when one ends, its CPU and memory are free."""
        self.conductor.pod_changed(kind, pod, ours=False)
        if pod.spec.nodeName and (kind == "DELETED" or pod.finished):
            self._machine_changed()

    def _machine_changed(self) -> None:
        self.offers.grown()
        self.conductor.book.grown()
        self._stirred.set()


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
