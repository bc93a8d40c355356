"""The file itself: made whole or not at all, checked when it is opened, and brought up to date step by step.

A queue that cannot be read is refused and left as it is; nothing here ever makes a new one in its place. A new file is
built under another name and moved into place when it is complete, so an empty file is never a queue that was just born.
"""

import contextlib
import hashlib
import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NoReturn

from hcs.store.errors import NotWritableError, StoreDamagedError
from hcs.store.sealing import unseal

APPLICATION: Final = 0x48435351
"""Marks the file as ours in sqlite's header ("HCSQ")."""

MIGRATIONS: Final = (
    """
    CREATE TABLE fact (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
    CREATE TABLE entry (
        number INTEGER PRIMARY KEY AUTOINCREMENT,
        id TEXT NOT NULL UNIQUE,
        name TEXT NOT NULL,
        state TEXT NOT NULL,
        version INTEGER NOT NULL,
        turn INTEGER NOT NULL,
        key TEXT UNIQUE,
        digest TEXT NOT NULL,
        manifest BLOB NOT NULL,
        body BLOB NOT NULL
    );
    CREATE INDEX entry_by_state ON entry (state, turn);
    CREATE INDEX entry_by_name ON entry (name);
    CREATE TABLE transition (
        number INTEGER PRIMARY KEY AUTOINCREMENT,
        entry TEXT NOT NULL REFERENCES entry (id),
        version INTEGER NOT NULL,
        body BLOB NOT NULL,
        UNIQUE (entry, version)
    );
    CREATE TABLE run (
        number INTEGER PRIMARY KEY AUTOINCREMENT,
        entry TEXT NOT NULL REFERENCES entry (id),
        attempt INTEGER NOT NULL,
        body BLOB NOT NULL,
        UNIQUE (entry, attempt)
    );
    CREATE TABLE log (
        entry TEXT NOT NULL REFERENCES entry (id),
        attempt INTEGER NOT NULL,
        body BLOB NOT NULL,
        PRIMARY KEY (entry, attempt)
    ) WITHOUT ROWID;
    CREATE TABLE kept (name TEXT PRIMARY KEY, body BLOB NOT NULL);
    CREATE TABLE cluster (name TEXT PRIMARY KEY, body BLOB NOT NULL) WITHOUT ROWID;
    """,
)
"""One script a version; a script that was published is never changed, another follows it."""
VERSION: Final = len(MIGRATIONS)
_NAMED: Final = {"entry": "id", "transition": "number", "run": "number", "cluster": "name", "kept": "name"}


def connect(path: Path, queue_id: str) -> sqlite3.Connection:
    """Open the file for writing, and make it first where there is none; the caller holds the lock.

    Raises:
        StoreDamagedError: there is something else, or a queue that is damaged or newer than this program.
        NotWritableError: it cannot be made or brought up to date.
    """
    if not path.exists():
        _make(path, queue_id)
    with _translated(path):
        connection = _open(path, "rw")
        try:
            _check(connection, path)
            _migrate(connection)
            mode = connection.execute("PRAGMA journal_mode = WAL").fetchone()[0]
            if mode != "wal":
                raise NotWritableError(
                    "QueueNotWritable",
                    f"the file system of {path} cannot keep a write-ahead log; put the queue on a local disk",
                )
            connection.execute("PRAGMA synchronous = FULL")
        except BaseException:
            connection.close()
            raise
        return connection


def connect_reader(path: Path) -> sqlite3.Connection:
    """Open the file for reading beside its writer.

    Raises:
        StoreDamagedError: there is none, or one that cannot be read.
    """
    if not path.exists():
        raise StoreDamagedError("NoQueue", f"there is no queue at {path}; name its file, or start the controller")
    with _translated(path):
        connection = _open(path, "ro")
        try:
            _check(connection, path)
        except BaseException:
            connection.close()
            raise
        return connection


def _open(path: Path, mode: str) -> sqlite3.Connection:
    connection = sqlite3.connect(
        f"{path.absolute().as_uri()}?mode={mode}", uri=True, isolation_level=None, timeout=10, check_same_thread=False
    )
    connection.execute("PRAGMA foreign_keys = ON")
    return connection


def _make(path: Path, queue_id: str) -> None:
    left = path.with_name(path.name + "-wal")
    if left.exists():
        raise StoreDamagedError(
            "QueueFileMissing",
            f"{path} is gone but {left.name} is still there; put the file back from where it was moved, "
            "or remove the rest too if the queue is really meant to start anew",
        )
    partial = path.with_name(f".{path.name}.new")
    with _translated(path):
        partial.unlink(missing_ok=True)
        descriptor = os.open(partial, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        os.close(descriptor)
        connection = _open(partial, "rw")
        try:
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute(f"PRAGMA application_id = {APPLICATION}")
            _migrate(connection)
            connection.execute("INSERT INTO fact VALUES ('queue', ?), ('changes', '0')", (queue_id,))
        finally:
            connection.close()
        partial.rename(path)
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def _check(connection: sqlite3.Connection, path: Path) -> None:
    if connection.execute("PRAGMA application_id").fetchone()[0] != APPLICATION:
        raise StoreDamagedError(
            "NotAQueue", f"{path} is not a queue of this program; name another file, it was left as it is"
        )
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    if not 1 <= version <= VERSION:
        raise StoreDamagedError(
            "QueueTooNew",
            f"{path} has version {version}, this program knows versions 1 to {VERSION}; use the program that wrote it",
        )
    found = [row[0] for row in connection.execute("PRAGMA integrity_check(3)")]
    if found != ["ok"]:
        _damaged(path, "; ".join(found))
    if orphan := connection.execute("PRAGMA foreign_key_check").fetchone():
        _damaged(path, f"a row of {orphan[0]} belongs to no entry")
    facts = dict(connection.execute("SELECT name, value FROM fact"))
    if not {"queue", "changes"} <= facts.keys() or not facts["changes"].isdecimal():
        _damaged(path, "the queue's own facts are not in it")
    for table in ("entry", "transition", "run", "cluster", "kept"):
        for key, body in connection.execute(f"SELECT {_NAMED[table]}, body FROM {table}"):
            try:
                unseal(body)
            except (ValueError, TypeError):
                _damaged(path, f"the record of {table} {key} has a wrong checksum")
    for id, digest, manifest in connection.execute("SELECT id, digest, manifest FROM entry"):
        if hashlib.sha256(manifest).hexdigest() != digest:
            _damaged(path, f"the manifest of job {id} has a wrong checksum")


def _migrate(connection: sqlite3.Connection) -> None:
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    for number, script in enumerate(MIGRATIONS[version:], start=version + 1):
        connection.executescript(f"BEGIN IMMEDIATE; {script}; PRAGMA user_version = {number}; COMMIT;")


def _damaged(path: Path, seen: str) -> NoReturn:
    raise StoreDamagedError(
        "QueueDamaged",
        f"{path} is damaged ({' '.join(seen.split())[:200]}); it was left as it is: restore a copy, "
        "or save what can be read with 'sqlite3 FILE .recover'",
    )


@contextlib.contextmanager
def _translated(path: Path) -> Iterator[None]:
    try:
        yield
    except sqlite3.DatabaseError as error:
        raise translated(error, path) from error
    except OSError as error:
        raise NotWritableError(
            "QueueNotWritable", f"cannot make {path}: {error.strerror}; the queue needs a folder it may write"
        ) from error


_DAMAGE: Final = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


def translated(error: sqlite3.Error, path: Path) -> NotWritableError | StoreDamagedError:
    """What an error of sqlite means for the caller; nothing of the failed change is in the file."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code in _DAMAGE:
        try:
            _damaged(path, str(error))
        except StoreDamagedError as damaged:
            return damaged
    why = (
        "the disk is full or a limit was met" if code in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR) else "see the log"
    )
    return NotWritableError(
        "QueueNotWritable", f"{path} could not be written ({error}; {why}); nothing was changed, try again when mended"
    )
