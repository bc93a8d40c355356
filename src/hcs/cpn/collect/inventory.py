"""Cards of a cluster counted by model: how many can take work, and how many are held by whom we did not send.

Pure: from what the API shows to :class:`~hcs.cpn.views.PoolView`. A card counts as taken once, however many pods share
it; one that a pod of ours shares with others is ours, for the controller counts it already. Cards that can take no
work, because they failed, are quarantined or stand in a node that is cordoned or not ready, are not counted as taken
either: they are gone from both sides.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import msgspec

from hcs.cpn.collect.plugins import Announced, announced, count, plugin_resource
from hcs.cpn.collect.processors import Beside, beside_cards, cpu_asked, cpu_offered
from hcs.cpn.views import PoolView
from hcs.kube.resources import ComputeNode, Node
from hcs.model.allocations import allocation_of
from hcs.model.pods import Container, Pod
from hcs.placement.fleet import USABLE_VERDICTS
from hcs.wide.jobs import Bytes

_FINISHED: Final = ("Complete", "Failed")


class Holding(msgspec.Struct, frozen=True):
    """What one bound pod takes: devices by id on nodes with HCS, plugins' resources on others; millicores anywhere."""

    node: str
    devices: frozenset[str]
    amounts: dict[str, int]
    labels: dict[str, str]
    owner: str
    cpu: int = 0


class Machine(msgspec.Struct, frozen=True):
    """What a Node object says: whether it takes pods, its names and addresses, the cards its plugins announce, and the
    millicores it offers."""

    name: str
    takes_pods: bool
    addresses: frozenset[str]
    cards: tuple[Announced, ...]
    cpu: int | None = None


class Card(msgspec.Struct, frozen=True):
    """One card that is known by id."""

    node: str
    id: str
    index: int
    vendor: str
    kind: str
    memory: Bytes
    usable: bool
    foreign: bool = False


class Inventory(msgspec.Struct, frozen=True):
    """Pools, the single cards behind those of HCS, and whose cards they are.

    ``vendors`` maps each kind to its vendor. ``by_node`` counts usable cards by (node, kind), 0 for nodes
    that have none left; ``unlabelled`` are nodes whose cards have no name.
    """

    pools: tuple[PoolView, ...] = ()
    cards: tuple[Card, ...] = ()
    vendors: dict[str, str] = {}
    by_node: dict[tuple[str, str], int] = {}
    unlabelled: tuple[str, ...] = ()


def holding_of(pod: Pod) -> Holding | None:
    """What a pod holds; None for one that is not bound, has ended, or takes neither card nor CPU."""
    if pod.finished or not pod.spec.nodeName:
        return None
    allocation = allocation_of(pod)
    devices = allocation.devices() if allocation is not None else frozenset[str]()
    amounts, cpu = _amounts(pod), cpu_asked(pod)
    if not devices and not amounts and not cpu:
        return None
    owner = pod.controller
    return Holding(pod.spec.nodeName, devices, amounts, pod.labels, owner.uid if owner is not None else "", cpu)


def addresses_of(pod: Pod) -> frozenset[str]:
    """The addresses by which a bound pod can be reached; none of one that has ended."""
    if pod.finished or not pod.spec.nodeName:
        return frozenset()
    found = {pod.status.podIP, *(one.get("ip") for one in pod.status.podIPs or ())}
    return frozenset(address for address in found if isinstance(address, str) and address)


def machine_of(node: Node) -> Machine:
    """Read a Node."""
    labels = node.metadata.labels or {}
    conditions = node.status.get("conditions") or ()
    ready = not any(
        c.get("type") == "Ready" and c.get("status") in ("False", "Unknown") for c in conditions if isinstance(c, dict)
    )
    addresses = {str(a.get("address", "")) for a in node.status.get("addresses") or () if isinstance(a, dict)}
    hostname = labels.get("kubernetes.io/hostname", "")
    return Machine(
        name=node.metadata.name,
        takes_pods=ready and not node.spec.get("unschedulable"),
        addresses=frozenset((addresses | {hostname, node.metadata.name}) - {""}),
        cards=announced(labels, node.status, node.metadata.annotations),
        cpu=cpu_offered(node.status),
    )


def running(status: Mapping[str, Any], spec: Mapping[str, Any]) -> bool:
    """Whether a Job still runs: not finished, and not held back."""
    conditions = status.get("conditions") or ()
    ended = any(c.get("type") in _FINISHED and c.get("status") == "True" for c in conditions if isinstance(c, dict))
    return not ended and not spec.get("suspend")


def cards_of(node: ComputeNode, machines: Mapping[str, Machine] | None) -> tuple[Card, ...]:
    """The cards of a node with HCS.

    Args:
        node: what its agent says.
        machines: the Node objects by name; None where they may not be read, then every ComputeNode's node is there.
    """
    inventory = node.inventory()
    machine = machines.get(inventory.name) if machines is not None else None
    there = inventory.ready and (machines is None or (machine is not None and machine.takes_pods))
    return tuple(
        Card(
            node=inventory.name,
            id=device.id,
            index=device.index,
            vendor=device.vendor,
            kind=device.model,
            memory=device.vram,
            usable=there and device.verdict in USABLE_VERDICTS and inventory.quarantined(device.id) is None,
            foreign=device.foreign,
        )
        for device in inventory.devices
    )


def take_stock(
    machines: Iterable[Machine],
    cards: tuple[Card, ...],
    holdings: Iterable[Holding],
    ours: Callable[[Holding], bool],
    sick: Callable[[str, str], int] = lambda node, vendor: 0,
) -> Inventory:
    """Count.

    Args:
        machines: the nodes, in the order of names.
        cards: those of nodes with HCS.
        holdings: what bound pods hold.
        ours: whether a holding is of a pod that we sent.
        sick: how many of a vendor's cards on a node without HCS are unhealthy by their metrics.
    """
    machines, with_agent = list(machines), {card.node for card in cards}
    plain = [machine for machine in machines if machine.cards and machine.name not in with_agent]
    mine = set[tuple[str, str]]()
    others = {(card.node, card.id) for card in cards if card.foreign}
    amounts: dict[tuple[str, str, bool], int] = {}
    cpu = Counter[str]()
    for holding in holdings:
        own = ours(holding)
        cpu[holding.node] += 0 if own else holding.cpu
        (mine if own else others).update((holding.node, device) for device in holding.devices)
        for resource, amount in holding.amounts.items():
            key = (holding.node, resource, own)
            amounts[key] = amounts.get(key, 0) + amount
    pools: dict[str, _Count] = {}
    for card in cards:
        place = (card.node, card.id)
        pool = pools.setdefault(card.kind, _Count(card.vendor))
        pool.remember(card.memory)
        pool.usable[card.node] += card.usable
        if card.usable:
            if place in mine:
                pool.ours += 1
            elif place in others:
                pool.taken += 1
    for machine in plain:
        for entry in machine.cards:
            pool = pools.setdefault(entry.kind, _Count(entry.vendor))
            pool.remember(entry.memory)
            fit = min(entry.allocatable, entry.capacity - sick(machine.name, entry.vendor)) if machine.takes_pods else 0
            pool.usable[machine.name] += max(0, fit)
            if fit > 0:
                held = min(fit, entry.cards(amounts.get((machine.name, entry.resource, True), 0)))
                pool.ours += held
                pool.taken += min(fit - held, entry.cards(amounts.get((machine.name, entry.resource, False), 0)))
    by_node = {(node, kind): n for kind, pool in sorted(pools.items()) for node, n in sorted(pool.usable.items())}
    beside = beside_cards(by_node, {machine.name: machine.cpu for machine in machines}, cpu)
    return Inventory(
        pools=tuple(pool.view(kind, beside.get(kind)) for kind, pool in sorted(pools.items())),
        cards=cards,
        vendors={kind: pool.vendor for kind, pool in sorted(pools.items())},
        by_node=by_node,
        unlabelled=tuple(m.name for m in plain if not all(entry.labelled for entry in m.cards)),
    )


class _Count:
    """One pool while it is counted. Where cards of one name differ in memory, the least is what one can rely on."""

    def __init__(self, vendor: str) -> None:
        self.vendor = vendor
        self.usable, self.taken, self.ours = Counter[str](), 0, 0
        self.memory: Bytes | None = None

    def remember(self, memory: Bytes | None) -> None:
        if memory is not None:
            self.memory = memory if self.memory is None else min(self.memory, memory)

    def view(self, kind: str, cpu: Beside | None) -> PoolView:
        return PoolView(
            kind,
            self.usable.total(),
            self.taken,
            self.memory,
            ours=self.ours,
            cpu=None if cpu is None else cpu.share,
            cpu_asked=0 if cpu is None else cpu.asked,
        )


def _amounts(pod: Pod) -> dict[str, int]:
    """What a pod asks of vendors' plugins: its containers and sidecars together, or, where that is more, an init
    container with the sidecars that began before it."""
    beside, starting = Counter[str](), Counter[str]()
    for container in pod.spec.initContainers or ():
        if container.restartPolicy == "Always":
            beside.update(_asked(container))
        else:
            starting |= beside + Counter(_asked(container))
    for container in pod.spec.containers:
        beside.update(_asked(container))
    return dict(beside | starting)


def _asked(container: Container) -> dict[str, int]:
    limits = container.resources.limits or {}
    return {name: count(text) for name, text in limits.items() if plugin_resource(name) is not None}
