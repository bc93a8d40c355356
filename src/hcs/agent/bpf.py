"""A fixed small BPF program on a tracepoint, through the system calls alone: no compiler, no library.

The program copies the record that the kernel made for the tracepoint into a ring buffer. What the record's bytes mean
is said by the tracepoint's ``format`` file and decided outside the kernel, so one program serves every tracepoint and
every kernel. Tracefs is opened without being mounted anywhere, where the kernel allows that. Linux on x86-64 and arm64,
with CAP_BPF and CAP_PERFMON or as root.
"""

import contextlib
import ctypes
import errno
import mmap
import os
import platform
import re
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

RECORD_BYTES: Final = 256
"""How much of a record is copied; its fixed fields and its strings fit, and so does the program's stack."""
_RING_BYTES: Final = 1 << 16

_CALLS: Final = {"x86_64": (321, 298), "aarch64": (280, 241)}
"""Numbers of bpf(2) and perf_event_open(2)."""
_FSOPEN, _FSCONFIG, _FSMOUNT = 430, 431, 432
_FSCONFIG_CREATE: Final = 6
_MAP_CREATE, _PROG_LOAD, _ENABLE_STATS = 0, 5, 32
_TYPE_RINGBUF, _TYPE_TRACEPOINT = 27, 5
_PERF_TYPE_TRACEPOINT: Final = 2
_ATTACH, _ENABLE = 0x40042408, 0x2400
_CURRENT_PROCESS, _PROBE_READ_KERNEL, _RINGBUF_OUTPUT = 14, 113, 130
_BUSY, _DISCARDED = 1 << 31, 1 << 30
_AT_FDCWD: Final = -100
_LICENSE: Final = b"Dual MIT/GPL\0"
"""What the kernel is told, for it lets only such programs read its memory."""

_libc: Final = ctypes.CDLL(None, use_errno=True)


class TracingUnavailableError(OSError):
    """The kernel, its configuration or our rights do not allow it; ``errno`` says which."""


class Field(msgspec.Struct, frozen=True):
    """Where a field stands in a record, in bytes. ``dynamic`` fields hold the place of a string."""

    offset: int
    size: int
    signed: bool
    dynamic: bool = False


class Format(msgspec.Struct, frozen=True):
    """A tracepoint's number and its fields, as its ``format`` file says."""

    id: int
    fields: dict[str, Field]

    def integer(self, record: bytes, name: str) -> int | None:
        """An integer field; None where there is no such field, or the record is too short."""
        field = self.fields.get(name)
        if field is None or field.dynamic or field.offset + field.size > len(record) or field.size > 8:
            return None
        return int.from_bytes(record[field.offset : field.offset + field.size], "little", signed=field.signed)

    def text(self, record: bytes, name: str) -> str | None:
        """A string field; what is beyond the copied bytes is missing."""
        field = self.fields.get(name)
        if field is None or field.offset + field.size > len(record):
            return None
        place, length = field.offset, field.size
        if field.dynamic:  # 16 bits of place below 16 bits of length
            word = int.from_bytes(record[field.offset : field.offset + 4], "little")
            place, length = word & 0xFFFF, word >> 16
        return record[place : place + length].split(b"\0", 1)[0].decode("utf-8", "replace")


_FIELD: Final = re.compile(
    r"field:(.*?)\b(\w+)(?:\[[^\]]*\])?;\s*offset:([0-9]+);\s*size:([0-9]+);\s*signed:([01]);", re.ASCII
)


def read_format(text: str) -> Format:
    """Read a tracepoint's ``format`` file.

    Raises:
        ValueError: it has no number.
    """
    number = re.search(r"^ID:\s*([0-9]+)$", text, re.MULTILINE | re.ASCII)
    if number is None:
        raise ValueError("not a tracepoint's format file: it has no line ID")
    fields = {
        name: Field(int(offset), int(size), signed == "1", "__data_loc" in kind)
        for kind, name, offset, size, signed in _FIELD.findall(text)
        if not name.startswith("common_")  # the kernel has overwritten them by the time a program sees the record
    }
    return Format(int(number.group(1)), fields)


def open_tracefs() -> Path:
    """A path under which tracefs is seen: where it is mounted, or else a mount that only this process knows.

    Raises:
        TracingUnavailableError: neither is possible.
    """
    for place in ("/sys/kernel/tracing", "/sys/kernel/debug/tracing"):
        if os.access(f"{place}/events", os.R_OK):
            return Path(place)
    context = _call(_FSOPEN, b"tracefs", 1)
    try:
        _call(_FSCONFIG, context, _FSCONFIG_CREATE, None, None, 0)
        mounted = _call(_FSMOUNT, context, 1, 0)
    finally:
        os.close(context)
    return Path(f"/proc/self/fd/{mounted}")


def close_tracefs(place: Path) -> None:
    """Let go of what :func:`open_tracefs` has opened."""
    if place.is_relative_to("/proc/self/fd"):
        os.close(int(place.name))


class TracepointListener:
    """A loaded and attached program, and the records it has copied. Close it when done."""

    def __init__(self, tracefs: Path, group: str, name: str, *, process: int | None = None) -> None:
        """Load the program and attach it.

        Args:
            tracefs: where tracefs is seen.
            group: the tracepoint's group, like ``ras``.
            name: the tracepoint, like ``aer_event``.
            process: copy only what happens in this process.

        Raises:
            TracingUnavailableError: no such tracepoint (``ENOENT``), or it is not allowed (``EPERM``, ``EACCES``).
        """
        try:
            self.format = read_format((tracefs / "events" / group / name / "format").read_text())
        except OSError as error:
            raise TracingUnavailableError(error.errno, f"no tracepoint {group}:{name}") from error
        self._open: list[int] = []
        try:
            self._ring = self._keep(_bpf(_MAP_CREATE, struct.pack("<IIIII", _TYPE_RINGBUF, 0, 0, _RING_BYTES, 0)))
            self._program = self._keep(_load(_program(self._ring, process)))
            self._event = self._keep(_open_event(self.format.id))
            if _libc.ioctl(self._event, _ATTACH, self._program) < 0 or _libc.ioctl(self._event, _ENABLE, 0) < 0:
                raise TracingUnavailableError(ctypes.get_errno(), f"the program cannot be attached to {group}:{name}")
            page = mmap.PAGESIZE
            self._consumer = mmap.mmap(self._ring, page, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE, offset=0)
            self._producer = mmap.mmap(self._ring, page + 2 * _RING_BYTES, mmap.MAP_SHARED, mmap.PROT_READ, offset=page)
        except BaseException:
            self.close()
            raise

    def fileno(self) -> int:
        """Readable while records wait; for ``asyncio.loop.add_reader``."""
        return self._ring

    def records(self) -> Iterator[bytes]:
        """The records that wait; each is taken out."""
        page = mmap.PAGESIZE
        taken: int = struct.unpack_from("<Q", self._consumer)[0]
        while taken < struct.unpack_from("<Q", self._producer)[0]:
            place = page + (taken & (_RING_BYTES - 1))
            length: int = struct.unpack_from("<I", self._producer, place)[0]
            if length & _BUSY:
                return
            size = length & ~_DISCARDED
            record = bytes(self._producer[place + 8 : place + 8 + size])
            taken += (8 + size + 7) & ~7
            struct.pack_into("<Q", self._consumer, 0, taken)
            if not length & _DISCARDED:
                yield record

    def run_time(self) -> tuple[int, int]:
        """How often the program ran and for how many nanoseconds, while :func:`measured` was in force."""
        text = Path(f"/proc/self/fdinfo/{self._program}").read_text()
        found = dict(re.findall(r"^(run_cnt|run_time_ns):\s*([0-9]+)$", text, re.MULTILINE))
        return int(found.get("run_cnt", 0)), int(found.get("run_time_ns", 0))

    def close(self) -> None:
        """Detach and unload."""
        for place in ("_consumer", "_producer"):
            if hasattr(self, place):
                getattr(self, place).close()
        while self._open:
            os.close(self._open.pop())

    def _keep(self, descriptor: int) -> int:
        self._open.append(descriptor)
        return descriptor


@contextlib.contextmanager
def measured() -> Iterator[None]:
    """Have the kernel take every BPF program's time; for benchmarks, for it costs some.

    Raises:
        TracingUnavailableError: it is not allowed.
    """
    descriptor = _bpf(_ENABLE_STATS, struct.pack("<I", 0))
    try:
        yield
    finally:
        os.close(descriptor)


def _program(ring: int, process: int | None) -> bytes:
    """``probe_read_kernel(stack, RECORD_BYTES, context); ringbuf_output(ring, stack, RECORD_BYTES, 0); return 0``.

    With a process, before all: ``if (get_current_pid_tgid() >> 32 != process) return 0``.
    """
    move, move_immediate, add_immediate, call, exit_, load_map = 0xBF, 0xB7, 0x07, 0x85, 0x95, 0x18
    shift_right, jump_equal = 0x77, 0x15

    def one(code: int, target: int = 0, source: int = 0, immediate: int = 0, jump: int = 0) -> bytes:
        return struct.pack("<BBhi", code, target | source << 4, jump, immediate)

    def stack(register: int) -> bytes:
        return one(move, register, 10) + one(add_immediate, register, 0, -RECORD_BYTES)

    filtered = (
        one(call, 0, 0, _CURRENT_PROCESS),
        one(shift_right, 0, 0, 32),
        one(jump_equal, 0, 0, process or 0, 2),
        one(move_immediate, 0, 0, 0),
        one(exit_),
    )
    return b"".join(
        (
            one(move, 6, 1),  # calls keep register 6 and lose register 1
            *(filtered if process is not None else ()),
            one(move, 3, 6),
            stack(1),
            one(move_immediate, 2, 0, RECORD_BYTES),
            one(call, 0, 0, _PROBE_READ_KERNEL),
            one(load_map, 1, 1, ring) + one(0),
            stack(2),
            one(move_immediate, 3, 0, RECORD_BYTES),
            one(move_immediate, 4, 0, 0),
            one(call, 0, 0, _RINGBUF_OUTPUT),
            one(move_immediate, 0, 0, 0),
            one(exit_),
        )
    )


def _load(program: bytes) -> int:
    code, license_ = ctypes.create_string_buffer(program), ctypes.create_string_buffer(_LICENSE)
    attributes = struct.pack(
        "<IIQQIIQII16s",
        _TYPE_TRACEPOINT,
        len(program) // 8,
        ctypes.addressof(code),
        ctypes.addressof(license_),
        0,
        0,
        0,
        0,
        0,
        b"hcs_record",
    )
    return _bpf(_PROG_LOAD, attributes)


def _bpf(command: int, attributes: bytes) -> int:
    buffer = ctypes.create_string_buffer(attributes.ljust(128, b"\0"))
    return _call(_numbers()[0], command, ctypes.byref(buffer), 128)


def _open_event(tracepoint: int) -> int:
    # One event on one processor is enough: the program belongs to the tracepoint and runs wherever that is hit.
    attributes = struct.pack("<IIQQQQ", _PERF_TYPE_TRACEPOINT, 112, tracepoint, 1, 0, 0).ljust(112, b"\0")
    return _call(_numbers()[1], ctypes.create_string_buffer(attributes), -1, 0, -1, 8)


def _numbers() -> tuple[int, int]:
    numbers = _CALLS.get(platform.machine())
    if numbers is None:
        raise TracingUnavailableError(errno.ENOSYS, f"no system call numbers for {platform.machine()}")
    return numbers


def _call(number: int, *arguments: object) -> int:
    result = int(_libc.syscall(ctypes.c_long(number), *arguments))
    if result < 0:
        code = ctypes.get_errno()
        raise TracingUnavailableError(code, os.strerror(code))
    return result
