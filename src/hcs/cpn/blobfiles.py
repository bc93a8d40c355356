"""The files of a store of bytes: each blob under its SHA-256, and beside them what is not whole yet.

What arrives is written beside, hashed, and moved into place in one step. The disk that all of it may use is bounded:
what is being written has its room reserved, and what was not used for longest, whole or left half, makes it.
"""

import contextlib
import fcntl
import hashlib
import logging
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from hcs.model.refusals import Refusal, RefusedError

log = logging.getLogger(__name__)

CHUNK: Final = 1 << 18
"""Bytes that are read or written at once."""
_DIGEST: Final = re.compile(r"sha256:[0-9a-f]{64}")
_NAME: Final = re.compile(r"[0-9a-f]{64}")


def checked(digest: str) -> str:
    """A digest as it may be a name.

    Raises:
        RefusedError: it is none.
    """
    if _DIGEST.fullmatch(digest) is None:
        raise RefusedError(
            Refusal("BadDigest", f"{digest[:100]!r} is no digest; write sha256: and 64 lower-case hexadecimal digits")
        )
    return digest


class BlobFiles:
    """The files of a store."""

    def __init__(self, directory: Path, *, limit: int | None = None) -> None:
        """``limit`` is in bytes; None: as much as the disk holds. What was being fetched before is kept."""
        self._whole, self._parts, self._limit = directory / "blobs", directory / "partial", limit
        self._reserved: dict[str, int] = {}
        """By name: how many bytes what is being written will have."""
        for folder in (self._whole, self._parts):
            folder.mkdir(parents=True, exist_ok=True)

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Keep other processes from being a store here too; the kernel lets go however this one ends.

        Raises:
            RefusedError: one is already.
        """
        folder = self._whole.parent
        with (folder / "lock").open("a") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                message = f"another store keeps its bytes in {folder}; end it, or take another --directory"
                raise RefusedError(Refusal("StoreInUse", message)) from error
            yield

    def path(self, digest: str) -> Path | None:
        """Where a blob lies; None: not here."""
        path = self._whole / checked(digest).removeprefix("sha256:")
        return path if path.exists() else None

    def part(self, digest: str) -> Path:
        """Where it is written while it is not whole."""
        return self._parts / checked(digest).removeprefix("sha256:")

    def listing(self) -> dict[str, int]:
        """What is here, with sizes."""
        return {f"sha256:{path.name}": found.st_size for path, found in self._held() if path.parent == self._whole}

    def used(self, digest: str) -> None:
        """It was asked for just now."""
        if (path := self.path(digest)) is not None:
            with contextlib.suppress(FileNotFoundError):
                os.utime(path)

    def reserve(self, digest: str, whole: int) -> None:
        """Promise a blob that is being written so many bytes in all, until :meth:`release`.

        Drops what was not used for longest until that is within the limit, but nothing that is being written.

        Raises:
            RefusedError: it could never hold that, or not beside what else is being written.
        """
        name = self.part(digest).name
        if self._limit is None or whole <= self._reserved.get(name, -1):
            return
        if whole > self._limit:
            message = f"{whole} bytes are more than the {self._limit} this store may hold; raise its --limit"
            raise RefusedError(Refusal("TooLarge", message))
        total = whole + sum(size for other, size in self._reserved.items() if other != name)
        if total > self._limit:
            message = (
                f"{whole} bytes are more than the {self._limit} this store may hold leave beside what is on its way; "
                "ask again when that is there, or raise its --limit"
            )
            raise RefusedError(Refusal("NoRoom", message))
        written = {name, *self._reserved}
        idle = [one for one in self._held() if one[0].parent == self._whole or one[0].name not in written]
        total += sum(found.st_size for _, found in idle)
        for path, found in sorted(idle, key=lambda one: one[1].st_mtime):
            if total <= self._limit:
                break
            path.unlink(missing_ok=True)
            total -= found.st_size
            log.info("blob dropped to make room: digest=sha256:%s bytes=%d", path.name, found.st_size)
        self._reserved[name] = whole

    def release(self, digest: str) -> None:
        """It is no longer being written."""
        self._reserved.pop(self.part(digest).name, None)

    def _held(self) -> Iterator[tuple[Path, os.stat_result]]:
        """Blobs and parts with what is known of their files; others' files are left alone."""
        for path in (*self._whole.iterdir(), *self._parts.iterdir()):
            with contextlib.suppress(FileNotFoundError):
                if _NAME.fullmatch(path.name):
                    yield path, path.lstat()

    def finish(self, digest: str) -> int:
        """Move what was written into place if it is what it should be; the number of bytes.

        Raises:
            RefusedError: it is something else; it is thrown away.
        """
        part = self.part(digest)
        hasher, size = hashlib.sha256(), 0
        with part.open("rb") as file:
            while piece := file.read(CHUNK):
                hasher.update(piece)
                size += len(piece)
            right = f"sha256:{hasher.hexdigest()}" == digest
            if right:
                os.fsync(file.fileno())
        if not right:
            part.unlink(missing_ok=True)
            message = f"what came for {digest} has the digest sha256:{hasher.hexdigest()}; it was thrown away"
            raise RefusedError(Refusal("WrongDigest", message))
        part.replace(self._whole / part.name)
        return size

    def drop(self, digest: str) -> bool:
        """Forget a blob; whether it was here."""
        path = self.path(digest)
        if path is None:
            return False
        path.unlink(missing_ok=True)
        return True
