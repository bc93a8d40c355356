"""What the router knows: cards and quarantines from ComputeNodes, what is taken from the pods, images from profiles,
which agents live from their Leases, and a site's own exchange rates.

Kept by informers and by nothing else. What is taken is what :func:`hcs.model.allocations.allocation_of` finds on
unfinished pods, so a restarted router knows the same as the one before, and an allocation that somebody else wrote has
no effect. Everything that is placed on goes to one :class:`~hcs.placement.placer.Placer`, change by change.
"""

import asyncio
import datetime
from collections.abc import Callable, Mapping
from typing import Any, Literal

from lightkube import AsyncClient

from hcs.kube.informer import ChangeKind, Informer
from hcs.kube.resources import ComputeNode, ExchangeRate, Lease, Node, Pod, PodDisruptionBudget, RuntimeProfile
from hcs.model import names
from hcs.model.allocations import Allocation, allocation_of
from hcs.model.devices import Location, NodeInventory
from hcs.model.locations import locate
from hcs.model.refusals import Refusal
from hcs.neuro.capacities import DOMAIN
from hcs.neuro.scheduling import offered_by
from hcs.placement.appraisals import ReferenceRates
from hcs.placement.placer import Placer
from hcs.router.heartbeats import Heartbeats
from hcs.router.images import RuntimeImage, read_profiles
from hcs.router.machines import Machines
from hcs.router.references import SiteRates, overlaid, read_site_rates, with_site_rates
from hcs.router.spikes import capacities_of, taken_elsewhere

_ONE_BY_ONE = 32
"""Nodes that are changed one at a time; above it the fleet is laid out anew."""

Held = Literal["", "taken", "freed"]
"""What a pod's change did to the devices it holds."""


class FleetView:
    """The router's local copy of the cluster."""

    def __init__(
        self,
        client: AsyncClient,
        *,
        on_pod: Callable[[ChangeKind, Pod, Held], None],
        on_other: Callable[[ChangeKind, Pod], None],
        on_fleet: Callable[[], None],
        on_machine: Callable[[], None],
        now: Callable[[], float],
        today: Callable[[], datetime.datetime],
        reference_rates: ReferenceRates | None = None,
        policy: str = "hcs",
        domain: str = DOMAIN,
    ) -> None:
        """Prepare; nothing is read before :meth:`run`.

        Args:
            client: the API server.
            on_pod: called after each change of a pod of our scheduler, with what that did to its devices.
            on_other: called after each change of a pod that is not ours.
            on_fleet: called after each change of cards, quarantines, profiles or rates, and when an agent speaks again.
            on_machine: called after a change of a node that kube-scheduler's checks look at.
            now: seconds on a clock that only goes forward.
            today: the wall clock, for Leases seen for the first time.
            reference_rates: of models outside the fleet, below a site's own.
            policy: how places are chosen.
            domain: of the spiking resources.
        """
        self.domain = domain
        self._pods = Informer(client, Pod)
        self._machines = Informer(client, Node, namespace=None)
        self._budgets = Informer(client, PodDisruptionBudget)
        self._nodes = Informer(client, ComputeNode, namespace=None)
        self._profiles = Informer(client, RuntimeProfile, namespace=None)
        self._leases = Informer(client, Lease, namespace=names.NAMESPACE)
        self._rates = Informer(client, ExchangeRate, namespace=None)
        self._informers: tuple[Informer[Any], ...] = (
            self._machines,
            self._budgets,
            self._nodes,
            self._profiles,
            self._leases,
            self._rates,
            self._pods,
        )
        self._on_pod, self._on_other, self._on_fleet, self._on_machine = on_pod, on_other, on_fleet, on_machine
        self._now, self._today = now, today
        self._catalogue = reference_rates or {}
        self._reference: ReferenceRates | None = None
        self._site: SiteRates = {}
        self._heartbeats = Heartbeats()
        self._by_uid: dict[str, Pod] = {}
        self._allocations: dict[str, Allocation] = {}
        self._inventories: dict[str, NodeInventory] = {}
        self._sorted: tuple[NodeInventory, ...] | None = None
        self._offers: tuple[RuntimeImage, ...] | None = None
        self._placer = Placer(policy=policy)
        self._unplaced: set[str] = set()
        self._synced = False
        self._noted: tuple[NodeInventory, ...] | None = None
        self.machines = Machines()
        self._machines.on_change(self._machine_changed)
        self._pods.on_change(self._pod_changed)
        self._nodes.on_change(self._node_changed)
        self._profiles.on_change(self._profile_changed)
        self._leases.on_change(self._lease_changed)
        self._rates.on_change(self._rates_changed)

    async def run(self) -> None:
        """Keep the copy fresh until cancelled."""
        async with asyncio.TaskGroup() as group:
            for informer in self._informers:
                group.create_task(informer.run())

    @property
    def synced(self) -> bool:
        """Whether every kind has been read once; from then on the view is answered from, also while cut off."""
        if not self._synced:
            self._synced = all(informer.synced.is_set() for informer in self._informers)
        return self._synced

    async def wait_synced(self) -> None:
        """Wait for :attr:`synced`."""
        for informer in self._informers:
            await informer.synced.wait()

    @property
    def placer(self) -> Placer:
        """Cards, what bound pods hold of them, and what others are told to promise; nodes as they are now."""
        if len(self._unplaced) > _ONE_BY_ONE:
            self._placer.put_nodes(self._inventories.values())
        else:
            for name in sorted(self._unplaced):
                node = self._inventories.get(name)
                if node is not None:
                    self._placer.put_node(node)
                else:
                    self._placer.drop_node(name)
        self._unplaced.clear()
        return self._placer

    def promised(self, uid: str, allocation: Allocation | None) -> None:
        """A pod is promised this; None: nothing any more."""
        self._placer.promise(uid, allocation)

    @property
    def noted(self) -> tuple[NodeInventory, ...]:
        """The nodes with an entry about quarantines, which may say where evicted work goes on: few, as a rule."""
        if self._noted is None:
            self._noted = tuple(node for node in self.inventories if node.quarantine)
        return self._noted

    @property
    def inventories(self) -> tuple[NodeInventory, ...]:
        """All nodes with cards, in the order of their names."""
        if self._sorted is None:
            self._sorted = tuple(self._inventories[name] for name in sorted(self._inventories))
        return self._sorted

    def inventory(self, node: str) -> NodeInventory | None:
        """One of them."""
        return self._inventories.get(node)

    @property
    def node_names(self) -> tuple[str, ...]:
        """Their names."""
        return tuple(node.name for node in self.inventories)

    @property
    def allocations(self) -> dict[str, Allocation]:
        """Pod UID → what a bound, unfinished pod holds."""
        return self._allocations

    @property
    def offers(self) -> tuple[RuntimeImage, ...]:
        """What the RuntimeProfiles offer."""
        if self._offers is None:
            self._offers = read_profiles(profile.spec for profile in self._profiles.values())
        return self._offers

    @property
    def reference_rates(self) -> ReferenceRates:
        """Rates of models outside the fleet: a site's own over the catalogue's."""
        if self._reference is None:
            self._reference = overlaid(self._catalogue, self._site)
        return self._reference

    @property
    def silent(self) -> Mapping[str, Refusal]:
        """The nodes whose agent is silent now, with what to say about each."""
        return self._heartbeats.silent(self._now())

    def pod(self, uid: str) -> Pod | None:
        """A pod of our scheduler by its UID."""
        return self._by_uid.get(uid)

    def pods(self) -> tuple[Pod, ...]:
        """All pods of our scheduler."""
        return tuple(self._by_uid.values())

    @property
    def budgets(self) -> tuple[PodDisruptionBudget, ...]:
        """All disruption budgets."""
        return tuple(self._budgets.values())

    def _pod_changed(self, kind: ChangeKind, pod: Pod, _before: Pod | None) -> None:
        self.machines.pod_changed(kind, pod)
        uid = pod.metadata.uid
        if pod.spec.schedulerName not in names.SCHEDULERS:
            self._hold(uid, None if kind == "DELETED" or pod.finished else taken_elsewhere(pod, self.domain))
            self._on_other(kind, pod)
            return
        if kind == "DELETED":
            self._by_uid.pop(uid, None)
        else:
            self._by_uid[uid] = pod
        ended = kind == "DELETED" or pod.finished
        self._on_pod(
            kind, pod, self._hold(uid, None if ended else allocation_of(pod) or taken_elsewhere(pod, self.domain))
        )

    def _hold(self, uid: str, held: Allocation | None) -> Held:
        """A bound pod holds this now; says what that changes."""
        if held == self._allocations.get(uid):
            return ""
        if held is None:
            del self._allocations[uid]
        else:
            self._allocations[uid] = held
        self._placer.bind(uid, held)
        return "freed" if held is None else "taken"

    def _node_changed(self, kind: ChangeKind, node: ComputeNode, _before: ComputeNode | None) -> None:
        self._describe(node.metadata.name, None if kind == "DELETED" else node)

    def _describe(self, name: str, node: ComputeNode | None) -> None:
        """A node is described like this now; one without cards may still offer spikes."""
        spikes = offered_by(self.machines.allocatable(name), domain=self.domain)
        if node is None and not spikes:
            inventory = None
        else:
            bare = NodeInventory(name=name, location=locate(self.machines.labels(name), Location()))
            inventory = capacities_of(self._inventory(node) if node is not None else bare, spikes)
        if self._inventories.get(name) == inventory:
            return
        if inventory is None:
            self._inventories.pop(name, None)
        else:
            self._inventories[name] = inventory
        self._unplaced.add(name)
        self._sorted = self._noted = None
        self._on_fleet()

    def _inventory(self, node: ComputeNode) -> NodeInventory:
        return with_site_rates(node.inventory(self.machines.labels(node.metadata.name)), self._site)

    def _machine_changed(self, kind: ChangeKind, machine: Node, _before: Node | None) -> None:
        """kube-scheduler wakes those it refused when a node changes; where it stands may have changed for us."""
        woken = self.machines.node_changed(kind, machine)
        if woken or kind == "DELETED":
            self._describe(machine.metadata.name, self._nodes.get(machine.metadata.name))
        if woken:
            self._on_machine()

    def _profile_changed(self, _kind: ChangeKind, _profile: RuntimeProfile, _before: RuntimeProfile | None) -> None:
        self._offers = None
        self._on_fleet()

    def _lease_changed(self, kind: ChangeKind, lease: Lease, _before: Lease | None) -> None:
        name = lease.metadata.name
        if kind == "DELETED":
            back = self._heartbeats.gone(name)
        else:
            back = self._heartbeats.seen(name, lease.spec, self._now(), self._today())
        if back:
            self._on_fleet()

    def _rates_changed(self, _kind: ChangeKind, _rate: ExchangeRate, _before: ExchangeRate | None) -> None:
        """Rates change once in months: everything that was computed with the old ones is made anew."""
        found = sorted(self._rates.values(), key=lambda rate: rate.metadata.name)
        self._site, self._reference = read_site_rates(rate.spec for rate in found), None
        for node in self._nodes.values():
            offered = offered_by(self.machines.allocatable(node.metadata.name), domain=self.domain)
            self._inventories[node.metadata.name] = capacities_of(self._inventory(node), offered)
        self._unplaced.update(self._inventories)
        self._sorted = self._noted = None
        self._on_fleet()
