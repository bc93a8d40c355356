"""What the agent has let start, kept on disk so that a restart forgets nothing.

One small JSON file per pod under the state directory, written in one step, beside the files that the container's
mounts point at. Both stay as long as the pod exists: a restart of the agent, or of the container, finds them in the
same place.

What counts is what is in memory; the disk follows when :meth:`Admissions.write` is called, so that whoever must not
wait for a disk need not.
"""

import logging
import os
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import msgspec

from hcs.inject.adjustments import HostFile
from hcs.model.allocations import Allocation

log = logging.getLogger(__name__)

_PLAIN: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9.-]{0,252}")


class Admission(msgspec.Struct, frozen=True):
    """A pod that was admitted, and the containers of it that were let start and have not been removed."""

    namespace: str
    name: str
    allocation: Allocation
    started: frozenset[str] = frozenset()


class Admissions:
    """All admissions of this node, in memory and on disk."""

    def __init__(self, state: Path) -> None:
        """Read what an earlier run left. Files that cannot be read are set aside with a log line.

        Raises:
            OSError: the directory cannot be made or read.
        """
        self._pods, self._containers = state / "admitted", state / "containers"
        self._held: dict[str, Admission] = {}
        self._unwritten: set[str] = set()
        for folder in (self._pods, self._containers):
            folder.mkdir(parents=True, exist_ok=True)
        for path in sorted(self._pods.glob("*.json")):
            try:
                self._held[path.stem] = msgspec.json.decode(path.read_bytes(), type=Admission)
            except msgspec.DecodeError as error:
                path.replace(path.with_suffix(".unreadable"))
                log.warning("admission not readable, set aside: file=%s error=%s", path.name, error)

    def __iter__(self) -> Iterator[tuple[str, Admission]]:
        return iter(list(self._held.items()))

    def __len__(self) -> int:
        return len(self._held)

    def get(self, uid: str) -> Admission | None:
        """The admission of a pod."""
        return self._held.get(uid)

    def hold(self, admission: Admission) -> None:
        """Add or replace an admission, in memory.

        Raises:
            ValueError: its pod's UID is no file name.
        """
        uid = plain(admission.allocation.pod)
        if self._held.get(uid) != admission:
            self._held[uid] = admission
            self._unwritten.add(uid)

    def drop(self, uid: str) -> None:
        """Forget a pod, in memory; with the next write the files of its containers go too."""
        self._held.pop(plain(uid), None)
        self._unwritten.add(uid)

    def write(self) -> Callable[[], None]:
        """What brings the disk up to this moment: call it where waiting for a disk hurts nobody, one at a time.

        What it cannot write (``OSError``) stays to be written.
        """
        changes = {uid: self._held.get(uid) for uid in self._unwritten}
        self._unwritten.clear()

        def bring() -> None:
            try:
                for uid, admission in list(changes.items()):
                    self._bring(uid, admission)
                    del changes[uid]
            finally:
                self._unwritten |= changes.keys()

        return bring

    def _bring(self, uid: str, admission: Admission | None) -> None:
        path = self._pods / f"{uid}.json"
        if admission is not None:
            write_file(path, msgspec.json.encode(admission), 0o600)
        else:
            path.unlink(missing_ok=True)
            shutil.rmtree(self._containers / uid, ignore_errors=True)

    def drop_strays(self) -> None:
        """Remove files of containers that belong to no admission."""
        for folder in self._containers.iterdir():
            if folder.name not in self._held:
                shutil.rmtree(folder, ignore_errors=True)


def write_host_files(files: tuple[HostFile, ...]) -> None:
    """Write the files behind a container's mounts; one that is already as it should be is left alone.

    Raises:
        OSError: one cannot be written.
    """
    for file in files:
        path, content = Path(file.path), file.content.encode()
        if path.exists() and (file.keep or path.read_bytes() == content):
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        write_file(path, content, file.mode)


def renew_host_files(files: tuple[HostFile, ...]) -> None:
    """Begin kept files anew that something was written into: who wrote is gone, and what it left must not be counted.

    A ledger may name processes of a container that was killed; the next one, in another pid namespace, cannot tell that
    they are dead.

    Raises:
        OSError: one cannot be written.
    """
    for file in files:
        if file.keep and used(file):
            write_file(Path(file.path), file.content.encode(), file.mode)


def used(file: HostFile) -> bool:
    """Whether a file holds anything but what it began with; asks for its size alone."""
    try:
        return os.stat(file.path).st_size != len(file.content)
    except OSError:
        return False


def write_file(path: Path, content: bytes, mode: int) -> None:
    """Write a file in one step, with exactly these permission bits."""
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    partial.unlink(missing_ok=True)
    with open(partial, "xb") as file:
        os.fchmod(file.fileno(), mode)
        file.write(content)
    partial.replace(path)


def plain(text: str) -> str:
    """A name that is safe as a file's name.

    Raises:
        ValueError: it is not.
    """
    if not _PLAIN.fullmatch(text):
        raise ValueError(f"{text[:80]!r} is no name of a pod or container")
    return text
