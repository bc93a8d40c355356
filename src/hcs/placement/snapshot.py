"""The fleet at one instant: the hardware, and what is taken from each device. Nothing in it ever changes.

Placement reads a snapshot and returns a plan; whoever carries the plan out makes the next snapshot from this one. So
simulation, explanation, tests and production run the same code on the same values, and nothing needs a lock.

Used amounts are kept as they are recorded, also above what a card has: an allocation of a card that shrank, or whose
node is gone, is not lost but shown (:attr:`Snapshot.overcommitted`, :attr:`Snapshot.stray`), and taking it away again
gives exactly the snapshot of before. Free amounts are never negative.
"""

from collections.abc import Iterable
from typing import Final

import msgspec
import numpy as np

from hcs.model.allocations import Allocation, Grant
from hcs.model.devices import NodeInventory
from hcs.model.quantities import MAX_AMOUNT
from hcs.placement.fleet import Fleet, Integers, Mask, build_fleet

_BYTES: Final = 0
_MILLIACU: Final = 1
_TENANTS: Final = 2
_WHOLE: Final = 3


class SnapshotError(ValueError):
    """An allocation is taken from a snapshot that does not hold it."""


class StrayGrant(msgspec.Struct, frozen=True, order=True):
    """A grant on a device that the fleet does not have (any more): kept aside, counted nowhere."""

    node: str
    device: str
    pod: str
    container: str


class Snapshot(msgspec.Struct, frozen=True, eq=False):
    """Hardware and ledger. Arrays are parallel to ``fleet.devices`` and read-only.

    The caller keeps the set of allocations, one per pod UID; the snapshot keeps only their sums, which is what makes
    :meth:`with_allocation` cheap.
    """

    fleet: Fleet
    used: Integers
    """[4, D] Bytes, milliacu, tenants (grants) and tenants that hold the card whole."""
    stray: tuple[StrayGrant, ...] = ()

    @classmethod
    def build(cls, nodes: Iterable[NodeInventory], allocations: Iterable[Allocation] = ()) -> "Snapshot":
        """Make a snapshot of these nodes with these allocations: those bound, and those reserved."""
        fleet = build_fleet(nodes)
        used = np.zeros((4, len(fleet.devices)), dtype=np.int64)
        stray: list[StrayGrant] = []
        for allocation in allocations:
            stray.extend(_apply(fleet, used, allocation, 1))
        used.setflags(write=False)
        return cls(fleet, used, tuple(sorted(stray)))

    @property
    def free_bytes(self) -> Integers:
        """[D] Bytes of memory that nobody holds; never negative."""
        return _not_negative(self.fleet.vram - self.used[_BYTES])

    @property
    def free_milliacu(self) -> Integers:
        """[D] Thousandths of an ACU, in the default class, that nobody holds; never negative."""
        return _not_negative(self.fleet.milliacu - self.used[_MILLIACU])

    def free_bytes_in(self, devices: slice) -> Integers:
        """The same for some of the devices."""
        return _not_negative(self.fleet.vram[devices] - self.used[_BYTES, devices])

    def free_milliacu_in(self, devices: slice) -> Integers:
        """The same for some of the devices."""
        return _not_negative(self.fleet.milliacu[devices] - self.used[_MILLIACU, devices])

    @property
    def tenants(self) -> Integers:
        """[D] How many grants each device has given."""
        tenants: Integers = self.used[_TENANTS]
        return tenants

    @property
    def whole(self) -> Integers:
        """[D] How many of them are of pods that own their cards; more than one is an over-commitment."""
        whole: Integers = self.used[_WHOLE]
        return whole

    @property
    def overcommitted(self) -> tuple[tuple[str, str], ...]:
        """Devices, as (node, id), that gave more than they have or are shared beside an owner; normally none."""
        over = (
            (self.used[_BYTES] > self.fleet.vram)
            | (self.used[_MILLIACU] > self.fleet.milliacu)
            | ((self.whole > 0) & (self.tenants > 1))
        )
        fleet = self.fleet
        return tuple((fleet.nodes[fleet.node[i]].name, fleet.devices[i].id) for i in np.flatnonzero(over))

    def with_allocation(self, allocation: Allocation) -> "Snapshot":
        """The snapshot in which this allocation is held as well."""
        used = self.used.copy()
        stray = _apply(self.fleet, used, allocation, 1)
        used.setflags(write=False)
        return Snapshot(self.fleet, used, tuple(sorted((*self.stray, *stray))) if stray else self.stray)

    def without(self, allocation: Allocation) -> "Snapshot":
        """The snapshot in which this allocation, held in this one, is free again.

        Raises:
            SnapshotError: the snapshot does not hold it.
        """
        used = self.used.copy()
        left = list(self.stray)
        for grant in _apply(self.fleet, used, allocation, -1):
            if grant not in left:
                raise SnapshotError(f"the snapshot does not hold {grant.device} on {grant.node} for pod {grant.pod}")
            left.remove(grant)
        if used.min(initial=0) < 0:
            raise SnapshotError(
                f"the snapshot does not hold the allocation of pod {allocation.pod} on {allocation.node}; "
                "take away only what was added, and only once"
            )
        used.setflags(write=False)
        return Snapshot(self.fleet, used, tuple(left))

    def without_all(self, allocations: Iterable[Allocation]) -> "Snapshot":
        """The snapshot in which all of these, held in this one, are free again: one copy for any number of them.

        Raises:
            SnapshotError: the snapshot does not hold one of them.
        """
        used = self.used.copy()
        left = list(self.stray)
        for allocation in allocations:
            for grant in _apply(self.fleet, used, allocation, -1):
                if grant not in left:
                    raise SnapshotError(
                        f"the snapshot does not hold {grant.device} on {grant.node} for pod {grant.pod}"
                    )
                left.remove(grant)
        if used.min(initial=0) < 0:
            raise SnapshotError("the snapshot does not hold all of these allocations; take away only what was added")
        used.setflags(write=False)
        return Snapshot(self.fleet, used, tuple(left))

    def with_owned(self, devices: Mask) -> "Snapshot":
        """The snapshot in which some devices [D] have an owner, so that nothing is placed on them."""
        used = self.used.copy()
        used[_TENANTS, devices] += 1
        used[_WHOLE, devices] += 1
        used.setflags(write=False)
        return msgspec.structs.replace(self, used=used)

    def vacant(self) -> "Snapshot":
        """The same hardware with nobody on it."""
        return Snapshot.build(self.fleet.nodes)

    def only(self, node: int) -> "Snapshot":
        """One node as if it were the whole fleet, its devices in the same order."""
        inside = self.fleet.slice_of(node)
        return msgspec.structs.replace(Snapshot.build([self.fleet.nodes[node]]), used=self.used[:, inside].copy())

    def same_as(self, other: "Snapshot") -> bool:
        """Whether both show the same hardware, health and ledger."""
        return (
            self.fleet.nodes == other.fleet.nodes
            and self.stray == other.stray
            and np.array_equal(self.used, other.used)
        )


def _apply(fleet: Fleet, used: Integers, allocation: Allocation, sign: int) -> list[StrayGrant]:
    """Add an allocation to the sums, or take it away; return the grants whose device is not here."""
    stray = []
    for container, grants in allocation.containers.items():
        for grant in grants:
            index = fleet.device_index.get((allocation.node, grant.device))
            if index is None:
                stray.append(StrayGrant(allocation.node, grant.device, allocation.pod, container))
            else:
                used[:, index] += _column(grant, allocation.exclusive, sign)
    return stray


def _column(grant: Grant, exclusive: bool, sign: int) -> tuple[int, int, int, int]:
    # Capped, so that the sums of nonsense still fit 64 bits and show as over-committed instead of raising.
    return sign * min(grant.bytes, MAX_AMOUNT), sign * min(grant.milliacu, MAX_AMOUNT), sign, sign * exclusive


def _not_negative(amounts: Integers) -> Integers:
    clipped: Integers = np.maximum(amounts, 0)
    return clipped
