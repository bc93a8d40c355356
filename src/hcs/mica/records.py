"""What is recorded about each guest on disk: written by the OCI runtime, read by the agent and the command line.

``<root>/<id>/state.json`` is replaced in one step after it has reached the disk, so a crash at any point leaves the old
record or the new one. A lock beside it keeps two commands on one guest apart; the lock dies with its holder.
"""

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final, Literal

import msgspec

from hcs.model.refusals import Refusal, RefusedError
from hcs.rtos.planning import GuestPlan
from hcs.rtos.resources import Resources
from hcs.rtos.updates import Record

Status = Literal["creating", "created", "running", "paused", "stopped"]
VERSION: Final = 1
_NAMES: Final = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.+-")


class GuestRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """One container: OCI's facts, the relay process that stands for it, and what its guest was given.

    ``pid`` and ``pid_start`` are the relay's, 0 before there is one; the start time tells a reused pid. ``plan`` and
    ``given`` are None for a pause container, which has no guest. ``cpus`` is the CPU list its container asked for.
    """

    id: str
    bundle: str
    rootfs: str
    status: Status
    created: str
    annotations: dict[str, str] = {}
    pid: int = 0
    pid_start: int = 0
    sandbox: str = ""
    infra: bool = False
    pooled: bool = False
    resources: Resources = Resources()
    plan: GuestPlan | None = None
    given: Record | None = None
    version: int = VERSION

    @property
    def alive(self) -> bool:
        """Whether the relay is there."""
        return self.pid > 0 and process_start(self.pid) == self.pid_start

    @property
    def now(self) -> Status:
        """The status as it is: a container whose relay has ended has stopped, whatever is written."""
        return self.status if self.status == "creating" or self.alive else "stopped"


class Records:
    """All guests under one root."""

    def __init__(self, root: Path) -> None:
        """Prepare; nothing is read or made."""
        self.root = root

    def directory(self, container: str) -> Path:
        """Where a container's files are.

        Raises:
            RefusedError: ``MalformedId``: the id could name another place.
        """
        if not container or container[0] == "." or len(container) > 255 or not set(container) <= _NAMES:
            raise RefusedError(
                Refusal("MalformedId", f"container id {container!r:.80}: use letters, digits, and _ . + -")
            )
        return self.root / container

    def read(self, container: str) -> GuestRecord:
        """One container's record.

        Raises:
            RefusedError: ``NoContainer``, or ``DamagedRecord``.
        """
        try:
            raw = (self.directory(container) / "state.json").read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            raise RefusedError(Refusal("NoContainer", f"container {container} does not exist")) from None
        try:
            return msgspec.json.decode(raw, type=GuestRecord)
        except msgspec.DecodeError as error:
            raise RefusedError(
                Refusal("DamagedRecord", f"the record of container {container} cannot be read: {error}")
            ) from error

    def all(self) -> list[GuestRecord]:
        """Every record that can be read, in the order of ids."""
        found = []
        with contextlib.suppress(FileNotFoundError):
            for directory in sorted(self.root.iterdir()):
                with contextlib.suppress(RefusedError):
                    found.append(self.read(directory.name))
        return found

    def write(self, record: GuestRecord) -> None:
        """Make a record last."""
        write_atomically(self.directory(record.id) / "state.json", msgspec.json.encode(record))

    def make(self, container: str) -> Path:
        """Make a container's directory.

        Raises:
            RefusedError: ``ContainerExists``.
        """
        directory = self.directory(container)
        self.root.mkdir(parents=True, exist_ok=True, mode=0o700)
        try:
            directory.mkdir(mode=0o700)
        except FileExistsError:
            raise RefusedError(
                Refusal("ContainerExists", f"container with given ID already exists: {container}")
            ) from None
        return directory

    def drop(self, container: str) -> None:
        """Forget a container. The record goes first, so that a crash leaves nothing that looks like one."""
        import shutil  # here, because it costs every command time, and one needs it

        directory = self.directory(container)
        (directory / "state.json").unlink(missing_ok=True)
        shutil.rmtree(directory, ignore_errors=True)

    @contextlib.contextmanager
    def locked(self, container: str = "") -> Iterator[None]:
        """Keep other commands off a container, or off the whole root, meanwhile.

        Raises:
            RefusedError: ``NoContainer``.
        """
        directory = self.directory(container) if container else self.root
        if not container:
            directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        try:
            handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except (FileNotFoundError, NotADirectoryError):
            raise RefusedError(Refusal("NoContainer", f"container {container} does not exist")) from None
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield
        finally:
            os.close(handle)


def write_atomically(path: Path, raw: bytes) -> None:
    """Write a file so that a reader, also after a crash, finds all of it or what was there before."""
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    with open(partial, "wb") as file:
        file.write(raw)
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)
    handle = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def process_start(pid: int) -> int:
    """When a process started, in the kernel's ticks; 0 when there is none, or only its zombie."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return 0 if fields[0] in (b"Z", b"X") else int(fields[19])
