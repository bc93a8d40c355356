"""The fleet at one instant: the hardware, and what is taken from each device. Nothing in it ever changes.

Placement reads a snapshot and returns a plan; whoever carries the plan out makes the next snapshot from this one. So
simulation, explanation, tests and production run the same code on the same values, and nothing needs a lock.

Used amounts are kept as they are recorded, also above what a card has: an allocation of a card that shrank, or whose
node is gone, is not lost but shown (:attr:`Snapshot.overcommitted`, :attr:`Snapshot.stray`), and taking it away again
gives exactly the snapshot of before. Free amounts are never negative.
"""

from collections.abc import Callable, Iterable
from hashlib import blake2b
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
_KEYS: Final = 4
_ROWS: Final = 5

HOSTED: Final = ("share", "1", "2", "up to 4", "more")
"""By what they hold of a group's cards, the classes of containers that are counted."""


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
    """[5, D] Bytes, milliacu, tenants (grants), tenants that hold the card whole, and the sum of the keys of their
    sharing groups: where all are of one group it is their number times its key, where none is of any it is 0."""
    taken: Integers
    """[N, X] What is taken of each node's columns."""
    hosts: Integers
    """[5, G] How many containers each group hosts with a share, one card, two, up to four, and more."""
    stray: tuple[StrayGrant, ...] = ()

    @classmethod
    def build(cls, nodes: Iterable[NodeInventory], allocations: Iterable[Allocation] = ()) -> "Snapshot":
        """Make a snapshot of these nodes with these allocations: those bound, and those reserved."""
        return cls.of(build_fleet(nodes), allocations)

    @classmethod
    def of(cls, fleet: Fleet, allocations: Iterable[Allocation] = ()) -> "Snapshot":
        """The same, of hardware that is laid out already."""
        empty = cls(
            fleet,
            np.zeros((_ROWS, len(fleet.devices)), dtype=np.int64),
            np.zeros_like(fleet.room),
            np.zeros((len(HOSTED), len(fleet.group_node)), dtype=np.int64),
        )
        stray = [grant for allocation in allocations for grant in apply(empty, allocation, 1)]
        return empty.frozen(tuple(sorted(stray)))

    def frozen(self, stray: tuple[StrayGrant, ...]) -> "Snapshot":
        """This one, whose arrays nobody writes any more."""
        for array in (self.used, self.taken, self.hosts):
            array.setflags(write=False)
        return msgspec.structs.replace(self, stray=stray)

    def writable(self) -> "Snapshot":
        """A copy whose arrays may be written."""
        return msgspec.structs.replace(self, used=self.used.copy(), taken=self.taken.copy(), hosts=self.hosts.copy())

    @property
    def room(self) -> Integers:
        """[N, X] What is left of each node's columns; never negative."""
        return _not_negative(self.fleet.room - self.taken)

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

    def open_to(self, key: int) -> Mask:
        """[D] The devices whose tenants a share of the sharing group of this key may join: those of its own."""
        mask: Mask = self.used[_KEYS] == self.tenants * key
        return mask

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
        after = self.writable()
        stray = apply(after, allocation, 1)
        return after.frozen(tuple(sorted((*self.stray, *stray))) if stray else self.stray)

    def without(self, allocation: Allocation) -> "Snapshot":
        """The snapshot in which this allocation, held in this one, is free again.

        Raises:
            SnapshotError: the snapshot does not hold it.
        """
        after = self.writable()
        left = list(self.stray)
        for grant in apply(after, allocation, -1):
            if grant not in left:
                raise SnapshotError(f"the snapshot does not hold {grant.device} on {grant.node} for pod {grant.pod}")
            left.remove(grant)
        if min(after.used.min(initial=0), after.taken.min(initial=0)) < 0:
            raise SnapshotError(
                f"the snapshot does not hold the allocation of pod {allocation.pod} on {allocation.node}; "
                "take away only what was added, and only once"
            )
        return after.frozen(tuple(left))

    def without_all(self, allocations: Iterable[Allocation]) -> "Snapshot":
        """The snapshot in which all of these, held in this one, are free again: one copy for any number of them.

        Raises:
            SnapshotError: the snapshot does not hold one of them.
        """
        after = self.writable()
        left = list(self.stray)
        for allocation in allocations:
            for grant in apply(after, allocation, -1):
                if grant not in left:
                    raise SnapshotError(
                        f"the snapshot does not hold {grant.device} on {grant.node} for pod {grant.pod}"
                    )
                left.remove(grant)
        if min(after.used.min(initial=0), after.taken.min(initial=0)) < 0:
            raise SnapshotError("the snapshot does not hold all of these allocations; take away only what was added")
        return after.frozen(tuple(left))

    def with_owned(self, devices: Mask) -> "Snapshot":
        """The snapshot in which some devices [D] have an owner, so that nothing is placed on them."""
        after = self.writable()
        after.used[_TENANTS, devices] += 1
        after.used[_WHOLE, devices] += 1
        return after.frozen(self.stray)

    def vacant(self) -> "Snapshot":
        """The same hardware with nobody on it."""
        return Snapshot.of(self.fleet)

    def only(self, node: int) -> "Snapshot":
        """One node as if it were the whole fleet, its devices in the same order."""
        inside, groups = self.fleet.slice_of(node), self.fleet.first_group[node : node + 2]
        alone = Snapshot.build([self.fleet.nodes[node]])
        columns = [self.fleet.columns.index(name) for name in alone.fleet.columns]
        return msgspec.structs.replace(
            alone,
            used=self.used[:, inside].copy(),
            taken=self.taken[node : node + 1, columns],
            hosts=self.hosts[:, groups[0] : groups[1]].copy(),
        )

    def same_as(self, other: "Snapshot") -> bool:
        """Whether both show the same hardware, health and ledger."""
        return (
            self.fleet.nodes == other.fleet.nodes
            and self.stray == other.stray
            and np.array_equal(self.used, other.used)
            and np.array_equal(self.taken, other.taken)
            and np.array_equal(self.hosts, other.hosts)
        )


def apply(snapshot: Snapshot, allocation: Allocation, sign: int) -> list[StrayGrant]:
    """Add an allocation to the sums of a snapshot that may be written, or take it away.

    Returns:
        The grants whose device is not here.
    """
    fleet, node = snapshot.fleet, allocation.node
    number = fleet.node_index.get(node)
    stray, key = [], key_of(allocation.group)
    for container, grants in allocation.containers.items():
        last = None
        for grant in grants:
            position = None if number is None else fleet.device_index.get((node, grant.device))
            if position is None:
                stray.append(StrayGrant(node, grant.device, allocation.pod, container))
            else:
                _add(snapshot.used, position, grant, sign, allocation.exclusive)
                snapshot.used[_KEYS, position] += sign * key
                last = position
        if last is not None:
            whole = allocation.exclusive or len(grants) > 1
            snapshot.hosts[tag_of(len(grants) if whole else 0), fleet.group[last]] += sign
    for name, amount in allocation.capacities.items():
        if number is not None and name in fleet.columns:
            snapshot.taken[number, fleet.columns.index(name)] += sign * min(amount, MAX_AMOUNT)
    return stray


def moved(snapshot: Snapshot, fleet: Fleet, name: str) -> Snapshot:
    """A snapshot that may be written, of a fleet that differs in one node; on that node nothing is taken."""
    before = snapshot.fleet

    def spliced(array: Integers, firsts: Callable[[Fleet], Integers], axis: int) -> Integers:
        """Without what the node had, with as much room as it has now."""
        old, new = before.node_index.get(name), fleet.node_index.get(name)
        begin = int(firsts(before)[old]) if old is not None else int(firsts(fleet)[new]) if new is not None else 0
        end = int(firsts(before)[old + 1]) if old is not None else begin
        count = int(firsts(fleet)[new + 1] - firsts(fleet)[new]) if new is not None else 0
        shape = list(array.shape)
        shape[axis] = count
        head, tail = (slice(None, begin), slice(end, None))
        index = (slice(None),) * axis
        return np.concatenate([array[(*index, head)], np.zeros(shape, np.int64), array[(*index, tail)]], axis=axis)

    columns = np.zeros((len(before.nodes), len(fleet.columns)), dtype=np.int64)
    for number, column in enumerate(fleet.columns):
        if column in before.columns:
            columns[:, number] = snapshot.taken[:, before.columns.index(column)]
    return Snapshot(
        fleet,
        spliced(snapshot.used, lambda one: one.first_device, 1),
        spliced(columns, lambda one: np.arange(len(one.nodes) + 1), 0),
        spliced(snapshot.hosts, lambda one: one.first_group, 1),
    )


def tag_of(cards: int) -> int:
    """Which of :data:`HOSTED` a container is that holds this many whole cards; 0 for a share of one.

    >>> HOSTED[tag_of(3)]
    'up to 4'
    """
    return min(cards, 2) if cards <= 2 else 3 if cards <= 4 else 4


def key_of(group: str) -> int:
    """A number for a sharing group, 0 for none. Different groups have different ones, as surely as 40 bits can."""
    return 1 + int.from_bytes(blake2b(group.encode(), digest_size=5).digest(), "big") if group else 0


def _add(used: Integers, position: int, grant: Grant, sign: int, exclusive: bool) -> None:
    # Capped, so that the sums of nonsense still fit 64 bits and show as over-committed instead of raising.
    used[_BYTES, position] += sign * min(grant.bytes, MAX_AMOUNT)
    used[_MILLIACU, position] += sign * min(grant.milliacu, MAX_AMOUNT)
    used[_TENANTS, position] += sign
    if exclusive:
        used[_WHOLE, position] += sign


def _not_negative(amounts: Integers) -> Integers:
    clipped: Integers = np.maximum(amounts, 0)
    return clipped
