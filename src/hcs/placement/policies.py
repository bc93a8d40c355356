"""The ways to choose among the places that could serve, by name.

``hcs`` is the one we stand for. ``firstfit`` takes the first node, in order of names, whose first devices serve: the
simple method everything else is compared with, written without the other's arrays, so that each checks the other.
"""

from collections.abc import Sequence
from typing import Final, Protocol

import msgspec
import numpy as np

from hcs.placement.appraisals import Appraisal
from hcs.placement.arrangement import arrange, wiring_of
from hcs.placement.filters import eligible
from hcs.placement.fleet import Fleet, Integers, Mask
from hcs.placement.nearness import in_reach
from hcs.placement.packing import Card, Choice, cards_of, first_fit, masks_on
from hcs.placement.scorers import Candidates, best_first, score
from hcs.placement.snapshot import Snapshot
from hcs.placement.supply import cards_needed


class Chosen(msgspec.Struct, frozen=True):
    """The place a policy chose: a group, the devices of each container, and the place's score."""

    group: int
    devices: Choice
    score: int = 0


class Policy(Protocol):
    """Chooses where a pod goes, or finds that it can go nowhere. Pure and deterministic."""

    def choose(self, snapshot: Snapshot, appraisals: Sequence[Appraisal], nodes: Mask) -> Chosen | None:
        """Choose a place on one of the nodes [N]."""


class Hcs:
    """Our own: every device that passes all filters is judged by all scorers; the best place is taken."""

    def choose(self, snapshot: Snapshot, appraisals: Sequence[Appraisal], nodes: Mask) -> Chosen | None:
        masks = masks_on(snapshot, [eligible(snapshot, appraisal) for appraisal in appraisals], nodes)
        candidates = _candidates(snapshot, appraisals, masks)
        if not len(candidates.group):
            return None
        scores = score(candidates)
        failed: set[tuple[object, ...]] = set()
        for place in best_first(candidates, scores):
            group, device = int(candidates.group[place]), int(candidates.device[place])
            if device >= 0:
                return Chosen(group, ((device,),), int(scores[place]))
            cards = cards_of(snapshot, appraisals, masks, group)
            rules = appraisals[0].request.locality
            wiring = wiring_of(snapshot, group, rules) if rules.pairing else None
            state = (wiring, *(card.state() for card in cards))
            if state in failed:
                continue
            devices = arrange(snapshot, cards, len(appraisals), group, rules)
            if devices is not None:
                return Chosen(group, devices, int(scores[place]))
            failed.add(state)
        return None


class FirstFit:
    """The first node that serves, by name; on it the first devices. Named cards first, then substitutes."""

    def choose(self, snapshot: Snapshot, appraisals: Sequence[Appraisal], nodes: Mask) -> Chosen | None:
        fleet, rules = snapshot.fleet, appraisals[0].request.locality
        for substitute in (False, True):
            for group in range(len(fleet.group_node)):
                inside = fleet.group_slice(group)
                if not nodes[fleet.group_node[group]] or not fleet.ready[fleet.group_node[group]]:
                    continue
                if bool(appraisals[0].substitute[fleet.kind[inside.start]]) != substitute:
                    continue
                masks = [_usable(fleet, appraisal, inside) for appraisal in appraisals]
                cards = [_unless_owned(snapshot, card) for card in cards_of(snapshot, appraisals, masks, group)]
                if not in_reach(fleet.nodes[int(fleet.group_node[group])], rules):
                    continue
                if rules.pairing:  # the first set that serves may not be one that may go together
                    devices = arrange(snapshot, cards, len(appraisals), group, rules)
                else:
                    devices = first_fit(cards, len(appraisals))
                if devices is not None:
                    return Chosen(group, devices)
        return None


POLICIES: Final[dict[str, Policy]] = {"hcs": Hcs(), "firstfit": FirstFit()}
"""All policies by name."""


def _candidates(snapshot: Snapshot, appraisals: Sequence[Appraisal], masks: Sequence[Mask]) -> Candidates:
    """All places worth a look: single devices for one share, groups for whole cards and for several containers."""
    fleet = snapshot.fleet
    if len(appraisals) == 1:
        appraisal, mask = appraisals[0], masks[0]
        whole = appraisal.whole[fleet.kind]
        return _join(
            _shares(snapshot, appraisal, np.flatnonzero(mask & ~whole)),
            _groups(snapshot, appraisals, (mask & whole,)),
        )
    return _groups(snapshot, appraisals, masks)


def _shares(snapshot: Snapshot, appraisal: Appraisal, devices: Integers) -> Candidates:
    fleet = snapshot.fleet
    kind = fleet.kind[devices]
    vram, milliacu = fleet.vram[devices], fleet.milliacu[devices]
    left_bytes = (snapshot.free_bytes[devices] - appraisal.bytes[kind]) * 100 // np.maximum(vram, 1)
    left_milliacu = (snapshot.free_milliacu[devices] - appraisal.milliacu[kind]) * 100 // np.maximum(milliacu, 1)
    return Candidates(
        group=fleet.group[devices],
        device=devices,
        first=devices,
        named=~appraisal.substitute[kind],
        degraded=fleet.degraded[devices],
        vram=vram,
        milliacu=milliacu,
        left=(left_bytes + left_milliacu) // 2,
        in_use=snapshot.tenants[devices] > 0,
    )


def _groups(snapshot: Snapshot, appraisals: Sequence[Appraisal], masks: Sequence[Mask]) -> Candidates:
    fleet = snapshot.fleet
    needed = [cards_needed(fleet, appraisal, mask) for appraisal, mask in zip(appraisals, masks, strict=True)]
    groups = np.flatnonzero(np.logical_and.reduce([count > 0 for count in needed]))
    cards = np.sum([count[groups] for count in needed], axis=0, dtype=np.int64)
    first = fleet.group_first[groups]
    sizes = fleet.group_first[groups + 1] - first
    untouched = _per_group(fleet, fleet.usable & (snapshot.tenants == 0))[groups]
    healthy = [
        cards_needed(fleet, appraisal, mask & ~fleet.degraded)[groups] > 0
        for appraisal, mask in zip(appraisals, masks, strict=True)
    ]
    return Candidates(
        group=groups,
        device=np.full(len(groups), -1, dtype=np.int64),
        first=first,
        named=~appraisals[0].substitute[fleet.kind[first]],
        degraded=~np.logical_and.reduce(healthy),
        vram=fleet.vram[first] * cards,
        milliacu=fleet.milliacu[first] * cards,
        left=np.clip((untouched - cards) * 100 // sizes, 0, 100),
        in_use=_per_group(fleet, snapshot.tenants > 0)[groups] > 0,
    )


def _per_group(fleet: Fleet, mask: Mask) -> Integers:
    """[G] How many devices of each group are in the mask [D]."""
    counts: Integers = np.bincount(fleet.group[mask], minlength=len(fleet.group_node))
    return counts


def _join(one: Candidates, other: Candidates) -> Candidates:
    if not len(other.group):
        return one
    if not len(one.group):
        return other
    return Candidates(
        *(np.concatenate((getattr(one, field), getattr(other, field))) for field in Candidates.__struct_fields__)
    )


def _usable(fleet: Fleet, appraisal: Appraisal, inside: slice) -> Mask:
    """What first fit looks at: devices of the group that are fit for use and serve."""
    mask = np.zeros(len(fleet.devices), dtype=np.bool_)
    for position in range(inside.start, inside.stop):
        device, node = fleet.devices[position], fleet.nodes[int(fleet.group_node[fleet.group[position]])]
        several = appraisal.cards[fleet.kind[position]] > 1
        mask[position] = (
            bool(appraisal.serves[fleet.kind[position]])
            and not device.foreign
            and node.quarantined(device.id) is None
            and (device.verdict == "Healthy" or (device.verdict == "SubHealthy" and not several))
        )
    return mask


def _unless_owned(snapshot: Snapshot, card: Card) -> Card:
    """The card, serving nobody where a pod owns it."""
    if not snapshot.whole[card.position]:
        return card
    return msgspec.structs.replace(card, needs=tuple(None for _ in card.needs))
