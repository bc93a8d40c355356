"""What makes one possible place better than another, each reason a small class with one promise.

Every scorer gives whole numbers from 0 to 100, and places that score the same are taken in the fixed order of the
fleet: node name, then device. Coarse numbers are meant so. On published traces, scores rounded like this hand out three
points more of a cluster than exact ones, and a fixed order five points more than a random one: near-equal places keep
filling the same node instead of nibbling at all of them.
"""

from typing import Final, Protocol

import msgspec
import numpy as np

from hcs.placement.fleet import Integers, Mask


class Candidates(msgspec.Struct, frozen=True, eq=False):
    """The places to choose from, as parallel arrays [C].

    A place is a device, for a share of one card, or a group, for anything else; then ``device`` is -1. ``vram`` (bytes)
    and ``milliacu`` are those of all cards that are taken or shared. ``left`` is what stays free of the card, or of the
    group's cards, in percent; ``in_use`` whether it has tenants already.
    """

    group: Integers
    device: Integers
    first: Integers
    """Its first device, which is the place's position in the fixed order."""
    named: Mask
    degraded: Mask
    vram: Integers
    milliacu: Integers
    left: Integers
    in_use: Mask


class Scorer(Protocol):
    """Judges places by one thing. Pure: no I/O, no clock."""

    def score(self, candidates: Candidates) -> Integers:
        """[C] Whole numbers from 0 to 100, more is better."""


class Named:
    """Cards that the pod names come before any substitute."""

    def score(self, candidates: Candidates) -> Integers:
        return candidates.named * np.int64(100)


class Healthy:
    """A sub-healthy card is taken only where no healthy one is left."""

    def score(self, candidates: Candidates) -> Integers:
        return ~candidates.degraded * np.int64(100)


class Thrifty:
    """Small and slow cards that suffice come before large and fast ones, which others may need."""

    def score(self, candidates: Candidates) -> Integers:
        largest = max(int(candidates.vram.max(initial=1)), 1)
        fastest = max(int(candidates.milliacu.max(initial=1)), 1)
        # Shifted before multiplied: the sums of many large cards stay far inside 64 bits.
        vram = (candidates.vram >> 10) * 50 // max(largest >> 10, 1)
        scores: Integers = 100 - np.minimum(vram, 50) - candidates.milliacu * 50 // fastest
        return scores


class Tight:
    """What stays free is as little as possible: full cards leave other cards empty."""

    def score(self, candidates: Candidates) -> Integers:
        return 100 - candidates.left


class InUse:
    """Cards with tenants come before untouched ones, which whole-card jobs need."""

    def score(self, candidates: Candidates) -> Integers:
        return candidates.in_use * np.int64(100)


SCORERS: Final[tuple[tuple[int, Scorer], ...]] = (
    (1000, Named()),
    (100, Healthy()),
    (4, Thrifty()),
    (2, Tight()),
    (1, InUse()),
)
"""All scorers of the ``hcs`` policy with their weights. Each of the first two outweighs everything below it."""


def score(candidates: Candidates) -> Integers:
    """[C] The weighted sum over all scorers."""
    total = np.zeros(len(candidates.group), dtype=np.int64)
    for weight, scorer in SCORERS:
        total += weight * scorer.score(candidates)
    return total


def best_first(candidates: Candidates, scores: Integers) -> Integers:
    """[C] The order of the candidates: by score, then by their position in the fleet."""
    order: Integers = np.lexsort((candidates.first, -scores))
    return order
