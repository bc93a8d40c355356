"""What could I get now: one row for each kind of card in the fleet, with how many copies of the pod it would hold.

Every row is made by placing the pod again and again on the cards of one kind alone, by the same function that would
place it in earnest. A kind that could not serve has the reasons instead. Nothing is held for anybody: an offer is a
look, not a promise.
"""

from collections.abc import Iterable, Sequence

import msgspec

from hcs.model.allocations import Allocation, Exchange
from hcs.model.devices import NodeInventory
from hcs.model.requests import ComputeRequest
from hcs.placement.appraisals import ReferenceRates, VendorBound, is_named
from hcs.placement.engine import place
from hcs.placement.plans import Placement
from hcs.placement.snapshot import Snapshot


class KindOffer(msgspec.Struct, frozen=True):
    """What one kind of card would give.

    ``copies`` is how many of the pod would fit now, at most the limit asked for; ``more`` whether the limit was
    reached. ``cards``, ``bytes`` and ``milliacu`` are of one copy, summed over its cards. ``nodes`` are those the
    copies went to. ``source`` is how the card's rate in the pod's workload class is known, empty where it is not.
    ``why`` is the placement's reason, or what refused it.
    """

    vendor: str
    model: str
    named: bool
    copies: int
    more: bool
    cards: int = 0
    bytes: int = 0
    milliacu: int = 0
    source: str = ""
    nodes: tuple[str, ...] = ()
    exchange: Exchange | None = None
    why: str = ""
    emulated: bool = False


def offers(
    inventories: Sequence[NodeInventory],
    allocations: Iterable[Allocation],
    request: ComputeRequest,
    *,
    reference_rates: ReferenceRates | None = None,
    bound: VendorBound | None = None,
    limit: int = 100,
) -> tuple[KindOffer, ...]:
    """List what each kind of card would give, the best first.

    Kinds the request names (all, where it names none) come before substitutes; among each, those that serve before
    those that do not, then those that give least beyond what was asked. A request is read as if it allowed
    substitution: whether it does decides what is *taken*, not what could be had.

    Args:
        inventories: the nodes and their cards.
        allocations: what is held of them.
        request: what one pod asks for.
        reference_rates: rates of models the fleet lacks.
        bound: the only vendors the pod can run on.
        limit: the most copies to count of each kind.
    """
    held = tuple(allocations)
    willing = msgspec.structs.replace(request, substitution="auto")
    kinds = dict.fromkeys((device.vendor, device.model) for node in inventories for device in node.devices)
    rows = []
    for vendor, model in kinds:
        own = tuple(_only(node, vendor, model) for node in inventories)
        snapshot = Snapshot.build((node for node in own if node.devices), held)
        example = snapshot.fleet.devices[0]
        named = is_named(request, example)
        rates = _with_fleet_rates(inventories, request, reference_rates or {})
        rate = example.rate(request.workload)
        row = KindOffer(
            vendor=vendor,
            model=model,
            named=named,
            copies=0,
            more=False,
            source="" if rate is None else rate.source,
            emulated=example.emulated,
        )
        rows.append(_filled(row, snapshot, willing, rates, bound, limit))
    return tuple(sorted(rows, key=lambda r: (not r.named, not r.copies, r.milliacu, r.bytes, r.vendor, r.model)))


def _filled(
    row: KindOffer,
    snapshot: Snapshot,
    request: ComputeRequest,
    rates: ReferenceRates,
    bound: VendorBound | None,
    limit: int,
) -> KindOffer:
    first: Placement | None = None
    nodes: list[str] = []
    milliacu = 0
    while len(nodes) <= limit:
        found = place(snapshot, request, reference_rates=rates, bound=bound)
        if not isinstance(found, Placement):
            if first is None:
                return msgspec.structs.replace(row, why=found.summary)
            break
        if first is None:
            first = found
            milliacu = _milliacu(snapshot, found, request.workload)
        nodes.append(found.node)
        snapshot = snapshot.with_allocation(found.allocation(f"copy-{len(nodes)}"))
    assert first is not None  # else we returned
    grants = [grant for containers in first.containers.values() for grant in containers]
    return msgspec.structs.replace(
        row,
        copies=min(len(nodes), limit),
        more=len(nodes) > limit,
        cards=len({grant.device for grant in grants}),
        bytes=sum(grant.bytes for grant in grants),
        milliacu=milliacu,
        nodes=tuple(dict.fromkeys(nodes[:limit])),
        exchange=first.exchange,
        why=first.reason,
    )


def _milliacu(snapshot: Snapshot, placement: Placement, workload: str) -> int:
    """What a placement does in its workload class: all of a whole card, of a shared one the part that is held."""
    total = 0
    for containers in placement.containers.values():
        for grant in containers:
            device = snapshot.fleet.devices[snapshot.fleet.device_index[placement.node, grant.device]]
            rate = device.rate(workload)
            whole = placement.exclusive and rate is not None
            total += rate.milliacu if whole and rate is not None else grant.milliacu
    return total


def _only(node: NodeInventory, vendor: str, model: str) -> NodeInventory:
    cards = tuple(device for device in node.devices if (device.vendor, device.model) == (vendor, model))
    return msgspec.structs.replace(node, devices=cards)


def _with_fleet_rates(
    inventories: Iterable[NodeInventory], request: ComputeRequest, reference_rates: ReferenceRates
) -> ReferenceRates:
    """The reference rates, and those the fleet's own cards have: in a look at one kind the others are absent."""
    rates = dict(reference_rates)
    for node in inventories:
        for device in node.devices:
            if device.rates and device.rate(request.workload) is not None:
                rates[device.model] = device.rates
    return rates
