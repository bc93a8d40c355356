"""What is likely to be asked next, as tables that say how much of a free card will be of use.

A *mix* is a list of asks with how often each comes. Two measures are made from it, both in thousandths of a card and
both exact integers, so that no order of summation changes an answer:

* **fragments** (Weng et al., USENIX ATC 2023): of what is free in a group, how much an ask of the mix could not use,
  averaged over the mix. A card counts as usable when one more of the ask fits on it.
* **use**: how much of what is free an ask could fill if it came again and again, crumbs included. A card of which 680
  thousandths are free takes two of 320; the 40 left are worth what the rest of the mix is likely to make of them. What
  the node's columns allow bounds it smoothly: cards without CPU beside them are no use, and half the CPU is half of it.

The worth of a crumb is the expected fill when asks that fit on it keep coming, discounted by how rare they are.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from hcs.placement.asks import CARD, Ask
from hcs.placement.fleet import Fleet

Reals = NDArray[np.float64]
"""Whole numbers in floating point: products and sums below 2**53 are exact and BLAS may reorder them."""

COVERED: Final = 0.9
"""Share of all requests that the typical asks of the measure of use cover."""
PUBLISHED: Final = 0.95
"""The same for the measure of fragments, as published."""
PATIENCE: Final = 0.05
"""How rare asks have to be before a crumb that only they fit is worth half its expected fill: one in twenty."""

NEARLY: Final = 0.9
"""Columns whose demand, measured against what there is, comes this close to the scarcest one's count as well."""

Mix = tuple[tuple[Ask, int], ...]


class Outlook(msgspec.Struct, frozen=True, eq=False):
    """The typical asks [M] of a mix against each kind [K + 1], of which the last stands for groups without devices.

    ``weight`` is how often each comes, ``total`` their sum; ``size`` the thousandths one takes of all its cards;
    ``per_room`` [K + 1, M, X] how many thousandths of cards a unit of a column carries, infinite where it needs none.
    """

    weight: Reals
    total: float
    size: Reals
    share: Reals
    cards: Reals
    needs: Reals
    per_room: Reals
    use: Reals
    """[K + 1, 1001, M] What one card with so much free is to each ask."""
    lots: Reals
    """[K + 1, W + 1, M] How much more so many fully free cards are to an ask that takes several than to others."""

    @property
    def empty(self) -> bool:
        """Whether nothing is known."""
        return not len(self.weight)


def look_ahead(fleet: Fleet, mix: Iterable[tuple[Ask, int]], covered: float = COVERED) -> Outlook:
    """Make the tables of a mix.

    Args:
        fleet: for its kinds and columns.
        mix: asks laid out for this fleet, and how often each comes.
        covered: the share of all requests that the typical asks must cover.
    """
    counts = _merged(_scarce(fleet, list(mix)))
    chosen = _typical(counts, covered)
    kinds, width = len(fleet.kinds), int(np.diff(fleet.group_first).max(initial=0))
    shape = (kinds + 1, len(chosen))
    share, cards, gain = np.zeros(shape), np.zeros(shape), np.zeros(shape)
    needs = np.zeros((len(chosen), len(fleet.columns)))
    use = np.zeros((kinds + 1, CARD + 1, len(chosen)))
    crumbs = np.stack([*(_crumbs(_one_card(counts, kind)) for kind in range(kinds)), np.zeros(CARD + 1)])
    free = np.arange(CARD + 1)
    for number, (ask, _) in enumerate(chosen):
        needs[number] = ask.needs
        share[:kinds, number], cards[:kinds, number] = ask.share, ask.cards
        for kind in np.flatnonzero(ask.cards):
            one = int(ask.share[kind])
            if one < CARD:
                use[kind, :, number] = free // one * one + crumbs[kind][free % one]
            else:
                use[kind, :, number] = crumbs[kind]
                if ask.cards[kind] == 1:
                    use[kind, CARD, number] = CARD
                else:
                    gain[kind, number] = ask.cards[kind] * (CARD - crumbs[kind][CARD])
    with np.errstate(divide="ignore", invalid="ignore"):
        per_room = (share * cards)[:, :, None] / needs[None]
    per_room[np.broadcast_to(needs[None] == 0, per_room.shape)] = np.inf
    weight = np.array([count for _, count in chosen], dtype=np.float64)
    return Outlook(
        weight=weight,
        total=float(weight.sum()),
        size=share * cards,
        share=share,
        cards=cards,
        needs=needs,
        per_room=per_room,
        use=use,
        lots=np.floor(np.arange(width + 1)[None, :, None] / np.maximum(cards, 1)[:, None, :]) * gain[:, None, :],
    )


def _scarce(fleet: Fleet, mix: Sequence[tuple[Ask, int]]) -> list[tuple[Ask, int]]:
    """The asks with what they need of the columns that run out first: the scarcest, those nearly as scarce, and all
    that are scarcer than the cards. Others would only tell apart asks that compete for the same."""
    if not fleet.columns or not mix:
        return list(mix)
    often = np.array([count for _, count in mix], dtype=np.float64)
    columns = often @ np.array([ask.needs for ask, _ in mix], dtype=np.float64)
    columns /= np.maximum(fleet.room.sum(axis=0, dtype=np.float64), 1)
    sizes = np.array([(ask.share * ask.cards).max(initial=0) for ask, _ in mix], dtype=np.float64)
    cards = float(often @ sizes) / max(CARD * len(fleet.devices), 1)
    keep = (columns >= NEARLY * columns.max()) | (columns >= cards)
    return [(msgspec.structs.replace(ask, needs=ask.needs * keep), count) for ask, count in mix]


def _merged(mix: Iterable[tuple[Ask, int]]) -> list[tuple[Ask, int]]:
    """Asks that are the same to the measures, counted together."""
    found: dict[bytes, tuple[Ask, int]] = {}
    for ask, count in mix:
        key = ask.share.tobytes() + ask.cards.tobytes() + ask.needs.tobytes()
        found[key] = ask, count + found.get(key, (ask, 0))[1]
    return [one for one in found.values() if one[1] > 0]


def _typical(counts: Sequence[tuple[Ask, int]], covered: float) -> list[tuple[Ask, int]]:
    """The commonest asks, until they cover enough; larger ones first where two are as common."""

    def rank(one: tuple[Ask, int]) -> tuple[object, ...]:
        ask, count = one
        return -count, *(-ask.needs).tolist(), *(-ask.share * ask.cards).tolist()

    wanted, sofar, chosen = covered * sum(count for _, count in counts), 0, []
    for one in sorted(counts, key=rank):
        if sofar >= wanted:
            break
        chosen.append(one)
        sofar += one[1]
    return chosen


def _one_card(counts: Sequence[tuple[Ask, int]], kind: int) -> tuple[tuple[int, int], ...]:
    """The asks for one card of a kind: how much of it, and how often."""
    often: Counter[int] = Counter()
    for ask, count in counts:
        if ask.cards[kind] == 1:
            often[int(ask.share[kind])] += count
    return tuple(sorted(often.items()))


@lru_cache(maxsize=256)
def _crumbs(often: tuple[tuple[int, int], ...]) -> Reals:
    """[1001] What so many free thousandths of one card are worth, when asks for one card keep coming."""
    worth = np.zeros(CARD + 1)
    if not often:
        return worth
    sizes = np.array([size for size, _ in often])
    chances = np.array([count for _, count in often], dtype=np.float64)
    chances /= chances.sum()
    for free in range(int(sizes[0]), CARD + 1):
        fits = int(np.searchsorted(sizes, free, side="right"))
        chance = chances[:fits]
        worth[free] = (chance * (sizes[:fits] + worth[free - sizes[:fits]])).sum() / (chance.sum() + PATIENCE)
    return np.floor(worth)
