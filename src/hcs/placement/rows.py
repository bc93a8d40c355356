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
    row_kind: Integers
    usable: Mask
    degraded: Mask
    vram: Integers
    milliacu: Integers
    size: Integers
    """[G] How many devices."""
    largest: int
    """Places in the longest row."""


class Rows(msgspec.Struct, frozen=True, eq=False):
    """Some groups [B] by place [W].

    ``free`` is in thousandths of each card, 0 where it is not usable, and a whole number in floating point. ``room``
    [B, X] is what is left of the node's columns.
    """

    fleet: Fleet
    group: Integers
    kind: Integers
    row_kind: Integers
    usable: Mask
    degraded: Mask
    free_bytes: Integers
    free_milliacu: Integers
    tenants: Integers
    owned: Integers
    free: NDArray[np.float64]
    room: NDArray[np.float64]
    hosts: Integers
    size: Integers

    @property
    def whole(self) -> NDArray[np.float64]:
        """[B] How many cards are fully free."""
        return (self.free == CARD).sum(axis=1).astype(np.float64)


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
    return Grid(slots, kind, kind[:, 0], usable, degraded, vram, milliacu, size, width)


def rows_of(snapshot: Snapshot, group: Integers | None = None) -> Rows:
    """Read the state of some groups; of all where none are named."""
    fleet = snapshot.fleet
    grid = grid_of(fleet)
    if group is None:
        group = np.arange(len(fleet.group_node))
    slots, usable = grid.slots[group], grid.usable[group]
    vram, milliacu = grid.vram[group], grid.milliacu[group]
    if len(fleet.devices):
        used = snapshot.used[:, slots]
    else:
        used = np.zeros((4, *slots.shape), dtype=np.int64)
    free_bytes = np.maximum(vram - used[0], 0)
    free_milliacu = np.maximum(milliacu - used[1], 0)
    free = _part(free_bytes, vram)
    if milliacu.any():
        free = np.where(milliacu > 0, np.minimum(free, _part(free_milliacu, milliacu)), free)
    owned = used[3]
    free *= usable & (owned == 0)
    node = fleet.group_node[group]
    return Rows(
        fleet=fleet,
        group=group,
        kind=grid.kind[group],
        row_kind=grid.row_kind[group],
        usable=usable,
        degraded=grid.degraded[group],
        free_bytes=free_bytes,
        free_milliacu=free_milliacu,
        tenants=used[2],
        owned=owned,
        free=free,
        room=np.maximum(fleet.room[node] - snapshot.taken[node], 0).astype(np.float64),
        hosts=snapshot.hosts[:, group],
        size=grid.size[group],
    )


def _part(free: Integers, all_: Integers) -> NDArray[np.float64]:
    """Whole thousandths; exact, since a float holds amounts up to 2**53 and division rounds correctly."""
    return np.floor(free * float(CARD) / np.maximum(all_, 1))


def shares_that_fit(rows: Rows, ask: Ask) -> Mask:
    """[B, W] The devices that can give an ask its share of one card now."""
    bytes_, milliacu = _padded(ask.bytes)[rows.kind], _padded(ask.milliacu)[rows.kind]
    kinds = _padded(ask.serves & ~ask.whole)[rows.kind]
    fits: Mask = (
        rows.usable
        & kinds
        & (rows.owned == 0)
        & (rows.free_bytes >= bytes_)
        & (rows.free_milliacu >= milliacu)
        & _roomy(rows, ask)[:, None]
    )
    return fits


def cards_open(rows: Rows, ask: Ask) -> Mask:
    """[B, W] The devices that an ask could have whole, whether or not they are enough."""
    kind = rows.kind
    open_: Mask = (
        rows.usable
        & _padded(ask.serves & ask.whole)[kind]
        & (rows.tenants == 0)
        & ~(rows.degraded & (_padded(ask.cards)[kind] > 1))
        & _roomy(rows, ask)[:, None]
    )
    return open_


def cards_that_fit(rows: Rows, ask: Ask) -> Mask:
    """[B, W] The devices that an ask gets whole: in each row as many as it needs there, none where they are too few.

    Sub-healthy ones are taken for single cards only, and last.
    """
    cards = np.where(cards_open(rows, ask), _padded(ask.cards)[rows.kind], 0)
    width = cards.shape[1]
    # The smallest n such that n of the devices each ask for at most n.
    asked = np.sort(np.where(cards > 0, cards, width + 1), axis=1)
    enough = asked <= np.arange(1, width + 1)
    needed = np.where(enough.any(axis=1), enough.argmax(axis=1) + 1, 0)[:, None]
    able = (cards > 0) & (cards <= needed)
    well = able & ~rows.degraded
    sick = able & rows.degraded
    rank = np.where(well, np.cumsum(well, axis=1), well.sum(axis=1)[:, None] + np.cumsum(sick, axis=1))
    chosen: Mask = able & (rank <= needed)
    return chosen


def bare_that_fit(rows: Rows, ask: Ask) -> Mask:
    """[B] The groups whose node can serve an ask for columns alone; the first group of each node stands for it."""
    fleet = rows.fleet
    first = fleet.first_group[fleet.group_node[rows.group]] == rows.group
    fits: Mask = first & fleet.ready[fleet.group_node[rows.group]] & _roomy(rows, ask)
    return fits


def _roomy(rows: Rows, ask: Ask) -> Mask:
    """[B] Whether the node itself serves: by what is left of its columns, and by where it stands."""
    fits: Mask = np.ones(len(rows.group), dtype=np.bool_)
    if ask.needs.any():
        fits = (rows.room >= ask.needs).all(axis=1)
    if ask.reach is not None:
        fits = fits & ask.reach[rows.fleet.group_node[rows.group]]
    return fits


def _padded(by_kind: NDArray[np.generic]) -> NDArray[np.generic]:
    """With an entry for "no device"."""
    return np.append(by_kind, by_kind.dtype.type(0))
