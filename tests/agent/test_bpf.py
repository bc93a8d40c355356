"""The BPF program is really loaded, attached and fired, on tracepoints near the one it is for.

``sched:sched_process_exec`` is fired by starting a program, and like ``ras:aer_event`` it carries a string of any
length. Where the kernel forbids BPF the tests are skipped with the kernel's own word; what they may not do is pass
without having loaded anything.
"""

import asyncio
import contextlib
import ctypes
import errno
import os
import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.waiting import until

from hcs.agent import bpf
from hcs.agent.bpf import Field, Format, TracepointListener, TracingUnavailableError, open_tracefs, read_format
from hcs.agent.tracepipe import TracePipe

FORBIDDEN = (errno.EPERM, errno.EACCES, errno.ENOSYS)

FORMAT = """\
name: aer_event
ID: 1729
format:
	field:unsigned short common_type;	offset:0;	size:2;	signed:0;
	field:int common_pid;	offset:4;	size:4;	signed:1;

	field:__data_loc char[] dev_name;	offset:8;	size:4;	signed:0;
	field:u32 status;	offset:12;	size:4;	signed:0;
	field:u8 severity;	offset:16;	size:1;	signed:0;
	field:u8 tlp_header_valid;	offset:17;	size:1;	signed:0;
	field:u32 tlp_header[4];	offset:20;	size:16;	signed:0;

print fmt: "%s PCIe Bus Error: severity=%s, %s, TLP Header=%s\\n", __get_str(dev_name), REC->severity
"""


@pytest.fixture
def tracefs() -> Iterator[Path]:
    try:
        place = open_tracefs()
        TracepointListener(place, "sched", "sched_process_exec").close()
    except TracingUnavailableError as error:
        if error.errno in FORBIDDEN:
            pytest.skip(f"this kernel forbids BPF here: {error.strerror}")
        raise
    yield place
    bpf.close_tracefs(place)


def test_a_program_is_loaded_and_copies_each_record_of_its_tracepoint(tracefs: Path, tmp_path: Path) -> None:
    program = tmp_path / f"fired-{uuid.uuid4().hex}"
    program.symlink_to("/bin/true")
    listener = TracepointListener(tracefs, "sched", "sched_process_exec")
    try:
        seen = []
        for _ in range(20):
            started = subprocess.Popen([program])
            started.wait()
            seen.append(started.pid)
        mine = [r for r in listener.records() if listener.format.text(r, "filename") == str(program)]
        assert [listener.format.integer(record, "pid") for record in mine] == seen
        assert list(listener.records()) == [], "what was taken does not come again"
    finally:
        listener.close()


def test_the_event_loop_hears_of_records_without_asking(tracefs: Path) -> None:
    listener = TracepointListener(tracefs, "sched", "sched_process_exec")
    heard: list[bytes] = []

    async def story() -> None:
        loop = asyncio.get_running_loop()
        loop.add_reader(listener, lambda: heard.extend(listener.records()))
        process = await asyncio.create_subprocess_exec("/bin/true")
        await process.wait()
        await until(lambda: any(listener.format.integer(record, "pid") == process.pid for record in heard))
        loop.remove_reader(listener)

    try:
        asyncio.run(story())
    finally:
        listener.close()


def test_the_ring_goes_round(tracefs: Path) -> None:
    """Ten thousand records are several times what the ring holds; none is lost as long as it is read in between."""
    listener = TracepointListener(tracefs, "syscalls", "sys_enter_getppid", process=os.getpid())
    getppid = ctypes.CDLL(None).getppid
    try:
        count = 0
        with bpf.measured():
            for _ in range(100):
                for _ in range(100):
                    getppid()
                count += sum(1 for _ in listener.records())
        assert count == 10_000
        runs, nanoseconds = listener.run_time()
        assert runs >= 10_000
        assert nanoseconds > 0, "the kernel itself says that the program ran"
    finally:
        listener.close()


def test_a_tracepoint_that_the_kernel_lacks_is_told_apart_from_one_that_is_forbidden(tracefs: Path) -> None:
    with pytest.raises(TracingUnavailableError) as caught:
        TracepointListener(tracefs, "ras", "no_such_event")
    assert caught.value.errno == errno.ENOENT


def test_a_trace_pipe_of_our_own_says_the_same_in_words(tracefs: Path) -> None:
    """The way for kernels that allow tracing and no BPF; our instance is gone afterwards."""
    pipe = TracePipe(tracefs, "sched", "sched_process_exec")
    heard: list[str] = []

    async def story() -> None:
        loop = asyncio.get_running_loop()
        loop.add_reader(pipe, lambda: heard.extend(pipe.lines()))
        process = await asyncio.create_subprocess_exec("/bin/true")
        await process.wait()
        await until(lambda: any(f"pid={process.pid}" in line for line in heard))
        loop.remove_reader(pipe)

    try:
        asyncio.run(story())
    finally:
        pipe.close()
    assert not [path.name for path in (tracefs / "instances").iterdir() if path.name.startswith(f"hcs-{os.getpid()}-")]
    with pytest.raises(OSError, match="No such file"):
        TracePipe(tracefs, "ras", "no_such_event")


def test_nothing_is_left_loaded(tracefs: Path) -> None:
    before = kernel_objects()
    listener = TracepointListener(tracefs, "sched", "sched_process_exec")
    held = kernel_objects() - before
    assert len(held) >= 3  # the ring, the program and the event
    listener.close()
    assert kernel_objects() == before


def kernel_objects() -> set[tuple[str, str]]:
    """Descriptors of BPF and perf objects; sockets and files of other threads come and go meanwhile."""
    found = set()
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            target = os.readlink(f"/proc/self/fd/{name}")
            if "bpf" in target or "perf_event" in target:
                found.add((name, target))
    return found


def test_fields_are_where_the_format_says() -> None:
    layout = read_format(FORMAT)
    assert layout == Format(
        1729,
        {
            "dev_name": Field(8, 4, False, True),
            "status": Field(12, 4, False),
            "severity": Field(16, 1, False),
            "tlp_header_valid": Field(17, 1, False),
            "tlp_header": Field(20, 16, False),
        },
    )
    with pytest.raises(ValueError, match="no line ID"):
        read_format("name: x")


def test_a_short_record_has_no_fields_beyond_its_end() -> None:
    layout = read_format(FORMAT)
    assert layout.integer(bytes(14), "status") is None
    assert layout.text(bytes(8), "dev_name") is None
    assert layout.integer(bytes(64), "nothing") is None
    assert bpf.RECORD_BYTES <= 512, "the program's stack"
