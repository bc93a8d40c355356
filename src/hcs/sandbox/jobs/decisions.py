"""What a Job needs next, decided from the Job and its pods alone."""

import datetime
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from hcs.kube.resources import Job
from hcs.model.pods import Pod

DEFAULT_BACKOFF_LIMIT: Final = 6
COMPLETE: Final = "Complete"
FAILED: Final = "Failed"


class Tally(msgspec.Struct, frozen=True):
    """Which pods of a Job have ended, also those that no longer exist.

    ``earlier_*`` are ends that an earlier process counted. ``last_failure`` is when the newest failure was seen.
    """

    succeeded: frozenset[str] = frozenset()
    failed: frozenset[str] = frozenset()
    earlier_succeeded: int = 0
    earlier_failed: int = 0
    last_failure: datetime.datetime | None = None

    @property
    def successes(self) -> int:
        """Pods that succeeded, ever."""
        return self.earlier_succeeded + len(self.succeeded)

    @property
    def failures(self) -> int:
        """Pods that failed, ever."""
        return self.earlier_failed + len(self.failed)


class Pace(msgspec.Struct, frozen=True):
    """The pause before a failed pod's replacement, in seconds; a real controller begins with 10 and ends at 360."""

    initial: float = 0.5
    longest: float = 10.0

    def pause(self, failures: int) -> float:
        """The pause after so many failures."""
        return min(self.longest, self.initial * 2.0 ** min(failures - 1, 32)) if failures else 0.0


class Decision(msgspec.Struct, frozen=True):
    """``create`` pods to make, pods to ``delete``, the ``status`` to write, seconds until it is worth to look again."""

    status: dict[str, Any]
    create: int = 0
    delete: tuple[Pod, ...] = ()
    again_in: float | None = None


def belongs(pod: Pod, job: Job) -> bool:
    """Whether the Job controls this pod."""
    owner = pod.controller
    return owner is not None and owner.uid == job.metadata.uid


def finished(job: Job) -> bool:
    """Whether the Job is over."""
    conditions: Iterable[Mapping[str, Any]] = job.status.get("conditions") or ()
    return any(c.get("type") in (COMPLETE, FAILED) and c.get("status") == "True" for c in conditions)


def count(job: Job, pods: Sequence[Pod], before: Tally | None, now: datetime.datetime) -> Tally:
    """Bring the tally up to date.

    Args:
        job: as it is now; its status says what an earlier process had counted.
        pods: the Job's pods.
        before: the last tally; None in a process that has just started.
        now: the time.
    """
    succeeded = frozenset(pod.metadata.uid for pod in pods if pod.status.phase == "Succeeded")
    # A pod that ends because it is deleted says Failed too; that is no failure of the program.
    failed = frozenset(
        pod.metadata.uid for pod in pods if pod.status.phase == "Failed" and pod.metadata.deletionTimestamp is None
    )
    if before is None:
        return Tally(
            succeeded,
            failed,
            max(0, int(job.status.get("succeeded") or 0) - len(succeeded)),
            max(0, int(job.status.get("failed") or 0) - len(failed)),
            now if failed else None,
        )
    return Tally(
        before.succeeded | succeeded,
        before.failed | failed,
        before.earlier_succeeded,
        before.earlier_failed,
        now if failed - before.failed else before.last_failure,
    )


def decide(job: Job, pods: Sequence[Pod], tally: Tally, now: datetime.datetime, pace: Pace | None = None) -> Decision:
    """Decide what to do.

    Args:
        job: as it is now.
        pods: its pods.
        tally: brought up to date with these pods.
        now: the time.
        pace: of replacements after failures.
    """
    spec, pace = job.spec, pace or Pace()
    active = [pod for pod in pods if not pod.finished and pod.metadata.deletionTimestamp is None]
    if finished(job):
        return Decision(dict(job.status), delete=tuple(active))
    parallelism = int(spec.get("parallelism", 1))
    completions = spec.get("completions", None if "parallelism" in spec else 1)
    limit = int(spec.get("backoffLimit", DEFAULT_BACKOFF_LIMIT))
    if tally.failures > limit or _restarted_too_often(job, active, limit):
        text = "Job has reached the specified backoff limit"
        over = _condition(FAILED, "BackoffLimitExceeded", text, now)
        return Decision(_status(job, [], tally, now, over), delete=tuple(active))
    if completions is None:
        done = tally.successes > 0 and not active
        wanted = len(active) if tally.successes else parallelism
    else:
        done = tally.successes >= int(completions)
        wanted = min(parallelism, int(completions) - tally.successes)
    if done:
        over = _condition(COMPLETE, "CompletionsReached", "Reached expected number of succeeded pods", now)
        return Decision(_status(job, [], tally, now, over), delete=tuple(active))
    if spec.get("suspend"):  # what was done before counts, as in Kubernetes
        return Decision(_status(job, [], tally, now), delete=tuple(active))
    status = _status(job, active, tally, now)
    missing = wanted - len(active)
    if missing < 0:
        surplus = sorted(active, key=lambda pod: (pod.status.phase == "Running", pod.metadata.creationTimestamp or ""))
        return Decision(status, delete=tuple(surplus[: -wanted or None]))
    if missing and tally.last_failure is not None:
        left = pace.pause(tally.failures) - (now - tally.last_failure).total_seconds()
        if left > 0:
            return Decision(status, again_in=left)
    return Decision(status, create=missing)


def pod_manifest(job: Job) -> dict[str, Any]:
    """A new pod of the Job."""
    template, name, uid = job.spec.get("template") or {}, job.metadata.name, job.metadata.uid
    metadata = template.get("metadata") or {}
    labels = {
        **(metadata.get("labels") or {}),
        "job-name": name,
        "controller-uid": uid,
        "batch.kubernetes.io/job-name": name,
        "batch.kubernetes.io/controller-uid": uid,
    }
    owner = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "name": name,
        "uid": uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "generateName": f"{name}-",
            "namespace": job.metadata.namespace or "default",
            "labels": labels,
            "annotations": dict(metadata.get("annotations") or {}),
            "ownerReferences": [owner],
        },
        "spec": template.get("spec") or {},
    }


def _restarted_too_often(job: Job, active: Sequence[Pod], limit: int) -> bool:
    """With OnFailure the containers restart in their pod; those restarts count against the limit as well."""
    policy = ((job.spec.get("template") or {}).get("spec") or {}).get("restartPolicy")
    if policy != "OnFailure":
        return False
    restarts = sum(
        int(status.get("restartCount", 0)) for pod in active for status in pod.status.containerStatuses or ()
    )
    return restarts > 0 if limit == 0 else restarts >= limit


def _status(
    job: Job,
    active: Sequence[Pod],
    tally: Tally,
    now: datetime.datetime,
    over: dict[str, Any] | None = None,
) -> dict[str, Any]:
    ready = sum(any(c.type == "Ready" and c.status == "True" for c in pod.status.conditions or ()) for pod in active)
    status: dict[str, Any] = {
        "startTime": job.status.get("startTime") or _stamp(now),
        "active": len(active),
        "ready": ready,
        "succeeded": tally.successes,
        "failed": tally.failures,
    }
    if over is not None:
        others = [c for c in job.status.get("conditions") or () if c.get("type") != over["type"]]
        status["conditions"] = [*others, over]
        if over["type"] == COMPLETE:
            status["completionTime"] = _stamp(now)
    return status


def _condition(kind: str, reason: str, message: str, now: datetime.datetime) -> dict[str, Any]:
    return {
        "type": kind,
        "status": "True",
        "reason": reason,
        "message": message,
        "lastProbeTime": _stamp(now),
        "lastTransitionTime": _stamp(now),
    }


def _stamp(now: datetime.datetime) -> str:
    return now.astimezone(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
