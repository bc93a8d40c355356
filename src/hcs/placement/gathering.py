"""How many members of a gang each group of cards can hold, and the filling of groups with them.

Members that ask for the same are of one *shape*, weighed once against the whole fleet. A group's capacity for a shape
is arithmetic on arrays: exact for the common requests (whole cards, or one share, without a rule about pairs of cards),
an upper bound for others. A :class:`Bin` is a group being filled: it finds devices for one member after another, by the
same search that places single pods.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate, pairwise
from typing import Final

import msgspec
import numpy as np

from hcs.model.requests import ComputeRequest
from hcs.placement.appraisals import Appraisal
from hcs.placement.arrangement import arrange
from hcs.placement.filters import eligible
from hcs.placement.fleet import Fleet, Integers, Mask
from hcs.placement.packing import Card, Choice, Need, cards_of
from hcs.placement.rooms import PLENTY, Room
from hcs.placement.snapshot import Snapshot

UNBOUNDED: Final = 1 << 20
"""More members than any gang has: the capacity of a card for a container that takes nothing of it."""


class Shape(msgspec.Struct, frozen=True, eq=False):
    """Members that ask for the same: who they are, and what their request means on this fleet.

    ``masks`` [D] say, per container, which devices it may get; ``capacity`` [G] how many members each group can hold,
    ``exact`` whether it surely can. ``limit`` [N] is how many fit each node's CPU, memory and pods; ``milli_cpu`` and
    ``memory`` are what each takes of those.
    """

    request: ComputeRequest
    members: tuple[int, ...]
    appraisals: tuple[Appraisal, ...]
    masks: tuple[Mask, ...]
    capacity: Integers
    exact: bool
    limit: Integers
    milli_cpu: int = 0
    memory: int = 0

    @property
    def count(self) -> int:
        """How many members are of this shape."""
        return len(self.members)


def shape_of(
    snapshot: Snapshot,
    request: ComputeRequest,
    members: Sequence[int],
    appraisals: tuple[Appraisal, ...],
    nodes: Mask,
    *,
    together: bool,
    rooms: Mapping[str, Room],
    milli_cpu: int = 0,
    memory: int = 0,
) -> Shape:
    """Weigh the members of one shape.

    Args:
        snapshot: the fleet.
        request: what each of them asks for.
        members: their numbers in the gang.
        appraisals: of the request.
        nodes: [N] where they may go.
        together: whether they wait for each other, so that a sub-healthy card will not do.
        rooms: what is free beside the cards, by node; enough where nothing is said.
        milli_cpu: thousandths of a CPU that each takes.
        memory: bytes that each takes.
    """
    fleet = snapshot.fleet
    allowed = nodes[fleet.node]
    if together:
        allowed = allowed & ~fleet.degraded
    masks = tuple(eligible(snapshot, appraisal) & allowed for appraisal in appraisals)
    capacity, exact = _capacity(snapshot, appraisals, masks)
    limit = np.full(len(fleet.nodes), PLENTY, dtype=np.int64)
    for name, room in rooms.items():
        if name in fleet.node_index:
            limit[fleet.node_index[name]] = room.times(milli_cpu, memory)
    for column, amount in _columns(fleet, request):
        free = snapshot.room[:, column] if column >= 0 else np.zeros(len(limit), dtype=np.int64)
        limit = np.minimum(limit, free // amount)
    return Shape(
        request=request,
        members=tuple(members),
        appraisals=appraisals,
        masks=masks,
        capacity=np.minimum(capacity, limit[fleet.group_node]),
        exact=exact and not request.locality.pairing,
        limit=limit,
        milli_cpu=milli_cpu,
        memory=memory,
    )


class Larder:
    """The rooms of the nodes as members take from them; nodes that nobody described have plenty."""

    def __init__(self, snapshot: Snapshot, rooms: Mapping[str, Room]) -> None:
        """Start with what is free."""
        self._fleet = fleet = snapshot.fleet
        self._node, self._columns = fleet.group_node, snapshot.room.copy()
        self._left = {fleet.node_index[name]: room for name, room in rooms.items() if name in fleet.node_index}

    def take(self, shape: Shape, group: int) -> bool:
        """Take what a member needs on the group's node; False, and nothing taken, where it is not there."""
        node = int(self._node[group])
        room = self._left.get(node)
        columns = _columns(self._fleet, shape.request)
        if any(column < 0 or self._columns[node, column] < amount for column, amount in columns):
            return False
        if room is not None and not room.holds(shape.milli_cpu, shape.memory):
            return False
        for column, amount in columns:
            self._columns[node, column] -= amount
        if room is not None:
            self._left[node] = room.without(shape.milli_cpu, shape.memory)
        return True

    def give_back(self, shape: Shape, group: int) -> None:
        """Undo :meth:`take`."""
        node = int(self._node[group])
        for column, amount in _columns(self._fleet, shape.request):
            self._columns[node, column] += amount
        if node in self._left:
            self._left[node] = self._left[node].without(-shape.milli_cpu, -shape.memory, -1)


class Bin:
    """One group of cards being filled with members; :meth:`put` changes it, :meth:`copy` keeps a state of it."""

    def __init__(self, snapshot: Snapshot, shapes: Sequence[Shape], group: int) -> None:
        """Look at the group as it is in the snapshot."""
        self.group = group
        self.members: tuple[tuple[int, Choice], ...] = ()
        """The shape and the devices of each member it holds."""
        self._snapshot, self._shapes = snapshot, shapes
        appraisals = [appraisal for shape in shapes for appraisal in shape.appraisals]
        masks = [mask for shape in shapes for mask in shape.masks]
        self._first: tuple[Card, ...] = cards_of(snapshot, appraisals, masks, group)
        self._cards = self._first
        starts = accumulate((len(shape.appraisals) for shape in shapes), initial=0)
        self._ranges = [range(start, end) for start, end in pairwise(starts)]

    def put(self, shape: int) -> bool:
        """Take one member more, on devices that the others left; False, and nothing changed, where there are none."""
        numbers = self._ranges[shape]
        cards = [_only(card, card.needs[numbers.start : numbers.stop]) for card in self._cards]
        found = arrange(self._snapshot, cards, len(numbers), self.group, self._shapes[shape].request.locality)
        if found is None:
            return False
        for number, devices in zip(numbers, found, strict=True):
            self._cards = tuple(card.after(number) if card.position in devices else card for card in self._cards)
        self.members = (*self.members, (shape, found))
        return True

    def put_anew(self, shape: int) -> bool:
        """Take one member more, giving all members other devices if need be."""
        numbers = [*(number for number, _ in self.members), shape]
        rules = {self._shapes[number].request.locality for number in numbers}
        if len(rules) > 1 and any(rule.pairing for rule in rules):
            return self.put(shape)
        places = [place for number in numbers for place in self._ranges[number]]
        cards = [_only(card, tuple(card.needs[place] for place in places)) for card in self._first]
        found = arrange(self._snapshot, cards, len(places), self.group, rules.pop())
        if found is None:
            return False
        self._cards = self._first
        for place, devices in zip(places, found, strict=True):
            self._cards = tuple(card.after(place) if card.position in devices else card for card in self._cards)
        parts = iter(found)
        self.members = tuple((number, tuple(next(parts) for _ in self._ranges[number])) for number in numbers)
        return True

    def copy(self) -> "Bin":
        """The same, to be filled in another way."""
        copy = Bin.__new__(Bin)
        copy.group, copy.members, copy._cards, copy._first = self.group, self.members, self._cards, self._first
        copy._snapshot, copy._shapes, copy._ranges = self._snapshot, self._shapes, self._ranges
        return copy


Placed = dict[int, tuple[int, Choice]]
"""Member → its group and its containers' devices."""


def fill(
    snapshot: Snapshot,
    groups: Sequence[int],
    shapes: Sequence[Shape],
    order: Sequence[int],
    rooms: Mapping[str, Room],
) -> Placed | None:
    """Put all members into groups, each into the first that takes it; None where one finds none.

    Args:
        snapshot: the fleet.
        groups: in the order in which they are filled.
        shapes: all shapes.
        order: numbers of the shapes in the order in which their members choose.
        rooms: what is free beside the cards, by node.
    """
    larder = Larder(snapshot, rooms)
    bins: dict[int, Bin] = {}
    for number in order:
        shape, full, left, held = shapes[number], 0, shapes[number].count, 0
        while left and full < len(groups):
            group = groups[full]
            if held < shape.capacity[group] and larder.take(shape, group):
                if group not in bins:
                    bins[group] = Bin(snapshot, shapes, group)
                if bins[group].put(number):
                    left, held = left - 1, held + 1
                    continue
                larder.give_back(shape, group)
            full, held = full + 1, 0  # equal members: what does not take this one takes none of the others either
        if left:
            return None
    return _members(bins.values(), shapes)


def search(
    snapshot: Snapshot, groups: Sequence[int], shapes: Sequence[Shape], budget: int, rooms: Mapping[str, Room]
) -> Placed | None:
    """Try all ways to put all members into groups, as far as a budget of steps goes; arguments as for :func:`fill`."""
    queue = [number for number in hardest_first(shapes) for _ in shapes[number].members]
    steps = 0
    failed: set[tuple[object, ...]] = set()
    larder = Larder(snapshot, rooms)

    def go(depth: int, bins: Mapping[int, Bin]) -> Mapping[int, Bin] | None:
        nonlocal steps
        if depth == len(queue):
            return bins
        key = tuple(tuple(sorted(number for number, _ in bins[group].members)) for group in groups)
        if key in failed:
            return None
        for group in groups:
            if not shapes[queue[depth]].capacity[group]:
                continue
            steps += 1
            if steps > budget:
                return None
            if not larder.take(shapes[queue[depth]], group):
                continue
            trial = bins[group].copy()
            if trial.put(queue[depth]) or trial.put_anew(queue[depth]):
                found = go(depth + 1, {**bins, group: trial})
                if found is not None:
                    return found
            larder.give_back(shapes[queue[depth]], group)
        failed.add(key)
        return None

    found = go(0, {group: Bin(snapshot, shapes, group) for group in groups})
    return None if found is None else _members(found.values(), shapes)


def _members(bins: Iterable[Bin], shapes: Sequence[Shape]) -> Placed:
    """Hand the places out: members of one shape are alike, so they take them in their order."""
    waiting = [iter(shape.members) for shape in shapes]
    return {next(waiting[number]): (one.group, choice) for one in bins for number, choice in one.members}


def _only(card: Card, needs: tuple[Need | None, ...]) -> Card:
    return Card(card.position, card.free_bytes, card.free_milliacu, card.empty, card.degraded, needs)


def _columns(fleet: Fleet, request: ComputeRequest) -> list[tuple[int, int]]:
    """What a request takes of a node beside devices: the column of each capacity, -1 for one that no node has."""
    return [
        (fleet.columns.index(name) if name in fleet.columns else -1, amount)
        for name, amount in request.capacities
        if amount > 0
    ]


def hardest_first(shapes: Sequence[Shape]) -> list[int]:
    """The shapes' numbers, the one that fits in the fewest places first."""
    return sorted(range(len(shapes)), key=lambda number: (_hardness(shapes[number]), number))


def _hardness(shape: Shape) -> tuple[int, int]:
    return int(shape.capacity.max(initial=0)), int(shape.capacity.sum())


def _capacity(snapshot: Snapshot, appraisals: Sequence[Appraisal], masks: Sequence[Mask]) -> tuple[Integers, bool]:
    """[G] How many members each group can hold at most, and whether it is surely so many."""
    fleet = snapshot.fleet
    parts = [_container_capacity(snapshot, a, mask) for a, mask in zip(appraisals, masks, strict=True)]
    if len(parts) == 1:
        return parts[0]
    least = np.minimum.reduce([capacity for capacity, _ in parts])
    # Together the containers cannot have more whole cards than there are.
    whole = [a.whole[fleet.kind] & mask for a, mask in zip(appraisals, masks, strict=True)]
    cards = np.zeros(len(fleet.group_node), dtype=np.int64)
    for appraisal, mask in zip(appraisals, whole, strict=True):
        cards += _least_cards(fleet, appraisal, mask)
    usable = np.bincount(fleet.group[np.logical_or.reduce(masks)], minlength=len(cards))
    return np.where(cards > 0, np.minimum(least, usable // np.maximum(cards, 1)), least), False


def _container_capacity(snapshot: Snapshot, appraisal: Appraisal, mask: Mask) -> tuple[Integers, bool]:
    fleet, kind = snapshot.fleet, snapshot.fleet.kind
    groups = len(fleet.group_node)
    whole = mask & appraisal.whole[kind]
    shared = np.flatnonzero(mask & ~appraisal.whole[kind])
    asked = appraisal.cards[kind[whole]]
    least = _least_cards(fleet, appraisal, whole)
    capacity = np.bincount(fleet.group[whole], minlength=groups) // np.maximum(least, 1)
    exact = not len(asked) or bool((asked == asked[0]).all())
    if len(shared):
        fits = np.full(len(shared), UNBOUNDED, dtype=np.int64)
        for free, part in (
            (snapshot.free_bytes, appraisal.bytes[kind[shared]]),
            (snapshot.free_milliacu, appraisal.milliacu[kind[shared]]),
        ):
            fits = np.minimum(fits, np.where(part > 0, free[shared] // np.maximum(part, 1), UNBOUNDED))
        capacity = capacity + np.bincount(fleet.group[shared], weights=fits, minlength=groups).astype(np.int64)
    return np.where(capacity > UNBOUNDED, UNBOUNDED, capacity), exact


def _least_cards(fleet: Fleet, appraisal: Appraisal, mask: Mask) -> Integers:
    """[G] The fewest whole cards that any of the masked devices of each group asks for; 0 where there are none."""
    least = np.full(len(fleet.group_node), UNBOUNDED, dtype=np.int64)
    np.minimum.at(least, fleet.group[mask], appraisal.cards[fleet.kind[mask]])
    return np.where(least == UNBOUNDED, 0, least)
