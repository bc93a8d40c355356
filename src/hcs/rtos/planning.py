"""The plan: what a guest gets for what its container asks.

One function for all: the OCI runtime creates what it says, ``hcs rtos plan`` prints it, admission refuses what it
refuses. The rules are those of ``docs/resource-mapping.md``.
"""

from collections.abc import Mapping
from typing import Final, Literal

import msgspec

from hcs.model.refusals import Refusal, RefusedError
from hcs.rtos.annotations import Annotations, read_annotations, unknown_keys
from hcs.rtos.configuration import Config
from hcs.rtos.cpusets import NONE, CpuSet
from hcs.rtos.hosts import OPENAMP, Host
from hcs.rtos.memory import map_memory
from hcs.rtos.processors import map_processors
from hcs.rtos.resources import Resources

Mode = Literal["strict", "lenient"]

WARNINGS: Final = {
    "cpuset_invalid": "the CPU set cannot be read and was dropped: the guest may run on every pCPU",
    "cpuset_filtered": "the CPU set names CPUs that guests cannot have on this host; they were left out",
    "quota_without_period": "there is a CPU quota without a period, so it bounds nothing: all CPU time is open",
    "vcpus_clamped": "the guest would have more vCPUs than its ceiling allows; it gets the ceiling",
    "capacity_unreachable": "the capacity is more than the guest's vCPUs can use, 100 percent each",
    "reservation_clamped": "the reservation is above the memory limit and was lowered to it",
}
"""Every warning in words."""


class GuestPlan(msgspec.Struct, frozen=True):
    """What the guest gets. Memory is MiB, ``cpu_capacity`` percent of one pCPU (0: no bound), ``cpuset`` canonical text
    (empty: no affinity); ``cpu_weight`` None is "not given", which only pedestals other than Xen know.

    The threshold is what the guest is created with; from then on it only grows, and whoever talks to micad keeps it.
    """

    cpu_weight: int | None
    cpu_capacity: int
    cpuset: str
    vcpus: int
    max_vcpus: int
    memory_mb: int
    min_memory_mb: int
    threshold_mb: int
    limit_mb: int | None
    warnings: tuple[str, ...] = ()


def plan(
    resources: Resources,
    annotations: Mapping[str, str],
    config: Config,
    host: Host,
    *,
    mode: Mode = "strict",
    pool: CpuSet = NONE,
) -> GuestPlan | Refusal:
    """Plan one guest.

    Args:
        resources: OCI's ``linux.resources``, read.
        annotations: the container's, with their prefix.
        config: the node's configuration.
        host: what is known of the machine.
        mode: ``lenient`` drops a CPU set that cannot be read, with a warning; ``strict`` refuses it.
        pool: CPU sets of the sandbox's other guests, united; counted under ``shared_cpu_pool``.

    Returns:
        The plan, or the first thing that keeps the guest from being made as asked.
    """
    try:
        return make_plan(resources, read_annotations(annotations), config, host, mode=mode, pool=pool)
    except RefusedError as error:
        return error.refusals[0]


def make_plan(
    resources: Resources,
    annotations: Annotations,
    config: Config,
    host: Host,
    *,
    mode: Mode = "strict",
    pool: CpuSet = NONE,
) -> GuestPlan:
    """The same from annotations that are read already.

    Raises:
        RefusedError: where :func:`plan` returns a refusal.
    """
    check_pedestal(annotations, host)
    cpu = map_processors(resources, annotations, config, host, lenient=mode == "lenient", pool=pool)
    memory = map_memory(resources, annotations, config, host)
    return GuestPlan(
        cpu_weight=cpu.weight,
        cpu_capacity=cpu.capacity,
        cpuset=str(cpu.cpuset),
        vcpus=cpu.vcpus,
        max_vcpus=cpu.max_vcpus,
        memory_mb=memory.memory_mb,
        min_memory_mb=memory.min_memory_mb,
        threshold_mb=memory.threshold_mb,
        limit_mb=memory.limit_mb,
        warnings=cpu.warnings + memory.warnings,
    )


def check_pedestal(annotations: Annotations, host: Host) -> None:
    """Refuse a guest that was built for another pedestal.

    Raises:
        RefusedError: ``PedestalMismatch``.
    """
    asked = annotations.pedestal
    if asked and asked.lower() != host.pedestal:
        raise RefusedError(
            Refusal(
                "PedestalMismatch",
                f"annotation org.openeuler.micrun.ped.pedestal asks for {asked!r:.40}; this host's pedestal is "
                f"{host.pedestal}, use a node that has the other",
            )
        )


def is_static(annotations: Annotations, config: Config, host: Host) -> bool:
    """Whether the guest's resources stay as created: updates then succeed and do nothing."""
    if annotations.static_resource is not None:
        return annotations.static_resource
    return host.pedestal == OPENAMP if config.static_resource is None else config.static_resource


def ignored(resources: Resources, annotations: Mapping[str, str]) -> list[str]:
    """What was asked and has no meaning for a guest, each named once."""
    return [*resources.ignored, *(f"annotation {key}" for key in unknown_keys(annotations))]
