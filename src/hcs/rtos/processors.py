"""CPU: shares to weight, quota to capacity, CPU sets to affinity, and how many vCPUs a guest sees.

All divisions truncate, all numbers are Python's own integers: nothing passes through 32 bits on the way.
"""

from typing import Final

import msgspec

from hcs.model.refusals import Refusal, RefusedError
from hcs.rtos.annotations import Annotations
from hcs.rtos.configuration import Config
from hcs.rtos.cpusets import NONE, CpuSet, parse_cpuset
from hcs.rtos.hosts import XEN, Host
from hcs.rtos.resources import Resources

DEFAULT_WEIGHT: Final = 256
MAX_WEIGHT: Final = 65535
MAX_CPUSET_AT_CREATE: Final = 127
"""Bytes of a CPU list in a create message: its field has 128, the last one NUL."""


class Processors(msgspec.Struct, frozen=True):
    """A guest's share of the pCPUs. ``weight`` is None where a pedestal has none and nothing was asked; ``capacity`` is
    percent of one pCPU, 0 for no bound.
    """

    weight: int | None
    capacity: int
    cpuset: CpuSet
    vcpus: int
    max_vcpus: int
    warnings: tuple[str, ...]


def map_processors(
    resources: Resources,
    annotations: Annotations,
    config: Config,
    host: Host,
    *,
    lenient: bool = False,
    pool: CpuSet = NONE,
) -> Processors:
    """Map the CPU part.

    Args:
        resources: what the container asks.
        annotations: the container's.
        config: the node's.
        host: what is known of the machine.
        lenient: drop a CPU set that cannot be read, with a warning.
        pool: the CPU sets of the sandbox's other guests, united; counted under ``shared_cpu_pool``.

    Raises:
        RefusedError: a value that means nothing, or a CPU set the host cannot serve.
    """
    warnings: list[str] = []
    weight = weight_of(resources.shares, host.pedestal)
    raw = raw_capacity(resources.quota, resources.period)
    cpuset = _cpuset(resources.cpus or "", config, annotations, host, lenient, warnings)
    if (resources.quota or 0) > 0 and raw is None:
        warnings.append("quota_without_period")
    bound = capacity_bound(cpuset, guest_cpus(config, annotations, host))
    if raw is not None:
        capacity = raw if bound is None else min(raw, bound)
    else:
        capacity = 100 * len(cpuset)
    wanted = wanted_vcpus(annotations, config, cpuset, cpuset | pool if config.shared_cpu_pool else cpuset, capacity)
    most = max_vcpus(annotations, config)
    if wanted > most:
        warnings.append("vcpus_clamped")
    vcpus = min(wanted, most)
    if capacity > 100 * vcpus:
        warnings.append("capacity_unreachable")
    return Processors(weight, capacity, cpuset, vcpus, most, tuple(warnings))


def weight_of(shares: int | None, pedestal: str) -> int | None:
    """The weight of cgroup shares; on a pedestal that is not Xen the shares themselves.

    Raises:
        RefusedError: ``NegativeShares``.
    """
    if shares is not None and shares < 0:
        raise RefusedError(Refusal("NegativeShares", f"cpu.shares is {shares}; give 2 to 262144, or leave it out"))
    if pedestal != XEN:
        return shares
    return max(1, min(shares // 4, MAX_WEIGHT)) if shares else DEFAULT_WEIGHT


def raw_capacity(quota: int | None, period: int | None) -> int | None:
    """Percent of one pCPU that quota and period allow; None where they set no bound.

    A bound below one percent is one: 0 would lift it.

    Raises:
        RefusedError: ``MalformedQuota`` or ``MalformedPeriod``.
    """
    if quota is not None and quota < -1:
        raise RefusedError(
            Refusal("MalformedQuota", f"cpu.quota is {quota}; give microseconds in each period, or -1 for no bound")
        )
    if period is not None and period < 0:
        raise RefusedError(Refusal("MalformedPeriod", f"cpu.period is {period}; give microseconds, like 100000"))
    if quota is None or quota <= 0 or not period:
        return None
    return max(1, quota * 100 // period)


def guest_cpus(config: Config, annotations: Annotations, host: Host) -> CpuSet:
    """The host's pCPUs that guests may have; empty when their number is not known."""
    exclusive = config.exclusive_dom0_cpu if annotations.exclusive_dom0_cpu is None else annotations.exclusive_dom0_cpu
    return host.cpus.without(host.dom0_cpus) if exclusive else host.cpus


def capacity_bound(cpuset: CpuSet, available: CpuSet) -> int | None:
    """Percent of one pCPU that a guest can have at all; None where that is not known."""
    return 100 * len(cpuset) if cpuset else 100 * len(available) if available else None


def max_vcpus(annotations: Annotations, config: Config) -> int:
    """The ceiling of a guest's vCPUs, fixed when it is created."""
    return annotations.max_vcpu_num or annotations.max_container_cpus or config.max_container_vcpu


def wanted_vcpus(annotations: Annotations, config: Config, cpuset: CpuSet, shared: CpuSet, capacity: int) -> int:
    """vCPUs before the ceiling. ``shared`` is the sandbox's pool where there is one, the guest's own set otherwise."""
    if annotations.vcpu_pcpu_binding:
        return len(shared) or 1
    if config.vcpu_policy == "cpuset":
        return len(cpuset) or 1
    if config.vcpu_policy == "capacity":
        return len(cpuset) or max(1, -(-capacity // 100))
    return 1


def pcpus_served(cpuset: CpuSet, capacity: int, host: Host) -> int | None:
    """M of the ratio 1:M between a container and pCPUs; None when nobody knows. It is reported, and changes nothing."""
    return len(cpuset) or -(-capacity // 100) or host.pcpus or None


def _cpuset(
    text: str, config: Config, annotations: Annotations, host: Host, lenient: bool, warnings: list[str]
) -> CpuSet:
    if not text:
        return NONE
    try:
        asked = parse_cpuset(text)
    except RefusedError:
        if not lenient:
            raise
        warnings.append("cpuset_invalid")
        return NONE
    if not asked:
        return NONE
    cpuset = asked
    if host.pcpus:
        available = guest_cpus(config, annotations, host)
        cpuset = asked.below(host.pcpus)
        if available is not host.cpus:
            cpuset = cpuset.without(host.cpus.without(available))
    if not cpuset:
        has = str(guest_cpus(config, annotations, host)) or "none"
        raise RefusedError(
            Refusal("CpusetNotOnHost", f"cpuset {asked!s:.60}: the host has none of these CPUs; guests may use {has}")
        )
    if cpuset != asked:
        warnings.append("cpuset_filtered")
    if len(str(cpuset)) > MAX_CPUSET_AT_CREATE:
        raise RefusedError(
            Refusal(
                "CpusetTooLong",
                f"cpuset has {len(str(cpuset))} characters when written shortest; micad takes at most "
                f"{MAX_CPUSET_AT_CREATE}, choose CPUs that form ranges",
            )
        )
    return cpuset
