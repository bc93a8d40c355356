"""The one way to place a pod: a snapshot and a request in, a plan or the reasons why not out.

The extender, the command line, the simulator and the benchmarks all call :func:`place`. It is pure: the same snapshot,
request and nodes give the same answer, in any process and at any time.
"""

from collections.abc import Collection, Sequence
from functools import lru_cache
from typing import Final, Protocol

import msgspec
import numpy as np

from hcs.model.allocations import Exchange, Grant
from hcs.model.devices import Device
from hcs.model.quantities import show_bytes
from hcs.model.refusals import Refusal
from hcs.model.requests import ComputeRequest
from hcs.placement.appraisals import Appraisal, ReferenceRates, VendorBound, appraise, is_named
from hcs.placement.arrangement import arrange, wiring_of
from hcs.placement.asks import Ask, ask_of, usual
from hcs.placement.boards import choose, first_cards, look
from hcs.placement.explanations import refuse_capacities, refuse_nodes
from hcs.placement.filters import lasting
from hcs.placement.fleet import Fleet, Mask
from hcs.placement.likings import likes
from hcs.placement.nearness import relaxations
from hcs.placement.outlook import Outlook
from hcs.placement.packing import Choice, cards_of
from hcs.placement.plans import Explanation, NodeRefusal, Placement, Unplaceable, summarise
from hcs.placement.policies import POLICIES, Chosen
from hcs.placement.rows import cards_open, rows_of, shares_that_fit
from hcs.placement.snapshot import Snapshot, key_of
from hcs.ura.demand import label
from hcs.ura.exchange import weaker

RequestMix = Sequence[tuple[ComputeRequest, int]]


class Places(Protocol):
    """Something that stands for a snapshot and remembers what it scored: see :mod:`hcs.placement.placer`."""

    @property
    def fleet(self) -> Fleet:
        """The hardware."""

    @property
    def snapshot(self) -> Snapshot:
        """What it stands for, as a value."""

    def place(
        self,
        request: ComputeRequest,
        *,
        nodes: Collection[str] | None = None,
        reference_rates: ReferenceRates | None = None,
        bound: VendorBound | None = None,
    ) -> Placement | Unplaceable:
        """As :func:`place` with the snapshot it stands for."""


def place(
    snapshot: Snapshot | Places,
    request: ComputeRequest,
    *,
    nodes: Collection[str] | None = None,
    reference_rates: ReferenceRates | None = None,
    bound: VendorBound | None = None,
    policy: str = "hcs",
    mix: RequestMix = (),
    seed: int = 0,
) -> Placement | Unplaceable:
    """Choose the node and the devices for a pod.

    Args:
        snapshot: the fleet and what is taken of it.
        request: what the pod asks for.
        nodes: names of the nodes to choose from; None for all. Names without a ``ComputeNode`` are refused, each.
        reference_rates: rates of models that the pod may name and the fleet lacks, from the catalogue.
        bound: the only vendors the pod can run on, whatever it names, and why.
        policy: a name in :data:`hcs.placement.policies.POLICIES`.
        mix: what is likely to be asked next: requests, each with how often it comes. Without one, a plain mix of
            shares and whole cards is taken for granted.
        seed: decides for the policy that leaves the choice to chance.

    Raises:
        KeyError: there is no such policy.
    """
    if not isinstance(snapshot, Snapshot):
        return snapshot.place(request, nodes=nodes, reference_rates=reference_rates, bound=bound)
    allowed = nodes_mask(snapshot.fleet, nodes)
    for wanted in relaxations(snapshot.fleet, request):  # wishes are kept where they can be; the last has none left
        appraisals = appraise(snapshot.fleet, wanted, reference_rates, bound)
        chosen = _choose(snapshot, wanted, appraisals, allowed, policy, mix, seed)
        if chosen is not None:
            return placement_of(snapshot, request, appraisals, chosen)
    refusals, _ = _refuse(snapshot, request, appraisals, allowed)
    refusals = _with_unmanaged(snapshot, refusals, nodes)
    return Unplaceable(refusals, summarise(refusals))


def offer(
    snapshot: Snapshot | Places,
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
    allowed = nodes_mask(snapshot.fleet, nodes)
    refusals, serving = _refuse(snapshot, request, appraisals, allowed)
    refusals = _with_unmanaged(snapshot, refusals, nodes)
    chosen = _choose(snapshot, request, appraisals, allowed, policy, (), 0)
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


def pick(
    snapshot: Snapshot,
    appraisals: Sequence[Appraisal],
    nodes: Mask,
    policy: str = "hcs",
    *,
    request: ComputeRequest | None = None,
) -> Chosen | None:
    """Choose the group and the devices for a request that is weighed already; None where nothing serves.

    Args:
        snapshot: the fleet and what is taken of it.
        appraisals: the request against its kinds.
        nodes: [N] the nodes to choose from.
        policy: how to choose.
        request: the request, where it may ask for no device at all.
    """
    return _choose(snapshot, request or appraisals[0].request, appraisals, nodes, policy, (), 0)


def _choose(
    snapshot: Snapshot,
    request: ComputeRequest,
    appraisals: Sequence[Appraisal],
    allowed: Mask,
    policy: str,
    mix: RequestMix,
    seed: int,
) -> Chosen | None:
    chooses, fleet = POLICIES[policy], snapshot.fleet
    ask = laid_out(fleet, request, appraisals)
    outlook = look_at(fleet, policy, tuple(mix))
    return choose(snapshot, ask, chooses, outlook, arranged, nodes=allowed, seed=seed)


@lru_cache(maxsize=8)
def look_at(fleet: Fleet, policy: str, mix: tuple[tuple[ComputeRequest, int], ...]) -> Outlook:
    """The outlook of a policy on a mix of requests; on the usual one where none is given."""
    known = [(asked(fleet, request), count) for request, count in mix]
    return look(fleet, POLICIES[policy], known or usual(fleet))


def laid_out(fleet: Fleet, request: ComputeRequest, appraisals: Sequence[Appraisal]) -> Ask:
    """A request as the engine weighs it, with every device that some filter drops whatever is held left out."""
    able = [_able(fleet, appraisal) for appraisal in appraisals]
    return ask_of(fleet, appraisals, request.capacities, able, likes(fleet, request), key_of(request.group))


def _able(fleet: Fleet, appraisal: Appraisal) -> Mask | None:
    vacant = fleet.memory.get("vacant")
    if not isinstance(vacant, Snapshot):
        vacant = fleet.memory["vacant"] = Snapshot.of(fleet)
    kept = lasting(vacant, appraisal)
    serves, several = appraisal.serves[fleet.kind], appraisal.cards[fleet.kind] > 1
    plain = fleet.usable & fleet.ready[fleet.node] & serves & ~(several & fleet.degraded)
    return None if np.array_equal(kept, plain) else kept


def asked(fleet: Fleet, request: ComputeRequest) -> Ask:
    """A request laid out for a fleet, by nothing but itself."""
    return ask_of(fleet, appraise(fleet, request), request.capacities)


def arranged(snapshot: Snapshot, ask: Ask, group: int) -> Choice | None:
    """The devices of one group for the containers of an ask, or None where they cannot be had together."""
    if not ask.compound and _any_choice_will_do(snapshot, ask, group):
        return first_cards(snapshot, ask, group)
    fleet, inside = snapshot.fleet, snapshot.fleet.group_slice(group)
    rows = rows_of(snapshot, np.array([group]))
    masks = []
    for part in ask.parts or (ask,):
        mask = np.zeros(len(fleet.devices), dtype=np.bool_)
        mask[inside] = (shares_that_fit(rows, part) | cards_open(rows, part))[0, : inside.stop - inside.start]
        masks.append(mask)
    cards = cards_of(snapshot, ask.containers, masks, group)
    return arrange(snapshot, cards, len(ask.containers), group, ask.containers[0].request.locality)


def _refuse(
    snapshot: Snapshot, request: ComputeRequest, appraisals: Sequence[Appraisal], allowed: Mask
) -> tuple[tuple[NodeRefusal, ...], tuple[str, ...]]:
    """The refusals of devices first; of nodes whose devices would serve, those of what else they lack."""
    if appraisals:
        refusals, serving = refuse_nodes(snapshot, appraisals, allowed)
    else:
        refusals, serving = (), tuple(snapshot.fleet.nodes[int(node)].name for node in np.flatnonzero(allowed))
    if not request.capacities:
        return refusals, serving
    lacking = refuse_capacities(snapshot, request.capacities, serving)
    short = {refusal.node for refusal in lacking}
    every = tuple(sorted((*refusals, *lacking), key=lambda refusal: refusal.node))
    return every, tuple(name for name in serving if name not in short)


NOT_MANAGED: Final = Refusal("NotManaged", "no ComputeNode describes this node; the HCS agent does not run on it")


def _any_choice_will_do(snapshot: Snapshot, ask: Ask, group: int) -> bool:
    """Whether the ways between a group's cards make no difference to a request of one container."""
    fleet, rules = snapshot.fleet, ask.containers[0].request.locality
    key = "flat", group, rules
    known = fleet.memory.get(key)
    if known is None:
        known = fleet.memory[key] = wiring_of(snapshot, group, rules).flat
    return bool(known)


def nodes_mask(fleet: Fleet, nodes: Collection[str] | None) -> Mask:
    """[N] Which nodes are named; all where None is given."""
    index = fleet.node_index
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
    return tuple(
        sorted((*refusals, *(NodeRefusal(name, NOT_MANAGED, False) for name in unknown)), key=lambda r: r.node)
    )


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
    if not chosen.devices:
        return _on_node(snapshot, request, chosen)
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
        capacities=dict(request.capacities),
        group="" if all(whole) else request.group,
    )


def _on_node(snapshot: Snapshot, request: ComputeRequest, chosen: Chosen) -> Placement:
    """A request that takes no card, only something else of its node."""
    node = snapshot.fleet.nodes[int(snapshot.fleet.group_node[chosen.group])].name
    what = ", ".join(f"{amount} {name}" for name, amount in request.capacities)
    return Placement(
        node=node,
        vendor="",
        model="",
        containers={},
        exclusive=False,
        workload=request.workload,
        runtime=request.runtime,
        score=chosen.score,
        reason=f"placed on {node}: {what}",
        capacities=dict(request.capacities),
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
