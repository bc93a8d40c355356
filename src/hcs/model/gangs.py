"""Which pods start together: three ways to say it, read into one type.

A *gang* is a set of pods of one namespace that is placed whole or not at all. People mark members with our annotations
(``ai.compute/gang`` and ``ai.compute/gang-size``), or use the PodGroups they have: those of scheduler-plugins (a label
on the pod) and of Volcano (an annotation), whose ``minMember`` is the size. Kubernetes' own groups are refused with a
sentence: their API is still changing, and half a promise is worse than none.
"""

from collections.abc import Mapping
from typing import Any, Final, Literal

import msgspec

from hcs.model import names
from hcs.model.pods import Pod
from hcs.model.refusals import Refusal, RefusedError

Origin = Literal["hcs", "scheduler-plugins", "volcano"]

MAX_MEMBERS: Final = 4096
"""More members than any gang has; above it is a typing mistake."""


class Membership(msgspec.Struct, frozen=True, order=True):
    """The gang a pod is in. ``size`` is how many members start together; 0 where the PodGroup object says it."""

    namespace: str
    name: str
    origin: Origin = "hcs"
    size: int = 0

    @property
    def key(self) -> str:
        """What tells gangs apart: ``origin:namespace/name``."""
        return f"{self.origin}:{self.namespace}/{self.name}"


class PodGroup(msgspec.Struct, frozen=True):
    """What a PodGroup object says, of whichever API: how many start together, and for how long to wait for them.

    ``tasks`` are (task, how many of it must be among them), for Volcano's Jobs; their sum is at most ``minimum``.
    """

    namespace: str
    name: str
    origin: Origin
    minimum: int
    timeout_seconds: int | None = None
    priority_class: str = ""
    queue: str = ""
    tasks: tuple[tuple[str, int], ...] = ()

    @property
    def key(self) -> str:
        """As :attr:`Membership.key`."""
        return f"{self.origin}:{self.namespace}/{self.name}"


def read_membership(pod: Pod) -> Membership | None:
    """The gang a pod is in; None for a pod on its own.

    Raises:
        RefusedError: with every refusal found: a size that is missing or no number, two gangs at once, Kubernetes' own
            groups.
    """
    refusals: list[Refusal] = []
    found = [
        membership
        for membership in (_ours(pod, refusals), _coscheduling(pod, refusals), _volcano(pod, refusals))
        if membership is not None
    ]
    if pod.spec.schedulingGroup is not None or pod.spec.workloadRef is not None:
        field = "schedulingGroup" if pod.spec.schedulingGroup is not None else "workloadRef"
        refusals.append(
            Refusal(
                "KubernetesPodGroup",
                f"spec.{field} names a PodGroup of Kubernetes itself, which this version does not place; "
                f"use annotations {names.GANG} and {names.GANG_SIZE}, or a PodGroup of scheduler-plugins or Volcano",
            )
        )
    if len(found) > 1:
        refusals.append(
            Refusal(
                "ContradictoryGang",
                f"the pod is in {len(found)} gangs at once, {' and '.join(one.key for one in found)}; keep one",
            )
        )
    if refusals:
        raise RefusedError(*sorted(set(refusals)))
    return found[0] if found else None


def read_pod_group(raw: Mapping[str, Any]) -> PodGroup:
    """Read a PodGroup object of scheduler-plugins (``scheduling.x-k8s.io``) or Volcano (``scheduling.volcano.sh``).

    Raises:
        RefusedError: another API, no positive ``minMember``, or a demand this version would have to ignore.
    """
    group = str(raw.get("apiVersion") or "").partition("/")[0]
    metadata, spec = raw.get("metadata") or {}, raw.get("spec") or {}
    name, namespace = str(metadata.get("name") or ""), str(metadata.get("namespace") or "default")
    what = f"PodGroup {namespace}/{name}"
    origin = _ORIGINS.get(group)
    if origin is None:
        raise RefusedError(
            Refusal(
                "KubernetesPodGroup" if group == "scheduling.k8s.io" else "UnknownPodGroup",
                f"{what} is of API group {group or 'none'}; read are scheduling.x-k8s.io (scheduler-plugins) and "
                f"scheduling.volcano.sh (Volcano), or use annotations {names.GANG} and {names.GANG_SIZE}",
            )
        )
    minimum = spec.get("minMember", 1)
    if isinstance(minimum, bool) or not isinstance(minimum, int) or not 1 <= minimum <= MAX_MEMBERS:
        raise RefusedError(
            Refusal("GangSize", f"{what}: minMember is {minimum!r}; write a number from 1 to {MAX_MEMBERS}")
        )
    network = spec.get("networkTopology") or {}
    if network.get("mode") == "hard":
        raise RefusedError(
            Refusal(
                "HardNetworkTopology",
                f"{what}: networkTopology.mode hard counts in Volcano's HyperNodes, which HCS does not read; use soft "
                f"(members are kept as near as possible), or annotation {names.FABRIC} to stay in one network",
            )
        )
    if spec.get("subGroupPolicy"):
        raise RefusedError(
            Refusal(
                "SubGroups", f"{what}: subGroupPolicy is not read by this version; make each part a gang of its own"
            )
        )
    timeout = spec.get("scheduleTimeoutSeconds")
    return PodGroup(
        namespace=namespace,
        name=name,
        origin=origin,
        minimum=minimum,
        timeout_seconds=timeout if isinstance(timeout, int) and timeout > 0 else None,
        priority_class=str(spec.get("priorityClassName") or ""),
        queue=str(spec.get("queue") or ""),
        tasks=_tasks(spec.get("minTaskMember") or {}, minimum, what),
    )


def _tasks(raw: Any, minimum: int, what: str) -> tuple[tuple[str, int], ...]:
    """How many of each task must start; as in Volcano, none of it counts where together they are more than must."""
    counts: dict[str, Any] = raw if isinstance(raw, dict) else {"": None}
    if any(type(count) is not int or not 0 <= count <= MAX_MEMBERS for count in counts.values()):
        raise RefusedError(
            Refusal("GangSize", f"{what}: minTaskMember is {str(raw)[:80]}; write a number from 0 up for each task")
        )
    return tuple(sorted(counts.items())) if sum(counts.values()) <= minimum else ()


_ORIGINS: Final[dict[str, Origin]] = {
    "scheduling.x-k8s.io": "scheduler-plugins",
    "scheduling.sigs.k8s.io": "scheduler-plugins",
    "scheduling.volcano.sh": "volcano",
}


def _ours(pod: Pod, refusals: list[Refusal]) -> Membership | None:
    name, size = pod.annotations.get(names.GANG), pod.annotations.get(names.GANG_SIZE)
    if name is None and size is None:
        return None
    if not (name or "").strip() or size is None:
        here, missing = (names.GANG, names.GANG_SIZE) if size is None else (names.GANG_SIZE, names.GANG)
        refusals.append(Refusal("IncompleteGang", f"annotation {here} needs {missing} beside it; set both"))
        return None
    members = _count(size)
    if members is None:
        refusals.append(
            Refusal("GangSize", f"annotation {names.GANG_SIZE}: {size[:40]!r} is not a number from 1 to {MAX_MEMBERS}")
        )
        return None
    return Membership(_namespace(pod), (name or "").strip()[:253], "hcs", members)


def _coscheduling(pod: Pod, refusals: list[Refusal]) -> Membership | None:
    label = next((key for key in names.COSCHEDULING_LABELS if pod.labels.get(key)), None)
    if label is None:
        return None
    size = pod.labels.get(names.COSCHEDULING_SIZE, "")
    if size and _count(size) is None:
        refusals.append(
            Refusal("GangSize", f"label {label.partition('/')[0]}/min-available: {size!r} is no number of members")
        )
        return None
    return Membership(_namespace(pod), pod.labels[label], "scheduler-plugins", _count(size) or 0)


def _volcano(pod: Pod, refusals: list[Refusal]) -> Membership | None:
    found = tuple(dict.fromkeys(pod.annotations[key] for key in names.VOLCANO_ANNOTATIONS if pod.annotations.get(key)))
    if len(found) > 1:
        refusals.append(
            Refusal("ContradictoryGang", f"Volcano's annotations name two groups, {' and '.join(found)}; keep one")
        )
    return Membership(_namespace(pod), found[0], "volcano") if found else None


def _namespace(pod: Pod) -> str:
    return pod.metadata.namespace or "default"


def _count(text: str) -> int | None:
    """A number of members; None where it is none that anybody could mean."""
    digits = text.strip()
    if not (digits.isascii() and digits.isdecimal() and len(digits) <= 6):
        return None
    return int(digits) if 1 <= int(digits) <= MAX_MEMBERS else None
