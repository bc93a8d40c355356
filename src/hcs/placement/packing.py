"""Which devices of one group each container of a pod gets: the small exact search at the heart of a placement.

A node has at most a few tens of cards of one model and a pod a few containers, so the search is complete: if any
choice exists, one is found. It is depth first with the hardest container first, tries equal devices once, and takes the
tightest fit first, so that the first answer is usually the last. A budget bounds what a hostile request can cost; past
it, plain first fit answers, so that the clever search is never worse than the simple one.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Final

import msgspec

from hcs.placement.appraisals import Appraisal
from hcs.placement.fleet import Mask
from hcs.placement.snapshot import Snapshot

BUDGET: Final = 5_000
"""Steps of one search. Real pods take fewer than twenty; 5 000 take about ten milliseconds."""

Choice = tuple[tuple[int, ...], ...]
"""For each container, in the order of the request, the positions of its devices in the fleet."""


class Need(msgspec.Struct, frozen=True):
    """What a device, of some kind, would give to one container: ``cards`` like itself, and its own part."""

    cards: int
    bytes: int
    milliacu: int
    whole: bool


class Card(msgspec.Struct, frozen=True):
    """One device as the search sees it: what is free, and what each container would take (None: not this one)."""

    position: int
    free_bytes: int
    free_milliacu: int
    empty: bool
    degraded: bool
    needs: tuple[Need | None, ...]

    def state(self) -> tuple[object, ...]:
        """Equal for devices that are as good as each other."""
        return self.free_bytes, self.free_milliacu, self.empty, self.degraded, self.needs

    def serves(self, container: int) -> bool:
        """Whether it can give the container its part now."""
        need = self.needs[container]
        if need is None:
            return False
        if need.whole:
            return self.empty
        return self.free_bytes >= need.bytes and self.free_milliacu >= need.milliacu

    def after(self, container: int) -> "Card":
        """The device once the container has its part."""
        need = self.needs[container]
        assert need is not None
        return Card(
            self.position,
            0 if need.whole else self.free_bytes - need.bytes,
            0 if need.whole else self.free_milliacu - need.milliacu,
            False,
            self.degraded,
            tuple(None for _ in self.needs) if need.whole else self.needs,
        )


def cards_of(
    snapshot: Snapshot, appraisals: Sequence[Appraisal], masks: Sequence[Mask], group: int, *, vacant: bool = False
) -> tuple[Card, ...]:
    """The devices of a group as the search wants them.

    Args:
        masks: per container, [D] the devices it may get.
        vacant: look at the devices as if nobody held any of them.
    """
    fleet, inside = snapshot.fleet, snapshot.fleet.group_slice(group)
    free_bytes = fleet.vram[inside] if vacant else snapshot.free_bytes_in(inside)
    free_milliacu = fleet.milliacu[inside] if vacant else snapshot.free_milliacu_in(inside)
    cards = []
    for offset, position in enumerate(range(inside.start, inside.stop)):
        kind = int(fleet.kind[position])
        cards.append(
            Card(
                position=position,
                free_bytes=int(free_bytes[offset]),
                free_milliacu=int(free_milliacu[offset]),
                empty=vacant or not snapshot.tenants[position],
                degraded=bool(fleet.degraded[position]),
                needs=tuple(
                    _need(appraisal, kind) if mask[position] else None
                    for appraisal, mask in zip(appraisals, masks, strict=True)
                ),
            )
        )
    return tuple(cards)


def pack(cards: Sequence[Card], containers: int) -> Choice | None:
    """Give every container its devices, or None where no choice of these devices serves them all."""
    steps = 0

    def search(left: tuple[Card, ...], rest: tuple[int, ...]) -> dict[int, tuple[int, ...]] | None:
        nonlocal steps
        if not rest:
            return {}
        container = rest[0]
        for chosen in _choices(left, container):
            steps += 1
            if steps > BUDGET:
                raise _OverBudgetError
            positions = {card.position for card in chosen}
            after = tuple(card.after(container) if card.position in positions else card for card in left)
            found = search(after, rest[1:])
            if found is not None:
                return {container: tuple(card.position for card in chosen), **found}
        return None

    order = tuple(sorted(range(containers), key=_hardness(cards)))
    try:
        found = search(tuple(cards), order)
    except _OverBudgetError:
        return first_fit(cards, containers)
    return None if found is None else tuple(found[container] for container in range(containers))


def first_fit(cards: Sequence[Card], containers: int) -> Choice | None:
    """Give each container, in order, the first devices that serve it: the simple method, without a second thought."""
    left = list(cards)
    result = []
    for container in range(containers):
        serving = [card for card in left if card.serves(container)]
        chosen = smallest(serving, container)
        if not chosen:
            return None
        positions = {card.position for card in chosen}
        left = [card.after(container) if card.position in positions else card for card in left]
        result.append(tuple(card.position for card in chosen))
    return tuple(result)


class _OverBudgetError(Exception):
    """The search gave up."""


def _need(appraisal: Appraisal, kind: int) -> Need:
    return Need(
        int(appraisal.cards[kind]),
        int(appraisal.bytes[kind]),
        int(appraisal.milliacu[kind]),
        bool(appraisal.whole[kind]),
    )


def _hardness(cards: Sequence[Card]) -> Callable[[int], tuple[int, ...]]:
    """Sort containers so that the one with the fewest choices comes first; the order of the request breaks ties."""

    def key(container: int) -> tuple[int, ...]:
        needs = [need for card in cards if (need := card.needs[container]) is not None]
        if not needs:
            return 0, 0, 0, container
        cards_asked = min(need.cards if need.whole else 0 for need in needs)
        return -cards_asked, -max(need.bytes for need in needs), -max(need.milliacu for need in needs), container

    return key


def _choices(left: Sequence[Card], container: int) -> Iterator[tuple[Card, ...]]:
    """The sets of devices that serve the container, the best first; of sets that are as good as each other, one."""
    serving = [card for card in left if card.serves(container)]
    needs = {card.position: need for card in serving if (need := card.needs[container]) is not None}
    shares = [card for card in serving if not needs[card.position].whole]
    shares.sort(key=lambda card: (card.degraded, card.empty, card.free_bytes, card.position))
    for alike in _classes(shares):
        yield (alike[0],)
    whole = [card for card in serving if needs[card.position].whole]
    whole.sort(key=lambda card: (card.degraded, card.position))
    for count in range(1, len(whole) + 1):
        pool = [card for card in whole if needs[card.position].cards <= count]
        if len(pool) < count:
            continue
        for chosen in _sets(_classes(pool), count):
            if len(smallest(chosen, container)) == count:  # else a part of it serves as well, and came before
                yield tuple(sorted(chosen, key=lambda card: card.position))


def _classes(cards: Sequence[Card]) -> list[list[Card]]:
    """Put equal devices together, in the order in which the first of each comes."""
    classes: dict[tuple[object, ...], list[Card]] = {}
    for card in cards:
        classes.setdefault(card.state(), []).append(card)
    return list(classes.values())


def _sets(classes: list[list[Card]], count: int) -> Iterator[tuple[Card, ...]]:
    """All ways to take ``count`` devices that differ in how many are of each class; early classes first."""
    if not count:
        yield ()
        return
    if sum(map(len, classes)) < count:
        return
    for taken in range(min(count, len(classes[0])), -1, -1):
        for rest in _sets(classes[1:], count - taken):
            yield (*classes[0][:taken], *rest)


def smallest(cards: Sequence[Card], container: int) -> tuple[Card, ...]:
    """The first n devices, for the smallest n such that n of them each ask for at most n; none where there is no n."""
    asked = [(need.cards, card) for card in cards if (need := card.needs[container]) is not None]
    for count in range(1, len(asked) + 1):
        pool = [card for wants, card in asked if wants <= count]
        if len(pool) >= count:
            return tuple(pool[:count])
    return ()


def masks_on(snapshot: Snapshot, masks: Sequence[Mask], nodes: Mask) -> tuple[Mask, ...]:
    """Leave of each mask [D] only the devices on some nodes [N]."""
    on_nodes = nodes[snapshot.fleet.node]
    return tuple(mask & on_nodes for mask in masks)
