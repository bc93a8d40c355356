"""The simple method, first fit, in plain loops over plain values: a second opinion on what can be placed at all."""

import numpy as np

from hcs.model.requests import ComputeRequest
from hcs.placement.appraisals import Appraisal, ReferenceRates, appraise
from hcs.placement.arrangement import arrange
from hcs.placement.fleet import Fleet, Mask
from hcs.placement.nearness import in_reach
from hcs.placement.packing import cards_of, first_fit, pack
from hcs.placement.snapshot import Snapshot


def first_place(
    snapshot: Snapshot,
    request: ComputeRequest,
    reference_rates: ReferenceRates | None = None,
    *,
    every_choice: bool = False,
) -> tuple[str, bool] | None:
    """The first node, by name, that serves, and whether with a substitute; named cards first.

    Args:
        every_choice: try all choices of devices on a node, and not only the first ones.
    """
    fleet, rules = snapshot.fleet, request.locality
    appraisals = appraise(fleet, request, reference_rates)
    for substitute in (False, True):
        for group in range(len(fleet.group_node)):
            inside, node = fleet.group_slice(group), fleet.nodes[int(fleet.group_node[group])]
            if inside.start == inside.stop or not node.ready or not in_reach(node, rules):
                continue
            if bool(appraisals[0].substitute[fleet.kind[inside.start]]) != substitute:
                continue
            masks = [_usable(snapshot, fleet, appraisal, inside) for appraisal in appraisals]
            cards = cards_of(snapshot, appraisals, masks, group)
            if rules.pairing:
                devices = arrange(snapshot, cards, len(appraisals), group, rules)
            else:
                devices = (pack if every_choice else first_fit)(cards, len(appraisals))
            if devices is not None:
                return node.name, substitute
    return None


def _usable(snapshot: Snapshot, fleet: Fleet, appraisal: Appraisal, inside: slice) -> Mask:
    mask = np.zeros(len(fleet.devices), dtype=np.bool_)
    for position in range(inside.start, inside.stop):
        device, node = fleet.devices[position], fleet.nodes[int(fleet.group_node[fleet.group[position]])]
        several = appraisal.cards[fleet.kind[position]] > 1
        mask[position] = (
            bool(appraisal.serves[fleet.kind[position]])
            and not device.foreign
            and node.quarantined(device.id) is None
            and (device.verdict == "Healthy" or (device.verdict == "SubHealthy" and not several))
            and not snapshot.whole[position]
        )
    return mask
