"""What the end of an attempt says: its time on its cards, its peak of memory, what must be more next time. Pure."""

from typing import Any, Final

import msgspec

from hcs.cpn.endings import Ending
from hcs.cpn.idling import moment
from hcs.cpn.reports import Report
from hcs.kube import resources
from hcs.wide.entries import Entry
from hcs.wide.jobs import Bytes

GIB: Final = 1 << 30
_OUTCOMES: Final = {
    "Completed": "succeeded",
    "AcceleratorOutOfMemory": "accelerator-oom",
    "HostOutOfMemory": "host-oom",
}


class Finished(msgspec.Struct, frozen=True):
    """An attempt that is over, for whoever learns from it: written with the change of state, or not at all."""

    entry: Entry
    outcome: str
    seconds: float
    peak_memory: Bytes | None
    memory_source: str


def outcome_of(ended: Ending) -> str:
    """An ending in the words of what is learnt from."""
    return _OUTCOMES.get(ended.kind, "failed")


def peak_of(report: Report, metric: Bytes | None, ended: Ending, allowed: Bytes | None) -> tuple[Bytes | None, str]:
    """The most memory it took, and who says so."""
    if ended.kind == "AcceleratorOutOfMemory" and allowed is not None:
        return allowed, "what it was allowed when it ran out"
    if report.peak_memory is not None:
        return report.peak_memory, "the job's own report"
    return (metric, "the cluster's metrics") if metric is not None else (None, "nobody")


def told_seconds(pods: list[resources.Pod]) -> float | None:
    """By the kubelets: from the first container's start to the last one's end."""
    begins, ends = [], []
    for pod in pods:
        for status in pod.status.containerStatuses or ():
            ended = (status.get("state") or {}).get("terminated") or {}
            if ended.get("startedAt") and ended.get("finishedAt"):
                begins.append(moment(ended["startedAt"]))
                ends.append(moment(ended["finishedAt"]))
    return max(ends) - min(begins) if ends else None


def floors(entry: Entry, reason: str, whole: Bytes | None) -> dict[str, Any]:
    """What ran out must be more next time; ``whole`` is the memory of a card of its kind there, if known."""
    placement = entry.placement
    assert placement is not None
    if reason == "AcceleratorOutOfMemory":
        # Alone on its card it had all of it; on a shared one, what it was dispatched with.
        had = placement.memory if placement.shared else max(whole or 0, placement.memory or 0)
        if had:
            step = max(had // 4, GIB) if placement.shared else 1
            return {"floor": max(entry.floor or 0, had + step)}
    if reason == "HostOutOfMemory":
        had = max(entry.submission.host_memory, entry.host_floor or 0)
        return {"host_floor": had + had // 2 if had else 2 * GIB}
    return {}
