"""What the router knows: cards and quarantines from ComputeNodes, what is taken from the pods, images from profiles.

Kept by informers and by nothing else. What is taken is what :func:`hcs.model.allocations.allocation_of` finds on
unfinished pods, so a restarted router knows the same as the one before, and an allocation that somebody else wrote has
no effect. The snapshot is rebuilt when a ComputeNode changes and extended pod by pod in between.
"""

import asyncio
from collections.abc import Callable

from lightkube import AsyncClient

from hcs.kube.informer import ChangeKind, Informer
from hcs.kube.resources import ComputeNode, Pod, RuntimeProfile
from hcs.model import names
from hcs.model.allocations import Allocation, allocation_of
from hcs.model.devices import NodeInventory
from hcs.placement.snapshot import Snapshot
from hcs.router.images import RuntimeImage, read_profiles


class FleetView:
    """The router's local copy of the cluster."""

    def __init__(
        self,
        client: AsyncClient,
        *,
        on_pod: Callable[[ChangeKind, Pod], None],
        on_fleet: Callable[[], None],
    ) -> None:
        """Prepare; nothing is read before :meth:`run`.

        Args:
            client: the API server.
            on_pod: called after each change of a pod of our scheduler.
            on_fleet: called after each change of cards, quarantines or profiles.
        """
        self._pods = Informer(client, Pod, fields={"spec.schedulerName": names.SCHEDULER})
        self._nodes = Informer(client, ComputeNode, namespace=None)
        self._profiles = Informer(client, RuntimeProfile, namespace=None)
        self._on_pod, self._on_fleet = on_pod, on_fleet
        self._by_uid: dict[str, Pod] = {}
        self._allocations: dict[str, Allocation] = {}
        self._inventories: dict[str, NodeInventory] = {}
        self._sorted: tuple[NodeInventory, ...] | None = None
        self._offers: tuple[RuntimeImage, ...] | None = None
        self._snapshot: Snapshot | None = None
        self._pods.on_change(self._pod_changed)
        self._nodes.on_change(self._node_changed)
        self._profiles.on_change(self._profile_changed)

    async def run(self) -> None:
        """Keep the copy fresh until cancelled."""
        async with asyncio.TaskGroup() as group:
            for informer in (self._nodes, self._profiles, self._pods):
                group.create_task(informer.run())

    @property
    def synced(self) -> bool:
        """Whether every kind has been read once; from then on the view is answered from, also while cut off."""
        return all(i.synced.is_set() for i in (self._pods, self._nodes, self._profiles))

    async def wait_synced(self) -> None:
        """Wait for :attr:`synced`."""
        for informer in (self._pods, self._nodes, self._profiles):
            await informer.synced.wait()

    @property
    def snapshot(self) -> Snapshot:
        """Cards and what bound pods hold of them."""
        if self._snapshot is None:
            self._snapshot = Snapshot.build(self.inventories, tuple(self._allocations.values()))
        return self._snapshot

    @property
    def inventories(self) -> tuple[NodeInventory, ...]:
        """All nodes with cards, in the order of their names."""
        if self._sorted is None:
            self._sorted = tuple(self._inventories[name] for name in sorted(self._inventories))
        return self._sorted

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

    def pod(self, uid: str) -> Pod | None:
        """A pod of our scheduler by its UID."""
        return self._by_uid.get(uid)

    def pods(self) -> tuple[Pod, ...]:
        """All pods of our scheduler."""
        return tuple(self._by_uid.values())

    def _pod_changed(self, kind: ChangeKind, pod: Pod, _before: Pod | None) -> None:
        uid = pod.metadata.uid
        if kind == "DELETED":
            self._by_uid.pop(uid, None)
        else:
            self._by_uid[uid] = pod
        held = None if kind == "DELETED" or pod.finished else allocation_of(pod)
        before = self._allocations.get(uid)
        if held != before:
            if before is not None:
                del self._allocations[uid]
                if self._snapshot is not None:
                    self._snapshot = self._snapshot.without(before)
            if held is not None:
                self._allocations[uid] = held
                if self._snapshot is not None:
                    self._snapshot = self._snapshot.with_allocation(held)
        self._on_pod(kind, pod)

    def _node_changed(self, kind: ChangeKind, node: ComputeNode, _before: ComputeNode | None) -> None:
        name, inventory = node.metadata.name, node.inventory()
        if kind != "DELETED" and self._inventories.get(name) == inventory:
            return
        if kind == "DELETED":
            self._inventories.pop(name, None)
        else:
            self._inventories[name] = inventory
        self._snapshot = self._sorted = None
        self._on_fleet()

    def _profile_changed(self, _kind: ChangeKind, _profile: RuntimeProfile, _before: RuntimeProfile | None) -> None:
        self._offers = None
        self._on_fleet()
