"""What the pods of a job need of a cluster: how many there are, their cards, CPU and host memory.

What a pod asks for as ``ai.compute/*`` is read by the same code as at a cluster's admission, so what would be refused
there is refused here, before it waits. Cards asked for by the name of one vendor's device plugin are counted too.
"""

import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from hcs.model import names
from hcs.model.pods import Pod
from hcs.model.refusals import Refusal, RefusedError
from hcs.model.requests import MAX_CARDS, ComputeRequest, check_annotations, read_request
from hcs.wide.amounts import AmountError, read_cpu, read_memory, shown
from hcs.wide.jobs import Bytes

MOST_PODS: Final = 10_000
MOST_CARDS: Final = 65_536
"""More cards than any cluster has for one job."""

_VENDOR_DEVICE: Final = re.compile(
    r"(nvidia\.com|amd\.com|gpu\.intel\.com|habana\.ai|huawei\.com|cambricon\.com|hygon\.com|metax-tech\.com|"
    r"iluvatar\.(ai|com)|mthreads\.com|enflame\.com|kunlunxin\.com)/"
    r"(gpu|vgpu|dcu|gaudi|mlu|mlu[0-9]+|gcu|xpu|v?cuda|i915|xe|Ascend[0-9A-Za-z]+|mig-[0-9a-z.]+)"
)
"""Sources: the vendors' device plugins. Beside cards, such domains have networks and amounts of memory, left alone."""


class Needs(msgspec.Struct, frozen=True):
    """What one attempt takes.

    ``cards`` are those of all ``pods``; ``memory`` is bytes on one card as the user asked, None: not said. ``cpu`` is
    in millicores and ``host_memory`` in bytes, of one pod. With any of ``refusals`` the rest means nothing.
    """

    pods: int = 1
    cards: int = 1
    memory: Bytes | None = None
    kinds: tuple[str, ...] = ()
    cpu: int = 0
    host_memory: Bytes = 0
    refusals: tuple[Refusal, ...] = ()
    cautions: tuple[Refusal, ...] = ()


def read_needs(pod: Pod, spec: Mapping[str, Any], parallelism: int | None, completions: int | None) -> Needs:
    """Read what a job needs.

    Args:
        pod: its pod template.
        spec: the same template's spec as it was written.
        parallelism: how many of its pods run at once.
        completions: how many must succeed.
    """
    refusals: list[Refusal] = []
    cautions: list[Refusal] = []
    pods = _pods(parallelism, completions, refusals)
    request = _request(pod, refusals)
    devices = _vendor_devices(spec, refusals)
    each = max((container.cards for container in request.containers), default=1) if request else 1
    if request is None and devices:
        each = max(devices.values())
        cautions.append(
            Refusal(
                "VendorResource",
                f"{', '.join(sorted(devices))} is read as a number of cards of any vendor; annotation {names.MODELS} "
                f"or {names.VENDORS} on the pod template limits that",
            )
        )
    elif request is None:
        cautions.append(
            Refusal("NothingAsked", f"no container asks for {names.CARDS} or {names.VRAM}: it is planned with one card")
        )
    if pods * each > MOST_CARDS:
        refusals.append(
            Refusal(
                "TooManyCards", f"{pods * each} cards in {pods} pods are asked for; at most {MOST_CARDS} are planned"
            )
        )
    cpu, host_memory = _host(spec, refusals)
    return Needs(
        pods=pods,
        cards=pods * each,
        memory=(max((container.vram for container in request.containers), default=0) or None) if request else None,
        kinds=request.models if request else _kinds(pod),
        cpu=cpu,
        host_memory=host_memory,
        refusals=tuple(refusals),
        cautions=tuple(cautions),
    )


def is_vendor_device(resource: str) -> bool:
    """Whether a resource is one vendor's cards, as a device plugin counts them.

    >>> is_vendor_device("nvidia.com/gpu"), is_vendor_device("nvidia.com/hostdev"), is_vendor_device("cpu")
    (True, False, False)
    """
    return _VENDOR_DEVICE.fullmatch(resource) is not None


def _request(pod: Pod, refusals: list[Refusal]) -> ComputeRequest | None:
    refusals.extend(check_annotations(pod.annotations))
    try:
        request = read_request(pod)
    except RefusedError as error:
        refusals.extend(error.refusals)
        return None
    if request is None:
        return None
    if len(request.containers) > 1:
        refusals.append(
            Refusal(
                "SeveralContainers",
                f"{len(request.containers)} containers ask for cards; in a pod the queue plans one that does",
            )
        )
    total = next((container.total for container in request.containers if container.total is not None), None)
    if total is not None:
        refusals.append(
            Refusal(
                "TotalNotPlanned",
                f"it asks for {total.amount} of {total.resource}, which is another number of cards on each model; "
                f"the queue plans cards: ask for {names.CARDS} and {names.VRAM}",
            )
        )
    return request


def _vendor_devices(spec: Mapping[str, Any], refusals: list[Refusal]) -> dict[str, int]:
    """Resource name → the most that a container asks for."""
    found: dict[str, int] = {}
    for container in (*(spec.get("containers") or ()), *(spec.get("initContainers") or ())):
        for key, value in _resources(container).items():
            if not is_vendor_device(key):
                continue
            count = int(str(value)) if re.fullmatch(r"[0-9]{1,4}", str(value)) else 0
            if not 1 <= count <= MAX_CARDS:
                refusals.append(
                    Refusal("MalformedQuantity", f"{key}: {shown(value)} is no number of cards; write it like 2")
                )
            found[key] = max(count, found.get(key, 0))
    return found


def _pods(parallelism: int | None, completions: int | None, refusals: list[Refusal]) -> int:
    for field, value in (("parallelism", parallelism), ("completions", completions)):
        if value is not None and not 1 <= value <= MOST_PODS:
            refusals.append(
                Refusal(
                    "BadParallelism", f"spec.{field} is {value}; write a number from 1 to {MOST_PODS}, or leave it out"
                )
            )
    at_once = min(parallelism or 1, completions or MOST_PODS)  # no pod begins for which nothing is left to do
    return min(max(1, at_once), MOST_PODS)


def _host(spec: Mapping[str, Any], refusals: list[Refusal]) -> tuple[int, int]:
    """Millicores of CPU and bytes of host memory of one pod: requests, or limits where only these are said."""
    cpu = memory = 0
    for container in spec.get("containers") or ():
        asked = _resources(container)
        try:
            cpu += read_cpu(asked["cpu"]) if "cpu" in asked else 0
            memory += read_memory(asked["memory"]) if "memory" in asked else 0
        except AmountError as error:
            refusals.append(Refusal("MalformedQuantity", f"container {shown(container.get('name'))}: {error}"))
    return cpu, memory


def _resources(container: Mapping[str, Any]) -> dict[str, Any]:
    resources = container.get("resources") or {}
    return {**(resources.get("limits") or {}), **(resources.get("requests") or {})}


def _kinds(pod: Pod) -> tuple[str, ...]:
    words = (word.strip() for word in pod.annotations.get(names.MODELS, "").split(","))
    return tuple(dict.fromkeys(word for word in words if word))
