"""Reading with a memory gives what reading without one gives, whatever tells two pods apart."""

from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from tests.router.scene import card, pod_manifest

from hcs.model import names
from hcs.model.devices import NodeInventory
from hcs.model.pods import Pod
from hcs.model.refusals import RefusedError
from hcs.neuro.capacities import DOMAIN
from hcs.placement.placer import Placer
from hcs.placement.snapshot import Snapshot
from hcs.router.decisions import decide
from hcs.router.readings import Readings

KSPS = f"{DOMAIN}/ksps"
FIELD = [{"name": "RATE", "valueFrom": {"resourceFieldRef": {"resource": f"limits.{KSPS}"}}}]
NODES = (
    NodeInventory("a", (card(0), card(1)), capacities=((KSPS, 500),)),
    NodeInventory("b", (card(0, "ascend"),), labels=(("zone", "north"),)),
)


def often(*rare: Any) -> st.SearchStrategy[Any]:
    """Mostly nothing: two pods that differ in one thing only are the ones that could be taken for each other."""
    return st.one_of(st.none(), st.none(), st.sampled_from(rare))


@st.composite
def pods(draw: st.DrawFn) -> Pod:
    """Pods that are nearly copies of each other."""
    asked = draw(
        st.sampled_from([{names.VRAM: "16Gi"}, {names.VRAM: "16Gi", KSPS: "100"}, {KSPS: "100"}, {"cpu": "1"}])
    )
    prefers = {"weight": 1, "preference": {"matchExpressions": [{"key": "zone", "operator": "Exists"}]}}
    container = {"name": draw(st.sampled_from(["main", "other"])), "image": "i", "resources": {"limits": asked}}
    spec: dict[str, Any] = {"containers": [container]}
    if draw(often(True)):
        container["env"] = FIELD
    init = draw(often({names.VRAM: "8Gi"}, {names.VRAM: "90Gi"}, {KSPS: "200"}))
    if init is not None:
        first: dict[str, Any] = {"name": "first", "image": "i", "resources": {"limits": init}}
        if draw(often(True)):
            first["restartPolicy"] = "Always"
        if draw(often(True)):
            first["env"] = FIELD
        spec["initContainers"] = [first]
    for field in ("schedulingGroup", "workloadRef"):
        if draw(often(True)):
            spec[field] = {"podGroupName": "g"}
    if draw(often(True)):
        spec["affinity"] = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [prefers]}}
    labels = {
        label: value
        for label in (*names.COSCHEDULING_LABELS, names.COSCHEDULING_SIZE, "app")
        if (value := draw(often("2", "many"))) is not None
    }
    notes = {
        key: value
        for key in (names.VENDORS, names.GANG, names.GANG_SIZE, names.SHARING, names.SPIKING_AFFINITY)
        if (value := draw(often("ascend", "2", "exclusive", "high-capacity"))) is not None
    }
    number = draw(st.integers(0, 99))
    body = pod_manifest(f"p{number}", annotations=notes, labels=labels, uid=f"u{number}", spec=spec)
    return msgspec.convert(body, Pod)


def outcome(read: Readings, pod: Pod, domain: str = DOMAIN) -> object:
    try:
        return read(pod, domain)
    except RefusedError as error:
        return error.refusals


@given(st.lists(pods(), min_size=2, max_size=8))
def test_a_request_is_read_the_same_with_and_without_memory(several: list[Pod]) -> None:
    memory = Readings()
    for pod in several:
        assert outcome(memory, pod) == outcome(Readings(), pod)


@given(st.lists(pods(), min_size=2, max_size=8))
def test_a_decision_is_the_same_with_and_without_memory(several: list[Pod]) -> None:
    read, placer, snapshot = Readings(), Placer(NODES), Snapshot.build(NODES)
    names_ = ["a", "b", "c"]
    for pod in several:
        assert decide(pod, names_, placer, read=read) == decide(pod, names_, snapshot, read=Readings())


def test_the_domain_is_part_of_the_question() -> None:
    pod = msgspec.convert(pod_manifest("p", resources={KSPS: "100"}), Pod)
    read = Readings()
    assert outcome(read, pod) is not None
    assert outcome(read, pod, "other.example") is None


def test_the_memory_is_bounded_and_the_oldest_is_forgotten() -> None:
    read = Readings(2)
    for amount in range(1, 5):
        assert read(msgspec.convert(pod_manifest("p", resources={names.VRAM: f"{amount}Gi"}), Pod), DOMAIN)
    assert len(read) == 2
