"""The pod's phase and conditions, from what its containers do."""

import datetime
from typing import Any

import pytest
from tests.sandbox.kubelet.scene import pod_with

from hcs.sandbox.kubelet.status import (
    INITIALIZING,
    PENDING,
    Conditions,
    ContainerRecord,
    Running,
    Terminated,
    Waiting,
    phase,
    pod_status,
    recalled,
)

NOW = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
LATER = NOW + datetime.timedelta(seconds=5)
RUNNING = ContainerRecord(Running(NOW))
OK = ContainerRecord(Terminated(0, "Completed"))
BAD = ContainerRecord(Terminated(1, "Error"))
FRESH = ContainerRecord(PENDING)
CRASHED = ContainerRecord(Waiting("CrashLoopBackOff"), last=Terminated(1, "Error"))


@pytest.mark.parametrize(
    ("policy", "inits", "mains", "expected"),
    [
        pytest.param("Always", [], [FRESH], "Pending", id="not-started"),
        pytest.param("Always", [], [RUNNING, FRESH], "Running", id="one-runs"),
        pytest.param("Never", [], [OK, RUNNING], "Running", id="one-still-runs"),
        pytest.param("Never", [], [OK, OK], "Succeeded", id="all-done"),
        pytest.param("Never", [], [OK, BAD], "Failed", id="one-failed"),
        pytest.param("OnFailure", [], [OK, BAD], "Running", id="will-restart"),
        pytest.param("OnFailure", [], [OK, OK], "Succeeded", id="nothing-to-restart"),
        pytest.param("Always", [], [OK], "Running", id="always-restarts-success-too"),
        pytest.param("Always", [], [CRASHED], "Running", id="crash-loop"),
        pytest.param("Always", [], [CRASHED, FRESH], "Pending", id="other-never-started"),
        pytest.param("Always", [RUNNING], [ContainerRecord(INITIALIZING)], "Pending", id="init-runs"),
        pytest.param("Always", [OK], [RUNNING], "Running", id="init-done"),
        pytest.param("Never", [BAD], [FRESH], "Failed", id="init-failed"),
        pytest.param("OnFailure", [BAD], [FRESH], "Pending", id="init-retries"),
    ],
)
def test_phases(policy: str, inits: list[ContainerRecord], mains: list[ContainerRecord], expected: str) -> None:
    assert phase(pod_with({}, restartPolicy=policy), inits, mains) == expected


def test_a_final_phase_never_changes() -> None:
    assert phase(pod_with({}, status={"phase": "Failed"}), [], [RUNNING]) == "Failed"


def written(mains: dict[str, ContainerRecord], conditions: Conditions, now: datetime.datetime) -> dict[str, Any]:
    return pod_status(pod_with({}), {}, mains, conditions=conditions, started=NOW, now=now)


def condition(status: dict[str, Any], kind: str) -> dict[str, Any]:
    found: dict[str, Any] = next(c for c in status["conditions"] if c["type"] == kind)
    return found


def test_transition_times_move_only_with_the_status() -> None:
    conditions = Conditions()
    first = condition(written({"c0": FRESH}, conditions, NOW), "Ready")
    assert (first["status"], first["reason"]) == ("False", "ContainersNotReady")
    assert "c0" in first["message"]
    assert condition(written({"c0": FRESH}, conditions, LATER), "Ready")["lastTransitionTime"] == "2026-01-01T00:00:00Z"
    ready = condition(written({"c0": RUNNING}, conditions, LATER), "Ready")
    assert (ready["status"], ready["lastTransitionTime"]) == ("True", "2026-01-01T00:00:05Z")
    assert ready["reason"] is None, "null takes the old reason away in a merge"


def test_only_the_kubelets_own_conditions_are_written() -> None:
    status = written({"c0": RUNNING}, Conditions(), NOW)
    assert {c["type"] for c in status["conditions"]} == {"Initialized", "ContainersReady", "Ready"}


def test_the_last_status_of_a_deleted_pod_is_a_final_one() -> None:
    status = pod_status(
        pod_with({}, restartPolicy="Always"),
        {},
        {"c0": ContainerRecord(Terminated(143, "Error"))},
        conditions=Conditions(),
        started=NOW,
        now=LATER,
        final=True,
    )
    assert status["phase"] == "Failed"
    assert condition(status, "Ready")["reason"] == "PodFailed"


def test_a_written_status_is_read_back() -> None:
    record = ContainerRecord(Terminated(3, "Error", "", NOW, LATER), last=Terminated(1, "Error"), restarts=4)
    record.container_id, record.begun = "emulated://x", True
    (entry,) = written({"c0": record}, Conditions(), NOW)["containerStatuses"]
    assert recalled(entry, LATER, PENDING) == record


def test_what_ran_when_the_kubelet_ended_is_over() -> None:
    (entry,) = written({"c0": ContainerRecord(Running(NOW), begun=True, container_id="e")}, Conditions(), NOW)[
        "containerStatuses"
    ]
    state = recalled(entry, LATER, PENDING).state
    assert isinstance(state, Terminated)
    assert (state.exit_code, state.reason, state.started) == (137, "ContainerStatusUnknown", NOW)
