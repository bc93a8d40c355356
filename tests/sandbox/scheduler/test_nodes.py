"""The checks before the extender, with kube-scheduler's own words."""

from typing import Any

import pytest

from hcs.kube.amounts import requested
from hcs.kube.resources import Node
from hcs.model.pods import ObjectMeta
from hcs.sandbox.scheduler.nodes import NodeView, emptiness, shape, why_not
from hcs.sandbox.scheduler.objects import WholePod

IGNORED = frozenset({"ai.compute/vram"})


def node(name: str = "n1", *, labels: dict[str, str] | None = None, **spec: Any) -> Node:
    allocatable = {"cpu": "4", "memory": "8Gi", "pods": "3"}
    return Node(metadata=ObjectMeta(name, labels=labels), spec=spec, status={"allocatable": allocatable})


def pod(requests: dict[str, str] | None = None, **spec: Any) -> WholePod:
    containers = [{"name": "main", "resources": {"requests": requests or {}}}]
    return WholePod(metadata=ObjectMeta("p", uid="p"), spec={"containers": containers, **spec})


def affinity(*terms: dict[str, Any]) -> dict[str, Any]:
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": list(terms)}}
    return {"nodeAffinity": required}


TAINT = {"key": "ai.compute/managed", "effect": "NoSchedule"}
UNTOLERATED = "node(s) had untolerated taint {ai.compute/managed: }"
NO_MATCH = "node(s) didn't match Pod's node affinity/selector"


@pytest.mark.parametrize(
    ("pod", "node", "reasons"),
    [
        pytest.param(pod({"cpu": "4", "memory": "8Gi"}), node(), (), id="exactly-full"),
        pytest.param(pod({"cpu": "4001m"}), node(), ("Insufficient cpu",), id="cpu"),
        pytest.param(
            pod({"cpu": "5", "memory": "9Gi"}), node(), ("Insufficient cpu", "Insufficient memory"), id="cpu-and-memory"
        ),
        pytest.param(pod({"ai.compute/vram": "16Gi"}), node(), (), id="ignored-by-scheduler"),
        pytest.param(pod({"snn.ai.compute/ksps": "1"}), node(), ("Insufficient snn.ai.compute/ksps",), id="counted"),
        pytest.param(pod(), node(unschedulable=True), ("node(s) were unschedulable",), id="cordoned"),
        pytest.param(pod(), node(taints=[TAINT]), (UNTOLERATED,), id="taint"),
        pytest.param(
            pod(tolerations=[{"key": TAINT["key"], "operator": "Exists"}]), node(taints=[TAINT]), (), id="tol"
        ),
        pytest.param(pod(tolerations=[{"operator": "Exists"}]), node(taints=[TAINT]), (), id="tolerates-everything"),
        pytest.param(
            pod(tolerations=[{"key": TAINT["key"], "operator": "Exists", "effect": "NoExecute"}]),
            node(taints=[TAINT]),
            (UNTOLERATED,),
            id="tolerates-another-effect",
        ),
        pytest.param(
            pod(tolerations=[{"key": "a", "value": "b"}]),
            node(taints=[{"key": "a", "value": "c", "effect": "NoExecute"}]),
            ("node(s) had untolerated taint {a: c}",),
            id="tolerates-another-value",
        ),
        pytest.param(pod(), node(taints=[{"key": "a", "effect": "PreferNoSchedule"}]), (), id="only-preferred"),
        pytest.param(pod(nodeSelector={"zone": "a"}), node(labels={"zone": "a"}), (), id="selector"),
        pytest.param(pod(nodeSelector={"zone": "a"}), node(labels={"zone": "b"}), (NO_MATCH,), id="selector-differs"),
        pytest.param(
            pod(affinity=affinity({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]})),
            node("n1"),
            (),
            id="pinned-here",
        ),
        pytest.param(
            pod(affinity=affinity({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]})),
            node("n2"),
            (NO_MATCH,),
            id="pinned-elsewhere",
        ),
        pytest.param(
            pod(
                affinity=affinity(
                    {"matchExpressions": [{"key": "gen", "operator": "Gt", "values": ["4"]}]},
                    {"matchExpressions": [{"key": "old", "operator": "DoesNotExist"}]},
                )
            ),
            node(labels={"gen": "3"}),
            (),
            id="one-term-is-enough",
        ),
        pytest.param(pod(affinity=affinity({})), node(), (NO_MATCH,), id="an-empty-term-matches-nothing"),
    ],
)
def test_why_a_node_does_not_do(pod: WholePod, node: Node, reasons: tuple[str, ...]) -> None:
    assert why_not(pod, NodeView(node, {}), IGNORED) == reasons


def test_what_others_took_counts() -> None:
    taken = {"cpu": 3500, "pods": 3000}
    assert why_not(pod({"cpu": "501m"}), NodeView(node(), taken), IGNORED) == ("Too many pods", "Insufficient cpu")
    assert requested(pod({"cpu": "1"}).spec) == {"pods": 1000, "cpu": 1000}


def test_emptier_nodes_score_higher() -> None:
    assert emptiness(NodeView(node(), {})) > emptiness(NodeView(node(), {"cpu": 1000}))


def test_a_heartbeat_does_not_change_the_shape_of_a_node() -> None:
    def beating(at: str, status: str = "True") -> Node:
        condition = {"type": "Ready", "status": status, "lastHeartbeatTime": at}
        return Node(metadata=ObjectMeta("n1", resourceVersion=at), status={"conditions": [condition]})

    assert shape(beating("1")) == shape(beating("2"))
    assert shape(beating("1")) != shape(beating("2", "False"))
    assert shape(node()) != shape(node(labels={"a": "b"}))
