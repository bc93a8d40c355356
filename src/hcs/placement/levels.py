"""Nearness between nodes as nested levels, and the nearest nodes that hold a number of things.

From wide to narrow: the fleet, zone, RDMA network, rack, link domain, node. A place on one level is told apart by its
name *and* all wider ones, so the levels always nest. Capacities are numbers a node; the nearest nodes are those of the
narrowest place that holds all, and inside it as few places of each narrower level as possible. All of it is arithmetic
on arrays, because it is asked for every plan on every node.
"""

from functools import lru_cache
from typing import Final

import msgspec
import numpy as np

from hcs.model.devices import NodeInventory
from hcs.placement.fleet import Fleet, Integers, Mask

NAMES: Final = ("fleet", "zone", "fabric", "rack", "domain", "node")


class Levels(msgspec.Struct, frozen=True, eq=False):
    """``place[level]`` [N] numbers each node's place on every level of :data:`NAMES`, in the order of the names."""

    place: tuple[Integers, ...]


class Nearest(msgspec.Struct, frozen=True, order=True):
    """The nearest nodes found: over how many places of each level they reach (a lower bound on the narrow ones), what
    they hold beyond what was asked, and the nodes in the order in which to fill them."""

    reach: tuple[int, ...]
    surplus: int
    nodes: tuple[int, ...]


@lru_cache(maxsize=8)
def levels_of(fleet: Fleet) -> Levels:
    """Number the places of all nodes on all levels."""
    paths = [_path(node) for node in fleet.nodes]
    places = [np.zeros(len(paths), dtype=np.int64)]
    for depth in range(1, len(NAMES)):
        known = {path: number for number, path in enumerate(sorted({path[:depth] for path in paths}))}
        places.append(np.fromiter((known[path[:depth]] for path in paths), dtype=np.int64, count=len(paths)))
    return Levels(tuple(places))


def fabric_of(node: NodeInventory) -> str:
    """The node's RDMA network: as located, else the only one its adapters name."""
    if node.location.fabric:
        return node.location.fabric
    return next(iter(node.fabrics)) if len(node.fabrics) == 1 else ""


def nearest(levels: Levels, capacity: Integers, count: int, *, tries: int = 1) -> list[Nearest]:
    """The nearest sets of nodes whose capacities [N] add up to ``count``, the best first; empty where none do.

    Args:
        levels: where the nodes stand.
        capacity: how many each node holds, 0 for nodes that are out of the question.
        count: how many are to be held.
        tries: how many sets to return at most. All are of the narrowest level that has one, then of wider ones.
    """
    found: list[Nearest] = []
    for level in range(len(NAMES) - 1, -1, -1):
        held = np.bincount(levels.place[level], weights=capacity).astype(np.int64)
        enough = np.flatnonzero(held >= count)
        if not len(enough):
            continue
        reach = np.stack([_fewest(levels, capacity, count, level, inner)[enough] for inner in range(1, len(NAMES))])
        for choice in np.lexsort((enough, held[enough], *reach[::-1]))[: tries - len(found)]:
            unit = int(enough[choice])
            nodes = _fill(levels, capacity, count, level, levels.place[level] == unit)
            found.append(Nearest(tuple(int(n) for n in reach[:, choice]), int(held[unit]) - count, nodes))
        if len(found) >= tries:
            break
    return found


def _path(node: NodeInventory) -> tuple[str, ...]:
    location = node.location
    # A node that names no link domain is one of its own: its cards reach no other node's.
    return location.zone, fabric_of(node), location.rack, location.domain or f"\0{node.name}", node.name


def _fewest(levels: Levels, capacity: Integers, count: int, level: int, inner: int) -> Integers:
    """For each place of ``level``: over how few places of the ``inner`` level ``count`` can be spread there."""
    if inner <= level:
        return np.ones(int(levels.place[level].max(initial=-1)) + 1, dtype=np.int64)
    held = np.bincount(levels.place[inner], weights=capacity).astype(np.int64)
    outer = np.zeros(len(held), dtype=np.int64)
    outer[levels.place[inner]] = levels.place[level]
    order = np.lexsort((-held, outer))
    before = np.cumsum(held[order]) - held[order]
    first = np.searchsorted(outer[order], np.arange(int(levels.place[level].max(initial=-1)) + 1))
    begun = before - before[np.minimum(first, len(before) - 1)][outer[order]]
    fewest: Integers = np.bincount(outer[order], weights=(begun < count) & (held[order] > 0)).astype(np.int64)
    return fewest


def _fill(levels: Levels, capacity: Integers, count: int, level: int, inside: Mask) -> tuple[int, ...]:
    """The nodes of a place in the order to fill them: few places of the next level, the fullest fit last."""
    if level == len(NAMES) - 1:
        return tuple(int(node) for node in np.flatnonzero(inside))
    nodes = np.flatnonzero(inside & (capacity > 0))
    places, where = np.unique(levels.place[level + 1][nodes], return_inverse=True)
    held = np.bincount(where, weights=capacity[nodes]).astype(np.int64)
    order = [int(place) for place in np.lexsort((places, -held))]
    chosen: list[int] = []
    left = count
    while left > 0 and order:
        fitting = [place for place in order if held[place] >= left]
        best = min(fitting, key=lambda place: (held[place], place)) if fitting else order[0]
        order.remove(best)
        chosen.append(best)
        left -= int(held[best])
    result: list[int] = []
    left = count
    for place in chosen:
        part = min(left, int(held[place]))
        result.extend(
            _fill(levels, capacity, part, level + 1, inside & (levels.place[level + 1] == int(places[place])))
        )
        left -= part
    return tuple(result)
