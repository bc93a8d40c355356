"""Which cards of a group each container gets, with regard to the ways between them.

:func:`hcs.placement.packing.pack` finds whether the cards serve at all, and takes equal cards for equal. Here the ways
between them count: each container with several cards gets the set with the widest links, the container that asks for
most choosing first, and a rule about links or NUMA nodes is kept or the answer is None. Without several cards, without
a rule and where all ways are alike, the answer is pack's own.
"""

from collections.abc import Sequence
from typing import Final

from hcs.model.locality import Locality
from hcs.placement.appraisals import Appraisal
from hcs.placement.fleet import Mask
from hcs.placement.packing import Card, Choice, Need, cards_of, pack, smallest
from hcs.placement.snapshot import Snapshot
from hcs.placement.topology import Wiring, sets, wire

BUDGET: Final = 2_000
"""Sets of cards tried in one arrangement; with the first that serves, the search ends."""


def wiring_of(snapshot: Snapshot, group: int, locality: Locality) -> Wiring:
    """The graph of a group's cards under a pod's rules."""
    fleet = snapshot.fleet
    first = fleet.devices[int(fleet.group_first[group])]
    return wire(fleet.nodes[int(fleet.group_node[group])], first.vendor, first.model, locality)


def arrange(
    snapshot: Snapshot, cards: Sequence[Card], containers: int, group: int, locality: Locality
) -> Choice | None:
    """Give every container its devices, or None where no choice of them serves and keeps the rules.

    Args:
        snapshot: for the links of the group's cards.
        cards: the group's devices, all of them, as :func:`hcs.placement.packing.cards_of` lists them.
        containers: how many containers there are.
        group: the group.
        locality: the pod's rules.
    """
    plain = pack(cards, containers)
    if plain is None:
        return None
    several = [number for number, devices in enumerate(plain) if len(devices) > 1]
    if not several and not _single_whole(cards, plain):
        return plain
    wiring = wiring_of(snapshot, group, locality)
    if wiring.flat:
        return plain
    whole = [number for number, devices in enumerate(plain) if _whole(cards, number, devices)]
    order = sorted(whole, key=lambda number: (-len(plain[number]), number))
    found = _Search(wiring, containers, order).run(tuple(cards))
    return found if found is not None or locality.pairing else plain


def settle(snapshot: Snapshot, appraisals: Sequence[Appraisal], masks: Sequence[Mask]) -> tuple[int, Choice] | None:
    """The first group that serves, and its devices: for questions about one node, where no policy has a say.

    Named cards come first, then healthy ones, then the slowest that suffice.

    Args:
        snapshot: the fleet.
        appraisals: one for each container.
        masks: per container, [D] the devices it may get.
    """
    fleet = snapshot.fleet
    groups = [
        set(fleet.group[mask & one.serves[fleet.kind]].tolist()) for one, mask in zip(appraisals, masks, strict=True)
    ]
    substitute = appraisals[0].substitute

    def order(group: int) -> tuple[bool, bool, int, int]:
        first = int(fleet.group_first[group])
        sick = bool(fleet.degraded[fleet.group_slice(group)].any())
        return bool(substitute[fleet.kind[first]]), sick, int(fleet.milliacu[first]), group

    for group in sorted(set.intersection(*groups), key=order):
        cards = cards_of(snapshot, appraisals, masks, group)
        found = arrange(snapshot, cards, len(appraisals), group, appraisals[0].request.locality)
        if found is not None:
            return group, found
    return None


class _Search:
    """Containers with whole cards choose sets one after the other; the rest is packed into what they leave."""

    def __init__(self, wiring: Wiring, containers: int, order: Sequence[int]) -> None:
        self._wiring, self._containers, self._order = wiring, containers, order
        self._steps = 0

    def run(self, cards: tuple[Card, ...]) -> Choice | None:
        """The best choice found within the budget."""
        found = self._choose(cards, 0)
        return None if found is None else tuple(found[number] for number in range(self._containers))

    def _choose(self, left: tuple[Card, ...], depth: int) -> dict[int, tuple[int, ...]] | None:
        if depth == len(self._order):
            return self._pack_rest(left)
        healthy = tuple(card for card in left if not card.degraded)
        for cards in (healthy, left) if len(healthy) < len(left) else (left,):
            found = self._choose_among(cards, left, depth)
            if found is not None:
                return found
        return None

    def _choose_among(
        self, cards: Sequence[Card], left: tuple[Card, ...], depth: int
    ) -> dict[int, tuple[int, ...]] | None:
        container = self._order[depth]
        asked = {card.position: need.cards for card in cards if (need := _need(card, container)) is not None}
        for count in range(1, len(asked) + 1):
            pool = sum(1 << place for place, card in enumerate(left) if 0 < asked.get(card.position, 0) <= count)
            if pool.bit_count() < count:
                continue
            for chosen in sets(self._wiring, count, pool):
                self._steps += 1
                if self._steps > BUDGET:
                    return None
                if len(smallest([left[place] for place in chosen], container)) != count:
                    continue  # a part of it serves as well, and came before
                after = tuple(card.after(container) if place in chosen else card for place, card in enumerate(left))
                found = self._choose(after, depth + 1)
                if found is not None:
                    return {container: tuple(left[place].position for place in chosen), **found}
        return None

    def _pack_rest(self, left: tuple[Card, ...]) -> dict[int, tuple[int, ...]] | None:
        rest = [number for number in range(self._containers) if number not in self._order]
        if not rest:
            return {}
        found = pack([_only(card, rest) for card in left], len(rest))
        return None if found is None else dict(zip(rest, found, strict=True))


def _need(card: Card, container: int) -> Need | None:
    """What the card, taken whole, would give the container; None where it cannot."""
    need = card.needs[container]
    return need if need is not None and need.whole and card.serves(container) else None


def _only(card: Card, containers: Sequence[int]) -> Card:
    needs = tuple(card.needs[number] for number in containers)
    return Card(card.position, card.free_bytes, card.free_milliacu, card.empty, card.degraded, needs)


def _whole(cards: Sequence[Card], container: int, devices: Sequence[int]) -> bool:
    return any(need.whole for card in cards if card.position in devices and (need := card.needs[container]) is not None)


def _single_whole(cards: Sequence[Card], plain: Choice) -> bool:
    return any(_whole(cards, number, devices) for number, devices in enumerate(plain))
