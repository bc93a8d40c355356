"""The pods that run, as preemption and consolidation see them: what each holds, is worth, and would lose.

Pods that nobody may evict in favour of another count as of the highest priority: those of DaemonSets come back to the
same node, static pods cannot be evicted at all, and what ends already is no victim but counts as gone.
"""

import datetime
from collections.abc import Iterable, Mapping
from typing import Final

from hcs.kube.fitting import selects
from hcs.kube.resources import PodDisruptionBudget
from hcs.model import names
from hcs.model.allocations import Allocation
from hcs.model.pods import Pod
from hcs.placement.preemption import Budget, RunningPod
from hcs.router.machines import Machines

UNTOUCHABLE: Final = (1 << 31) - 1
"""Above every priority that Kubernetes knows."""
_MIRROR: Final = "kubernetes.io/config.mirror"


def running_pods(
    machines: Machines,
    nodes: Iterable[str],
    allocations: Mapping[str, Allocation],
    today: datetime.datetime,
    checkpoints: Mapping[str, datetime.datetime],
) -> list[RunningPod]:
    """All bound pods on these nodes.

    Args:
        machines: who is where.
        nodes: names.
        allocations: pod UID → what it holds.
        today: the wall clock.
        checkpoints: pod UID → when its newest complete checkpoint was written, as far as that is known.
    """
    found = []
    for node in nodes:
        for taken in machines.on(node):
            pod = taken.pod
            owner = pod.controller
            fixed = (owner is not None and owner.kind == "DaemonSet") or _MIRROR in pod.annotations
            found.append(
                RunningPod(
                    uid=pod.metadata.uid,
                    key=pod.key,
                    node=node,
                    priority=UNTOUCHABLE if fixed else pod.spec.priority or 0,
                    allocation=allocations.get(pod.metadata.uid),
                    milli_cpu=taken.milli_cpu,
                    memory=taken.memory,
                    lost_seconds=lost_seconds(pod, today, checkpoints.get(pod.metadata.uid)),
                    owner=owner.uid if owner is not None else "",
                    terminating=bool(pod.metadata.deletionTimestamp),
                )
            )
    return found


def lost_seconds(pod: Pod, today: datetime.datetime, checkpoint: datetime.datetime | None) -> int:
    """How much work a pod would lose: since its newest checkpoint, or since it started, in whole minutes.

    Whole minutes, so that two looks a second apart come to the same choice.
    """
    since = checkpoint or _moment(pod.status.startTime) or _moment(pod.metadata.creationTimestamp)
    return 0 if since is None else max(0, int((today - since).total_seconds()) // 60 * 60)


def budgets_of(objects: Iterable[PodDisruptionBudget], pods: Iterable[Pod]) -> list[Budget]:
    """The disruption budgets in force, with the pods that each is about."""
    by_namespace: dict[str, list[Pod]] = {}
    for pod in pods:
        by_namespace.setdefault(pod.metadata.namespace or "default", []).append(pod)
    return [
        Budget(
            name=f"{budget.metadata.namespace}/{budget.metadata.name}",
            pods=frozenset(
                pod.metadata.uid
                for pod in by_namespace.get(budget.metadata.namespace or "default", ())
                if selects(budget.spec.get("selector"), pod.labels)
            ),
            allowed=max(0, int(budget.status.get("disruptionsAllowed") or 0)),
        )
        for budget in objects
    ]


def keeps_checkpoints(pod: Pod) -> bool:
    """Whether a pod says where it writes checkpoints."""
    return bool(pod.annotations.get(names.CHECKPOINT))


def _moment(text: str | None) -> datetime.datetime | None:
    try:
        return datetime.datetime.fromisoformat(text.replace("Z", "+00:00")) if text else None
    except ValueError:
        return None
