"""What a Job does next, as tables: the Job and its pods in, counts out."""

import datetime
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hcs.kube.resources import Job
from hcs.model.pods import Pod
from hcs.sandbox.jobs.decisions import Decision, Pace, Tally, belongs, count, decide, finished, pod_manifest

NOW = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
LATER = NOW + datetime.timedelta(minutes=5)


def job(status: dict[str, Any] | None = None, policy: str = "Never", **spec: Any) -> Job:
    template = {
        "metadata": {"labels": {"app": "train"}, "annotations": {"ai.compute/checkpoint": "checkpoints"}},
        "spec": {"restartPolicy": policy, "containers": [{"name": "c", "image": "i"}]},
    }
    metadata = {"name": "train", "namespace": "lab", "uid": "job-1"}
    return msgspec.convert({"metadata": metadata, "spec": {"template": template, **spec}, "status": status or {}}, Job)


def pod(number: int, phase: str = "Running", *, restarts: int = 0, leaving: bool = False, owner: str = "job-1") -> Pod:
    return msgspec.convert(
        {
            "metadata": {
                "name": f"train-{number}",
                "uid": f"u{number}",
                "ownerReferences": [{"kind": "Job", "name": "train", "uid": owner, "controller": True}],
                **({"deletionTimestamp": "2026-01-01T00:00:00Z"} if leaving else {}),
            },
            "status": {"phase": phase, "containerStatuses": [{"name": "c", "restartCount": restarts}]},
        },
        Pod,
    )


def decided(of: Job, *pods: Pod, before: Tally | None = None) -> Decision:
    """Decide long after any failure, so that no pause is left."""
    return decide(of, pods, count(of, pods, before or Tally(), NOW), LATER)


@pytest.mark.parametrize(
    ("of", "pods", "create", "delete"),
    [
        pytest.param(job(), [], 1, 0, id="first-pod"),
        pytest.param(job(), [pod(1)], 0, 0, id="runs"),
        pytest.param(job(), [pod(1, "Pending")], 0, 0, id="waits-for-a-card"),
        pytest.param(job(), [pod(1, "Failed")], 1, 0, id="failed-pod-is-replaced"),
        pytest.param(job(), [pod(1, leaving=True)], 1, 0, id="evicted-pod-is-replaced-at-once"),
        pytest.param(job(), [pod(1, "Failed", leaving=True)], 1, 0, id="evicted-pod-says-failed-at-its-end"),
        pytest.param(job(), [pod(1, leaving=True), pod(2)], 0, 0, id="replacement-is-there"),
        pytest.param(job(parallelism=3, completions=5), [pod(1), pod(2, "Succeeded")], 2, 0, id="fills-up"),
        pytest.param(job(parallelism=3, completions=3), [pod(1, "Succeeded"), pod(2)], 1, 0, id="not-more-than-needed"),
        pytest.param(job(parallelism=1, completions=9), [pod(1), pod(2)], 0, 1, id="parallelism-was-lowered"),
        pytest.param(job(suspend=True), [pod(1)], 0, 1, id="suspended"),
        pytest.param(job(parallelism=2), [], 2, 0, id="work-queue-starts"),
        pytest.param(job(parallelism=2), [pod(1, "Succeeded"), pod(2)], 0, 0, id="work-queue-drains"),
        pytest.param(job(backoffLimit=0), [pod(1, "Failed")], 0, 0, id="no-failure-allowed"),
        pytest.param(job(), [pod(1, "Succeeded"), pod(2)], 0, 1, id="complete-ends-the-rest"),
    ],
)
def test_pods_to_make_and_to_end(of: Job, pods: list[Pod], create: int, delete: int) -> None:
    decision = decided(of, *pods)
    assert (decision.create, len(decision.delete)) == (create, delete)


def outcome(decision: Decision) -> tuple[str, str] | None:
    conditions = decision.status.get("conditions") or []
    return (conditions[-1]["type"], conditions[-1]["reason"]) if conditions else None


@pytest.mark.parametrize(
    ("of", "pods", "expected"),
    [
        pytest.param(job(), [pod(1, "Succeeded")], ("Complete", "CompletionsReached"), id="complete"),
        pytest.param(job(parallelism=2), [pod(1, "Succeeded")], ("Complete", "CompletionsReached"), id="queue-empty"),
        pytest.param(job(completions=2), [pod(1, "Succeeded")], None, id="one-of-two"),
        pytest.param(job(backoffLimit=1), [pod(1, "Failed")], None, id="within-limit"),
        pytest.param(
            job(backoffLimit=1),
            [pod(1, "Failed"), pod(2, "Failed")],
            ("Failed", "BackoffLimitExceeded"),
            id="over-limit",
        ),
        pytest.param(
            job(policy="OnFailure", backoffLimit=2),
            [pod(1, restarts=2)],
            ("Failed", "BackoffLimitExceeded"),
            id="restarts",
        ),
        pytest.param(job(policy="OnFailure", backoffLimit=2), [pod(1, restarts=1)], None, id="restarts-within-limit"),
        pytest.param(job(backoffLimit=0), [pod(1, "Failed", leaving=True)], None, id="eviction-is-no-failure"),
        pytest.param(
            job(completions=1, suspend=True),
            [pod(1, "Succeeded")],
            ("Complete", "CompletionsReached"),
            id="suspended-after-it-was-done",
        ),
    ],
)
def test_when_a_job_is_over(of: Job, pods: list[Pod], expected: tuple[str, str] | None) -> None:
    assert outcome(decided(of, *pods)) == expected


def test_the_status_counts() -> None:
    status = decided(job(parallelism=4, completions=4), pod(1), pod(2, "Succeeded"), pod(3, "Failed")).status
    assert (status["active"], status["succeeded"], status["failed"], status["ready"]) == (1, 1, 1, 0)
    assert status["startTime"] == "2026-01-01T00:05:00Z"
    assert "completionTime" not in status


def test_a_pod_that_ended_still_counts_when_it_is_gone() -> None:
    of = job(completions=2)
    seen = count(of, [pod(1, "Succeeded"), pod(2, "Failed")], Tally(), NOW)
    after = count(of, [], seen, LATER)
    assert (after.successes, after.failures) == (1, 1)
    assert decide(of, [], after, LATER).create == 1


def test_a_controller_that_starts_anew_trusts_the_status_and_counts_nothing_twice() -> None:
    of = job({"succeeded": 2, "failed": 1}, completions=4)
    tally = count(of, [pod(1, "Succeeded")], None, NOW)
    assert (tally.successes, tally.failures) == (2, 1)


def test_a_failed_pods_replacement_waits_a_while() -> None:
    of, pods, pace = job(), [pod(1, "Failed")], Pace(10, 360)
    tally = count(of, pods, Tally(), NOW)
    early = decide(of, pods, tally, NOW + datetime.timedelta(seconds=4), pace)
    assert (early.create, early.again_in) == (0, 6)
    assert decide(of, pods, tally, NOW + datetime.timedelta(seconds=10), pace).create == 1
    assert [pace.pause(failures) for failures in (0, 1, 2, 3, 9)] == [0, 10, 20, 40, 360]


def test_a_finished_job_only_ends_what_still_runs() -> None:
    over = job({"conditions": [{"type": "Complete", "status": "True"}], "succeeded": 1})
    assert finished(over)
    decision = decided(over, pod(1))
    assert (decision.create, [p.metadata.name for p in decision.delete]) == (0, ["train-1"])
    assert decision.status == over.status


def test_a_new_pod_is_the_template_with_an_owner() -> None:
    manifest = pod_manifest(job())
    metadata = manifest["metadata"]
    assert (metadata["generateName"], metadata["namespace"]) == ("train-", "lab")
    assert metadata["labels"]["app"] == "train"
    assert metadata["labels"]["job-name"] == metadata["labels"]["batch.kubernetes.io/job-name"] == "train"
    assert metadata["annotations"] == {"ai.compute/checkpoint": "checkpoints"}
    assert belongs(msgspec.convert(manifest, Pod), job())
    assert not belongs(pod(1, owner="another"), job())


@given(
    parallelism=st.integers(0, 5),
    completions=st.integers(0, 5),
    phases=st.lists(st.sampled_from(["Pending", "Running", "Succeeded", "Failed"]), max_size=8),
    leaving=st.lists(st.booleans(), min_size=8, max_size=8),
)
def test_never_more_pods_than_wanted(
    parallelism: int, completions: int, phases: list[str], leaving: list[bool]
) -> None:
    of = job(parallelism=parallelism, completions=completions)
    pods = [pod(n, phase, leaving=leaving[n]) for n, phase in enumerate(phases)]
    decision = decided(of, *pods)
    active = [p for p in pods if not p.finished and p.metadata.deletionTimestamp is None]
    after = len(active) + decision.create - len(decision.delete)
    assert after <= parallelism
    assert after <= max(0, completions - sum(p.status.phase == "Succeeded" for p in pods))
    assert not (decision.create and decision.delete)
