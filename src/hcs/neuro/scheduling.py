"""Which node a pod with spikes goes to: capacities as plain numbers, wishes as an order, and who must go for whom.

To a scheduler a node with boards is a set of capacities by resource name, of which an amount is taken; a node of 500
KSPS with 400 taken accepts 100 and not 101. Kubernetes counts the resources itself; this module is what the router and
``hcs`` add to that: the order of nodes that would do, the rectangle where a grid is known, and victims by event
capacity. Pure, and the same for one board and a thousand.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

from hcs.model.pods import Pod
from hcs.model.quantities import QuantityError, parse_amount
from hcs.model.refusals import Refusal
from hcs.neuro.allocator import Allocator, Placed
from hcs.neuro.capacities import DOMAIN, WORDS
from hcs.neuro.pods import read_spiking
from hcs.neuro.sites import Affinity, shapes_of

Capacities = tuple[tuple[str, int], ...]
"""(resource name, amount in its units), sorted by name."""


class SpikingHolder(msgspec.Struct, frozen=True):
    """A pod on a node, and what it takes there."""

    pod: str
    takes: Capacities
    priority: int = 0


class SpikingNode(msgspec.Struct, frozen=True):
    """A node as the scheduler sees it. ``numa`` are the NUMA nodes its boards hang on; ``zone`` is where it stands."""

    name: str
    offers: Capacities
    holders: tuple[SpikingHolder, ...] = ()
    numa: tuple[int, ...] = ()
    zone: str = ""

    def free(self, resource: str) -> int:
        """What nobody has taken of a resource; never negative."""
        taken = sum(amount for holder in self.holders for name, amount in holder.takes if name == resource)
        return max(0, dict(self.offers).get(resource, 0) - taken)


class NodeWish(msgspec.Struct, frozen=True):
    """Where a pod would like to be. ``zone`` and ``numa`` say where its events come from."""

    affinity: Affinity = "any"
    zone: str = ""
    numa: int | None = None


ANYWHERE: Final = NodeWish()


def offered_by(allocatable: Mapping[str, str | int], *, domain: str = DOMAIN) -> Capacities:
    """The spiking capacities of a node, from its ``status.allocatable``; what cannot be read counts as none."""
    found = []
    for name, text in allocatable.items():
        word = name.removeprefix(f"{domain}/")
        if word == name or not any(word == known or word.startswith(f"{known}-") for known in WORDS):
            continue
        try:
            found.append((name, parse_amount(text)))
        except QuantityError:
            continue
    return tuple(sorted(found))


def asked_by(pod: Pod, *, domain: str = DOMAIN) -> Capacities:
    """What a pod takes: its main containers together, or what one init container takes where that is more.

    Raises:
        RefusedError: it asks wrongly; see :func:`hcs.neuro.pods.read_spiking`.
    """
    fields = {field: word for word, field in WORDS.items()}
    before = {one.name for one in pod.spec.initContainers or () if one.restartPolicy != "Always"}
    total: dict[str, int] = {}
    largest: dict[str, int] = {}
    for request in read_spiking(pod, domain=domain):
        for field, amount in msgspec.structs.asdict(request.units).items():
            if amount:
                name = f"{domain}/{fields[field]}" + (f"-{request.module}" if request.module else "")
                if request.container in before:
                    largest[name] = max(largest.get(name, 0), amount)
                else:
                    total[name] = total.get(name, 0) + amount
    return tuple(sorted((name, max(total.get(name, 0), largest.get(name, 0))) for name in total | largest))


def refuse(node: SpikingNode, wanted: Capacities) -> Refusal | None:
    """Why a node cannot take this now; None where it can. The sentence names no free amount, so it stays the same."""
    offers = dict(node.offers)
    for name, amount in wanted:
        if name not in offers:
            return Refusal("NoSpikingHardware", f"asks for {name}, and this node has none")
        if amount > offers[name]:
            return Refusal(
                "SpikesBeyondNode", f"asks for {amount} of {name}; this node offers {offers[name]} when empty"
            )
    for name, amount in wanted:
        if amount > node.free(name):
            return Refusal("SpikesTaken", f"asks for {amount} of {name}; others hold too much of it here")
    return None


def rank(nodes: Iterable[SpikingNode], wanted: Capacities, wish: NodeWish = ANYWHERE) -> Sequence[SpikingNode]:
    """The nodes that can take it now, the best first.

    ``high-capacity`` takes the node that offers most, ``near-source`` one in the zone, then on the NUMA node, of the
    source; otherwise, and among equals, the fullest that still takes it, which keeps the others whole.
    """

    def order(node: SpikingNode) -> tuple[object, ...]:
        most = sum(dict(node.offers)[name] for name, _ in wanted)
        left = sum(node.free(name) for name, _ in wanted)
        far = (wish.zone != "" and node.zone != wish.zone, wish.numa is not None and wish.numa not in node.numa)
        if wish.affinity == "high-capacity":
            return (-most, far, left, node.name)
        return (far, left, node.name) if wish.affinity == "near-source" else (left, far, node.name)

    return sorted((node for node in nodes if refuse(node, wanted) is None), key=order)


def victims(node: SpikingNode, wanted: Capacities, priority: int) -> Sequence[SpikingHolder] | None:
    """Who must go so that a pod of this priority fits: the least important, and no more than needed.

    Returns:
        The holders, empty where none is needed; None where it would not fit without all of lower priority, either.
    """
    chosen: list[SpikingHolder] = []
    stay = list(node.holders)

    def fits(holders: list[SpikingHolder]) -> bool:
        return refuse(msgspec.structs.replace(node, holders=tuple(holders)), wanted) is None

    names = {name for name, _ in wanted}
    for holder in sorted(node.holders, key=lambda h: (h.priority, -_events(h, names), h.pod)):
        if fits(stay):
            break
        if holder.priority < priority and _events(holder, names):
            stay.remove(holder)
            chosen.append(holder)
    if not fits(stay):
        return None
    for holder in sorted(chosen, key=lambda h: (-h.priority, _events(h, names), h.pod)):
        if fits([*stay, holder]):
            stay.append(holder)
            chosen.remove(holder)
    return chosen


def choose_rectangle(cores: Allocator, amount: int, *, avoid: int = 0) -> Placed | None:
    """The rectangle for so many cores on a board whose grid is known, the squarest that has a place.

    Args:
        cores: the board.
        amount: live cores.
        avoid: cells that are to be treated as taken.
    """
    for request in shapes_of(amount):
        placed = cores.find(request, avoid=avoid)
        if placed is not None:
            return placed
    return None


def _events(holder: SpikingHolder, names: set[str]) -> int:
    return sum(amount for name, amount in holder.takes if name in names)
