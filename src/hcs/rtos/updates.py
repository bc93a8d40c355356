"""Updates: from what is recorded and what changes to ``set`` commands, and from their outcome to the new record.

The record is what the hypervisor was last told. Each success is recorded at once and the first failure stops, so at any
moment, also after a crash between two commands, the record is what the guest really has.
"""

from collections.abc import Callable, Mapping

import msgspec

from hcs.model.refusals import Refusal, RefusedError
from hcs.rtos.annotations import Annotations
from hcs.rtos.configuration import Config
from hcs.rtos.cpusets import NONE, CpuSet
from hcs.rtos.hosts import Host
from hcs.rtos.memory import MemoryRecord, ensure_memory_limit
from hcs.rtos.planning import GuestPlan, Mode, is_static, make_plan
from hcs.rtos.resources import Resources, merged
from hcs.rtos.sandboxes import check_set_value


class Record(msgspec.Struct, frozen=True):
    """What a guest really has: capacity in percent, weight, canonical CPU list, vCPUs, memory and threshold in MiB."""

    cpu_capacity: int
    cpu_weight: int | None
    cpuset: str
    vcpus: int
    memory: MemoryRecord

    @classmethod
    def of(cls, made: GuestPlan, *, pinned: str | None = None) -> "Record":
        """The record of a guest that was created as planned; ``pinned`` is its CPU list where that is a pool's."""
        return cls(
            cpu_capacity=made.cpu_capacity,
            cpu_weight=made.cpu_weight,
            cpuset=made.cpuset if pinned is None else pinned,
            vcpus=made.vcpus,
            memory=MemoryRecord().record(made.memory_mb, made.threshold_mb),
        )


class Command(msgspec.Struct, frozen=True):
    """One ``set`` command and the record once it has succeeded."""

    key: str
    value: str
    after: Record

    def __str__(self) -> str:
        return f"set {self.key} {self.value}"


class Update(msgspec.Struct, frozen=True):
    """An update worked out: ``resources`` as merged, their ``plan``, and the ``commands`` that lead there.

    ``static`` says that the guest's resources stay as created, which is why there are none.
    """

    resources: Resources
    plan: GuestPlan
    commands: tuple[Command, ...]
    static: bool = False


def plan_update(
    record: Record,
    before: Resources,
    change: Resources,
    annotations: Annotations,
    config: Config,
    host: Host,
    *,
    mode: Mode = "strict",
    pool: CpuSet = NONE,
    pinned: str | None = None,
    max_vcpus: int | None = None,
) -> Update:
    """Work out an update: merge first, plan the whole, then find the commands for what differs.

    Args:
        record: what the guest has.
        before: the resources that were asked so far.
        change: the fields that change.
        annotations: the container's, which do not change.
        config: the node's configuration.
        host: what is known of the machine.
        mode: ``lenient`` drops a CPU set that cannot be read.
        pool: the CPU sets of the sandbox's other guests, under ``shared_cpu_pool``.
        pinned: the list the guest is to be pinned to where that is not its own.
        max_vcpus: the ceiling the guest was created with.

    Raises:
        RefusedError: the merged resources cannot be planned, the ceiling of vCPUs would change, or a CPU list is too
            long for ``set``.
    """
    whole = merged(before, change)
    target = make_plan(whole, annotations, config, host, mode=mode, pool=pool)
    if max_vcpus is not None and target.max_vcpus != max_vcpus:
        raise RefusedError(
            Refusal(
                "MaxVcpusFixed",
                f"max_vcpus is {max_vcpus} and would become {target.max_vcpus}; it is fixed when a guest is created, "
                "create it anew",
            )
        )
    if is_static(annotations, config, host):
        return Update(before, make_plan(before, annotations, config, host, mode=mode, pool=pool), (), static=True)
    return Update(whole, target, commands(record, target, host, pinned=pinned))


def commands(record: Record, target: GuestPlan, host: Host, *, pinned: str | None = None) -> tuple[Command, ...]:
    """The commands that bring a guest from its record to the plan: capacity, memory, CPU set, weight, vCPUs.

    Raises:
        RefusedError: ``CpusetTooLong``.
    """
    found: list[Command] = []
    now = record
    cpuset = target.cpuset if pinned is None else pinned
    if target.cpu_capacity != now.cpu_capacity:
        now = msgspec.structs.replace(now, cpu_capacity=target.cpu_capacity)
        found.append(Command("cpucapacity", str(target.cpu_capacity), now))
    for step in ensure_memory_limit(now.memory, target.memory_mb):
        now = msgspec.structs.replace(now, memory=step.after)
        found.append(Command(step.key, str(step.value), now))
    if cpuset != now.cpuset:
        check_set_value(cpuset)
        now = msgspec.structs.replace(now, cpuset=cpuset)
        found.append(Command("cpu", cpuset or every_cpu(host), now))
    if target.cpu_weight != now.cpu_weight and target.cpu_weight is not None:
        now = msgspec.structs.replace(now, cpu_weight=target.cpu_weight)
        found.append(Command("cpuweight", str(target.cpu_weight), now))
    if target.vcpus != now.vcpus:
        now = msgspec.structs.replace(now, vcpus=target.vcpus)
        found.append(Command("vcpu", str(target.vcpus), now))
    return tuple(found)


def every_cpu(host: Host) -> str:
    """The list that lifts an affinity: all the host's pCPUs, or the word for it where their number is not known."""
    return str(host.cpus) or "all"


def carry_out(
    record: Record,
    steps: tuple[Command, ...],
    send: Callable[[Command], str | None],
    keep: Callable[[Record], None],
) -> tuple[Record, Mapping[str, str]]:
    """Send commands in order, keep the record after each success, stop at the first failure.

    Args:
        record: what the guest has now.
        steps: from :func:`commands`.
        send: sends one; returns None on success, otherwise what went wrong.
        keep: makes a record last before the next command is sent.

    Returns:
        The record as it is now, and the command that failed with its reason; empty where none did.
    """
    for step in steps:
        reason = send(step)
        if reason is not None:
            return record, {str(step): reason}
        record = step.after
        keep(record)
    return record, {}
