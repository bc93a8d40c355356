"""Which of a node's cards belong together: the k of them with the widest ways between each other.

For up to :data:`EXACT` cards the answer is exact: all subsets are weighed at once as bit masks, each from a smaller one
by adding a card, and kept for every node that is wired the same. Weighed are, in this order: the total bandwidth
between the cards, the worst of their ways, the softer wishes (one NUMA node, near the adapter), the ways left to others
and the fixed order of the cards. Beyond that number a greedy search from each card, improved by exchanges, answers.

Where a pod *requires* links or one NUMA node, cards that may not go together never do: then the search is for a clique.
"""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Final

import msgspec
import numpy as np

from hcs.model.devices import Device, NodeInventory
from hcs.model.locality import LinkRule, Locality
from hcs.placement.fleet import Integers
from hcs.ura.links import UNKNOWN, LinkFacts, bandwidth, read_word

EXACT: Final = 16
"""Cards up to which the search is complete: 65 536 subsets, some milliseconds once for each way of wiring."""

Rows = tuple[tuple[int, ...], ...]


class Wiring(msgspec.Struct, frozen=True, cache_hash=True):
    """The cards of one model on one node, in the order of the fleet, as a graph.

    ``mbps`` [n, n] is the bandwidth of each pair, ``wishes`` [n, n] how many soft wishes it meets (on the diagonal: the
    card itself), ``apart`` [n] the bit mask of the cards each one may not be chosen with.
    """

    mbps: Rows
    wishes: Rows
    apart: tuple[int, ...]

    @property
    def size(self) -> int:
        """How many cards."""
        return len(self.mbps)

    @property
    def flat(self) -> bool:
        """Whether any choice is as good as any other."""
        return not any(self.apart) and _uniform(self.mbps) and _uniform(self.wishes)


class _Table(msgspec.Struct, frozen=True, eq=False):
    """All allowed subsets of one size, the best first, and the total of every subset."""

    masks: Integers
    rank: Integers
    total: Integers


@lru_cache(maxsize=16384)
def wire(node: NodeInventory, vendor: str, model: str, locality: Locality) -> Wiring:
    """The graph of a node's cards of one model, in the order of the fleet, under a pod's rules."""
    seen: dict[str, Device] = {}
    for device in sorted(node.devices, key=lambda d: (d.vendor, d.model, d.index, d.id)):
        seen.setdefault(device.id, device)
    devices = [device for device in seen.values() if (device.vendor, device.model) == (vendor, model)]
    near = _near(node, devices, locality)
    ways = {(a.id, link.peer): (read_word(link.kind), bandwidth(link)) for a in devices for link in a.links}
    size = range(len(devices))
    pairs = {(i, j): way(ways, devices[i], devices[j]) for i in size for j in size if i != j}
    return _interned(
        Wiring(
            mbps=tuple(tuple(pairs[i, j][1] if i != j else 0 for j in size) for i in size),
            wishes=tuple(
                tuple(int(near[i]) if i == j else int(_wished(locality, devices[i], devices[j])) for j in size)
                for i in size
            ),
            apart=tuple(
                sum(1 << j for j in size if i != j and not _together(locality, devices[i], devices[j], pairs[i, j]))
                for i in size
            ),
        )
    )


def way(ways: dict[tuple[str, str], tuple[LinkFacts, int]], one: Device, other: Device) -> tuple[LinkFacts, int]:
    """The way between two cards: what both ends say; the lesser where they disagree."""
    ends = [ways[key] for key in ((one.id, other.id), (other.id, one.id)) if key in ways]
    return min(ends, key=lambda end: (end[1], end[0].p2p is not False)) if ends else (UNKNOWN, 0)


def holds(rule: LinkRule, facts: LinkFacts, mbps: int) -> bool:
    """Whether a way is one that the rule asks for."""
    kind = not rule.kinds or facts.family in rule.kinds or ("p2p" in rule.kinds and facts.p2p is True)
    return kind and mbps >= rule.mbps


def best_set(wiring: Wiring, count: int, free: int) -> tuple[int, ...] | None:
    """The best ``count`` cards among the ``free`` ones (a bit mask); None where no choice keeps the rules."""
    return next(sets(wiring, count, free), None)


def feasible(wiring: Wiring, count: int, free: int) -> bool:
    """Whether there is any choice of ``count`` cards among the ``free`` ones."""
    if free.bit_count() < count:
        return False
    if not any(wiring.apart) or count < 2:
        return True
    if wiring.size > EXACT:
        return next(sets(wiring, count, free), None) is not None
    return bool(np.any((_table(wiring, count).masks & ~free) == 0))


def sets(wiring: Wiring, count: int, free: int) -> Iterator[tuple[int, ...]]:
    """The choices of ``count`` cards among the ``free`` ones, the best first; all of them up to :data:`EXACT` cards."""
    if count < 1 or free.bit_count() < count:
        return
    if wiring.size > EXACT:
        yield from _searched(wiring, count, free)
        return
    table = _table(wiring, count)
    kept = np.flatnonzero((table.masks & ~free) == 0)
    begin = 0
    while begin < len(kept):
        # Of choices that are worth the same, first the one that leaves the widest ways to the cards that stay free.
        end = begin + int(np.searchsorted(table.rank[kept[begin:]], table.rank[kept[begin]], side="right"))
        equal = table.masks[kept[begin:end]]
        for place in np.argsort(-table.total[free & ~equal], kind="stable"):
            yield _positions(int(equal[place]))
        begin = end


def total_of(wiring: Wiring, chosen: Sequence[int]) -> int:
    """The bandwidth of all pairs among some cards, in megabytes per second."""
    return sum(wiring.mbps[i][j] for i in chosen for j in chosen if i < j)


def worst_of(wiring: Wiring, chosen: Sequence[int]) -> int:
    """The bandwidth of the narrowest way among some cards; 0 for a single one."""
    return min((wiring.mbps[i][j] for i in chosen for j in chosen if i < j), default=0)


def best_total(wiring: Wiring, count: int, free: int) -> int:
    """The largest total bandwidth that ``count`` of the ``free`` cards can have; 0 where there is no choice."""
    found = best_set(wiring, count, free)
    return 0 if found is None else total_of(wiring, found)


@lru_cache(maxsize=256)
def _table(wiring: Wiring, count: int) -> _Table:
    """Weigh all subsets: each is a smaller one and one card more, so all are made by doubling."""
    size = wiring.size
    total, wishes, worst, number, order = (np.zeros(1 << size, dtype=np.int64) for _ in range(5))
    allowed = np.zeros(1 << size, dtype=np.bool_)
    allowed[0] = True
    worst[0] = np.iinfo(np.int64).max
    for card in range(size):
        half = 1 << card
        gain, wished, least = (np.zeros(half, dtype=np.int64) for _ in range(3))
        least[0] = np.iinfo(np.int64).max
        wished[0] = wiring.wishes[card][card]
        for other in range(card):
            quarter = 1 << other
            gain[quarter : 2 * quarter] = gain[:quarter] + wiring.mbps[card][other]
            wished[quarter : 2 * quarter] = wished[:quarter] + wiring.wishes[card][other]
            least[quarter : 2 * quarter] = np.minimum(least[:quarter], wiring.mbps[card][other])
        total[half : 2 * half] = total[:half] + gain
        wishes[half : 2 * half] = wishes[:half] + wished
        worst[half : 2 * half] = np.minimum(worst[:half], least)
        number[half : 2 * half] = number[:half] + 1
        order[half : 2 * half] = order[:half] | (1 << (size - 1 - card))
        allowed[half : 2 * half] = allowed[:half] & ((np.arange(half) & wiring.apart[card]) == 0)
    masks = np.flatnonzero(allowed & (number == count))
    masks = masks[np.lexsort((-order[masks], -wishes[masks], -worst[masks], -total[masks]))]
    keys = np.stack((total[masks], worst[masks], wishes[masks]))
    changed = np.any(keys[:, 1:] != keys[:, :-1], axis=0)
    return _Table(masks, np.concatenate((np.zeros(min(1, len(masks)), dtype=np.int64), np.cumsum(changed))), total)


def _searched(wiring: Wiring, count: int, free: int) -> Iterator[tuple[int, ...]]:
    """A good choice of many cards: grown from each card in turn, then improved by exchanging one for another."""
    mbps = np.array(wiring.mbps, dtype=np.int64)
    wishes = np.array(wiring.wishes, dtype=np.int64)
    weight = mbps * (4 * wiring.size) + wishes
    found: dict[tuple[int, ...], tuple[int, int]] = {}
    for seed in _positions(free):
        chosen, left, gain = [seed], free & ~(1 << seed) & ~wiring.apart[seed], weight[seed].copy()
        while len(chosen) < count and left:
            candidates = np.array(_positions(left))
            card = int(candidates[np.argmax(gain[candidates])])
            chosen.append(card)
            left &= ~(1 << card) & ~wiring.apart[card]
            gain += weight[card]
        if len(chosen) == count:
            better = _exchanged(wiring, weight, chosen, free)
            found[better] = (total_of(wiring, better), worst_of(wiring, better))
    yield from sorted(found, key=lambda cards: (-found[cards][0], -found[cards][1], cards))


def _exchanged(wiring: Wiring, weight: Integers, chosen: list[int], free: int) -> tuple[int, ...]:
    """Exchange cards one by one as long as the total grows; it always ends, for the total only grows."""
    while True:
        inside = np.zeros(wiring.size, dtype=np.bool_)
        inside[chosen] = True
        toward = weight[:, inside].sum(axis=1)
        best: tuple[int, int, int] | None = None
        for out in sorted(chosen):
            rest = [card for card in chosen if card != out]
            barred = 0
            for card in rest:
                barred |= wiring.apart[card]
            for new in _positions(free & ~barred):
                grown = int(toward[new] - weight[new, out] - toward[out])
                if not inside[new] and grown > 0 and (best is None or grown > best[0]):
                    best = (grown, out, new)
        if best is None:
            return tuple(sorted(chosen))
        chosen = [card for card in chosen if card != best[1]] + [best[2]]


def _near(node: NodeInventory, devices: Sequence[Device], locality: Locality) -> list[bool]:
    """Which cards are behind the same switch, or on the same NUMA node, as an adapter the pod's rule is about."""
    if locality.fabric is None:
        return [False] * len(devices)
    wanted = locality.fabric.names
    nics = [nic for nic in node.nics if nic.fabric and (not wanted or nic.fabric in wanted)]
    return [
        any(
            device.id in nic.near or (not nic.near and nic.numa is not None and nic.numa == device.numa) for nic in nics
        )
        for device in devices
    ]


def _wished(locality: Locality, one: Device, other: Device) -> bool:
    return bool(locality.numa) and one.numa is not None and one.numa == other.numa


def _together(locality: Locality, one: Device, other: Device, found: tuple[LinkFacts, int]) -> bool:
    if locality.numa == "required" and (one.numa is None or one.numa != other.numa):
        return False
    return locality.links is None or not locality.links.required or holds(locality.links, *found)


def _positions(mask: int) -> tuple[int, ...]:
    return tuple(place for place in range(mask.bit_length()) if mask >> place & 1)


def _uniform(rows: Rows) -> bool:
    return len({value for i, row in enumerate(rows) for j, value in enumerate(row) if i != j}) <= 1 and (
        len({row[i] for i, row in enumerate(rows)}) <= 1
    )


@lru_cache(maxsize=4096)
def _interned(wiring: Wiring) -> Wiring:
    """One object for all equal graphs, so that comparing them later is cheap."""
    return wiring
