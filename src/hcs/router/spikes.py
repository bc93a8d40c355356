"""Spiking capacities in the router: read from nodes and pods, with an order of nodes where the pod wishes one.

A pod's spikes are capacities like any other: counted by placement, recorded in the allocation, rebuilt from pods. Two
things are special. Cores are given as a rectangle, so a node with enough of them may still have no place; and whoever
came by another scheduler takes spikes, too, which is counted here as if we had given them.

    ai.compute/spiking-affinity: high-capacity | near-source [zone=NAME] [numa=N]
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

from hcs.model import names
from hcs.model.allocations import VERSION, Allocation
from hcs.model.devices import NodeInventory
from hcs.model.pods import Pod
from hcs.model.refusals import Refusal, RefusedError
from hcs.model.requests import ComputeRequest, read_request
from hcs.neuro.occupancy import CoreNeed, choose_cores, core_needs
from hcs.neuro.scheduling import ANYWHERE, Capacities, NodeWish, SpikingHolder, SpikingNode, asked_by, rank
from hcs.placement.snapshot import Snapshot

_FORM: Final = "write high-capacity, or near-source, with zone=NAME or numa=N behind it"
_FAR: Final = 1 << 62


def asks_for_spikes(pod: Pod, domain: str) -> bool:
    """Whether any container names a resource of the domain."""
    prefix = f"{domain}/"
    for container in (*pod.spec.containers, *(pod.spec.initContainers or ())):  # plain loops: it is asked every time
        for amounts in (container.resources.limits, container.resources.requests):
            for name in amounts or ():
                if name.startswith(prefix):
                    return True
    return False


def request_of(pod: Pod, domain: str) -> ComputeRequest | None:
    """What a pod asks for, cards and spikes together; None where it asks for neither.

    Raises:
        RefusedError: it asks wrongly.
    """
    request = read_request(pod)
    if not asks_for_spikes(pod, domain):
        return request
    wish_of(pod)
    capacities = asked_by(pod, domain=domain)
    if not capacities:
        return request
    return msgspec.structs.replace(request or ComputeRequest(containers=()), capacities=capacities)


def wish_of(pod: Pod) -> NodeWish:
    """Where a pod would like its spikes to be.

    Raises:
        RefusedError: the annotation cannot be read.
    """
    text = pod.annotations.get(names.SPIKING_AFFINITY)
    if text is None:
        return ANYWHERE
    first, *rest = text.replace(",", " ").split() or [""]
    if first == "high-capacity" and not rest:
        return NodeWish("high-capacity")
    known = dict(word.partition("=")[::2] for word in rest)
    numa = known.get("numa")
    sensible = all(known.values()) and known.keys() <= {"zone", "numa"} and len(known) == len(rest)
    if first != "near-source" or not sensible or (numa is not None and not (numa.isdecimal() and len(numa) < 5)):
        raise RefusedError(
            Refusal("UnknownValue", f"annotation {names.SPIKING_AFFINITY}: cannot read {text[:60]!r}; {_FORM}")
        )
    return NodeWish("near-source", known.get("zone", ""), None if numa is None else int(numa))


def taken_elsewhere(pod: Pod, domain: str) -> Allocation | None:
    """What a bound pod takes that has no allocation of ours, as if it had one; None where it takes no spikes."""
    if not pod.spec.nodeName or not asks_for_spikes(pod, domain):
        return None
    try:
        asked = asked_by(pod, domain=domain)
    except RefusedError:
        return None
    if not asked:
        return None
    return Allocation(
        version=VERSION,
        pod=pod.metadata.uid,
        node=pod.spec.nodeName,
        vendor="",
        model="",
        containers={},
        capacities=dict(asked),
    )


def needs_of(pod: Pod, domain: str) -> tuple[CoreNeed, ...]:
    """The rectangles of cores a pod asks for; none where it asks wrongly, which is refused elsewhere."""
    if not asks_for_spikes(pod, domain):
        return ()
    try:
        return core_needs(pod, domain=domain)
    except RefusedError:
        return ()


def cramped(
    needs: Sequence[CoreNeed], nodes: Sequence[str], inventories: Iterable[NodeInventory], held: Sequence[Allocation]
) -> dict[str, Refusal]:
    """The nodes whose boards have no place for the rectangles, though perhaps enough cores.

    Args:
        needs: what the pod asks for.
        nodes: the nodes in question.
        inventories: what is known of nodes.
        held: what others were given.
    """
    asked = " and ".join(f"{need.ids} {need.resource}" for need in needs)
    refusal = Refusal(
        "Fragmented", f"asks for {asked}; no free rectangle of the boards here holds that, ask for fewer or wait"
    )
    wanted = set(nodes)
    return {
        one.name: refusal
        for one in inventories
        if one.name in wanted and one.boards and choose_cores(needs, one.boards, held=_on(one.name, held)) is None
    }


def in_order(pod: Pod, nodes: Sequence[str], capacities: Capacities, snapshot: Snapshot) -> list[str]:
    """The nodes that can take the spikes now, in the order the pod wishes; those with the best first.

    ``near-source`` prefers the zone and the NUMA node it names, then the lowest latency to the pod's
    ``ai.compute/data-source``, then the fullest.
    """
    wish, fleet, room = wish_of(pod), snapshot.fleet, snapshot.room
    source = pod.annotations.get(names.DATA_SOURCE, "").partition("<=")[0].strip()
    found: dict[str, NodeInventory] = {}
    shown = []
    for name in nodes:
        number = fleet.node_index.get(name)
        if number is None:
            continue
        node = found[name] = fleet.nodes[number]
        offers = dict(node.capacities)
        left = {what: int(room[number, fleet.columns.index(what)]) for what in offers if what in fleet.columns}
        taken = tuple((what, amount - left.get(what, 0)) for what, amount in node.capacities)
        numa = tuple(board.numa for board in node.boards if board.numa is not None)
        holders = (SpikingHolder("others", taken),)
        shown.append(SpikingNode(name, node.capacities, holders, numa, node.location.zone))
    ranked = rank(shown, capacities, wish)

    def far(node: SpikingNode) -> tuple[bool, bool, int]:
        latency = found[node.name].latency(source) if source else None
        elsewhere = wish.zone != "" and node.zone != wish.zone
        return elsewhere, wish.numa is not None and wish.numa not in node.numa, _FAR if latency is None else latency

    return [node.name for node in (sorted(ranked, key=far) if wish.affinity == "near-source" else ranked)]


def with_cores(
    allocation: Allocation,
    pod: Pod,
    node: NodeInventory,
    needs: Sequence[CoreNeed],
    held: Sequence[Allocation],
    gone: Sequence[Allocation] = (),
) -> Allocation | None:
    """The allocation with the rectangles that go with it, boards near its cards first; None: they have no place."""
    wish = wish_of(pod)
    if wish.numa is None:
        ids = allocation.devices()
        near = [device.numa for device in node.devices if device.id in ids and device.numa is not None]
        if near:
            wish = msgspec.structs.replace(wish, numa=max(set(near), key=lambda numa: (near.count(numa), -numa)))
    chosen = choose_cores(needs, node.boards, held=_on(node.name, held), gone=gone, wish=wish)
    return None if chosen is None else msgspec.structs.replace(allocation, cores=dict(chosen))


def told(allocation: Allocation) -> str:
    """The rectangles in words, to stand behind the reason; empty where there are none."""
    return "".join(
        f"; cores {grant.width}x{grant.height} at ({grant.x},{grant.y}) of board {grant.board}"
        for grants in allocation.cores.values()
        for grant in grants
    )


def _on(node: str, held: Iterable[Allocation]) -> list[Allocation]:
    return [allocation for allocation in held if allocation.node == node and allocation.cores]


def capacities_of(inventory: NodeInventory, offered: Capacities) -> NodeInventory:
    """The inventory with these capacities, beside what it has of its own."""
    kept: Mapping[str, int] = {**dict(inventory.capacities), **dict(offered)}
    return msgspec.structs.replace(inventory, capacities=tuple(sorted(kept.items()))) if offered else inventory
