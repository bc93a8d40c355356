"""What the driver knows of the cluster: nodes, bound pods, and pods it has assumed to be bound.

A pod is *assumed* on a node the moment the decision is made, long before the bind is done: the next pod is decided
against a cluster in which the first already sits. The assumption ends when the bound pod is seen, or the bind failed.
"""

from collections.abc import Collection

from hcs.kube.amounts import requested
from hcs.kube.resources import Node
from hcs.sandbox.scheduler.nodes import NodeView, sum_amounts
from hcs.sandbox.scheduler.objects import WholePod


class Cluster:
    """Nodes and what is taken of them."""

    def __init__(self) -> None:
        self._nodes: dict[str, Node] = {}
        self._bound: dict[str, tuple[str, dict[str, int]]] = {}
        self._pods: dict[str, WholePod] = {}
        self._assumed: dict[str, tuple[str, dict[str, int]]] = {}

    def set_node(self, node: Node) -> None:
        """A node is there, as it is now."""
        self._nodes[node.metadata.name] = node

    def drop_node(self, name: str) -> None:
        """A node is gone."""
        self._nodes.pop(name, None)

    def set_bound(self, pod: WholePod) -> None:
        """A pod runs, or will, on its node."""
        self._bound[pod.uid] = (pod.node, requested(pod.spec))
        self._pods[pod.uid] = pod
        self._assumed.pop(pod.uid, None)

    def drop_pod(self, uid: str) -> bool:
        """A pod holds nothing any more; tells whether it was bound."""
        self._assumed.pop(uid, None)
        self._pods.pop(uid, None)
        return self._bound.pop(uid, None) is not None

    def assume(self, pod: WholePod, node: str) -> None:
        """Count the pod on this node from now on."""
        self._assumed[pod.uid] = (node, requested(pod.spec))

    def forget(self, uid: str) -> None:
        """The bind failed."""
        self._assumed.pop(uid, None)

    def assumes(self, uid: str) -> bool:
        """Whether the pod is assumed somewhere."""
        return uid in self._assumed

    def views(self) -> list[NodeView]:
        """Every node as it is now, in the order of names."""
        taken: dict[str, list[dict[str, int]]] = {}
        for node, amounts in (*self._bound.values(), *self._assumed.values()):
            taken.setdefault(node, []).append(amounts)
        return [NodeView(node, sum_amounts(taken.get(name, ()))) for name, node in sorted(self._nodes.items())]

    def on(self, node: str) -> list[WholePod]:
        """The bound pods of a node."""
        return [pod for pod in self._pods.values() if pod.node == node]

    def view_without(self, node: str, uids: Collection[str]) -> NodeView:
        """One node as if these pods were gone."""
        amounts = [
            amounts
            for uid, (where, amounts) in (*self._bound.items(), *self._assumed.items())
            if where == node and uid not in uids
        ]
        return NodeView(self._nodes[node], sum_amounts(amounts))
