"""The state of some groups of devices as rows of a table: what every policy looks at, for one group or for all.

A row is a group, a place in it a device. Rows have as many places as the largest group; places beyond a group's own
devices are there and never usable. The same code reads all rows when a request is new and the two or three that changed
when it is not, so both give the same scores.
"""

from functools import lru_cache

import msgspec
import numpy as np
from numpy.typing import NDArray

from hcs.placement.asks import CARD, Ask
from hcs.placement.fleet import Fleet, Integers, Mask
from hcs.placement.snapshot import Snapshot


class Grid(msgspec.Struct, frozen=True, eq=False):
    """The devices of a fleet by group [G] and place [W]; what does not change with what is taken.

    ``kind`` is K where a group has no device. ``usable`` includes that the node is ready.
    """

    slots: Integers
    """Positions in the fleet; 0 where there is no device."""
    kind: Integers
    usable: Mask
    degraded: Mask
    vram: Integers
    milliacu: Integers
    size: Integers
    """[G] How many devices."""
    largest: int
    """Places in the longest row."""
    vram_divisor: NDArray[np.float64]
    """The same as ``vram``, 1 where it is nothing."""
    milliacu_divisor: NDArray[np.float64]
    unrated: NDArray[np.float64]
    """Infinite where a device has no rate, else 0."""
    rated: bool
    """Whether any device has a rate."""
    any_degraded: bool


class Rows(msgspec.Struct, frozen=True, eq=False):
    """Some groups [B] by place [W].

    ``free`` is in thousandths of each card, 0 where it is not usable, and a whole number in floating point.
    """

    snapshot: Snapshot
    grid: Grid
    group: Integers
    kind: Integers
    row_kind: Integers
    usable: Mask
    """Fit for use, and without an owner, be that one pod or a sharing group."""
    keys: Integers
    """The sums of the keys of the tenants' sharing groups."""
    free_bytes: Integers
    free_milliacu: Integers
    tenants: Integers
    free: NDArray[np.float64]
    thousandths: Integers
    """The same as ``free``, to look up with."""
    whole: Integers
    """[B] How many cards are fully free."""
    room: NDArray[np.float64]
    """[B, X] What is left of the node's columns."""

    @property
    def fleet(self) -> Fleet:
        """The hardware."""
        return self.snapshot.fleet

    @property
    def node(self) -> Integers:
        """[B] The node of each group."""
        node: Integers = self.fleet.group_node[self.group]
        return node

    @property
    def degraded(self) -> Mask:
        """[B, W] Usable and sub-healthy."""
        degraded: Mask = self.grid.degraded[self.group]
        return degraded

    @property
    def hosts(self) -> Integers:
        """[5, B] How many containers of each class the group hosts."""
        hosts: Integers = self.snapshot.hosts[:, self.group]
        return hosts

    @property
    def size(self) -> Integers:
        """[B] How many devices."""
        size: Integers = self.grid.size[self.group]
        return size


@lru_cache(maxsize=4)
def grid_of(fleet: Fleet) -> Grid:
    """Arrange a fleet's devices by group and place."""
    groups, kinds = len(fleet.group_node), len(fleet.kinds)
    size = np.diff(fleet.group_first)
    width = max(int(size.max(initial=0)), 1)
    place = np.arange(width)
    there = place < size[:, None]
    slots = np.where(there, fleet.group_first[:-1, None] + place, 0)
    ready = fleet.ready[fleet.group_node][:, None]
    none = np.zeros((groups, width), dtype=np.int64)
    if not len(fleet.devices):
        kind, usable, degraded, vram, milliacu = none + kinds, there, there, none, none
    else:
        kind = np.where(there, fleet.kind[slots], kinds)
        usable, degraded = there & fleet.usable[slots] & ready, there & fleet.degraded[slots]
        vram, milliacu = np.where(there, fleet.vram[slots], 0), np.where(there, fleet.milliacu[slots], 0)
    return Grid(
        slots=slots,
        kind=kind,
        usable=usable,
        degraded=degraded,
        vram=vram,
        milliacu=milliacu,
        size=size,
        largest=width,
        vram_divisor=np.maximum(vram, 1).astype(np.float64),
        milliacu_divisor=np.maximum(milliacu, 1).astype(np.float64),
        unrated=np.where(milliacu > 0, 0.0, np.inf),
        rated=bool(milliacu.any()),
        any_degraded=bool(degraded.any()),
    )


def rows_of(snapshot: Snapshot, group: Integers | None = None) -> Rows:
    """Read the state of some groups; of all where none are named.

    Thousandths are exact: a float holds amounts up to 2**53, and division rounds correctly.
    """
    fleet = snapshot.fleet
    grid = grid_of(fleet)
    if group is None:
        group = np.arange(len(fleet.group_node))
    slots, vram = grid.slots.take(group, axis=0), grid.vram.take(group, axis=0)  # ``take`` is twice as fast as []
    used = snapshot.used.take(slots, axis=1) if len(fleet.devices) else np.zeros((5, *slots.shape), dtype=np.int64)
    usable = grid.usable.take(group, axis=0) & (used[3] == 0) & (used[4] == 0)
    free_bytes = np.maximum(vram - used[0], 0)
    free = np.floor(free_bytes * float(CARD) / grid.vram_divisor.take(group, axis=0))
    if grid.rated:
        milliacu = grid.milliacu.take(group, axis=0)
        free_milliacu = np.maximum(milliacu - used[1], 0)
        parts = np.floor(free_milliacu * float(CARD) / grid.milliacu_divisor.take(group, axis=0))
        free = np.minimum(free, parts + grid.unrated.take(group, axis=0))
    else:
        free_milliacu = used[1] * 0
    free *= usable
    kind = grid.kind.take(group, axis=0)
    if fleet.columns:
        node = fleet.group_node[group]
        room = np.maximum(fleet.room[node] - snapshot.taken[node], 0).astype(np.float64)
    else:
        room = np.zeros((len(group), 0))
    return Rows(
        snapshot=snapshot,
        grid=grid,
        group=group,
        kind=kind,
        row_kind=kind[:, 0],
        usable=usable,
        keys=used[4],
        free_bytes=free_bytes,
        free_milliacu=free_milliacu,
        tenants=used[2],
        free=free,
        thousandths=free.astype(np.int64),
        whole=(free == CARD).sum(axis=1),
        room=room,
    )


def shares_that_fit(rows: Rows, ask: Ask) -> Mask:
    """[B, W] The devices that can give an ask its share of one card now."""
    by, kind = ask.by_kind, rows.kind
    usable = rows.usable
    if ask.key:
        usable = rows.grid.usable.take(rows.group, axis=0) & (rows.keys == rows.tenants * ask.key)
    fits: Mask = usable & by.shared[kind] & (rows.free_bytes >= by.bytes[kind])
    if rows.grid.rated:
        fits &= rows.free_milliacu >= by.milliacu[kind]
    elif ask.milliacu.any():
        fits &= by.milliacu[kind] == 0
    return _on_roomy(rows, ask, fits)


def cards_open(rows: Rows, ask: Ask) -> Mask:
    """[B, W] The devices that an ask could have whole, whether or not they are enough."""
    by, kind = ask.by_kind, rows.kind
    open_: Mask = rows.usable & by.whole[kind] & (rows.tenants == 0)
    if rows.grid.any_degraded:
        open_ &= by.single[kind] | ~rows.degraded
    return _on_roomy(rows, ask, open_)


def cards_that_fit(rows: Rows, ask: Ask) -> Mask:
    """[B, W] The devices that an ask gets whole: in each row as many as it needs there, none where they are too few.

    Sub-healthy ones are taken for single cards only, and last.
    """
    cards = np.where(cards_open(rows, ask), ask.by_kind.cards[rows.kind], 0)
    width = cards.shape[1]
    # The smallest n such that n of the devices each ask for at most n.
    asked = np.sort(np.where(cards > 0, cards, width + 1), axis=1)
    enough = asked <= np.arange(1, width + 1)
    needed = np.where(enough.any(axis=1), enough.argmax(axis=1) + 1, 0)[:, None]
    able = (cards > 0) & (cards <= needed)
    if rows.grid.any_degraded:
        sick = able & rows.degraded
        well = able & ~sick
        rank = np.where(well, np.cumsum(well, axis=1), well.sum(axis=1)[:, None] + np.cumsum(sick, axis=1))
    else:
        rank = np.cumsum(able, axis=1)
    chosen: Mask = able & (rank <= needed)
    return chosen


def bare_that_fit(rows: Rows, ask: Ask) -> Mask:
    """[B] The groups whose node can serve an ask for columns alone; the first group of each node stands for it."""
    fleet = rows.fleet
    first = fleet.first_group[rows.node] == rows.group
    fits: Mask = first & fleet.ready[rows.node] & _roomy(rows, ask)
    return fits


def _on_roomy(rows: Rows, ask: Ask, devices: Mask) -> Mask:
    if ask.able is not None:
        devices &= ask.able[rows.grid.slots[rows.group]]
    if ask.by_kind.any_needs:
        devices &= _roomy(rows, ask)[:, None]
    return devices


def _roomy(rows: Rows, ask: Ask) -> Mask:
    """[B] Whether enough of the node's columns is left."""
    fits: Mask = np.logical_and.reduce(rows.room >= ask.needs, axis=1)
    return fits
