"""What makes one possible place better than another, each reason a small function with one promise.

A scorer gives whole numbers, more is better, and coarse ones: places that score the same are taken in the fixed order
of the fleet, node name then device, so near-equal places keep filling the same node instead of nibbling at all of them.
On published traces that decides three points of allocation, and a fixed order before a random one five.

Each score depends on one group of devices and the request, never on other groups. That is what lets an engine remember
them: a placement changes one group's.
"""

from functools import lru_cache
from math import log

import numpy as np
from numpy.typing import NDArray

from hcs.placement.asks import CARD, Ask
from hcs.placement.fleet import Integers, Mask
from hcs.placement.outlook import Outlook, Reals
from hcs.placement.rows import Rows


def after_share(rows: Rows, ask: Ask, fits: Mask) -> tuple[Integers, Integers, Integers]:
    """The places a share could take, as (row, place) pairs [P], and what would be free of each card after."""
    row, place = np.nonzero(fits)
    share = ask.by_kind.share[rows.kind[row, place]]
    left = np.maximum(rows.thousandths[row, place] - share, 0)
    return row, place, left


def use_lost_to_shares(rows: Rows, ask: Ask, fits: Mask, outlook: Outlook) -> Integers:
    """[B, W] What a share gains in thousandths, times the outlook's total: its own size less the use that is lost."""
    row, place, left = after_share(rows, ask, fits)
    kind = rows.row_kind
    free = rows.thousandths
    each = outlook.use[kind[:, None], free]
    sums = each.sum(axis=1)
    whole = rows.whole
    lot = _lots(outlook, kind, whole)
    before = _within(sums + lot, rows, outlook, rows.room) @ outlook.weight
    change = sums[row] - each[row, place] + outlook.use[kind[row], left]
    whole_after = whole[row] - (free[row, place] == CARD)
    change += _lots(outlook, kind[row], whole_after)
    allowed = _allowed(rows.row_kind, outlook, _room_after(rows, ask))
    used = np.minimum(change, allowed[row]) if allowed is not None else change
    gained = np.zeros(fits.shape)
    size = free[row, place] - left
    gained[row, place] = size * outlook.total + used @ outlook.weight - before[row]
    return gained.astype(np.int64)


def use_lost_to_cards(rows: Rows, ask: Ask, taken: Reals, outlook: Outlook) -> Integers:
    """[B] The same for cards taken whole, or in part by several containers: ``taken`` [B, W] of each."""
    kind = rows.row_kind
    free = rows.thousandths
    left = free - taken.astype(np.int64)
    before = outlook.use[kind[:, None], free].sum(axis=1) + _lots(outlook, kind, rows.whole)
    after = outlook.use[kind[:, None], left].sum(axis=1)
    after += _lots(outlook, kind, (left == CARD).sum(axis=1))
    room = _room_after(rows, ask)
    used = _within(after, rows, outlook, room) - _within(before, rows, outlook, rows.room)
    gained: Integers = (taken.sum(axis=1) * outlook.total + used @ outlook.weight).astype(np.int64)
    return gained


def fragments_cleared(rows: Rows, ask: Ask, fits: Mask, taken: Reals | None, outlook: Outlook) -> Integers:
    """How much smaller the fragments get, in thousandths, times the outlook's total.

    [B, W] for each share that ``fits``; [B] for cards of which so much is ``taken``, where that is given.
    """
    kind, free = rows.row_kind, rows.free
    share, cards = outlook.share[kind], outlook.cards[kind]
    needed = np.where(cards > 0, share, CARD + 1.0)[:, None, :]
    ample = free[:, :, None] >= needed
    part = free[:, :, None] * ample
    sums, count = part.sum(axis=1), ample.sum(axis=1)
    room = rows.room - ask.needs
    suits = _suits(outlook, rows.room)
    suits_after = _suits(outlook, room)
    before = (sums * (suits & (count >= cards) & (cards > 0))) @ outlook.weight
    if taken is not None:
        left = free - taken
        ample = left[:, :, None] >= needed
        use = (left[:, :, None] * ample).sum(axis=1) * (suits_after & (ample.sum(axis=1) >= cards) & (cards > 0))
        cleared: Integers = (taken.sum(axis=1) * outlook.total + use @ outlook.weight - before).astype(np.int64)
        return cleared
    row, place, after = after_share(rows, ask, fits)
    still = after[:, None] >= needed[row, 0]
    sums = sums[row] - part[row, place] + after[:, None] * still
    count = count[row] - ample[row, place] + still
    use = sums * (suits_after[row] & (count >= cards[row]) & (cards[row] > 0))
    gained = np.zeros(fits.shape)
    gained[row, place] = (free[row, place] - after) * outlook.total + use @ outlook.weight - before[row]
    return gained.astype(np.int64)


def fragments(rows: Rows, outlook: Outlook) -> Reals:
    """[B] What is free and of no use to the mix, in thousandths, times the outlook's total."""
    share, cards = outlook.share[rows.row_kind], outlook.cards[rows.row_kind]
    ample = rows.free[:, :, None] >= np.where(cards > 0, share, CARD + 1.0)[:, None, :]
    fits = _suits(outlook, rows.room) & (ample.sum(axis=1) >= cards) & (cards > 0)
    use = ((rows.free[:, :, None] * ample).sum(axis=1) * fits) @ outlook.weight
    useless: Reals = rows.free.sum(axis=1) * outlook.total - use
    return useless


def steps(gained: Integers, outlook: Outlook, levels: int, reach: float) -> Integers:
    """Whole numbers from 0 to ``levels``: ``levels`` times the logistic function of what is gained, in cards.

    Args:
        gained: in thousandths of a card, times the outlook's total.
        outlook: for that total.
        levels: how many steps there are.
        reach: how many cards away from nothing the curve flattens.
    """
    bounds = _bounds(levels, reach) * (CARD * max(outlook.total, 1.0))
    result: Integers = np.searchsorted(bounds, gained.astype(np.float64), side="right")
    return result


@lru_cache(maxsize=16)
def _bounds(levels: int, reach: float) -> NDArray[np.float64]:
    """What has to be gained to reach each step, in cards."""
    return np.array([reach * log(step / (levels - step)) for step in range(1, levels)])


def _lots(outlook: Outlook, kind: Integers, whole: Integers) -> Reals:
    """[B, M] What so many fully free cards are to asks for several at once, beyond what each is alone."""
    lots: Reals = outlook.lots[kind, np.minimum(whole, outlook.lots.shape[1] - 1)]
    return lots


def _allowed(kind: Integers, outlook: Outlook, room: Reals) -> Reals | None:
    """[B, M] How many thousandths of cards the columns leave each ask; None where there are no columns."""
    if not room.shape[1]:
        return None
    with np.errstate(invalid="ignore"):
        carried = np.floor(outlook.per_room[kind] * room[:, None, :])
    carried[np.isnan(carried)] = np.inf
    least: Reals = carried.min(axis=2)
    return least


def _room_after(rows: Rows, ask: Ask) -> Reals:
    return np.maximum(rows.room - ask.needs, 0) if rows.fleet.columns else rows.room


def _within(use: Reals, rows: Rows, outlook: Outlook, room: Reals) -> Reals:
    allowed = _allowed(rows.row_kind, outlook, room)
    return use if allowed is None else np.minimum(use, allowed)


def _suits(outlook: Outlook, room: Reals) -> Mask:
    """[B, M] Whether the columns are enough for one of each ask."""
    suits: Mask = np.logical_and.reduce(room[:, None, :] >= outlook.needs, axis=2)
    return suits
