"""Nodes as kube-scheduler sees them: sums that stay right whatever comes and goes, and nodes closed to a pod."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hcs.kube.resources import Node
from hcs.model.pods import ObjectMeta, Pod
from hcs.router.machines import Machines

NODES = ("a", "b")


def node(name: str, *, cpu: str = "8", labels: dict[str, str] | None = None, **spec: Any) -> Node:
    status = {"allocatable": {"cpu": cpu, "memory": "1Gi", "pods": "4"}}
    return Node(metadata=ObjectMeta(name=name, labels=labels), spec=spec, status=status)


def pod(uid: str, where: str = "", *, cpu: str = "1", phase: str = "", **spec: Any) -> Pod:
    container = {"name": "c", "resources": {"requests": {"cpu": cpu, "memory": "1Mi"}}}
    body = {
        "metadata": {"name": uid, "uid": uid},
        "spec": {"containers": [container], "nodeName": where or None, **spec},
        "status": {"phase": phase},
    }
    return msgspec.convert(body, Pod)


EVENTS = st.lists(
    st.tuples(
        st.sampled_from(("ADDED", "MODIFIED", "DELETED")),
        st.sampled_from(("p", "q", "r")),
        st.sampled_from(("", *NODES)),
        st.sampled_from(("500m", "1", "2")),
        st.sampled_from(("", "Running", "Succeeded")),
    ),
    max_size=20,
)


@given(EVENTS)
def test_what_is_free_is_what_the_pods_there_leave(events: list[tuple[Any, str, str, str, str]]) -> None:
    machines = Machines()
    for name in NODES:
        machines.node_changed("ADDED", node(name))
    there: dict[str, tuple[str, int]] = {}
    for kind, uid, where, cpu, phase in events:
        machines.pod_changed(kind, pod(uid, where, cpu=cpu, phase=phase))
        there.pop(uid, None)
        if kind != "DELETED" and where and phase != "Succeeded":
            there[uid] = (where, {"500m": 500, "1": 1000, "2": 2000}[cpu])
    for name in NODES:
        room = machines.room(name)
        here = [amount for where, amount in there.values() if where == name]
        assert room is not None
        assert (room.milli_cpu, room.memory, room.pods) == (
            8000 - sum(here),
            (1 << 30) - len(here) * (1 << 20),
            4 - len(here),
        )
        assert {taken.pod.metadata.uid for taken in machines.on(name)} == {
            u for u, (w, _) in there.items() if w == name
        }


@pytest.mark.parametrize(
    ("spec", "open_to"),
    [
        pytest.param({}, ["plain", "north"], id="no-wish"),
        pytest.param({"nodeSelector": {"zone": "north"}}, ["north"], id="selector"),
        pytest.param(
            {"tolerations": [{"key": "k", "operator": "Exists"}]}, ["plain", "north", "tainted"], id="tolerates"
        ),
    ],
)
def test_nodes_closed_to_a_pod_are_left_out(spec: dict[str, Any], open_to: list[str]) -> None:
    machines = Machines()
    taint = {"taints": [{"key": "k", "effect": "NoSchedule"}]}
    for made in (
        node("plain"),
        node("north", labels={"zone": "north"}),
        node("tainted", **taint),
        node("cordoned", unschedulable=True),
    ):
        machines.node_changed("ADDED", made)
    every = ["plain", "north", "tainted", "cordoned", "unknown"]
    assert machines.open_to(pod("p", **spec), every) == open_to


def test_a_heartbeat_is_nothing_to_waiting_pods_and_an_uncordoned_node_is() -> None:
    machines = Machines()
    assert machines.node_changed("ADDED", node("a", unschedulable=True))
    assert not machines.node_changed("MODIFIED", node("a", unschedulable=True))
    assert machines.node_changed("MODIFIED", node("a"))
    assert machines.roomy_for(pod("p", cpu="9"), ["a"]) == []
    assert machines.roomy_for(pod("p", cpu="8"), ["a"]) == ["a"]
