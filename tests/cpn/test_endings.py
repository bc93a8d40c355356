"""Whose memory ran out is told apart, by status first and words second."""

from typing import Any

import pytest

from hcs.cpn.endings import ending, why_pending
from hcs.cpn.tables import load_messages
from hcs.kube.resources import Job, Pod
from hcs.model.pods import ObjectMeta, PodCondition, PodStatus

MESSAGES = load_messages()


def failed_job(reason: str = "PodFailurePolicy", message: str = "") -> Job:
    condition = {"type": "Failed", "status": "True", "reason": reason, "message": message}
    return Job(status={"conditions": [condition]})


def pod(*terminated: dict[str, Any], **status: Any) -> Pod:
    containers = [{"name": f"c{at}", "state": {"terminated": one}} for at, one in enumerate(terminated)]
    return Pod(metadata=ObjectMeta(name="p"), status=PodStatus(containerStatuses=containers, **status))


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.", "AcceleratorOutOfMemory"),
        ("RuntimeError: HIP out of memory. Tried to allocate 512 MiB", "AcceleratorOutOfMemory"),
        ("RuntimeError: NPU out of memory. Tried to allocate 20.00 MiB (NPU 0; 29 GiB)", "AcceleratorOutOfMemory"),
        ("[ERROR] aclrtMalloc failed, error code 207001", "AcceleratorOutOfMemory"),
        ("RuntimeError: MLU out of memory. Tried to allocate", "AcceleratorOutOfMemory"),
        ("RuntimeError: MUSA out of memory", "AcceleratorOutOfMemory"),
        ("tensorflow.errors.ResourceExhaustedError: OOM when allocating tensor", "AcceleratorOutOfMemory"),
        ("XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate", "AcceleratorOutOfMemory"),
        ("MemoryError", "HostOutOfMemory"),
        ("terminate called after throwing an instance of 'std::bad_alloc'", "HostOutOfMemory"),
        ("ValueError: the learning rate is out of range", "JobFailed"),
        ("I remember a MemoryError from yesterday", "JobFailed"),
        ("", "JobFailed"),
    ],
)
def test_frameworks_say_it_in_their_words(line: str, kind: str) -> None:
    log = f"epoch 1\n{line}\nfinally: closing files\n"
    assert ending(failed_job(), [pod({"exitCode": 1})], log, MESSAGES).kind == kind


def test_what_the_kernel_killed_is_host_memory_whatever_the_log_says() -> None:
    killed = pod({"exitCode": 1, "reason": "Error"}, {"exitCode": 137, "reason": "OOMKilled"})
    found = ending(failed_job(), [killed], "CUDA out of memory", MESSAGES)
    assert (found.kind, found.exit_code) == ("HostOutOfMemory", 137)


def test_a_kill_without_a_reason_is_taken_for_host_memory_unless_the_card_was_full() -> None:
    killed = [pod({"exitCode": 137, "reason": "Error"})]
    assert ending(failed_job(), killed, "", MESSAGES).kind == "HostOutOfMemory"
    assert ending(failed_job(), killed, "CUDA out of memory", MESSAGES).kind == "AcceleratorOutOfMemory"


def test_an_eviction_for_memory_is_host_memory() -> None:
    evicted = pod(phase="Failed", reason="Evicted", message="The node was low on resource: memory.")
    assert ending(failed_job(), [evicted], "", MESSAGES).kind == "HostOutOfMemory"


def test_the_deadline_of_the_job_itself_is_no_failure_of_the_program() -> None:
    job = failed_job("DeadlineExceeded", "Job was active longer than specified deadline")
    found = ending(job, [], "", MESSAGES)
    assert (found.kind, "longer" in found.message) == ("DeadlineExceeded", True)


def test_done_is_done_whatever_was_said_on_the_way() -> None:
    job = Job(status={"conditions": [{"type": "Complete", "status": "True"}]})
    assert ending(job, [pod({"exitCode": 0})], "retrying after CUDA out of memory", MESSAGES).succeeded


def test_pods_that_are_gone_leave_the_jobs_own_words() -> None:
    found = ending(failed_job("BackoffLimitExceeded", "Job has reached the backoff limit"), [], "", MESSAGES)
    assert found.kind == "JobFailed"
    assert "backoff limit" in found.message


def test_a_pod_that_does_not_run_is_explained_by_its_cluster() -> None:
    unplaced = PodCondition(type="PodScheduled", status="False", message="0/3 nodes are available")
    pulling = {"name": "main", "state": {"waiting": {"reason": "ImagePullBackOff", "message": "no image 'train:1'"}}}
    starting = {"name": "main", "state": {"waiting": {"reason": "ContainerCreating"}}}
    pods = [Pod(status=PodStatus(containerStatuses=[starting])), Pod(status=PodStatus(containerStatuses=[pulling]))]
    assert why_pending(pods) == "container main waits (ImagePullBackOff): no image 'train:1'"
    assert why_pending([Pod(status=PodStatus(conditions=[unplaced])), *pods]) == "0/3 nodes are available"
    assert not why_pending(pods[:1])
