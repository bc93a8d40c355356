"""What could stand in for the cards a pod names, one alternative for each model of the fleet, the fairest first.

Every alternative is a place that exists now: :func:`hcs.placement.engine.place` found it, so memory on each card,
runtime, health and topology hold as for any placement, and its count comes from the exchange rates of the pod's
workload class. Two of a card may stand in for one in one class and not in another.

*Fair* means: together at least what was asked, and as little more as possible, for what is more is taken from others.
Surplus is compared in steps of five percent, then the better-known rate wins, then fewer cards.
"""

from collections.abc import Collection
from typing import Final

import msgspec

from hcs.model.devices import SOURCES
from hcs.model.refusals import Refusal
from hcs.model.requests import ComputeRequest
from hcs.placement.appraisals import ReferenceRates, VendorBound, is_named
from hcs.placement.engine import offer
from hcs.placement.plans import Placement
from hcs.placement.snapshot import Snapshot

SURPLUS_STEP: Final = 5
"""Percent of the compute that was asked for."""
_OTHER: Final = Refusal("OtherModel", "another model is being weighed")


class Alternative(msgspec.Struct, frozen=True):
    """One placement on cards that the pod does not name.

    ``wanted_cards`` is how many of the wanted card they stand in for, ``surplus`` what they do beyond, in percent.
    """

    placement: Placement
    cards: int
    wanted_cards: int
    surplus: int


def alternatives(
    snapshot: Snapshot,
    request: ComputeRequest,
    *,
    nodes: Collection[str] | None = None,
    reference_rates: ReferenceRates | None = None,
    bound: VendorBound | None = None,
) -> tuple[Alternative, ...]:
    """Find them all, the fairest first. Arguments as for :func:`hcs.placement.engine.place`."""
    if not request.vendors and not request.models:
        return ()
    models = sorted(
        {
            (device.vendor, device.model)
            for device in snapshot.fleet.kinds
            if not is_named(request, device) and (bound is None or bound.admits(device))
        }
    )
    found = []
    for vendor, model in models:
        only = VendorBound(frozenset({vendor}), _OTHER, frozenset({model}))
        place = offer(snapshot, request, nodes=nodes, reference_rates=reference_rates, bound=only)
        if isinstance(place, Placement) and place.exchange is not None:
            found.append(_weigh(request, place))
    return tuple(sorted(found, key=_fairness))


def _weigh(request: ComputeRequest, place: Placement) -> Alternative:
    exchange = place.exchange
    assert exchange is not None
    cards = sum(len(grants) for grants in place.containers.values())
    wanted = sum(container.cards for container in request.containers)
    if not place.exclusive:  # a share keeps the compute it asked for, whoever gives it
        return Alternative(place, cards, wanted, 0)
    if any(container.total is not None for container in request.containers):
        wanted = -(-cards * exchange.got_milliacu // exchange.wanted_milliacu)
    asked = wanted * exchange.wanted_milliacu
    return Alternative(place, cards, wanted, max(0, cards * exchange.got_milliacu - asked) * 100 // asked)


def _fairness(one: Alternative) -> tuple[int, int, int, str, str]:
    exchange = one.placement.exchange
    assert exchange is not None
    steps = one.surplus // SURPLUS_STEP
    return steps, SOURCES.index(exchange.source), one.cards, one.placement.vendor, one.placement.model
