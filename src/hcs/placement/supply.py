"""How many cards of one model a container needs on each node, given the devices that are left to it.

The cards of one group may differ a little: two of the same model, measured, rarely have the same rate, so one asks for
three like itself and the other for four. A container gets n cards of a group when n of them each ask for at most n:
then together they do at least what was asked, and no smaller number is sure to.
"""

import numpy as np

from hcs.placement.appraisals import Appraisal
from hcs.placement.fleet import Fleet, Integers, Mask


def cards_needed(fleet: Fleet, appraisal: Appraisal, keep: Mask) -> Integers:
    """[G] The smallest number of kept devices that serve the container in each group; 0 where none do.

    Args:
        keep: [D] the devices to choose from.
    """
    needed = np.zeros(len(fleet.group_node), dtype=np.int64)
    left = np.flatnonzero(keep & appraisal.serves[fleet.kind])
    if not len(left):
        return needed
    group, cards = fleet.group[left], appraisal.cards[fleet.kind[left]]
    if (cards == cards[0]).all():
        counts = np.bincount(group, minlength=len(needed))
        needed[counts >= cards[0]] = cards[0]
        return needed
    order = np.lexsort((cards, group))
    group, cards = group[order], cards[order]
    begins = np.searchsorted(group, group, side="left")
    rank = np.arange(1, len(group) + 1) - begins
    enough = np.flatnonzero(rank >= cards)
    groups, first = np.unique(group[enough], return_index=True)
    needed[groups] = rank[enough[first]]
    return needed


def nodes_of(fleet: Fleet, groups: Mask) -> Mask:
    """[N] Whether any of each node's groups is in the mask [G]."""
    nodes = np.zeros(len(fleet.nodes), dtype=np.bool_)
    nodes[fleet.group_node[groups]] = True
    return nodes
