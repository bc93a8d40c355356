"""Every conversion from a raw value to what the guest gets, in words: what ``hcs rtos plan --explain`` prints.

The figures come from the functions that planning uses; nothing is worked out a second way.
"""

from hcs.rtos.annotations import read_annotations
from hcs.rtos.cpusets import parse_cpuset
from hcs.rtos.documents import Asked
from hcs.rtos.hosts import XEN
from hcs.rtos.memory import LEAST_THRESHOLD_MB, limit_mb, reservation_mb
from hcs.rtos.planning import GuestPlan
from hcs.rtos.processors import capacity_bound, guest_cpus, pcpus_served, raw_capacity


def explain(asked: Asked, made: GuestPlan) -> list[tuple[str, str]]:
    """Field → how it came about, in the order of the plan's fields.

    Args:
        asked: what was planned.
        made: the plan made from it.
    """
    annotations = read_annotations(asked.annotations)
    return [
        ("cpu_weight", _weight(asked, made)),
        ("cpu_capacity", _capacity(asked, made)),
        ("cpuset", _cpuset(asked, made)),
        ("vcpus", _vcpus(asked, made)),
        ("max_vcpus", _ceiling(asked, made)),
        ("memory_mb", _memory(made)),
        ("min_memory_mb", _reservation(asked, made)),
        ("threshold_mb", _threshold(asked, made)),
        ("limit_mb", _limit(asked, made)),
        ("ratio", _ratio(asked, made)),
        ("auto_close", _close(annotations.close_after)),
    ]


def _weight(asked: Asked, made: GuestPlan) -> str:
    shares = asked.resources.shares
    if asked.host.pedestal != XEN:
        given = "no shares, so none is given" if shares is None else f"shares {shares} passed on"
        return f"{given}: the pedestal is {asked.host.pedestal}, only Xen has weights of its own"
    if not shares:
        return f"no shares, so Xen's default {made.cpu_weight}"
    clamp = "" if shares // 4 == made.cpu_weight else f", held within 1 and 65535 = {made.cpu_weight}"
    return f"floor(shares {shares} / 4) = {shares // 4}{clamp}"


def _capacity(asked: Asked, made: GuestPlan) -> str:
    quota, period = asked.resources.quota, asked.resources.period
    raw = raw_capacity(quota, period)
    cpuset = parse_cpuset(made.cpuset)
    bound = capacity_bound(cpuset, guest_cpus(asked.config, read_annotations(asked.annotations), asked.host))
    whose = f"100 x {len(cpuset)} CPUs of the set" if cpuset else f"100 x {(bound or 0) // 100} pCPUs guests may use"
    if raw is not None:
        floor = (quota or 0) * 100 // (period or 1)
        text = f"floor(quota {quota} x 100 / period {period}) = {floor}" + (
            ", raised to 1 because 0 would be no bound" if floor == 0 else ""
        )
        if bound is None:
            return f"{text}; neither a CPU set nor the host's pCPUs bound it"
        return f"{text}; at most {bound} ({whose}), so {made.cpu_capacity}"
    why = "a quota without a period bounds nothing" if (quota or 0) > 0 else "no quota"
    return f"{why}; {whose} = {made.cpu_capacity}" if cpuset else f"{why} and no CPU set, so 0: no bound"


def _cpuset(asked: Asked, made: GuestPlan) -> str:
    asked_for = asked.resources.cpus or ""
    if "cpuset_invalid" in made.warnings:
        return f"{asked_for[:60]!r} cannot be read and is dropped (lenient)"
    if not made.cpuset:
        return "none asked, so no affinity"
    left_out = "; CPUs that guests cannot have are left out" if "cpuset_filtered" in made.warnings else ""
    return f"{asked_for[:60]!r} sorted, merged and without blanks is {made.cpuset}{left_out}"


def _vcpus(asked: Asked, made: GuestPlan) -> str:
    annotations = read_annotations(asked.annotations)
    if annotations.vcpu_pcpu_binding:
        rule = "vcpu_pcpu_binding: one for each CPU of the set, 1 without a set"
    elif asked.config.vcpu_policy != "single":
        rule = f"config vcpu_policy {asked.config.vcpu_policy}"
    else:
        rule = "1, whatever the CPU set (bind them with annotation runtime.vcpu_pcpu_binding)"
    return f"{rule}; held to max_vcpus" if "vcpus_clamped" in made.warnings else rule


def _ceiling(asked: Asked, made: GuestPlan) -> str:
    annotations = read_annotations(asked.annotations)
    if annotations.max_vcpu_num:
        return "annotation container.max_vcpu_num"
    if annotations.max_container_cpus:
        return "annotation runtime.max_container_cpus"
    return "config max_container_vcpu"


def _memory(made: GuestPlan) -> str:
    return "the limit" if made.limit_mb is not None else "no limit, so the reservation"


def _reservation(asked: Asked, made: GuestPlan) -> str:
    amount, source = reservation_mb(asked.resources, read_annotations(asked.annotations), asked.config)
    raw = asked.resources.reservation
    bytes_ = f" (floor of {raw} bytes)" if source == "memory.reservation" else ""
    clamped = f"; lowered to the limit, {made.min_memory_mb}" if amount != made.min_memory_mb else ""
    return f"{source}: {amount}{bytes_}{clamped}"


def _threshold(asked: Asked, made: GuestPlan) -> str:
    total = asked.host.total_memory_mb
    if made.limit_mb is None and total:
        return f"no limit, so all the host has: {total}"
    wanted = max(2 * made.memory_mb, LEAST_THRESHOLD_MB)
    held = f"; held to the host's {total}" if wanted != made.threshold_mb and total else ""
    return f"max(2 x {made.memory_mb}, {LEAST_THRESHOLD_MB}) = {wanted}{held}; from now on it only grows"


def _limit(asked: Asked, made: GuestPlan) -> str:
    raw = asked.resources.limit
    return "none" if limit_mb(raw) is None else f"floor({raw} bytes / 1048576) = {made.limit_mb}"


def _ratio(asked: Asked, made: GuestPlan) -> str:
    served = pcpus_served(parse_cpuset(made.cpuset), made.cpu_capacity, asked.host)
    return f"container to pCPUs 1:{served}" if served else "container to pCPUs: not bounded, and the host is not known"


def _close(after: int | None) -> str:
    return "never" if after is None else f"stopped {after / 1000:g} s after its stdin side left"
