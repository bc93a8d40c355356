"""Reading with a memory gives what reading without one gives, whatever tells two pods apart."""

from typing import Any

import msgspec
from hypothesis import given, settings
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


PREFERS = {"weight": 1, "preference": {"matchExpressions": [{"key": "zone", "operator": "Exists"}]}}
CHANGES: dict[str, tuple[Any, ...]] = {
    "name": ("main", "other"),
    "asked": ({names.VRAM: "16Gi"}, {names.VRAM: "16Gi", KSPS: "100"}, {KSPS: "100"}, {"cpu": "1"}),
    "env": (None, FIELD),
    "init": (None, {names.VRAM: "8Gi"}, {names.VRAM: "90Gi"}, {KSPS: "200"}),
    "init env": (None, FIELD),
    "init policy": (None, "Always"),
    "schedulingGroup": (None, {"podGroupName": "g"}),
    "workloadRef": (None, {"name": "g"}),
    "affinity": (None, {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [PREFERS]}}),
    **{f"label {key}": (None, "2", "many") for key in (*names.COSCHEDULING_LABELS, names.COSCHEDULING_SIZE, "app")},
    **{
        f"note {key}": (None, "ascend", "2", "exclusive", "high-capacity")
        for key in (names.VENDORS, names.GANG, names.GANG_SIZE, names.SHARING, names.SPIKING_AFFINITY)
    },
}
"""What may tell two pods apart; the first of each is the usual."""
RICH = {"asked": CHANGES["asked"][1], "init": CHANGES["init"][1], f"label {names.COSCHEDULING_LABELS[0]}": "2"}
"""On a pod like this one change more is enough to be refused."""


def pod(traits: dict[str, Any]) -> Pod:
    """A pod of these traits."""
    container = {"name": traits["name"], "image": "i", "resources": {"limits": traits["asked"]}, "env": traits["env"]}
    first = {"name": "first", "image": "i", "resources": {"limits": traits["init"]}, "env": traits["init env"]}
    spec: dict[str, Any] = {key: traits[key] for key in ("schedulingGroup", "workloadRef", "affinity") if traits[key]}
    if traits["init"] is not None:
        spec["initContainers"] = [{**first, "restartPolicy": traits["init policy"]}]
    marks: dict[str, dict[str, str]] = {"label": {}, "note": {}}
    for trait, value in traits.items():
        kind, _, key = trait.partition(" ")
        if kind in marks and value is not None:
            marks[kind][key] = value
    body = pod_manifest("p", annotations=marks["note"], labels=marks["label"], uid="u", spec=spec)
    return msgspec.convert({**body, "spec": {**body["spec"], "containers": [container]}}, Pod)


@st.composite
def relatives(draw: st.DrawFn) -> list[Pod]:
    """A pod, and all that differ from it in one thing: those could be taken for it."""
    usual = {trait: values[0] for trait, values in CHANGES.items()} | draw(st.sampled_from([{}, RICH]))
    odd = draw(st.lists(st.sampled_from(sorted(CHANGES)), max_size=3, unique=True))
    first = usual | {trait: draw(st.sampled_from(CHANGES[trait])) for trait in odd}
    found = [pod(first)]
    found += [pod({**first, trait: value}) for trait, values in CHANGES.items() for value in values]
    return draw(st.permutations(found)) if draw(st.booleans()) else found


def outcome(read: Readings, pod: Pod, domain: str = DOMAIN) -> object:
    try:
        return read(pod, domain)
    except RefusedError as error:
        return error.refusals


@given(relatives())
def test_a_request_is_read_the_same_with_and_without_memory(several: list[Pod]) -> None:
    memory = Readings()
    for one in several:
        assert outcome(memory, one) == outcome(Readings(), one)


@settings(max_examples=5)
@given(relatives())
def test_a_decision_is_the_same_with_and_without_memory(several: list[Pod]) -> None:
    read, placer, snapshot = Readings(), Placer(NODES), Snapshot.build(NODES)
    names_ = ["a", "b", "c"]
    for one in several:
        assert decide(one, names_, placer, read=read) == decide(one, names_, snapshot, read=Readings())


def test_the_domain_is_part_of_the_question() -> None:
    asking = msgspec.convert(pod_manifest("p", resources={KSPS: "100"}), Pod)
    read = Readings()
    assert outcome(read, asking) is not None
    assert outcome(read, asking, "other.example") is None


def test_the_memory_is_bounded_and_the_oldest_is_forgotten() -> None:
    read = Readings(2)
    for amount in range(1, 5):
        assert read(msgspec.convert(pod_manifest("p", resources={names.VRAM: f"{amount}Gi"}), Pod), DOMAIN)
    assert len(read) == 2
