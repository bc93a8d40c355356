"""The filter decision: one pod, the nodes that are left, and everything already promised; out comes one node or a no.

Pure, so that ``hcs why``, a replayed snapshot and the running router say the same. The texts for nodes name what was
asked and what the card is, never what is free at the moment: kube-scheduler compares them, and a text that changes
between calls makes it try the pod again without a pause.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

from hcs.model import names
from hcs.model.allocations import Allocation
from hcs.model.devices import EvictedOwner
from hcs.model.offers import accepted_offer
from hcs.model.pods import Pod
from hcs.model.refusals import Refusal, RefusedError
from hcs.model.requests import ComputeRequest
from hcs.neuro.capacities import DOMAIN
from hcs.placement.appraisals import ReferenceRates, VendorBound
from hcs.placement.engine import Places, offer, place
from hcs.placement.plans import NodeRefusal, Placement, Unplaceable, summarise
from hcs.placement.snapshot import Snapshot
from hcs.router.heartbeats import NO_LEASES
from hcs.router.images import RuntimeImage, vendors_offering
from hcs.router.readings import READ, Readings
from hcs.router.spikes import cramped, in_order, needs_of, told, with_cores
from hcs.rtos.hosting import asks_for_guests, unable
from hcs.ura.exchange import in_words as in_rates

NODES: Final = 32
"""Nodes that are tried one by one in the order a pod wishes; then any will do."""


class Chosen(msgspec.Struct, frozen=True):
    """Where the pod goes, with which devices, and why in one sentence."""

    allocation: Allocation
    reason: str

    @property
    def node(self) -> str:
        """The node."""
        return self.allocation.node

    @property
    def substituted(self) -> bool:
        """Whether another kind of card than the one asked for serves."""
        return self.allocation.exchange is not None


class Refused(msgspec.Struct, frozen=True):
    """Nowhere: one sentence for people and a refusal for each node."""

    summary: str
    nodes: dict[str, Refusal]


class NotOurs(msgspec.Struct, frozen=True):
    """The pod asks for no card: every node will do, but those that cannot host its RTOS guests."""

    unable: Mapping[str, Refusal] = NO_LEASES


Decision = Chosen | Refused | NotOurs


def decide(
    pod: Pod,
    nodes: Sequence[str],
    snapshot: Snapshot | Places,
    *,
    taken: Iterable[Allocation] = (),
    offers: Sequence[RuntimeImage] = (),
    note: EvictedOwner | None = None,
    reference_rates: ReferenceRates | None = None,
    silent: Mapping[str, Refusal] = NO_LEASES,
    guests: Mapping[str, Sequence[Pod]] | None = None,
    domain: str = DOMAIN,
    cores: Iterable[Allocation] = (),
    read: Readings = READ,
) -> Decision:
    """Decide for one pod.

    Args:
        pod: as kube-scheduler or the API server shows it.
        nodes: names of the nodes that passed all other checks.
        snapshot: cards, and what is held of them; or what stands for it and remembers.
        taken: what is promised to other pods and not yet in the snapshot; only with one.
        offers: what the RuntimeProfiles offer.
        note: what the healer says about the pod that this one replaces.
        reference_rates: of models outside the fleet, for exchange rates.
        silent: nodes that take no new work because their agent does not answer, and what to say about each.
        guests: node → the pods with RTOS guests that are bound there, or about to be.
        domain: of the spiking resources.
        cores: what others hold of spiking boards, bound or promised.
        read: reads requests.
    """
    unhosted = unable(pod, nodes, snapshot.fleet.nodes, guests or {}) if asks_for_guests(pod) else {}
    if unhosted and len(unhosted) == len(nodes):
        reasons = sorted({str(refusal) for refusal in unhosted.values()})
        return Refused("; ".join(reasons)[:1024], unhosted)
    if unhosted:
        silent = {**silent, **unhosted}
    try:
        request = read(pod, domain)
    except RefusedError as error:
        return _nowhere(nodes, error.refusals[0], str(error))
    if request is None:
        return NotOurs(unhosted)
    if pod.spec.schedulerName not in names.SCHEDULERS:
        if not request.containers:
            return NotOurs(unhosted)  # spikes alone, by another scheduler: the device plugin's business
        refusal = Refusal(
            "WrongScheduler",
            f"asks for compute but names scheduler {pod.spec.schedulerName or 'default-scheduler'}; "
            f"set schedulerName: {names.SCHEDULER}",
        )
        return _nowhere(nodes, refusal, refusal.message)
    taken = tuple(taken)
    if isinstance(snapshot, Snapshot):
        for allocation in taken:
            snapshot = snapshot.with_allocation(allocation)
    needs = needs_of(pod, domain) if request.capacities else ()
    held = (*taken, *cores) if needs else ()
    if needs:
        silent = {**cramped(needs, nodes, snapshot.fleet.nodes, held), **silent}
    bound = vendor_bound(request, offers, note)
    left = [name for name in nodes if name not in silent] if silent else nodes
    answer: Placement | Unplaceable | None = None
    if request.capacities and names.SPIKING_AFFINITY in pod.annotations:
        now = snapshot if isinstance(snapshot, Snapshot) else snapshot.snapshot
        for name in in_order(pod, left, request.capacities, now)[:NODES]:
            answer = place(snapshot, request, nodes=[name], reference_rates=reference_rates, bound=bound)
            if isinstance(answer, Placement):
                break
    if not isinstance(answer, Placement):
        answer = place(snapshot, request, nodes=left, reference_rates=reference_rates, bound=bound)
    if isinstance(answer, Unplaceable) and request.substitution == "ask":
        answer = _as_accepted(pod, request, snapshot, left, reference_rates, bound) or answer
    if isinstance(answer, Placement):
        allocation = answer.allocation(pod.metadata.uid)
        if needs:
            node = snapshot.fleet.nodes[snapshot.fleet.node_index[answer.node]]
            allocation = with_cores(allocation, pod, node, needs, held) or allocation
        return Chosen(allocation, answer.reason + told(allocation))
    if len(left) < len(nodes):
        quiet = [NodeRefusal(name, silent[name], True) for name in nodes if name in silent]
        refusals = tuple(sorted((*answer.refusals, *quiet), key=lambda refusal: refusal.node))
        answer = Unplaceable(refusals, summarise(refusals))
    return Refused(answer.summary, {one.node: one.refusal for one in answer.refusals})


def _as_accepted(
    pod: Pod,
    request: ComputeRequest,
    snapshot: Snapshot | Places,
    nodes: Sequence[str],
    reference_rates: ReferenceRates | None,
    bound: VendorBound | None,
) -> Placement | None:
    """The substitute that the pod's owner accepted, at the accepted terms or better; None where there is none now."""
    accepted = accepted_offer(pod)
    if accepted is None or (bound is not None and accepted.vendor not in bound.vendors):
        return None
    only = VendorBound(
        frozenset({accepted.vendor}),
        Refusal("NotAccepted", f"only {accepted.model} was accepted in place of {accepted.wanted}"),
        frozenset({accepted.model}),
    )
    found = offer(snapshot, request, nodes=nodes, reference_rates=reference_rates, bound=only)
    if isinstance(found, Unplaceable) or sum(len(grants) for grants in found.containers.values()) > accepted.cards:
        return None
    exchange = found.exchange
    if exchange is None:
        return found
    rate = in_rates(exchange.wanted, exchange.wanted_milliacu, exchange.got, exchange.got_milliacu)
    reason = f"placed on {found.node}: {found.model} accepted in place of {exchange.wanted}; {rate} in"
    return msgspec.structs.replace(found, reason=f"{reason} {exchange.workload} ({exchange.source})")


def vendor_bound(
    request: ComputeRequest, offers: Sequence[RuntimeImage], note: EvictedOwner | None
) -> VendorBound | None:
    """The only vendors the pod can run on: those with its runtime, and the one that can read its checkpoint."""
    bound: VendorBound | None = None
    if request.runtime:
        able = vendors_offering(offers, request.runtime)
        offered = f"it is offered for {', '.join(sorted(able))}" if able else f"offered are {_runtimes(offers)}"
        refusal = Refusal(
            "RuntimeNotOffered",
            f"no RuntimeProfile offers runtime {request.runtime} for cards of this vendor; {offered}",
        )
        bound = VendorBound(able, refusal)
    if note is not None and note.vendor and note.resume_from and not request.portable:
        able = frozenset({note.vendor}) if bound is None else bound.vendors & {note.vendor}
        refusal = Refusal(
            "CheckpointNotPortable",
            f"continues from a checkpoint written on {note.vendor}; "
            f'set annotation {names.PORTABLE}: "true" where other vendors can read it',
        )
        bound = VendorBound(able, refusal)
    return bound


def _runtimes(offers: Iterable[RuntimeImage]) -> str:
    return ", ".join(sorted({offer.runtime for offer in offers if offer.runtime})) or "none"


def _nowhere(nodes: Sequence[str], refusal: Refusal, summary: str) -> Refused:
    return Refused(summary, dict.fromkeys(nodes, refusal))
