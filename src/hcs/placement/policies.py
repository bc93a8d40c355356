"""The ways to choose among the places that could serve, by name. Each is a small class; a new one is one more entry.

``hcs`` is the one we stand for. The others are those the literature compares with, so that a claim about ours can be
checked on the same cluster with the same code: the first six as Weng et al. (USENIX ATC 2023) and their published
simulator define them, ``spread`` and ``firstfit`` as everybody knows them.

A policy scores groups of devices from what it sees of them (:mod:`hcs.placement.rows`); the highest score wins, the
fixed order of the fleet breaks ties. It never decides what fits.
"""

from typing import Final, Literal, Protocol

import msgspec
import numpy as np

from hcs.placement.asks import CARD, Ask
from hcs.placement.fleet import Integers, Mask
from hcs.placement.outlook import COVERED, PUBLISHED, Outlook, Reals
from hcs.placement.packing import Choice
from hcs.placement.rows import Rows, grid_of
from hcs.placement.scorers import fragments_cleared, steps, use_lost_to_cards, use_lost_to_shares
from hcs.placement.snapshot import tag_of

CPU: Final = "cpu"
"""The column that published policies look at beside the cards."""

Looks = Literal["nowhere", "fragments", "use"]


class Chosen(msgspec.Struct, frozen=True):
    """The place a policy chose: a group, the devices of each container, and the place's score."""

    group: int
    devices: Choice
    score: int = 0


class Policy(Protocol):
    """Scores places. Pure and deterministic; scores are whole numbers, not negative."""

    looks: Looks
    """Which outlook it wants, if any."""
    learns: bool
    """Whether the outlook is made from the requests as they come, not from a mix that is known before."""
    chance: bool
    """Whether equal scores are decided by lot and not by the fixed order."""
    snug: bool
    """Whether, of a row's devices that score the same, the one with the least free is taken and not the first."""

    def shares(self, rows: Rows, ask: Ask, fits: Mask, outlook: Outlook) -> Integers:
        """[B, W] Score each device that ``fits`` for a share of it; other entries mean nothing."""

    def cards(self, rows: Rows, ask: Ask, taken: Reals, outlook: Outlook) -> Integers:
        """[B] Score each row for an ask that takes so many thousandths [B, W] of its devices; none at all of a node
        that gives columns only."""


class _Blind:
    """What most policies have in common."""

    looks: Looks = "nowhere"
    learns = False
    chance = False
    snug = True

    def shares(self, rows: Rows, ask: Ask, fits: Mask, outlook: Outlook) -> Integers:
        scores = self._nodes(rows, ask, ask.by_kind.share[rows.row_kind].astype(np.float64))
        return np.broadcast_to(scores[:, None], fits.shape)

    def cards(self, rows: Rows, ask: Ask, taken: Reals, outlook: Outlook) -> Integers:
        return self._nodes(rows, ask, taken.sum(axis=1))

    def _nodes(self, rows: Rows, ask: Ask, taken: Reals) -> Integers:
        """[B] The score where it is the same for all devices of a row, of which so much is taken together."""
        return np.zeros(len(rows.group), dtype=np.int64)


class FirstFit(_Blind):
    """The first that serves: named cards first, then substitutes, by name of the node."""

    snug = False

    def shares(self, rows: Rows, ask: Ask, fits: Mask, outlook: Outlook) -> Integers:
        return _named(rows, ask)

    def cards(self, rows: Rows, ask: Ask, taken: Reals, outlook: Outlook) -> Integers:
        return _first_named(rows, ask)


class Random(_Blind):
    """Any that serves, with equal chance."""

    chance = True
    snug = False


class DotProd(_Blind):
    """The smaller the product of what is free and what is asked, the less is left relative to the ask."""

    def _nodes(self, rows: Rows, ask: Ask, taken: Reals) -> Integers:
        largest, cards = _largest_cpu(rows), float(grid_of(rows.fleet).largest * CARD)
        cpu, asked = _cpu(rows, ask)
        product = cpu * asked / largest**2 + rows.free.sum(axis=1) * taken / cards**2
        return _cut(100 * (1 - product / 2))


class GpuClustering(_Blind):
    """Tasks of one size together: a node that hosts only this size, then among others, then an empty one."""

    def _nodes(self, rows: Rows, ask: Ask, taken: Reals) -> Integers:
        if ask.cardless:
            return np.zeros(len(rows.group), dtype=np.int64)
        cards = (ask.by_kind.cards * ask.by_kind.whole)[rows.row_kind]
        tags = np.array([tag_of(int(count)) for count in cards], dtype=np.int64)
        hosts = rows.hosts > 0
        this = hosts[tags, np.arange(len(tags))]
        kinds = hosts.sum(axis=0)
        base = np.where(this, np.where(kinds == 1, 75, 50), np.where(kinds == 0, 25, 0))
        most = float(grid_of(rows.fleet).largest * CARD)
        full = (25 * (most - rows.free.sum(axis=1)) / most).astype(np.int64)
        result: Integers = base + full
        return result


class GpuPacking(_Blind):
    """Cards in use first, then free cards of nodes in use, then untouched nodes."""

    def shares(self, rows: Rows, ask: Ask, fits: Mask, outlook: Outlook) -> Integers:
        least = np.where(fits, rows.free, np.inf).min(axis=1)
        in_use = np.maximum(100 - np.where(np.isfinite(least), least, 0) // 10 // 10, 50)
        scores = np.where(least == CARD, 49, in_use).astype(np.int64)
        return np.broadcast_to(_unless_untouched(rows, scores)[:, None], fits.shape)

    def cards(self, rows: Rows, ask: Ask, taken: Reals, outlook: Outlook) -> Integers:
        if ask.cardless:
            return np.zeros(len(rows.group), dtype=np.int64)
        free = ((taken > 0) & (rows.free == CARD)).sum(axis=1)
        return _unless_untouched(rows, np.maximum(50 - free, 33))


class BestFit(_Blind):
    """The node that is left with least, CPU and cards together.

    The published score is stretched over the feasible nodes afterwards, which changes no order and so is left out.
    """

    def _nodes(self, rows: Rows, ask: Ask, taken: Reals) -> Integers:
        cpu, asked = _cpu(rows, ask)
        cards = float(grid_of(rows.fleet).largest * CARD)
        left = 0.5 * (cpu - asked) / _largest_cpu(rows) + 0.5 * (rows.free.sum(axis=1) - taken) / cards
        return _cut(np.maximum(100 * (1 - left), 0))


class Spread(_Blind):
    """The node, and on it the card, with most free: what is good for one pod and bad for the next large one."""

    snug = False

    def shares(self, rows: Rows, ask: Ask, fits: Mask, outlook: Outlook) -> Integers:
        scores: Integers = (
            self._nodes(rows, ask, rows.free.max(axis=1))[:, None] * 8 + rows.free.astype(np.int64) // 128
        )
        return scores

    def cards(self, rows: Rows, ask: Ask, taken: Reals, outlook: Outlook) -> Integers:
        return self._nodes(rows, ask, taken.sum(axis=1)) * 8

    def _nodes(self, rows: Rows, ask: Ask, taken: Reals) -> Integers:
        cpu, _ = _cpu(rows, ask)
        own = np.maximum(rows.size * float(CARD), 1)
        return _cut(50 * rows.free.sum(axis=1) / own + 50 * cpu / _largest_cpu(rows))


class Fgd(_Blind):
    """Fragmentation gradient descent: the place that makes the fragments of the mix grow least."""

    looks: Looks = "fragments"
    snug = False

    def __init__(self, *, learns: bool = False) -> None:
        self.learns = learns

    def shares(self, rows: Rows, ask: Ask, fits: Mask, outlook: Outlook) -> Integers:
        return steps(fragments_cleared(rows, ask, fits, None, outlook), outlook, 100, 1.0)

    def cards(self, rows: Rows, ask: Ask, taken: Reals, outlook: Outlook) -> Integers:
        none = np.zeros(rows.free.shape, dtype=np.bool_)
        return steps(fragments_cleared(rows, ask, none, taken, outlook), outlook, 100, 1.0)


class Hcs(_Blind):
    """Our own. Named cards before substitutes and healthy ones before sick ones, always; among those, the place that
    leaves most of what is free of use to the mix, weighed against not burning strong cards on small jobs."""

    looks: Looks = "use"

    LEVELS: Final = 25
    REACH: Final = 2.0
    NAMED: Final = 1_000_000
    WELL: Final = 100_000
    USE: Final = 16
    THRIFT: Final = 2
    LIKED: Final = 4

    def __init__(self, *, learns: bool = False) -> None:
        self.learns = learns

    def shares(self, rows: Rows, ask: Ask, fits: Mask, outlook: Outlook) -> Integers:
        use = steps(use_lost_to_shares(rows, ask, fits, outlook), outlook, self.LEVELS, self.REACH)
        thrift = ask.by_kind.thrift[rows.kind]
        scores: Integers = (
            self.NAMED * _named(rows, ask)
            + self.WELL * (~rows.degraded if rows.grid.any_degraded else 1)
            + self.USE * use
            + self.THRIFT * thrift
            + (rows.tenants > 0)
        )
        if ask.likes is not None:
            scores = scores + self.LIKED * _liked(rows, ask)[:, None]
        return scores

    def cards(self, rows: Rows, ask: Ask, taken: Reals, outlook: Outlook) -> Integers:
        use = steps(use_lost_to_cards(rows, ask, taken, outlook), outlook, self.LEVELS, self.REACH)
        taken_cards = (taken > 0).sum(axis=1)
        several = taken_cards > 1
        well = ~(rows.degraded & (taken > 0)).any(axis=1)
        thrift = ask.by_kind.thrift[rows.row_kind]
        scores: Integers = (
            self.NAMED * _first_named(rows, ask)
            + self.WELL * well
            + self.USE * use
            + self.THRIFT * thrift
            + self.LIKED * _liked(rows, ask)
            + np.where(several, 15 * taken_cards // np.maximum(rows.whole, 1), 0).astype(np.int64)
        )
        return scores


POLICIES: Final[dict[str, Policy]] = {
    "hcs": Hcs(),
    "hcs-learned": Hcs(learns=True),
    "fgd": Fgd(),
    "fgd-learned": Fgd(learns=True),
    "bestfit": BestFit(),
    "gpupacking": GpuPacking(),
    "gpuclustering": GpuClustering(),
    "dotprod": DotProd(),
    "random": Random(),
    "spread": Spread(),
    "firstfit": FirstFit(),
}
"""All policies by name."""

OUTLOOKS: Final[dict[Looks, float]] = {"nowhere": 0.0, "fragments": PUBLISHED, "use": COVERED}
"""What share of all requests the typical ones cover, by what a policy looks at."""


def _cut(scores: Reals) -> Integers:
    """Whole numbers, cut off as the published simulator does."""
    whole: Integers = scores.astype(np.int64)
    return whole


def _named(rows: Rows, ask: Ask) -> Integers:
    named: Integers = ask.by_kind.named[rows.kind]
    return named


def _first_named(rows: Rows, ask: Ask) -> Integers:
    named: Integers = ask.by_kind.named[rows.row_kind]
    return named


def _liked(rows: Rows, ask: Ask) -> Integers:
    if ask.likes is None:
        return np.zeros(len(rows.group), dtype=np.int64)
    liked: Integers = ask.likes[rows.node]
    return liked


def _cpu(rows: Rows, ask: Ask) -> tuple[Reals, float]:
    """[B] The CPU that is free, and what is asked of it; nothing where the fleet does not count CPU."""
    columns = rows.fleet.columns
    if CPU not in columns:
        return np.zeros(len(rows.group)), 0.0
    column = columns.index(CPU)
    return rows.room[:, column], float(ask.needs[column])


def _largest_cpu(rows: Rows) -> float:
    columns = rows.fleet.columns
    return float(max(rows.fleet.room[:, columns.index(CPU)].max(initial=1), 1)) if CPU in columns else 1.0


def _unless_untouched(rows: Rows, scores: Integers) -> Integers:
    free = (rows.free == CARD).sum(axis=1)
    result: Integers = np.where(free == rows.size, np.maximum(33 - free, free), scores)
    return result
