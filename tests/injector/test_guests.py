"""RTOS guests at admission: the planner's own words, and one resource that brings the pod to us."""

from typing import Any

import pytest
from tests.injector.pods_for_admission import pod

from hcs.injector.mutation import mutate
from hcs.injector.settings import Settings
from hcs.model import names
from hcs.model.refusals import RefusedError
from hcs.rtos.annotations import PREFIX
from hcs.ura.catalogue import load_catalogue

CATALOGUE = load_catalogue()


def guest(limits: dict[str, Any] | None = None, **annotations: str) -> dict[str, Any]:
    keys = {PREFIX + key.replace("__", "."): value for key, value in annotations.items()}
    return pod(limits or {"memory": "64Mi"}, annotations={f"{PREFIX}container.os": "zephyr", **keys})


def test_a_pod_with_guests_comes_to_our_scheduler_and_is_counted() -> None:
    changed = mutate(guest(), CATALOGUE, Settings())
    spec = changed["spec"]
    assert spec["schedulerName"] == names.SCHEDULER
    assert spec["containers"][0]["resources"] == {
        "limits": {"memory": "64Mi", names.RTOS_GUESTS: "1"},
        "requests": {"memory": "64Mi", names.RTOS_GUESTS: "1"},
    }
    assert mutate(changed, CATALOGUE, Settings()) == changed
    assert "runtimeClassName" not in spec


def test_a_guest_may_ask_for_a_card_as_well() -> None:
    changed = mutate(guest({"memory": "64Mi", names.VRAM: "16Gi"}), CATALOGUE, Settings())
    limits = changed["spec"]["containers"][0]["resources"]["limits"]
    assert limits[names.RTOS_GUESTS] == limits[names.TOTAL_CARDS] == "1"


@pytest.mark.parametrize(
    ("raw", "reason", "says"),
    [
        (guest(container__max_vcpu_num="zero"), "MalformedAnnotation", "max_vcpu_num"),
        (guest(container__firmware_path="../../etc/passwd"), "PathOutsideRootfs", "firmware_path"),
        (guest({"memory": "1Mi"}), "MemoryTooSmall", "2 MiB"),
        ({**guest(), "spec": {**guest()["spec"], "nodeName": "n"}}, "PresetNode", "nodeName"),
    ],
)
def test_what_the_planner_refuses_is_refused_here_in_the_same_words(
    raw: dict[str, Any], reason: str, says: str
) -> None:
    with pytest.raises(RefusedError) as refused:
        mutate(raw, CATALOGUE, Settings())
    assert [refusal.reason for refusal in refused.value.refusals] == [reason]
    assert says in refused.value.refusals[0].message
