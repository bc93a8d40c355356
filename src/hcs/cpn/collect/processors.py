"""The CPU beside the cards: each card's share of its node's, and what pods of others ask of it.

A node's CPU belongs to its usable cards in equal parts, of whatever model they are; a pool has the mean of its cards.
Which of its nodes a job goes to is the cluster's own choice, so nothing finer could be planned with. Pure.
"""

from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from hcs.kube.amounts import parse_thousandths, requested
from hcs.model.pods import Pod

MOST: Final = 1 << 40
"""Millicores beyond which an amount is nonsense."""


class Beside(msgspec.Struct, frozen=True):
    """Millicores for one card: its share of its node's, and what others ask of that."""

    share: int
    asked: int


def cpu_asked(pod: Pod) -> int:
    """Millicores that a pod asks of its node; nonsense counts as nothing."""
    try:
        return _sensible(requested(msgspec.to_builtins(pod.spec)).get("cpu", 0)) or 0
    except (ValueError, ArithmeticError):
        return 0


def cpu_offered(status: Mapping[str, Any]) -> int | None:
    """Millicores that a node with this status offers to pods; None where it does not say so."""
    try:
        return _sensible(parse_thousandths((status.get("allocatable") or {})["cpu"])) or None
    except (KeyError, ValueError, ArithmeticError):
        return None


def beside_cards(
    by_node: Mapping[tuple[str, str], int], offered: Mapping[str, int | None], asked: Mapping[str, int]
) -> dict[str, Beside]:
    """What the cards of each model have; models are left out of whose nodes none says what it offers.

    Args:
        by_node: usable cards by (node, model).
        offered: millicores of each node.
        asked: millicores that pods of others ask of each node.

    >>> beside_cards({("n1", "A"): 2, ("n1", "B"): 2, ("n2", "A"): 2}, {"n1": 8000, "n2": 8000}, {"n2": 2000})["A"]
    Beside(share=3000, asked=500)
    """
    cards = Counter[str]()
    for (node, _), count in by_node.items():
        cards[node] += count
    sums: dict[str, list[int]] = {}
    for (node, kind), count in by_node.items():
        whole = offered.get(node)
        if count and whole:
            known = sums.setdefault(kind, [0, 0, 0])
            known[0] += count
            known[1] += whole * count // cards[node]
            known[2] += asked.get(node, 0) * count // cards[node]
    return {kind: Beside(share // count, -(-theirs // count)) for kind, (count, share, theirs) in sums.items()}


def _sensible(amount: int) -> int | None:
    return amount if 0 <= amount <= MOST else None
