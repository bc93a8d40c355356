"""A sandbox: what its guests need together, and the CPU pool they may share.

Infra (pause) containers and stopped guests count nothing; whoever builds the list leaves them out. Pools of two
sandboxes may overlap: that is allowed, and reported.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

from hcs.model.refusals import Refusal, RefusedError
from hcs.rtos.annotations import Annotations
from hcs.rtos.configuration import Config
from hcs.rtos.cpusets import CpuSet, parse_cpuset, union
from hcs.rtos.memory import MIB

MAX_SET_VALUE: Final = 23
"""Bytes of a CPU list in ``set cpu``: micad reads 32 bytes with a final NUL, and cuts the rest off silently."""


class Member(msgspec.Struct, frozen=True):
    """One guest of a sandbox: its CPU set, vCPUs, capacity in percent, limit in MiB and hugepage limits in bytes."""

    name: str
    cpuset: CpuSet
    vcpus: int
    capacity: int
    limit_mb: int | None = None
    hugepages: int = 0


class Sandbox(msgspec.Struct, frozen=True):
    """The sum of a sandbox. ``pcpus_served`` is N of the ratio 1:N, None where nothing bounds it."""

    vcpus: int
    memory_mb: int
    cpuset: str
    pcpus_served: int | None


def total(members: Iterable[Member], config: Config, *, hugepages: bool | None = None) -> Sandbox:
    """Add up a sandbox.

    Args:
        members: its running and created guests.
        config: the node's; ``sandbox_minimum_vcpu`` is a floor under the sum.
        hugepages: whether hugepage limits count; the configuration's choice when None.
    """
    counted = list(members)
    pool = union(member.cpuset for member in counted)
    huge = config.hugepage_enable if hugepages is None else hugepages
    memory = sum((m.limit_mb or 0) + (m.hugepages // MIB if huge else 0) for m in counted)
    return Sandbox(
        vcpus=max(sum(member.vcpus for member in counted), config.sandbox_minimum_vcpu),
        memory_mb=memory,
        cpuset=str(pool),
        pcpus_served=len(pool) or -(-sum(member.capacity for member in counted) // 100) or None,
    )


def is_pooled(config: Config, annotations: Annotations) -> bool:
    """Whether a guest is pinned to its sandbox's pool: the site shares pools, and pinning is on for this guest."""
    return config.shared_cpu_pool and bool(annotations.enable_vcpus_pinning or annotations.vcpu_pcpu_binding)


def pool_changes(pinned: Mapping[str, str], pool: CpuSet) -> list[tuple[str, str]]:
    """The guests that are pinned to something else than their sandbox's pool, and the list each must get.

    Args:
        pinned: running guest → the canonical CPU list it is pinned to, empty for none.
        pool: the union of the sandbox's CPU sets; empty pins nobody.

    Raises:
        RefusedError: ``CpusetTooLong``, before anything is sent.
    """
    if not pool:
        return []
    text = str(pool)
    changes = [(name, text) for name, current in pinned.items() if current != text]
    if changes:
        check_set_value(text)
    return changes


def check_set_value(text: str) -> None:
    """Refuse a CPU list that micad would cut.

    Raises:
        RefusedError: ``CpusetTooLong``.
    """
    if len(text) > MAX_SET_VALUE:
        raise RefusedError(
            Refusal(
                "CpusetTooLong",
                f"cpuset {text:.60} has {len(text)} characters; micad takes at most {MAX_SET_VALUE} in an update, "
                "choose CPUs that form ranges, or create the guest anew",
            )
        )


def overlaps(pools: Mapping[str, str]) -> list[tuple[str, str, str]]:
    """Pairs of sandboxes whose pools share CPUs, with the CPUs they share."""
    found: list[tuple[str, str, str]] = []
    names: Sequence[str] = sorted(pools)
    sets = {name: parse_cpuset(pools[name]) for name in names}
    for index, one in enumerate(names):
        for other in names[index + 1 :]:
            common = sets[one].without(sets[one].without(sets[other]))
            if common:
                found.append((one, other, str(common)))
    return found
