"""Why a pod is where it is, or is not: the router's own decision, asked once more on what the API server shows.

Pure: pod and cluster in, answer out. Nothing here knows a rule of its own; :func:`hcs.router.decisions.decide` is what
the running router calls. What the router has promised to other pods and not bound yet is the one thing unseen from
outside; it lasts seconds.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, Literal

import msgspec

from hcs.cli.cluster import Cluster
from hcs.cli.hints import hint_for
from hcs.kube.resources import Node
from hcs.model import names
from hcs.model.allocations import Allocation, Exchange
from hcs.model.gangs import read_membership
from hcs.model.offers import offer_on
from hcs.model.pods import Pod
from hcs.model.quantities import show_bytes
from hcs.model.refusals import Refusal, RefusedError
from hcs.model.requests import ComputeRequest
from hcs.placement.appraisals import ReferenceRates
from hcs.placement.filters import describe
from hcs.placement.misses import nearest_miss
from hcs.router.decisions import Chosen, Decision, NotOurs, decide, vendor_bound
from hcs.router.guests import ExpectedGuests
from hcs.router.resumption import note_for
from hcs.router.spikes import request_of
from hcs.rtos.hosting import asks_for_guests

State = Literal["NotOurs", "Refused", "Gated", "Unplaceable", "Placeable", "Hostable", "Bound", "Finished"]
"""``Placeable``: not bound, and a place exists now. ``Hostable``: asks for RTOS guests and nothing else of ours."""


class Reason(msgspec.Struct, frozen=True):
    """One reason, on all nodes it holds for; ``nodes`` is empty where it concerns the pod itself."""

    reason: str
    message: str
    nodes: tuple[str, ...] = ()
    hint: str = msgspec.field(default="", name="try")


class Place(msgspec.Struct, frozen=True):
    """Where a pod is, or would go: ``reason`` is the router's sentence."""

    node: str
    allocation: Allocation
    reason: str = ""


class Answer(msgspec.Struct, frozen=True):
    """Everything ``hcs why`` shows.

    ``waits`` says what a pod of a gang, or one that wants to be asked, waits for.
    ``nearest`` is the place that lacks least among those whose cards would do and are held by others.
    ``asks`` is the request in words, ``says`` what kube-scheduler wrote last, ``notes`` what is wrong with the cards
    of a pod that has some.
    """

    pod: str
    state: State
    phase: str = ""
    asks: str = ""
    request: ComputeRequest | None = None
    place: Place | None = None
    refusals: tuple[Reason, ...] = ()
    nodes: int = 0
    nearest: str = ""
    waits: str = ""
    offer: Place | None = None
    says: str = ""
    notes: tuple[str, ...] = ()

    @property
    def asks_cards(self) -> bool:
        """Whether cards are among what it asks for."""
        return self.request is not None and bool(self.request.containers)


def explain_pod(pod: Pod, cluster: Cluster, *, reference_rates: ReferenceRates | None = None) -> Answer:
    """Explain one pod of the cluster, or one that is not in it yet."""
    answer = Answer(pod=pod.key, state="NotOurs", phase=pod.status.phase)
    try:
        request = request_of(pod, cluster.domain)
    except RefusedError as error:
        return msgspec.structs.replace(answer, state="Refused", refusals=of_pod(error.refusals))
    if request is None:
        return _hosted(pod, answer, cluster) if asks_for_guests(pod) else answer
    answer = msgspec.structs.replace(answer, request=request, asks=in_words(request), says=_scheduler_says(pod))
    answer = msgspec.structs.replace(answer, waits=_waits_for(pod, cluster))
    held = cluster.taken.get(pod.metadata.uid)
    if pod.finished:
        return msgspec.structs.replace(answer, state="Finished")
    if held is not None:
        place = Place(held.node, held, pod.annotations.get(names.ROUTE_REASON, ""))
        return msgspec.structs.replace(answer, state="Bound", place=place, notes=_sick_cards(held, cluster))
    return _pending(pod, request, answer, cluster, reference_rates)


def _pending(
    pod: Pod, request: ComputeRequest, answer: Answer, cluster: Cluster, reference_rates: ReferenceRates | None
) -> Answer:
    every, kept_out = _nodes(pod, cluster)
    nodes = [name for name in every if name not in kept_out]
    answer = msgspec.structs.replace(answer, nodes=len(every))

    def decided(asking: Pod) -> Decision:
        return _decide(asking, nodes, cluster, reference_rates)

    decision = decided(pod)
    if isinstance(decision, NotOurs):
        return msgspec.structs.replace(answer, state="NotOurs")  # spikes alone, by another scheduler
    if isinstance(decision, Chosen):
        place = Place(decision.node, decision.allocation, decision.reason)
        state: State = "Gated" if pod.spec.schedulingGates else "Placeable"
        return msgspec.structs.replace(answer, state=state, place=place, refusals=_grouped(kept_out))
    offer = None
    if request.substitution != "auto" and (request.vendors or request.models):
        willing = decided(_willing(pod))
        offer = Place(willing.node, willing.allocation, willing.reason) if isinstance(willing, Chosen) else None
    miss = nearest_miss(
        cluster.snapshot,
        request,
        nodes=frozenset(nodes),
        reference_rates=reference_rates,
        bound=vendor_bound(request, cluster.offers, note_for(pod, cluster.inventories)),
    )
    return msgspec.structs.replace(
        answer,
        state="Gated" if pod.spec.schedulingGates else "Unplaceable",
        refusals=_grouped({**decision.nodes, **kept_out}),
        nearest=miss.sentence if miss else "",
        offer=offer,
    )


def _nodes(pod: Pod, cluster: Cluster) -> tuple[list[str], dict[str, Refusal]]:
    """All nodes, and those of them that kube-scheduler keeps the pod out of."""
    kept_out = {node.metadata.name: refusal for node in cluster.nodes if (refusal := _kept_out(pod, node))}
    every = [node.metadata.name for node in cluster.nodes] or [node.name for node in cluster.inventories]
    return every, kept_out


def _decide(
    pod: Pod, nodes: Sequence[str], cluster: Cluster, reference_rates: ReferenceRates | None = None
) -> Decision:
    """What the router would say."""
    return decide(
        pod,
        nodes,
        cluster.snapshot,
        offers=cluster.offers,
        note=note_for(pod, cluster.inventories),
        reference_rates=reference_rates,
        silent=cluster.silent,
        guests=ExpectedGuests().by_node(cluster.pods),
        domain=cluster.domain,
        cores=[held for uid, held in cluster.taken.items() if uid != pod.metadata.uid and held.cores],
    )


def _hosted(pod: Pod, answer: Answer, cluster: Cluster) -> Answer:
    """A pod that asks for RTOS guests alone: the router only leaves nodes out for it."""
    answer = msgspec.structs.replace(answer, asks="RTOS guests", says=_scheduler_says(pod))
    if pod.finished:
        return msgspec.structs.replace(answer, state="Finished")
    if pod.spec.nodeName:
        return msgspec.structs.replace(answer, state="Hostable")
    every, kept_out = _nodes(pod, cluster)
    decision = _decide(pod, [name for name in every if name not in kept_out], cluster)
    if isinstance(decision, Chosen):
        return answer
    unable = decision.unable if isinstance(decision, NotOurs) else decision.nodes
    return msgspec.structs.replace(
        answer,
        state="Hostable" if isinstance(decision, NotOurs) else "Unplaceable",
        nodes=len(every),
        refusals=_grouped({**unable, **kept_out}),
    )


def _waits_for(pod: Pod, cluster: Cluster) -> str:
    """What a pod without a node waits for beside a place: the other members of its gang, or its owner's answer."""
    if pod.spec.nodeName or pod.finished:
        return ""
    offered = offer_on(pod)
    if offered is not None and not offered.accepted:
        namespace = pod.metadata.namespace or "default"
        return f"your answer until {offered.expires}: {offered.reason}; hcs accept {pod.metadata.name} -n {namespace}"
    try:
        gang = read_membership(pod)
    except RefusedError:
        return ""
    if gang is None:
        return ""
    mates = [one for one in cluster.pods if not one.finished and _gang_of(one) == gang.key]
    bound = sum(bool(one.spec.nodeName) for one in mates)
    size = f" of {gang.size}" if gang.size else ""
    return f"gang {gang.name}: {len(mates)}{size} members are there, {bound} have their place; all start together"


def _gang_of(pod: Pod) -> str:
    try:
        gang = read_membership(pod)
    except RefusedError:
        return ""
    return gang.key if gang is not None else ""


def of_pod(refusals: Iterable[Refusal]) -> tuple[Reason, ...]:
    """Reasons that concern the pod itself."""
    return tuple(Reason(refusal.reason, refusal.message, hint=hint_for(refusal.reason)) for refusal in refusals)


def in_words(request: ComputeRequest) -> str:
    """The request as a person would say it.

    >>> from hcs.model.requests import ContainerRequest
    >>> in_words(ComputeRequest((ContainerRequest("main", vram=16 << 30),), vendors=("ascend",)))
    '16Gi on one card; of ascend; for gemm; shared; no substitution'
    """
    several = len(request.containers) > 1
    each = [f"{c.name}: {describe(c)}" if several else describe(c) for c in request.containers]
    each += [f"{amount} {name}" for name, amount in request.capacities]
    parts = [" + ".join(each)]
    if not request.containers:
        return parts[0]
    if request.vendors:
        parts.append(f"of {' or '.join(request.vendors)}")
    if request.models:
        parts.append(f"model {' or '.join(request.models)}")
    parts.append(f"for {request.workload}")
    beside = f" in group {request.group}" if request.group else ""
    parts.append("whole cards" if request.exclusive else f"shared{beside}")
    parts.append(
        {"never": "no substitution", "ask": "substitution on request"}.get(request.substitution, "any substitute")
    )
    if request.runtime:
        parts.append(f"runtime {request.runtime}")
    return "; ".join(parts)


def exchange_in_words(exchange: Exchange) -> str:
    """A substitution as a person would say it: rates per device, in the workload class."""
    ratio = exchange.wanted_milliacu * 100 // max(exchange.got_milliacu, 1)
    return (
        f"{exchange.got} stands in for {exchange.wanted}: 1 {exchange.wanted} = {ratio // 100}.{ratio % 100:02d} "
        f"{exchange.got} in {exchange.workload} ({exchange.source})"
    )


def grants_in_words(allocation: Allocation) -> list[str]:
    """One line for each grant of an allocation."""
    return [
        f"{container}: {grant.device}, "
        + ("the whole card" if allocation.exclusive else f"{show_bytes(grant.bytes)} of it")
        for container, grants in allocation.containers.items()
        for grant in grants
    ] + [
        *(f"{amount} {name} of the node" for name, amount in allocation.capacities.items()),
        *(
            f"{container}: cores {grant.width}x{grant.height} at ({grant.x},{grant.y}) of board {grant.board}"
            for container, cores in allocation.cores.items()
            for grant in cores
        ),
    ]


def _sick_cards(held: Allocation, cluster: Cluster) -> tuple[str, ...]:
    """What is wrong with the cards a pod holds."""
    inventory = next((node for node in cluster.inventories if node.name == held.node), None)
    devices = {device.id: device for device in inventory.devices} if inventory else {}
    notes = []
    for id in sorted(held.devices()):
        device, entry = devices.get(id), inventory.quarantined(id) if inventory else None
        if device is None:
            notes.append(f"card {id} is not on {held.node} any more")
        elif entry is not None:
            notes.append(f"card {id} is quarantined: {entry.reason}; the pod will be evicted under the healer's budget")
        elif device.verdict != "Healthy":
            notes.append(f"card {id} is {device.verdict}: {device.verdict_reason or 'no reason given'}")
    return tuple(notes)


def _willing(pod: Pod) -> Pod:
    """The same pod, allowing any substitute."""
    annotations = {**pod.annotations, names.SUBSTITUTION: "auto"}
    return msgspec.structs.replace(pod, metadata=msgspec.structs.replace(pod.metadata, annotations=annotations))


NEAREST: Final = (
    "CardsTaken",
    "CapacityTaken",
    "Fragmented",
    "CardsUnavailable",
    "DeviceUnhealthy",
    "DeviceQuarantined",
    "DeviceForeign",
    "NodeNotReady",
    "RuntimeTooOld",
    "RuntimeFailsOpen",
    "NodeCordoned",
    "NodeSelectorMismatch",
    "TooFewCards",
    "AcuTooHigh",
    "VramTooSmall",
    "CapacityTooSmall",
    "DerivedRateOnly",
    "NoRate",
    "NoKnownRate",
    "NoRatedFigure",
    "ShareNotEnforceable",
    "ModelNotAllowed",
    "RuntimeNotOffered",
    "CheckpointNotPortable",
    "VendorNotAllowed",
    "NoCards",
    "NotManaged",
)
"""Reasons, the nearest miss first: pods that may end, cards that may heal, hardware that will not grow."""


def _grouped(refusals: Mapping[str, Refusal]) -> tuple[Reason, ...]:
    """Refusals by what they say, the nearest miss first; among equals those of most nodes."""
    groups: dict[Refusal, list[str]] = {}
    for node, refusal in sorted(refusals.items()):
        groups.setdefault(refusal, []).append(node)
    rank = {reason: place for place, reason in enumerate(NEAREST)}
    middle = rank["TooFewCards"]  # where a reason of a later version stands until it is listed

    def nearness(group: tuple[Refusal, list[str]]) -> tuple[int, int, Refusal]:
        return rank.get(group[0].reason, middle), -len(group[1]), group[0]

    ordered = sorted(groups.items(), key=nearness)
    return tuple(Reason(r.reason, r.message, tuple(nodes), hint_for(r.reason)) for r, nodes in ordered)


def _kept_out(pod: Pod, node: Node) -> Refusal | None:
    """What kube-scheduler decides before it asks the router, as far as it is plain from outside."""
    if node.spec.get("unschedulable"):
        return Refusal("NodeCordoned", "the node takes no new pods, somebody cordoned it")
    labels = node.metadata.labels or {}
    missing = [f"{key}={value}" for key, value in (pod.spec.nodeSelector or {}).items() if labels.get(key) != value]
    if missing:
        return Refusal("NodeSelectorMismatch", f"the pod's nodeSelector wants {', '.join(sorted(missing))}")
    return None


def _scheduler_says(pod: Pod) -> str:
    conditions: Sequence[Any] = pod.status.conditions or ()
    return next(
        (c.message for c in conditions if c.type == "PodScheduled" and c.status == "False" and c.message),
        "",
    )
