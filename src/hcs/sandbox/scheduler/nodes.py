"""The node checks that run before the extender: unschedulable, affinity, taints, CPU, memory and number of pods.

The same order and the same words as kube-scheduler, because its words and the extender's end in one message. Host
ports, volumes and spreading are left out: nothing in the sandbox has them.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from hcs.kube.amounts import read_amounts, requested
from hcs.kube.fitting import unfit
from hcs.kube.resources import Node
from hcs.sandbox.scheduler.objects import WholePod


class NodeView(msgspec.Struct, frozen=True):
    """A node and what the pods on it, assumed ones included, have taken of it (thousandths)."""

    node: Node
    taken: Mapping[str, int]

    @property
    def name(self) -> str:
        """Its name."""
        return self.node.metadata.name


def why_not(pod: WholePod, view: NodeView, ignored: frozenset[str]) -> tuple[str, ...]:
    """Every reason of the first check that refuses; empty when the pod may go there.

    Args:
        pod: the pod.
        view: the node as it is now.
        ignored: resources left to an extender.
    """
    refusal = unfit(pod.spec, view.node)
    return (refusal,) if refusal else _too_small(pod, view, ignored)


def _too_small(pod: WholePod, view: NodeView, ignored: frozenset[str]) -> tuple[str, ...]:
    room = read_amounts(view.node.status.get("allocatable"))
    room.setdefault("pods", 110_000)
    return tuple(
        "Too many pods" if name == "pods" else f"Insufficient {name}"
        for name, amount in requested(pod.spec).items()
        if name not in ignored and amount and view.taken.get(name, 0) + amount > room.get(name, 0)
    )


def emptiness(view: NodeView) -> float:
    """How empty a node is, 0 to 1, over CPU and memory: what spreads pods when nothing else decides."""
    room = read_amounts(view.node.status.get("allocatable"))
    shares = [1 - view.taken.get(name, 0) / room[name] for name in ("cpu", "memory") if room.get(name)]
    return sum(shares) / len(shares) if shares else 0.0


def sum_amounts(amounts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """Add up what several pods take."""
    total: dict[str, int] = {}
    for one in amounts:
        for name, amount in one.items():
            total[name] = total.get(name, 0) + amount
    return total


def shape(node: Node) -> tuple[Any, ...]:
    """What of a node matters to waiting pods; a heartbeat does not change it."""
    conditions = sorted((c.get("type"), c.get("status")) for c in node.status.get("conditions") or ())
    return (
        node.metadata.labels,
        node.metadata.annotations,
        node.spec.get("unschedulable"),
        node.spec.get("taints"),
        node.status.get("allocatable"),
        conditions,
    )
