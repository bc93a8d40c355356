"""``hcs defrag --dry-run``: the plan on the machine room, and on one where something can be freed."""

import datetime

import msgspec
from tests.cli.room import BARE, Hcs, cards, manifest

from hcs.cli.cluster import Cluster
from hcs.cli.defrag import plan_of
from hcs.cli.errors import USAGE
from hcs.kube.resources import Node, PodDisruptionBudget
from hcs.model import names
from hcs.model.allocations import encode_allocation
from hcs.model.devices import NodeInventory
from hcs.model.pods import ObjectMeta, Pod
from hcs.placement.snapshot import Snapshot
from hcs.router.decisions import Chosen, decide

TODAY = datetime.datetime(2026, 3, 1, 12, tzinfo=datetime.UTC)
NODES = tuple(NodeInventory(name, cards("L40S", 2, name)) for name in ("n1", "n2"))


def running(name: str, node: str, *, owned: bool = True, hours: int = 1) -> Pod:
    """A share of a card, bound to a node."""
    body = manifest(name, {"vram": "8Gi"})
    body["metadata"] |= {"uid": f"uid-{name}", "labels": {"app": name}}
    if owned:
        owner = {"kind": "Job", "name": "j", "uid": "job", "controller": True}
        body["metadata"]["ownerReferences"] = [owner]
    bare = msgspec.convert(body, Pod)
    decision = decide(bare, [node], Snapshot.build(NODES))
    assert isinstance(decision, Chosen)
    body["metadata"]["annotations"] = {names.ALLOCATION: encode_allocation(decision.allocation)}
    body["spec"]["nodeName"] = node
    body["status"] = {"phase": "Running", "startTime": f"2026-03-01T{12 - hours:02}:00:00Z"}
    return msgspec.convert(body, Pod)


def cluster(*pods: Pod) -> Cluster:
    allocatable = {"allocatable": {"cpu": "64", "memory": "512Gi", "pods": "110"}}
    nodes = tuple(Node(metadata=ObjectMeta(name=node.name), status=allocatable) for node in NODES)
    return Cluster(namespace="default", nodes=nodes, inventories=NODES, pods=pods)


def test_one_move_frees_a_node_and_says_what_it_costs() -> None:
    plan = plan_of(cluster(running("a", "n1", hours=3), running("b", "n2")), [], TODAY)
    ((move,), (freed,)) = plan.moves, plan.freed
    assert (move.key, move.source, move.target.node, move.lost_seconds) == ("default/b", "n2", "n1", 3600)
    assert freed.node == "n2"


def test_a_pod_that_nobody_would_replace_stays() -> None:
    plan = plan_of(cluster(running("a", "n1", hours=3), running("b", "n2", owned=False)), [], TODAY)
    assert [move.key for move in plan.moves] == ["default/a"]


def test_a_budget_forbids_a_move() -> None:
    def budget(app: str) -> PodDisruptionBudget:
        return PodDisruptionBudget(
            metadata=ObjectMeta(name=app, namespace="default"),
            spec={"selector": {"matchLabels": {"app": app}}},
            status={"disruptionsAllowed": 0},
        )

    plan = plan_of(cluster(running("a", "n1"), running("b", "n2")), [budget("a"), budget("b")], TODAY)
    assert plan.moves == ()
    assert {why for _, why in plan.skipped} == {"a disruption budget forbids it"}


def test_on_a_cluster_it_prints_the_plan_and_moves_nothing(on_room: Hcs) -> None:
    text = on_room.text("defrag", "--dry-run")
    assert "no node can be freed" in text
    assert BARE not in text
    assert on_room.data("defrag", "--dry-run", "--goal", "cards")["moves"] == []


def test_without_dry_run_it_refuses(on_room: Hcs) -> None:
    result = on_room("defrag")
    assert result.exit_code == USAGE
    assert "hcs defrag --dry-run" in result.stderr
