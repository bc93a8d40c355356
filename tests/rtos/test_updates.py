"""Orders of commands, and that the record is always what the guest really has."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.rtos.compact import asked, document, load

from hcs.model.refusals import RefusedError
from hcs.rtos.annotations import Annotations, read_annotations
from hcs.rtos.configuration import Config
from hcs.rtos.documents import read_change
from hcs.rtos.hosts import Host
from hcs.rtos.memory import MemoryRecord, ensure_memory_limit
from hcs.rtos.planning import make_plan
from hcs.rtos.resources import Resources, merged
from hcs.rtos.updates import Command, Record, carry_out, plan_update

ROWS = load("sequences.yaml")


def memory(text: str) -> MemoryRecord:
    current, _, threshold = text.partition("/")
    return MemoryRecord(int(current), int(threshold))


@pytest.mark.parametrize("row", [pytest.param(row, id=row["id"]) for row in ROWS["memory"]])
def test_memory_changes_in_the_order_that_can_fail_safely(row: dict[str, Any]) -> None:
    record, sent = memory(row["start"]), []
    for step in ensure_memory_limit(record, row["ensure"]):
        sent.append(str(step))
        if step.key == row.get("fails"):
            break
        record = step.after
    assert sent == row["commands"]
    assert record == memory(row["end"])


@pytest.mark.parametrize("row", [pytest.param(row, id=row["id"]) for row in ROWS["records"]])
def test_the_threshold_only_grows(row: dict[str, Any]) -> None:
    record = MemoryRecord()
    for current, threshold in row["records"]:
        record = record.record(current, threshold)
    assert record == memory(row["end"])


@pytest.mark.parametrize("row", [pytest.param(row, id=row["id"]) for row in ROWS["updates"]])
def test_an_update_sends_what_differs(row: dict[str, Any]) -> None:
    old = asked(row["old"])
    annotations = read_annotations(old.annotations)
    before = make_plan(old.resources, annotations, old.config, old.host)

    def update() -> Any:
        new = read_change(document(row["new"]), old)
        return plan_update(
            Record.of(before),
            old.resources,
            new.resources,
            read_annotations(new.annotations),
            new.config,
            new.host,
            max_vcpus=before.max_vcpus,
        )

    if "refused" in row:
        with pytest.raises(RefusedError) as refused:
            update()
        assert refused.value.refusals[0].reason == row["refused"]
        return
    found = update()
    assert [str(command) for command in found.commands] == row["commands"]
    assert found.plan.cpu_capacity == row["capacity"]


def test_every_sequence_of_the_document_is_here() -> None:
    here = {row["id"] for rows in ROWS.values() for row in rows}
    assert {f"S{number}" for number in range(1, 12)} <= here


sizes = st.integers(2, 4096)
changes = st.builds(
    Resources,
    shares=st.none() | st.integers(0, 300_000),
    quota=st.none() | st.integers(-1, 900_000),
    period=st.none() | st.sampled_from([0, 1000, 100_000]),
    cpus=st.none() | st.sampled_from(["", "0", "0-3", "1,3", "2-5,7"]),
    limit=st.none() | st.just(-1) | sizes.map(lambda mib: mib << 20),
    reservation=st.none() | sizes.map(lambda mib: mib << 20),
)
bindings = st.sampled_from([Annotations(), Annotations(vcpu_pcpu_binding=True)])
HOST = Host(pcpus=8, total_memory_mb=8192)


class Hypervisor:
    """What a hypervisor has and refuses; it is told by commands alone."""

    def __init__(self, record: Record, fails: int | None) -> None:
        self.has = record
        self._fails, self._count = fails, 0

    def send(self, command: Command) -> str | None:
        self._count += 1
        if self._count - 1 == self._fails:
            return "refused"
        has = self.has
        value = command.value
        match command.key:
            case "cpucapacity":
                self.has = Record(int(value), has.cpu_weight, has.cpuset, has.vcpus, has.memory)
            case "cpuweight":
                self.has = Record(has.cpu_capacity, int(value), has.cpuset, has.vcpus, has.memory)
            case "cpu":
                pinned = "" if value == str(HOST.cpus) else value
                self.has = Record(has.cpu_capacity, has.cpu_weight, pinned, has.vcpus, has.memory)
            case "vcpu":
                self.has = Record(has.cpu_capacity, has.cpu_weight, has.cpuset, int(value), has.memory)
            case "memory":
                changed = MemoryRecord(int(value), has.memory.threshold_mb)
                assert changed.memory_mb <= changed.threshold_mb, "more memory than its ceiling"
                self.has = Record(has.cpu_capacity, has.cpu_weight, has.cpuset, has.vcpus, changed)
            case "maxmemory":
                changed = MemoryRecord(has.memory.memory_mb, int(value))
                assert changed.threshold_mb >= has.memory.threshold_mb, "the ceiling falls"
                self.has = Record(has.cpu_capacity, has.cpu_weight, has.cpuset, has.vcpus, changed)
            case other:
                raise AssertionError(other)
        return None


@given(changes, st.lists(changes, min_size=1, max_size=4), bindings)
def test_updates_end_where_a_plan_of_the_merged_whole_does(
    first: Resources, later: list[Resources], annotations: Annotations
) -> None:
    now, config = first, Config()
    record = Record.of(make_plan(first, annotations, config, HOST))
    thresholds = [record.memory.threshold_mb]
    for change in later:
        found = plan_update(record, now, change, annotations, config, HOST)
        hypervisor = Hypervisor(record, None)
        record, failed = carry_out(record, found.commands, hypervisor.send, lambda kept: None)
        assert not failed
        assert record == hypervisor.has
        now = merged(now, change)
        assert now == found.resources
        thresholds.append(record.memory.threshold_mb)
        assert record.memory.threshold_mb >= (found.plan.limit_mb or 0)
    assert thresholds == sorted(thresholds)
    whole = Record.of(make_plan(now, annotations, config, HOST))
    assert (record.cpu_capacity, record.cpu_weight, record.cpuset, record.vcpus, record.memory.memory_mb) == (
        whole.cpu_capacity,
        whole.cpu_weight,
        whole.cpuset,
        whole.vcpus,
        whole.memory.memory_mb,
    )
    assert plan_update(record, now, Resources(), annotations, config, HOST).commands == ()


@given(changes, changes, bindings, st.integers(0, 5))
def test_any_single_failing_command_leaves_recorded_what_is_real(
    first: Resources, change: Resources, annotations: Annotations, fails: int
) -> None:
    record = Record.of(make_plan(first, annotations, Config(), HOST))
    found = plan_update(record, first, change, annotations, Config(), HOST)
    hypervisor, kept = Hypervisor(record, fails), [record]
    recorded, failed = carry_out(record, found.commands, hypervisor.send, kept.append)
    assert recorded == hypervisor.has == kept[-1]
    assert bool(failed) == (fails < len(found.commands))
    if failed:
        assert list(failed) == [str(found.commands[fails])]
        again = plan_update(recorded, first, change, annotations, Config(), HOST)
        repaired, _ = carry_out(recorded, again.commands, hypervisor.send, kept.append)
        assert repaired.cpuset == found.plan.cpuset
        assert repaired.memory.memory_mb == found.plan.memory_mb
