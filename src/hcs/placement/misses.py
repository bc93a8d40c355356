"""The nearest miss: of the places whose cards would do and are merely held by others, the one that lacks least.

For people only. It names what is free at this moment, so it must never reach kube-scheduler, where a text that changes
between two calls makes it try the pod again without a pause.
"""

from collections.abc import Collection

import msgspec
import numpy as np

from hcs.model.quantities import show_acu, show_bytes
from hcs.model.requests import ComputeRequest
from hcs.placement.appraisals import Appraisal, ReferenceRates, VendorBound, appraise
from hcs.placement.fleet import Integers, Mask
from hcs.placement.snapshot import Snapshot, key_of
from hcs.ura.demand import label


class Miss(msgspec.Struct, frozen=True):
    """A place that nearly serves: ``lacking`` is the part of the request that is missing there, from 0 to 1."""

    node: str
    lacking: float
    sentence: str


def nearest_miss(
    snapshot: Snapshot,
    request: ComputeRequest,
    *,
    nodes: Collection[str] | None = None,
    reference_rates: ReferenceRates | None = None,
    bound: VendorBound | None = None,
) -> Miss | None:
    """Find it; None where no healthy card of the nodes could serve even if it were free, where a place exists, or where
    no card is asked for.

    Several containers are looked at one by one: the miss of the one that lacks most. Arguments as for
    :func:`hcs.placement.engine.place`.
    """
    if not request.containers:
        return None
    fleet = snapshot.fleet
    wanted = np.array([nodes is None or node.name in nodes for node in fleet.nodes], dtype=np.bool_)
    open_cards = fleet.usable & wanted[fleet.node] & fleet.ready[fleet.node]
    found = [
        _of_container(snapshot, appraisal, open_cards & appraisal.serves[fleet.kind])
        for appraisal in appraise(fleet, request, reference_rates, bound)
    ]
    if any(miss is None for miss in found):
        return None
    worst = max((miss for miss in found if miss is not None), key=lambda miss: miss.lacking)
    return worst if worst.lacking > 0 else None


def _of_container(snapshot: Snapshot, appraisal: Appraisal, cards: Mask) -> Miss | None:
    positions = np.flatnonzero(cards)
    if not len(positions):
        return None
    whole = appraisal.whole[snapshot.fleet.kind[positions]]
    misses = [
        miss
        for miss in (
            _shares(snapshot, appraisal, positions[~whole]),
            _whole(snapshot, appraisal, positions[whole]),
        )
        if miss is not None
    ]
    return min(misses, key=lambda miss: miss.lacking, default=None)


def _shares(snapshot: Snapshot, appraisal: Appraisal, positions: Integers) -> Miss | None:
    """The card with the most of what a share needs; one that somebody owns, or another sharing group, has nothing."""
    if not len(positions):
        return None
    fleet = snapshot.fleet
    kind = fleet.kind[positions]
    owned = ((snapshot.whole > 0) | ~snapshot.open_to(key_of(appraisal.request.group)))[positions]
    bytes_free = np.where(owned, 0, snapshot.free_bytes[positions])
    acu_free = np.where(owned, 0, snapshot.free_milliacu[positions])
    bytes_asked, acu_asked = appraisal.bytes[kind], appraisal.milliacu[kind]
    lacking = np.maximum(_lacking(bytes_asked, bytes_free), _lacking(acu_asked, acu_free))
    best = int(np.lexsort((positions, -bytes_free, lacking))[0])
    device = fleet.devices[int(positions[best])]
    node = fleet.nodes[int(fleet.node[positions[best]])].name
    free, asked = [show_bytes(int(bytes_free[best]))], [show_bytes(int(bytes_asked[best]))]
    if acu_asked[best]:
        free.append(f"{show_acu(int(acu_free[best]))} ACU")
        asked.append(f"{show_acu(int(acu_asked[best]))} ACU")
    return Miss(
        node,
        float(lacking[best]),
        f"card {device.index} of {node}, {label(device)}, has {' and '.join(free)} free of the "
        f"{' and '.join(asked)} it would take",
    )


def _whole(snapshot: Snapshot, appraisal: Appraisal, positions: Integers) -> Miss | None:
    """The group of equal cards on one node with the most of the cards that are needed free."""
    fleet = snapshot.fleet
    best: Miss | None = None
    groups: dict[int, list[int]] = {}
    for position in positions:
        groups.setdefault(int(fleet.group[position]), []).append(int(position))
    for members in groups.values():
        needed = int(appraisal.cards[fleet.kind[members]].min())
        if needed > len(members):
            continue  # never enough of them, whoever leaves
        free = int((snapshot.tenants[members] == 0).sum())
        lacking = (needed - free) / needed if free < needed else 0.0
        if best is None or lacking < best.lacking:
            node = fleet.nodes[int(fleet.node[members[0]])].name
            sentence = (
                f"{node} has {free or 'no'} free {label(fleet.devices[members[0]])} "
                f"of the {needed} it would take; {len(members) - free} there are held by other pods"
            )
            best = Miss(node, lacking, sentence)
    return best


def _lacking(asked: Integers, free: Integers) -> "np.ndarray[tuple[int], np.dtype[np.float64]]":
    """[P] The part of each amount that is missing, from 0 to 1."""
    missing: np.ndarray[tuple[int], np.dtype[np.float64]] = np.maximum(asked - free, 0) / np.maximum(asked, 1)
    return missing
