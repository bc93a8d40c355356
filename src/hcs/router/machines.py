"""The nodes beside their cards: which of them a pod may go to at all, and what is free of CPU, memory and pod slots.

kube-scheduler knows this best and is asked in the end. The router must know it as well where it decides alone: a gang
that is planned onto a node where kube-scheduler will not let a member go would hold its devices for nothing, and a
victim evicted from a node without free CPU would die for nothing. What is seen here is what kube-scheduler sees; only
pods it has assumed and not bound yet are missing.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec

from hcs.kube.amounts import read_amounts, requested
from hcs.kube.fitting import unfit
from hcs.kube.informer import ChangeKind
from hcs.kube.resources import Node
from hcs.model.pods import Pod
from hcs.placement.preemption import Room

_PODS: Final = 110


class Taken(msgspec.Struct, frozen=True):
    """What a bound pod takes of its node: thousandths of a CPU, and bytes."""

    pod: Pod
    milli_cpu: int
    memory: int


class Machines:
    """All nodes, and the bound and unfinished pods on them, whoever scheduled them."""

    def __init__(self) -> None:
        self._nodes: dict[str, Node] = {}
        self._taken: dict[str, dict[str, Taken]] = {}
        self._where: dict[str, str] = {}
        self._whole: dict[str, tuple[int, int, int]] = {}
        self._sums: dict[str, tuple[int, int]] = {}
        self._closed_by: dict[str, str] = {}
        """Node → what keeps pods out of it whatever they look for; nodes of one such text are looked at once."""

    def labels(self, node: str) -> Mapping[str, str]:
        """A node's labels."""
        found = self._nodes.get(node)
        return (found.metadata.labels if found is not None else None) or {}

    def allocatable(self, node: str) -> Mapping[str, str | int]:
        """What a node offers to pods, as its kubelet says."""
        found = self._nodes.get(node)
        return (found.status.get("allocatable") if found is not None else None) or {}

    def node_changed(self, kind: ChangeKind, node: Node) -> bool:
        """A node is there, changed or is gone; tells whether waiting pods may care: a heartbeat is nothing to them."""
        name = node.metadata.name
        before = self._nodes.get(name)
        if kind == "DELETED":
            for book in (self._nodes, self._whole, self._closed_by):
                book.pop(name, None)
            return False
        self._nodes[name] = node
        whole = read_amounts(node.status.get("allocatable"))
        self._whole[name] = (
            whole.get("cpu", 0),
            whole.get("memory", 0) // 1000,
            whole.get("pods", _PODS * 1000) // 1000,
        )
        self._closed_by[name] = repr((node.spec.get("unschedulable"), node.spec.get("taints")))
        return before is None or _shape(before) != _shape(node)

    def pod_changed(self, kind: ChangeKind, pod: Pod) -> None:
        """A pod is there, changed or is gone."""
        uid = pod.metadata.uid
        here = pod.spec.nodeName if kind != "DELETED" and not pod.finished else None
        before = self._where.get(uid)
        if before is not None and before != here:
            self._take_away(before, uid)
            del self._where[uid]
        if here:
            self._take_away(here, uid)
            self._where[uid] = here
            cpu, memory = amounts_of(pod)
            self._taken.setdefault(here, {})[uid] = Taken(pod, cpu, memory)
            sums = self._sums.get(here, (0, 0))
            self._sums[here] = (sums[0] + cpu, sums[1] + memory)

    def _take_away(self, node: str, uid: str) -> None:
        gone = self._taken.get(node, {}).pop(uid, None)
        if gone is not None:
            sums = self._sums[node]
            self._sums[node] = (sums[0] - gone.milli_cpu, sums[1] - gone.memory)

    def on(self, node: str) -> Iterable[Taken]:
        """The pods on a node."""
        return self._taken.get(node, {}).values()

    def pods(self) -> Iterator[Pod]:
        """All bound pods."""
        return (taken.pod for node in self._taken.values() for taken in node.values())

    def pod(self, uid: str) -> Pod | None:
        """A bound pod by its UID."""
        node = self._where.get(uid)
        taken = self._taken[node].get(uid) if node is not None else None
        return taken.pod if taken is not None else None

    def room(self, node: str) -> Room | None:
        """What is free on a node; None of one that nobody knows."""
        whole = self._whole.get(node)
        if whole is None:
            return None
        cpu, memory = self._sums.get(node, (0, 0))
        return Room(milli_cpu=whole[0] - cpu, memory=whole[1] - memory, pods=whole[2] - len(self._taken.get(node, {})))

    def rooms(self, nodes: Iterable[str]) -> dict[str, Room]:
        """The same of several; nodes that nobody knows are left out."""
        found = ((node, self.room(node)) for node in nodes)
        return {node: room for node, room in found if room is not None}

    def open_to(self, pod: Pod, nodes: Iterable[str]) -> list[str]:
        """Those of the nodes that kube-scheduler does not close to a pod whatever is free there."""
        spec = plain_spec(pod)
        known = ((name, self._nodes.get(name)) for name in nodes)
        if spec.get("nodeSelector") or spec.get("affinity"):
            return [name for name, node in known if node is not None and not unfit(spec, node)]
        fits: dict[str, bool] = {}
        found = []
        for name, node in known:
            if node is None:
                continue
            why = self._closed_by[name]
            if why not in fits:
                fits[why] = not unfit(spec, node)
            if fits[why]:
                found.append(name)
        return found

    def roomy_for(self, pod: Pod, nodes: Iterable[str]) -> list[str]:
        """Those of them that also have the CPU, memory and pod slot free."""
        cpu, memory = amounts_of(pod)
        return [
            name
            for name in self.open_to(pod, nodes)
            if (room := self.room(name)) is not None
            and room.pods > 0
            and room.milli_cpu >= cpu
            and room.memory >= memory
        ]


def amounts_of(pod: Pod) -> tuple[int, int]:
    """What a pod asks of its node: thousandths of a CPU, bytes of memory (rounded up); nonsense counts as nothing."""
    try:
        asked = requested(plain_spec(pod))
    except ValueError:
        return 0, 0
    return asked.get("cpu", 0), -(-asked.get("memory", 0) // 1000)


def plain_spec(pod: Pod) -> dict[str, Any]:
    """The pod's spec as the API server writes it."""
    found: dict[str, Any] = msgspec.to_builtins(pod.spec)
    return found


def _shape(node: Node) -> tuple[object, ...]:
    return (
        node.metadata.labels,
        node.spec.get("unschedulable"),
        node.spec.get("taints"),
        node.status.get("allocatable"),
    )
