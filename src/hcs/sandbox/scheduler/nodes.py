"""The node checks that run before the extender: unschedulable, affinity, taints, CPU, memory and number of pods.

The same order and the same words as kube-scheduler, because its words and the extender's end in one message. Host
ports, volumes and spreading are left out: nothing in the sandbox has them.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from hcs.kube.resources import Node
from hcs.sandbox.scheduler.amounts import read_amounts, requested
from hcs.sandbox.scheduler.objects import WholePod

_KEEPS_OUT: Final = ("NoSchedule", "NoExecute")


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
    node = view.node
    if node.spec.get("unschedulable") and not _tolerated(
        {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}, pod
    ):
        return ("node(s) were unschedulable",)
    for taint in node.spec.get("taints") or ():
        if taint.get("effect") in _KEEPS_OUT and not _tolerated(taint, pod):
            return (f"node(s) had untolerated taint {{{taint.get('key')}: {taint.get('value', '')}}}",)
    if not _affine(pod, node):
        return ("node(s) didn't match Pod's node affinity/selector",)
    return _too_small(pod, view, ignored)


def _tolerated(taint: Mapping[str, Any], pod: WholePod) -> bool:
    for toleration in pod.spec.get("tolerations") or ():
        if toleration.get("effect") and toleration["effect"] != taint.get("effect"):
            continue
        if toleration.get("key") and toleration["key"] != taint.get("key"):
            continue
        if toleration.get("operator", "Equal") == "Exists":
            return True
        if toleration.get("key") and (toleration.get("value") or "") == (taint.get("value") or ""):
            return True
    return False


def _affine(pod: WholePod, node: Node) -> bool:
    labels = node.metadata.labels or {}
    if any(labels.get(key) != value for key, value in (pod.spec.get("nodeSelector") or {}).items()):
        return False
    affinity = ((pod.spec.get("affinity") or {}).get("nodeAffinity") or {}).get(
        "requiredDuringSchedulingIgnoredDuringExecution"
    )
    if affinity is None:
        return True
    return any(_term_matches(term, node, labels) for term in affinity.get("nodeSelectorTerms") or ())


def _term_matches(term: Mapping[str, Any], node: Node, labels: Mapping[str, str]) -> bool:
    expressions, fields = term.get("matchExpressions") or (), term.get("matchFields") or ()
    if not expressions and not fields:
        return False  # an empty term matches nothing
    return all(_holds(e, labels) for e in expressions) and all(
        _holds(f, {"metadata.name": node.metadata.name}) for f in fields
    )


def _holds(expression: Mapping[str, Any], values: Mapping[str, str]) -> bool:
    value, wanted = values.get(expression["key"]), expression.get("values") or []
    match expression["operator"]:
        case "In":
            return value is not None and value in wanted
        case "NotIn":
            return value is None or value not in wanted
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt":
            return value is not None and value.lstrip("-").isdecimal() and int(value) > int(wanted[0])
        case "Lt":
            return value is not None and value.lstrip("-").isdecimal() and int(value) < int(wanted[0])
    return False


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
