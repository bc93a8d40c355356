"""Why each node that cannot serve a pod cannot: the filters asked once more, in order, and the first "no" kept.

Placement itself never needs this; it is asked when there is no place, and by people. Nodes with the same hardware get
the same sentences, so those are made once per shape of node.
"""

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from hcs.model.refusals import Refusal
from hcs.placement.appraisals import Appraisal
from hcs.placement.arrangement import arrange, wiring_of
from hcs.placement.filters import Filter, Stage, cards_taken, describe, eligible, enough, filters_for
from hcs.placement.fleet import Mask
from hcs.placement.nearness import NEARNESS
from hcs.placement.packing import cards_of, masks_on
from hcs.placement.plans import NodeRefusal
from hcs.placement.snapshot import Snapshot


def refuse_nodes(
    snapshot: Snapshot, appraisals: Sequence[Appraisal], nodes: Mask
) -> tuple[tuple[NodeRefusal, ...], tuple[str, ...]]:
    """Sort nodes [N] into those that refuse the request, with their reasons, and the names of those that could serve.

    Both are in the order of node names.
    """
    fleet = snapshot.fleet
    refused: dict[int, NodeRefusal] = {}
    open_nodes = nodes.copy()
    kept = [np.ones(len(fleet.devices), dtype=np.bool_) for _ in appraisals]
    several = len(appraisals) > 1
    said: dict[tuple[object, ...], NodeRefusal] = {}

    def refuse(who: Mask, stage: Stage, key: object, make: Callable[[int], Refusal], *, own: bool = False) -> None:
        for number in np.flatnonzero(who):
            node = int(number)
            # Nodes of one shape differ in the state of their cards, and in how they are wired and connected.
            memory = (key, -1 - node) if stage == "state" or own else (key, int(fleet.shape[node]))
            if memory not in said:
                said[memory] = NodeRefusal("", make(node), stage != "hardware")
            known = said[memory]
            refused[node] = NodeRefusal(fleet.nodes[node].name, known.refusal, known.resolvable)
        open_nodes[who] = False

    stage: Stage = "hardware"
    for step, check in enumerate(filters_for(appraisals[0])):
        if several and check.stage != stage:
            refuse(
                _cannot_together(snapshot, appraisals, kept, open_nodes, vacant=True),
                stage,
                ("together", stage),
                partial(_together, appraisals, stage),
            )
        stage = check.stage
        if several and stage == "occupancy":
            break
        for number, appraisal in enumerate(appraisals):
            left = kept[number] & check.keep(snapshot, appraisal)
            refuse(
                open_nodes & ~enough(snapshot, appraisal, check, left),
                stage,
                (step, number),
                partial(_refused_by, check, snapshot, appraisal, kept[number]),
                own=check in NEARNESS,
            )
            kept[number] = left
    if several:
        masks = [eligible(snapshot, appraisal) for appraisal in appraisals]
        refuse(
            _cannot_together(snapshot, appraisals, masks, open_nodes, vacant=False),
            "occupancy",
            "together",
            partial(_together, appraisals, "occupancy"),
        )
    serving = tuple(fleet.nodes[int(node)].name for node in np.flatnonzero(open_nodes))
    return tuple(refused[node] for node in sorted(refused)), serving


def refuse_later(vacant: Snapshot, appraisals: Sequence[Appraisal]) -> tuple[NodeRefusal, ...]:
    """What each node says when none can serve: its own reasons, or that others hold what could.

    Args:
        vacant: the fleet with nobody on it.
        appraisals: the request against its kinds.
    """
    refused, serving = refuse_nodes(vacant, appraisals, np.ones(len(vacant.fleet.nodes), dtype=np.bool_))
    taken = cards_taken(appraisals[0]) if len(appraisals) == 1 else _together(appraisals, "occupancy", 0)
    every = (*refused, *(NodeRefusal(name, taken, True) for name in serving))
    return tuple(sorted(every, key=lambda refusal: refusal.node))


def refuse_capacities(
    snapshot: Snapshot, capacities: Sequence[tuple[str, int]], nodes: Sequence[str]
) -> tuple[NodeRefusal, ...]:
    """Say which of these nodes lack something beside devices, and what."""
    fleet, room = snapshot.fleet, snapshot.room
    refused = []
    for name in nodes:
        number = fleet.node_index[name]
        node, asked = fleet.nodes[number], " and ".join(f"{amount} {what}" for what, amount in capacities)
        has = dict(node.capacities)
        small = next(((what, amount) for what, amount in capacities if has.get(what, 0) < amount), None)
        full = any(what in has and room[number, fleet.columns.index(what)] < amount for what, amount in capacities)
        if small is not None:
            what, amount = small
            refusal = Refusal("CapacityTooSmall", f"needs {amount} {what}; this node has {has.get(what, 0)} in all")
            refused.append(NodeRefusal(name, refusal, False))
        elif not node.ready:
            refusal = Refusal(
                "NodeNotReady", "the node or its HCS agent is not ready; see the node's conditions and its Lease"
            )
            refused.append(NodeRefusal(name, refusal, True))
        elif full:
            refusal = Refusal("CapacityTaken", f"needs {asked}; other pods of this node have taken too much of it")
            refused.append(NodeRefusal(name, refusal, True))
    return tuple(refused)


def _cannot_together(
    snapshot: Snapshot, appraisals: Sequence[Appraisal], masks: Sequence[Mask], nodes: Mask, *, vacant: bool
) -> Mask:
    """[N] The nodes on which no one group serves all containers at once."""
    fleet, rules = snapshot.fleet, appraisals[0].request.locality
    serves = [appraisal.serves[fleet.kind] for appraisal in appraisals]
    masks = masks_on(snapshot, [mask & able for mask, able in zip(masks, serves, strict=True)], nodes)
    able_nodes = np.zeros(len(fleet.nodes), dtype=np.bool_)
    answers: dict[tuple[object, ...], bool] = {}
    for group in np.flatnonzero(nodes[fleet.group_node]):
        cards = cards_of(snapshot, appraisals, masks, int(group), vacant=vacant)
        wiring = wiring_of(snapshot, int(group), rules) if rules.pairing else None
        state = (wiring, *(card.state() for card in cards))
        if state not in answers:
            answers[state] = arrange(snapshot, cards, len(appraisals), int(group), rules) is not None
        able_nodes[fleet.group_node[group]] |= answers[state]
    return nodes & ~able_nodes


def _together(appraisals: Sequence[Appraisal], stage: Stage, node: int) -> Refusal:
    """The refusal of a node that serves each container alone and not all of them; the same on every such node."""
    asked = " + ".join(describe(appraisal.container) for appraisal in appraisals)
    needs = f"needs {asked} of one model on one node"
    if stage == "hardware":
        return Refusal("TooFewCards", f"{needs}; the cards here are too few together")
    if stage == "state":
        return Refusal("CardsUnavailable", f"{needs}; too many cards here are foreign, quarantined or not healthy")
    return Refusal("CardsTaken", f"{needs}; the cards here that could serve are taken by other pods")


def _refused_by(check: Filter, snapshot: Snapshot, appraisal: Appraisal, left: Mask, node: int) -> Refusal:
    """The filter's refusal, which names the container where there are several."""
    refusal = check.refuse(snapshot, appraisal, node, left)
    if len(appraisal.request.containers) == 1:
        return refusal
    return Refusal(refusal.reason, f"container {appraisal.container.name} {refusal.message}")
