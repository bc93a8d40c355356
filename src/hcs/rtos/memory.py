"""Memory: bytes to MiB, reservation, the threshold that never falls, and the order in which memory changes.

The *threshold* is the most memory the hypervisor may ever give a guest. It belongs to whoever talks to micad, not to
the guest's resources: it only ever grows while the guest exists, so that a failed step can never leave a guest with
more memory than its hypervisor admits.
"""

from typing import Final

import msgspec

from hcs.model.refusals import Refusal, RefusedError
from hcs.rtos.annotations import Annotations
from hcs.rtos.configuration import Config
from hcs.rtos.hosts import Host
from hcs.rtos.resources import Resources
from hcs.rtos.words import INT32_MAX

MIB: Final = 1 << 20
LEAST_LIMIT: Final = 2 * MIB
FALLBACK_MB: Final = 16
LEAST_THRESHOLD_MB: Final = 2 * FALLBACK_MB


class Memory(msgspec.Struct, frozen=True):
    """A guest's memory in MiB: what it has, its reservation, its threshold and the container's limit, if any."""

    memory_mb: int
    min_memory_mb: int
    threshold_mb: int
    limit_mb: int | None
    warnings: tuple[str, ...]


def map_memory(resources: Resources, annotations: Annotations, config: Config, host: Host) -> Memory:
    """Map the memory part.

    Raises:
        RefusedError: a limit that means nothing, or that the wire, the host or the site does not allow.
    """
    total = host.total_memory_mb
    limit = limit_mb(resources.limit)
    if limit is not None:
        _check_fits(limit, "memory limit", annotations, config, total)
    least, _ = reservation_mb(resources, annotations, config)
    warnings: tuple[str, ...] = ()
    if limit is not None and least > limit:
        least, warnings = limit, ("reservation_clamped",)
    memory = least if limit is None else limit
    if limit is None:
        _check_fits(memory, "memory reservation", annotations, config, total)
    ceiling = min(total, INT32_MAX) if total else INT32_MAX
    wanted = total if limit is None and total else max(2 * memory, LEAST_THRESHOLD_MB)
    return Memory(memory, least, max(memory, min(wanted, ceiling)), limit, warnings)


def limit_mb(limit: int | None) -> int | None:
    """MiB of a limit in bytes; None where there is none.

    Raises:
        RefusedError: ``MalformedMemory`` or ``MemoryTooSmall``.
    """
    if limit is None or limit in (0, -1):
        return None
    if limit < -1:
        raise RefusedError(Refusal("MalformedMemory", f"memory.limit is {limit}; give bytes, or -1 for no limit"))
    if limit < LEAST_LIMIT:
        raise RefusedError(
            Refusal("MemoryTooSmall", f"memory.limit is {limit} bytes; a guest needs at least 2 MiB ({LEAST_LIMIT})")
        )
    return limit // MIB


def reservation_mb(resources: Resources, annotations: Annotations, config: Config) -> tuple[int, str]:
    """The reservation in MiB before the limit holds it down, and where it is from.

    Raises:
        RefusedError: ``MalformedMemory``.
    """
    reservation = resources.reservation
    if reservation is not None and reservation < -1:
        raise RefusedError(
            Refusal("MalformedMemory", f"memory.reservation is {reservation}; give bytes, or leave it out")
        )
    if annotations.min_memory_mb:
        return annotations.min_memory_mb, "annotation container.min_memory_mb"
    if reservation is not None and reservation >= MIB:
        return reservation // MIB, "memory.reservation"
    if config.container_minmem:
        return config.container_minmem, "config container_minmem"
    return FALLBACK_MB, "the fallback"


def _check_fits(amount: int, what: str, annotations: Annotations, config: Config, total: int) -> None:
    if amount > INT32_MAX:
        raise RefusedError(
            Refusal("MemoryTooLarge", f"{what} is {amount} MiB; micad's message holds at most {INT32_MAX} MiB")
        )
    if total and amount > total:
        raise RefusedError(
            Refusal("MemoryAboveHost", f"{what} is {amount} MiB; the host has {total} MiB, ask for less")
        )
    most = config.container_maxmem if annotations.max_container_memory is None else annotations.max_container_memory
    if most and amount > most:
        raise RefusedError(
            Refusal("MemoryAboveMaximum", f"{what} is {amount} MiB; this node allows a container at most {most} MiB")
        )


class MemoryRecord(msgspec.Struct, frozen=True):
    """What the hypervisor was last told: the guest's memory and its threshold, in MiB; 0 where it was told nothing."""

    memory_mb: int = 0
    threshold_mb: int = 0

    def record(self, current: int, threshold: int = 0) -> "MemoryRecord":
        """Note that the guest has ``current`` MiB; the threshold grows to ``threshold``, or to ``current``."""
        return MemoryRecord(current, max(self.threshold_mb, threshold or current))


class Step(msgspec.Struct, frozen=True):
    """One ``set`` command, and what is true once it has succeeded."""

    key: str
    value: int
    after: MemoryRecord

    def __str__(self) -> str:
        return f"set {self.key} {self.value}"


def ensure_memory_limit(record: MemoryRecord, target: int) -> tuple[Step, ...]:
    """The commands, in order, that give a guest ``target`` MiB.

    Growing raises the ceiling first, shrinking leaves it. Carry out one after the other, keep ``after`` of each that
    succeeded, and stop at the first that failed: then what is recorded is what the hypervisor has.
    """
    threshold = record.threshold_mb or record.memory_mb
    steps = []
    if threshold < target:
        threshold = target
        steps.append(Step("maxmemory", target, MemoryRecord(record.memory_mb, threshold)))
    if record.memory_mb != target:
        steps.append(Step("memory", target, MemoryRecord(target, max(threshold, target))))
    return tuple(steps)
