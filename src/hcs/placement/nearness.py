"""The filters that a pod's rules about links, NUMA nodes, networks and data bring: asked only where there is a rule.

Two look at the node (is it in the network, is it near enough to the data), one at how its cards are wired: whether any
choice of them keeps the rules, were all of them free. Whether the *free* ones do is a question for the search.
Their sentences name what was asked and what the hardware is, so they stay the same as pods come and go.
"""

from functools import lru_cache
from itertools import product
from typing import Final, TypeVar

import msgspec
import numpy as np

from hcs.model.devices import NodeInventory
from hcs.model.locality import DataSourceRule, FabricRule, LinkRule, Locality
from hcs.model.refusals import Refusal
from hcs.model.requests import ComputeRequest
from hcs.placement.appraisals import Appraisal
from hcs.placement.arrangement import arrange, wiring_of
from hcs.placement.fleet import Fleet, Integers, Mask
from hcs.placement.packing import cards_of
from hcs.placement.snapshot import Snapshot
from hcs.placement.topology import feasible


class InFabric:
    """The node is plugged into the RDMA network that the pod requires."""

    stage: Final = "hardware"

    def keep(self, snapshot: Snapshot, appraisal: Appraisal) -> Mask:
        wanted = Locality(fabric=appraisal.request.locality.fabric)
        return _on_nodes(snapshot.fleet, reachable(snapshot.fleet, wanted))

    def refuse(self, snapshot: Snapshot, appraisal: Appraisal, node: int, left: Mask) -> Refusal:
        rule = appraisal.request.locality.fabric
        asked = " or ".join(rule.names) if rule is not None and rule.names else "any"
        here = ", ".join(sorted(snapshot.fleet.nodes[node].fabrics)) or "none"
        return Refusal("FabricMissing", f"needs an adapter in RDMA network {asked}; this node is in {here}")


class NearData:
    """The node's latency to the data source was measured and is low enough."""

    stage: Final = "hardware"

    def keep(self, snapshot: Snapshot, appraisal: Appraisal) -> Mask:
        wanted = Locality(data_source=appraisal.request.locality.data_source)
        return _on_nodes(snapshot.fleet, reachable(snapshot.fleet, wanted))

    def refuse(self, snapshot: Snapshot, appraisal: Appraisal, node: int, left: Mask) -> Refusal:
        rule = appraisal.request.locality.data_source
        assert rule is not None  # else nothing is dropped
        most = show_microseconds(rule.microseconds or 0)
        measured = snapshot.fleet.nodes[node].latency(rule.name)
        if measured is None:
            return Refusal("LatencyUnknown", f"needs data source {rule.name} within {most}; nobody measured it here")
        return Refusal(
            "DataSourceFar", f"needs data source {rule.name} within {most}; it is {show_microseconds(measured)} away"
        )


class WiredTogether:
    """Some choice of the node's cards keeps the rules about links and NUMA nodes, whoever holds them now."""

    stage: Final = "hardware"

    def keep(self, snapshot: Snapshot, appraisal: Appraisal) -> Mask:
        return keeping_rules(snapshot, appraisal, np.ones(len(snapshot.fleet.devices), dtype=np.bool_))

    def refuse(self, snapshot: Snapshot, appraisal: Appraisal, node: int, left: Mask) -> Refusal:
        locality, fleet = appraisal.request.locality, snapshot.fleet
        inside = fleet.slice_of(node)
        here = inside.start + np.flatnonzero(left[inside])
        cards = max((int(appraisal.cards[fleet.kind[place]]) for place in here), default=appraisal.container.cards)
        ways = sorted({link.kind for place in here for link in fleet.devices[int(place)].links})
        asked = [describe_links(locality.links)] if locality.links is not None and locality.links.required else []
        if locality.numa == "required":
            asked.append("all on one NUMA node")
        return Refusal(
            "CardsApart",
            f"needs {cards} cards {' and '.join(asked)}; no {cards} of the cards here are, "
            f"their links are {', '.join(ways) if ways else 'not known'}",
        )


NEARNESS: Final[tuple[InFabric | NearData | WiredTogether, ...]] = (InFabric(), NearData(), WiredTogether())
"""All of them, in the order they are asked: after :class:`hcs.placement.filters.AcuFits`, which says who serves."""


def in_reach(node: NodeInventory, locality: Locality) -> bool:
    """Whether the node itself keeps the rules about networks and data."""
    return fabric_serves(node, locality.fabric) and data_in_reach(node, locality)


def fabric_serves(node: NodeInventory, rule: FabricRule | None) -> bool:
    """Whether a node is in the network that a pod requires; True where it requires none."""
    if rule is None or not rule.required:
        return True
    return bool(node.fabrics & set(rule.names)) if rule.names else bool(node.fabrics)


def data_in_reach(node: NodeInventory, locality: Locality) -> bool:
    """Whether a node is within the latency that the pod requires; True where it requires none."""
    rule = locality.data_source
    if rule is None or rule.microseconds is None:
        return True
    measured = node.latency(rule.name)
    return measured is not None and measured <= rule.microseconds


def keeping_rules(snapshot: Snapshot, appraisal: Appraisal, keep: Mask) -> Mask:
    """[D] The devices of groups in which some choice among the kept ones [D] keeps the rules about pairs."""
    locality, fleet = appraisal.request.locality, snapshot.fleet
    if not locality.pairing:
        return keep
    serving = keep & appraisal.serves[fleet.kind]
    result = serving & (appraisal.cards[fleet.kind] < 2)
    several = np.flatnonzero(serving & ~result)
    if not len(several):
        return serving
    bounds = fleet.group_first
    for group in np.unique(fleet.group[several]):
        inside = slice(int(bounds[group]), int(bounds[group + 1]))
        if _group_keeps(snapshot, appraisal, serving, int(group), inside):
            result[inside] = serving[inside]
    return result


def describe_links(rule: LinkRule | None) -> str:
    """The rule in words, as it stands in a refusal.

    >>> describe_links(LinkRule(("nvlink",), 200_000))
    'linked by nvlink with at least 200 GB/s, each pair'
    """
    if rule is None:
        return ""
    kinds = f"linked by {' or '.join(rule.kinds)}" if rule.kinds else "linked"
    gigabytes = f"{rule.mbps // 1000}" if rule.mbps % 1000 == 0 else f"{rule.mbps / 1000:.1f}"
    return f"{kinds}{f' with at least {gigabytes} GB/s' if rule.mbps else ''}, each pair"


def show_microseconds(amount: int) -> str:
    """Write a latency for people.

    >>> show_microseconds(1500), show_microseconds(80)
    ('1.5 ms', '80 us')
    """
    if amount < 1000:
        return f"{amount} us"
    return f"{amount // 1000} ms" if amount % 1000 == 0 else f"{amount // 1000}.{amount % 1000 // 100} ms"


def relaxations(fleet: Fleet, request: ComputeRequest) -> tuple[ComputeRequest, ...]:
    """The request with its wishes as rules, then with one wish less after the other, and last without any.

    Whoever places a pod tries them in this order, so a wish is kept wherever it can be. Cards that the pod names come
    before substitutes even where only those would keep a wish. Nearness to data goes by steps: nodes within twice the
    least latency there is, within four times, and so on, and last those where nobody measured.
    """
    if not request.locality.wishes:
        return (request,)
    variants = [msgspec.structs.replace(request, locality=locality) for locality in _hardened(fleet, request.locality)]
    if request.substitution != "auto" or not (request.models or request.vendors):
        return tuple(variants)
    return (*(msgspec.structs.replace(one, substitution="never") for one in variants), *variants)


def _hardened(fleet: Fleet, locality: Locality) -> list[Locality]:
    found: list[Locality] = []
    for step in (*_latency_steps(fleet, locality.data_source), None):
        data = locality.data_source
        if data is not None and data.microseconds is None and step is not None:
            data = msgspec.structs.replace(data, microseconds=step)
        elif step is not None:
            continue
        numa = locality.numa
        choices = product(
            dict.fromkeys((_required(locality.fabric), locality.fabric)),
            dict.fromkeys((_required(locality.links), locality.links)),
            dict.fromkeys(("required" if numa == "preferred" else numa, numa)),
        )
        found += [Locality(numa=node, links=ways, fabric=network, data_source=data) for network, ways, node in choices]
    return found


def latencies(fleet: Fleet, source: str) -> Integers:
    """[N] Microseconds to a data source; the largest number there is where nobody measured."""
    unknown = int(np.iinfo(np.int64).max)
    found = (node.latency(source) for node in fleet.nodes)
    return np.fromiter((unknown if value is None else value for value in found), dtype=np.int64, count=len(fleet.nodes))


Rule = TypeVar("Rule", FabricRule | None, LinkRule | None)


def _required(rule: Rule) -> Rule:
    return rule if rule is None or rule.required else msgspec.structs.replace(rule, required=True)


def _latency_steps(fleet: Fleet, rule: DataSourceRule | None) -> list[int]:
    """Bounds that let in more nodes each time, in microseconds."""
    if rule is None or rule.microseconds is not None:
        return []
    measured = sorted({found for node in fleet.nodes if (found := node.latency(rule.name)) is not None})
    steps: list[int] = []
    for latency in measured:
        bound = 2 * max(measured[0], 1)
        while bound < latency:
            bound *= 2
        if not steps or bound > steps[-1]:
            steps.append(bound)
    return steps


@lru_cache(maxsize=64)
def reachable(fleet: Fleet, locality: Locality) -> Mask:
    """[N] The nodes that keep the rules about networks and data themselves."""
    mask: Mask = np.array([in_reach(node, locality) for node in fleet.nodes], dtype=np.bool_)
    mask.setflags(write=False)
    return mask


def _group_keeps(snapshot: Snapshot, appraisal: Appraisal, serving: Mask, group: int, inside: slice) -> bool:
    fleet, locality = snapshot.fleet, appraisal.request.locality
    asked = set(appraisal.cards[fleet.kind[inside][serving[inside]]].tolist())
    if len(asked) > 1:  # cards of one model whose measured rates differ ask for different numbers
        cards = cards_of(snapshot, (appraisal,), (serving,), group, vacant=True)
        return arrange(snapshot, cards, 1, group, locality) is not None
    wiring = wiring_of(snapshot, group, locality)
    return _feasible(wiring, asked.pop(), int.from_bytes(np.packbits(serving[inside], bitorder="little"), "little"))


_feasible = lru_cache(maxsize=65536)(feasible)


def _on_nodes(fleet: Fleet, nodes: Mask) -> Mask:
    kept: Mask = nodes[fleet.node]
    return kept
