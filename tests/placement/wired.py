"""Nodes with wired cards for the tests of topology and gangs, and the plain ways to check an answer."""

from collections.abc import Sequence

import msgspec
from tests.placement.fleets import card, node

from hcs.model.allocations import Allocation
from hcs.model.devices import Device, Link, Location, Nic, NodeInventory
from hcs.placement.snapshot import Snapshot


def wired(name: str, kinds: Sequence[str], ways: dict[tuple[int, int], str], **fields: object) -> NodeInventory:
    """A node whose cards are linked as said: (card, card) → the tool's word, with ``word:mbps`` for a measured one."""
    plain = node(name, *kinds)
    return linked(plain, ways, **fields)


def linked(plain: NodeInventory, ways: dict[tuple[int, int], str], **fields: object) -> NodeInventory:
    """The node with these ways between its cards, told by both ends."""
    both = {**ways, **{(b, a): word for (a, b), word in ways.items()}}
    devices = []
    for number, device in enumerate(plain.devices):
        links = []
        for (one, other), word in sorted(both.items()):
            if one == number:
                kind, _, mbps = word.partition(":")
                links.append(Link(plain.devices[other].id, kind, int(mbps) if mbps else None))
        devices.append(msgspec.structs.replace(device, links=tuple(links)))
    return msgspec.structs.replace(plain, devices=tuple(devices), **fields)


def halves(name: str, kind: str = "a100", cards: int = 4, **fields: object) -> NodeInventory:
    """A node of cards in two NVLink halves with the CPUs between them; each half on a NUMA node of its own."""
    middle = cards // 2
    ways = {
        (a, b): "NV12" if (a < middle) == (b < middle) else "SYS" for a in range(cards) for b in range(a + 1, cards)
    }
    plain = NodeInventory(name, tuple(card(kind, n, name, numa=int(n >= middle)) for n in range(cards)))
    return linked(plain, ways, **fields)


def at(zone: str = "", rack: str = "", domain: str = "", fabric: str = "") -> Location:
    """A place in the network."""
    return Location(zone=zone, fabric=fabric, rack=rack, domain=domain)


def nic(name: str, fabric: str, numa: int | None = None) -> Nic:
    """An adapter of a network."""
    return Nic(name, fabric, "infiniband", numa)


def indexes(snapshot: Snapshot, positions: Sequence[int]) -> list[int]:
    """The devices' numbers on their node."""
    return [snapshot.fleet.devices[position].index for position in positions]


def after(snapshot: Snapshot, allocations: Sequence[Allocation]) -> Snapshot:
    """The snapshot with all of these."""
    for allocation in allocations:
        snapshot = snapshot.with_allocation(allocation)
    return snapshot


def device(kind: str, index: int, **changes: object) -> Device:
    """A card on its own."""
    return card(kind, index, "n", **changes)
