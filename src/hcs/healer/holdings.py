"""Which pods hold which card: an index over the pods, kept up to date change by change.

The allocation of a pod is decoded once a change and not once a round: on a large cluster pods change far more often
than cards fail.
"""

from collections.abc import Iterator

from hcs.kube import resources
from hcs.kube.informer import ChangeKind, Informer
from hcs.model.allocations import Allocation, allocation_of
from hcs.model.pods import Pod


class Holdings:
    """By node and device: the pods bound there by us, finished ones included."""

    def __init__(self, pods: Informer[resources.Pod]) -> None:
        self._by_node: dict[str, dict[str, dict[str, Pod]]] = {}
        self._allocations: dict[str, Allocation] = {}
        pods.on_change(self._changed)

    def devices(self, node: str) -> Iterator[str]:
        """The devices of a node that unfinished pods hold."""
        return (device for device, pods in self._by_node.get(node, {}).items() if any(map(_holds, pods.values())))

    def holders(self, node: str, device: str) -> list[Pod]:
        """Unfinished pods that hold a device."""
        return [pod for pod in self._pods(node, device) if _holds(pod)]

    def casualties(self, node: str, device: str) -> list[Pod]:
        """Pods that held a device and ended in phase Failed."""
        return [pod for pod in self._pods(node, device) if pod.status.phase == "Failed"]

    def allocation(self, pod: Pod) -> Allocation | None:
        """What a pod was bound with."""
        return self._allocations.get(pod.metadata.uid)

    def _pods(self, node: str, device: str) -> list[Pod]:
        return list(self._by_node.get(node, {}).get(device, {}).values())

    def _changed(self, kind: ChangeKind, pod: resources.Pod, before: resources.Pod | None) -> None:
        for gone in {pod.metadata.uid, before.metadata.uid if before is not None else pod.metadata.uid}:
            held = self._allocations.pop(gone, None)
            for device in held.devices() if held is not None else ():
                self._by_node[held.node][device].pop(gone, None)  # type: ignore[union-attr]
        allocation = allocation_of(pod) if kind != "DELETED" else None
        if allocation is not None:
            self._allocations[pod.metadata.uid] = allocation
            on_node = self._by_node.setdefault(allocation.node, {})
            for device in allocation.devices():
                on_node.setdefault(device, {})[pod.metadata.uid] = pod


def _holds(pod: Pod) -> bool:
    return not pod.finished
