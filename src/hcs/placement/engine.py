"""The one way to place a pod: a snapshot and a request in, a plan or the reasons why not out.

The extender, the command line, the simulator and the benchmarks all call :func:`place`. It is pure: the same snapshot,
request and nodes give the same answer, in any process and at any time.
"""

from collections.abc import Collection, Sequence

import msgspec
import numpy as np

from hcs.model.allocations import Exchange, Grant
from hcs.model.devices import Device
from hcs.model.quantities import show_bytes
from hcs.model.refusals import Refusal
from hcs.model.requests import ComputeRequest
from hcs.placement.appraisals import Appraisal, ReferenceRates, VendorBound, appraise, is_named
from hcs.placement.explanations import refuse_nodes
from hcs.placement.fleet import Mask
from hcs.placement.nearness import relaxations
from hcs.placement.plans import Explanation, NodeRefusal, Placement, Unplaceable, summarise
from hcs.placement.policies import POLICIES, Chosen
from hcs.placement.snapshot import Snapshot
from hcs.ura.demand import label
from hcs.ura.exchange import weaker


def place(
    snapshot: Snapshot,
    request: ComputeRequest,
    *,
    nodes: Collection[str] | None = None,
    reference_rates: ReferenceRates | None = None,
    bound: VendorBound | None = None,
    policy: str = "hcs",
) -> Placement | Unplaceable:
    """Choose the node and the devices for a pod.

    Args:
        snapshot: the fleet and what is taken of it.
        request: what the pod asks for.
        nodes: names of the nodes to choose from; None for all. Names without a ``ComputeNode`` are refused, each.
        reference_rates: rates of models that the pod may name and the fleet lacks, from the catalogue.
        bound: the only vendors the pod can run on, whatever it names, and why.
        policy: a name in :data:`hcs.placement.policies.POLICIES`.

    Raises:
        KeyError: there is no such policy.
    """
    allowed = _nodes_mask(snapshot, nodes)
    for wanted in relaxations(snapshot.fleet, request):  # wishes are kept where they can be; the last has none left
        appraisals = appraise(snapshot.fleet, wanted, reference_rates, bound)
        chosen = POLICIES[policy].choose(snapshot, appraisals, allowed)
        if chosen is not None:
            return placement_of(snapshot, request, appraisals, chosen)
    refusals, _ = refuse_nodes(snapshot, appraisals, allowed)
    refusals = _with_unmanaged(snapshot, refusals, nodes)
    return Unplaceable(refusals, summarise(refusals))


def offer(
    snapshot: Snapshot,
    request: ComputeRequest,
    *,
    nodes: Collection[str] | None = None,
    reference_rates: ReferenceRates | None = None,
    bound: VendorBound | None = None,
    policy: str = "hcs",
) -> Placement | Unplaceable:
    """What the pod would get now if it allowed substitution: for ``ask`` pods that have no place, and for "why"."""
    willing = msgspec.structs.replace(request, substitution="auto")
    return place(snapshot, willing, nodes=nodes, reference_rates=reference_rates, bound=bound, policy=policy)


def explain(
    snapshot: Snapshot,
    request: ComputeRequest,
    *,
    nodes: Collection[str] | None = None,
    reference_rates: ReferenceRates | None = None,
    bound: VendorBound | None = None,
    policy: str = "hcs",
) -> Explanation:
    """Say for every node whether it could serve the pod now, and why not. Arguments as for :func:`place`."""
    appraisals = appraise(snapshot.fleet, request, reference_rates, bound)
    allowed = _nodes_mask(snapshot, nodes)
    refusals, serving = refuse_nodes(snapshot, appraisals, allowed)
    refusals = _with_unmanaged(snapshot, refusals, nodes)
    chosen = POLICIES[policy].choose(snapshot, appraisals, allowed)
    offered = None
    if chosen is None and request.substitution != "auto" and (request.vendors or request.models):
        found = offer(snapshot, request, nodes=nodes, reference_rates=reference_rates, bound=bound, policy=policy)
        offered = found if isinstance(found, Placement) else None
    return Explanation(
        placement=None if chosen is None else placement_of(snapshot, request, appraisals, chosen),
        serving=serving,
        refusals=refusals,
        summary=summarise(refusals, len(serving)),
        offer=offered,
    )


def _nodes_mask(snapshot: Snapshot, nodes: Collection[str] | None) -> Mask:
    index = snapshot.fleet.node_index
    if nodes is None:
        return np.ones(len(index), dtype=np.bool_)
    mask = np.zeros(len(index), dtype=np.bool_)
    mask[[index[name] for name in nodes if name in index]] = True
    return mask


def _with_unmanaged(
    snapshot: Snapshot, refusals: tuple[NodeRefusal, ...], nodes: Collection[str] | None
) -> tuple[NodeRefusal, ...]:
    """Add a refusal for every node that nobody described."""
    unknown = {name for name in nodes or () if name not in snapshot.fleet.node_index}
    if not unknown:
        return refusals
    why = Refusal("NotManaged", "no ComputeNode describes this node; the HCS agent does not run on it")
    return tuple(sorted((*refusals, *(NodeRefusal(name, why, False) for name in unknown)), key=lambda r: r.node))


def placement_of(
    snapshot: Snapshot, request: ComputeRequest, appraisals: Sequence[Appraisal], chosen: Chosen
) -> Placement:
    """Write down a choice: who gets how much of which device, and why it came to that."""
    fleet = snapshot.fleet
    containers, whole = {}, []
    for appraisal, positions in zip(appraisals, chosen.devices, strict=True):
        grants = []
        for position in positions:
            kind = int(fleet.kind[position])
            grants.append(Grant(fleet.devices[position].id, int(appraisal.bytes[kind]), int(appraisal.milliacu[kind])))
            whole.append(bool(appraisal.whole[kind]))
        containers[appraisal.container.name] = tuple(grants)
    first = chosen.devices[0][0]
    device = fleet.devices[first]
    exchange = _exchange(request, appraisals[0], int(fleet.kind[first]), device)
    node = fleet.nodes[int(fleet.node[first])].name
    what = _granted(containers, whole)
    why = _why_substituted(snapshot, request, appraisals, exchange, label(device)) if exchange is not None else what
    return Placement(
        node=node,
        vendor=device.vendor,
        model=device.model,
        containers=containers,
        exclusive=all(whole),
        workload=request.workload,
        runtime=request.runtime,
        exchange=exchange,
        score=chosen.score,
        reuses=dict(request.reuses),
        reason=f"placed on {node}, {label(device)}: {why}",
    )


def _exchange(request: ComputeRequest, appraisal: Appraisal, kind: int, device: Device) -> Exchange | None:
    """The substitution that a placement on this kind makes, if it is one."""
    wanted = appraisal.wanted
    got = device.rate(request.workload)
    if not appraisal.substitute[kind] or wanted is None or got is None:
        return None
    return Exchange(
        wanted=wanted.model,
        got=device.model,
        workload=request.workload,
        wanted_milliacu=wanted.rate.milliacu,
        got_milliacu=got.milliacu,
        source=weaker(wanted.rate.source, got.source),
    )


def _why_substituted(
    snapshot: Snapshot, request: ComputeRequest, appraisals: Sequence[Appraisal], exchange: Exchange, got: str
) -> str:
    asked = " or ".join(request.models or request.vendors)
    named = [kind for kind, device in enumerate(snapshot.fleet.kinds) if is_named(request, device)]
    if not named:
        missing = f"the fleet has no {asked}"
    elif all(appraisal.serves[named].any() for appraisal in appraisals):
        missing = f"no {asked} is free"
    else:
        missing = f"no {asked} of the fleet can serve this"
    hundredths = exchange.wanted_milliacu * 100 // exchange.got_milliacu
    rate = f"{hundredths // 100}.{hundredths % 100:02d}"
    return f"{missing}; 1 {exchange.wanted} = {rate} {got} in {exchange.workload} ({exchange.source})"


def _granted(containers: dict[str, tuple[Grant, ...]], whole: list[bool]) -> str:
    if all(whole):
        return "1 whole card" if len(whole) == 1 else f"{len(whole)} whole cards"
    if len(whole) == 1:
        (grants,) = containers.values()
        return f"{show_bytes(grants[0].bytes)} of one card"
    cards = len({grant.device for grants in containers.values() for grant in grants})
    return f"{len(whole)} grants on {cards} {'card' if cards == 1 else 'cards'}"
