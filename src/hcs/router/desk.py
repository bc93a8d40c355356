"""What every part of the router works with: the view, what is promised, and the few things that are done with both.

The extender and the controllers of gangs, offers and preemption share one desk, so that each sees at once what another
has promised. Everything here that decides does so without a pause: no two decisions overlap.
"""

import asyncio
import datetime
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from typing import Final

import httpx2
from lightkube import ApiError, AsyncClient

from hcs.kube.writes import EventRecorder, annotate, reference
from hcs.model import names
from hcs.model.allocations import VERSION, Allocation
from hcs.model.pods import Pod
from hcs.model.requests import ComputeRequest
from hcs.placement.alternatives import Alternative, alternatives
from hcs.placement.appraisals import ReferenceRates, VendorBound
from hcs.placement.placer import Placer
from hcs.placement.preemption import Budget, RunningPod
from hcs.placement.snapshot import Snapshot
from hcs.placement.victims import Serves
from hcs.router.bystanders import budgets_of, keeps_checkpoints, running_pods
from hcs.router.decisions import Chosen, Decision, decide, vendor_bound
from hcs.router.guests import ExpectedGuests
from hcs.router.meters import Meters
from hcs.router.reservations import Reservations
from hcs.router.resumption import note_for
from hcs.router.spikes import needs_of, request_of, with_cores
from hcs.router.view import FleetView
from hcs.rtos.hosting import asks_for_guests

log = logging.getLogger(__name__)

Locate = Callable[[Pod], Awaitable[datetime.datetime | None]]
"""Says when a pod's newest complete checkpoint was written, or None; never raises."""
LOOK_AGAIN_SECONDS: Final = 60.0
LOOKS: Final = 32
"""Checkpoint directories looked into at once, before somebody is evicted."""


class Desk:
    """The router's shared state."""

    def __init__(
        self,
        client: AsyncClient,
        view: FleetView,
        reservations: Reservations,
        meters: Meters,
        *,
        now: Callable[[], float],
        today: Callable[[], datetime.datetime],
        grown: Callable[[], None],
        locate: Locate | None = None,
    ) -> None:
        """Prepare.

        Args:
            client: the API server.
            view: the cluster.
            reservations: what is promised.
            meters: the router's counters.
            now: seconds on a clock that only goes forward.
            today: the wall clock, for events.
            grown: called when a promise was dropped: more may fit.
            locate: says when a pod's newest checkpoint was written; None: nobody looks.
        """
        self.client, self.view, self.reservations, self.meters = client, view, reservations, meters
        self.now, self.today = now, today
        self.checkpoints: dict[str, datetime.datetime] = {}
        """Pod UID → when its newest complete checkpoint was written."""
        self._locate = locate
        self._looked: dict[str, float] = {}
        self.guests = ExpectedGuests()
        self._grown = grown
        self._events = EventRecorder(client, "router")
        self._telling: set[asyncio.Task[None]] = set()

    def decide(self, pod: Pod, nodes: Sequence[str], also: Sequence[Allocation] = ()) -> Decision:
        """Decide for one pod beside everything that is promised to others; ``also`` is taken on top."""
        uid = pod.metadata.uid
        with self._placer().supposing(without=() if uid in self.view.allocations else (uid,), also=also) as placer:
            return decide(
                pod,
                nodes,
                placer,
                offers=self.view.offers,
                note=note_for(pod, self.view.noted),
                reference_rates=self.view.reference_rates,
                silent=self.view.silent,
                guests=self.guests.by_node(self.view.pods()) if asks_for_guests(pod) else None,
                domain=self.view.domain,
                cores=(*also, *self._cores_of_others(uid)) if needs_of(pod, self.view.domain) else (),
            )

    def _cores_of_others(self, uid: str) -> list[Allocation]:
        """What others hold of spiking boards, or are promised."""
        bound = [held for other, held in self.view.allocations.items() if other != uid and held.cores]
        promised = (held.allocation for held in self.reservations.others(uid, self.now()))
        return bound + [held for held in promised if held.cores]

    def request_of(self, pod: Pod) -> ComputeRequest | None:
        """What a pod asks for, cards and spikes.

        Raises:
            RefusedError: it asks wrongly.
        """
        return request_of(pod, self.view.domain)

    def with_cores(
        self,
        pod: Pod,
        allocation: Allocation,
        gone: Sequence[Allocation] = (),
        *,
        also: Sequence[Allocation] = (),
        but: Collection[str] = (),
    ) -> Allocation | None:
        """An allocation with the rectangles of cores it needs once others are gone; None where they have no place.

        Args:
            pod: whose it is.
            allocation: without rectangles.
            gone: of pods that will be gone.
            also: what others are about to be given.
            but: pods (UIDs) whose promises do not count, because they are being planned anew.
        """
        needs = needs_of(pod, self.view.domain)
        node = self.view.inventory(allocation.node)
        if not needs or node is None or not node.boards:
            return allocation
        leaving = {one.pod for one in gone} | {uid for uid in but if uid not in self.view.allocations}
        others = [held for held in self._cores_of_others(pod.metadata.uid) if held.pod not in leaving]
        return with_cores(allocation, pod, node, needs, [*others, *also], gone)

    def roomy(self, pod: Pod) -> Serves | None:
        """Says whether a node's boards would hold a pod's cores once some pods are gone; None: it asks for none."""
        if not needs_of(pod, self.view.domain):
            return None

        def serves(node: str, gone: Sequence[RunningPod]) -> bool:
            bare = Allocation(VERSION, pod.metadata.uid, node, "", "", {})
            held = [one.allocation for one in gone if one.allocation is not None]
            return self.with_cores(pod, bare, held) is not None

        return serves

    def _placer(self) -> Placer:
        self.reservations.tell_lapsed(self.now())
        return self.view.placer

    def confirm(self, pod: Pod, node: str) -> Decision:
        """Place on the asked node as things are now; where that comes to the promised devices, the promise stands."""
        decision = self.decide(pod, [node])
        promised = self.reservations.get(pod.metadata.uid, self.now())
        if (
            isinstance(decision, Chosen)
            and promised is not None
            and promised.allocation.containers == decision.allocation.containers
            and promised.allocation.node == node
            and promised.allocation.cores == decision.allocation.cores
        ):
            return Chosen(promised.allocation, promised.reason)
        return decision

    def snapshot_without(self, uids: Collection[str]) -> Snapshot:
        """The fleet with all that is taken, and all that is promised but not to these pods."""
        return self._placer().snapshot_without([uid for uid in uids if uid not in self.view.allocations])

    def exact_place(self, pod: Pod) -> Chosen | None:
        """Where a pod would go now without any substitution that its owner has not accepted."""
        decision = self.decide(pod, self.open_nodes(pod))
        return decision if isinstance(decision, Chosen) else None

    def alternatives(self, pod: Pod, request: ComputeRequest) -> tuple[Alternative, ...]:
        """What could stand in for the cards that a pod names, the fairest first."""
        return alternatives(
            self.snapshot_without({pod.metadata.uid}),
            request,
            nodes=self.open_nodes(pod),
            reference_rates=self.view.reference_rates,
            bound=self.bound_for(pod, request),
        )

    def open_nodes(self, pod: Pod) -> list[str]:
        """Nodes whose agents answer and which are not closed to the pod whatever is free there."""
        silent = self.view.silent
        return [name for name in self.view.machines.open_to(pod, self.view.node_names) if name not in silent]

    def nodes_for(self, pod: Pod) -> list[str]:
        """Those of them that have the CPU, memory and pod slot free now."""
        silent = self.view.silent
        return [name for name in self.view.machines.roomy_for(pod, self.view.node_names) if name not in silent]

    def bound_for(self, pod: Pod, request: ComputeRequest) -> VendorBound | None:
        """The only vendors a pod can run on: those with its runtime, and the one that can read its checkpoint."""
        return vendor_bound(request, self.view.offers, note_for(pod, self.view.noted))

    async def look_at_checkpoints(self, priority: int) -> None:
        """Find out how old the checkpoints of pods below a priority are, as far as that is worth knowing again."""
        if self._locate is None:
            return
        now = self.now()
        self._looked = {uid: when for uid, when in self._looked.items() if uid in self.view.allocations}
        pods = [
            pod
            for uid in self.view.allocations
            if (pod := self.view.pod(uid)) is not None
            and keeps_checkpoints(pod)
            and (pod.spec.priority or 0) < priority
            and self._looked.get(uid, -LOOK_AGAIN_SECONDS) + LOOK_AGAIN_SECONDS <= now
        ][:LOOKS]
        self._looked |= dict.fromkeys((pod.metadata.uid for pod in pods), now)
        found = await asyncio.gather(*(self._locate(pod) for pod in pods))
        for pod, moment in zip(pods, found, strict=True):
            if moment is not None:
                self.checkpoints[pod.metadata.uid] = moment
        self.checkpoints = {uid: when for uid, when in self.checkpoints.items() if uid in self.view.allocations}

    def running(self, nodes: Iterable[str]) -> list[RunningPod]:
        """The bound pods on these nodes, whoever scheduled them."""
        return running_pods(self.view.machines, nodes, self.view.allocations, self.today(), self.checkpoints)

    def budgets(self) -> list[Budget]:
        """The disruption budgets in force."""
        return budgets_of(self.view.budgets, self.view.machines.pods())

    def bound_pod(self, uid: str) -> Pod | None:
        """A bound pod by its UID, ours or not."""
        return self.view.machines.pod(uid)

    def anybody_below(self, priority: int) -> bool:
        """Whether anybody with devices has a lower priority: without one there is nothing to choose."""
        pods = (self.view.pod(uid) or self.bound_pod(uid) for uid in self.view.allocations)
        return any((pod.spec.priority or 0) < priority for pod in pods if pod is not None)

    def rates(self) -> ReferenceRates:
        """Rates of models outside the fleet."""
        return self.view.reference_rates

    def hold(self, pod: Pod, allocation: Allocation, reason: str, seconds: float | None = None) -> None:
        """Promise devices to a pod; for as long as any promise unless said otherwise."""
        self.reservations.hold(pod.key, allocation, reason, self.now(), seconds)

    def commit(self, pod: Pod, allocation: Allocation, reason: str) -> None:
        """A Binding is about to be sent."""
        self.reservations.commit(pod.key, allocation, reason, self.now())

    def release(self, uids: Iterable[str]) -> None:
        """Drop what these pods were promised, which may help others."""
        dropped = [uid for uid in uids if self.reservations.drop(uid)]
        if dropped:
            self._grown()

    def tell(self, pod: Pod, reason: str, message: str, *, warning: bool) -> None:
        """Record an event about a pod, in the background."""
        task = asyncio.create_task(
            self._events.tell(reference(pod), reason=reason, message=message, now=self.today(), warning=warning)
        )
        self._telling.add(task)
        task.add_done_callback(self._telling.discard)

    async def wake(self, pod: Pod) -> None:
        """Have kube-scheduler try a refused pod again: it does when an annotation changes."""
        seen = self.view.pod(pod.metadata.uid)
        if seen is None or seen.spec.schedulerName != names.SCHEDULER:
            return  # Volcano looks at every pod once a second
        before = seen.annotations.get(names.POKE, "")
        value = str(int(before) + 1 if before.isdecimal() else 1)
        try:
            await annotate(self.client, seen, {names.POKE: value})
        except (ApiError, httpx2.HTTPError) as error:
            log.info("poke not written: pod=%s error=%r", pod.key, error)
            return
        self.meters.pokes.inc()
        log.info("poked: pod=%s", pod.key)
