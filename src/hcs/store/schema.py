"""The file itself: made whole or not at all, checked when it is opened, and brought up to date step by step.

A queue that cannot be read is refused and left as it is; nothing here ever makes a new one in its place. A new file is
built under another name and moved into place when it is complete, so an empty file is never a queue that was just born.
"""

import contextlib
import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from hcs.store.errors import NotWritableError, StoreDamagedError, StoreError
from hcs.store.soundness import check, damaged

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
        number INTEGER PRIMARY KEY AUTOINCREMENT,
        entry TEXT NOT NULL REFERENCES entry (id),
        attempt INTEGER NOT NULL,
        body BLOB NOT NULL,
        UNIQUE (entry, attempt)
    );
    CREATE TABLE kept (name TEXT PRIMARY KEY, body BLOB NOT NULL);
    CREATE TABLE cluster (name TEXT PRIMARY KEY, body BLOB NOT NULL) WITHOUT ROWID;
    """,
    # What runs have taught, and which keys were used, outlives the entries.
    """
    CREATE TABLE lesson (
        number INTEGER PRIMARY KEY AUTOINCREMENT,
        entry TEXT NOT NULL,
        attempt INTEGER NOT NULL,
        body BLOB NOT NULL,
        UNIQUE (entry, attempt)
    );
    INSERT INTO lesson SELECT number, entry, attempt, body FROM run;
    DROP TABLE run;
    CREATE TABLE spent (key TEXT PRIMARY KEY, entry TEXT NOT NULL) WITHOUT ROWID;
    """,
)
"""One script a version; a script that was published is never changed, another follows it."""
VERSION: Final = len(MIGRATIONS)


def connect(path: Path, queue_id: str, *, new: bool) -> sqlite3.Connection:
    """Open the file for writing; the caller holds the lock. ``new``: it may be made, nothing was ever written to it.

    Raises:
        StoreDamagedError: there is something else, or a queue that is damaged or newer than this program.
        NotWritableError: it cannot be made or brought up to date.
    """
    if not path.exists():
        _make(path, queue_id, new)
    with translated(path):
        connection = _open(path, "rw")
        try:
            check(connection, path, APPLICATION, MIGRATIONS)
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
        StoreDamagedError: there is none, or one that cannot be read, or an older one that its writer must open first.
    """
    if not path.exists():
        raise StoreDamagedError("NoQueue", f"there is no queue at {path}; name its file, or start the controller")
    with translated(path):
        connection = _open(path, "ro")
        try:
            check(connection, path, APPLICATION, MIGRATIONS)
            if (version := connection.execute("PRAGMA user_version").fetchone()[0]) < VERSION:
                raise StoreDamagedError(
                    "QueueTooOld",
                    f"{path} has version {version}, this program reads version {VERSION}; start the controller once, "
                    "which brings it up to date",
                )
        except BaseException:
            connection.close()
            raise
        return connection


def _open(path: Path, mode: str) -> sqlite3.Connection:
    connection = sqlite3.connect(
        f"{path.absolute().as_uri()}?mode={mode}", uri=True, isolation_level=None, timeout=10, check_same_thread=False
    )
    connection.text_factory = lambda raw: raw.decode("utf-8", "replace")  # damage must not raise before it is named
    connection.execute("PRAGMA foreign_keys = ON")
    return connection


def _make(path: Path, queue_id: str, new: bool) -> None:
    if not new or path.with_name(path.name + "-wal").exists():
        raise StoreDamagedError(
            "QueueFileMissing",
            f"{path} is gone but files beside it are still there; put it back from where it was moved, "
            f"or remove {path.name}.lock and {path.name}-wal if the queue is really meant to start anew",
        )
    partial = path.with_name(f".{path.name}.new")
    with translated(path):
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


def _migrate(connection: sqlite3.Connection) -> None:
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    for number, script in enumerate(MIGRATIONS[version:], start=version + 1):
        connection.executescript(f"BEGIN IMMEDIATE; {script}; PRAGMA user_version = {number}; COMMIT;")


@contextlib.contextmanager
def translated(path: Path) -> Iterator[None]:
    """Turn errors of sqlite and of files into this package's; nothing of a failed change is in the file."""
    try:
        yield
    except sqlite3.ProgrammingError as error:
        raise StoreError("QueueClosed", f"{path} was closed ({error}); open it again") from error
    except UnicodeDecodeError:  # sqlite quotes what it found in its own messages
        damaged(path, "text in it is not text")
    except sqlite3.Error as error:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if code not in _TROUBLE:
            damaged(path, str(error))
        why = "the disk is full or a limit was met" if code in _FULL else "its files cannot be used"
        raise NotWritableError(
            "QueueNotWritable",
            f"{path} could not be written ({error}; {why}); nothing was changed, try again when mended",
        ) from error
    except OSError as error:
        raise NotWritableError(
            "QueueNotWritable", f"cannot make {path}: {error.strerror}; the queue needs a folder it may write"
        ) from error


_FULL: Final = frozenset((sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR))
_TROUBLE: Final = _FULL | {
    sqlite3.SQLITE_READONLY,
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_BUSY,
    sqlite3.SQLITE_LOCKED,
    sqlite3.SQLITE_PERM,
    sqlite3.SQLITE_NOMEM,
    sqlite3.SQLITE_INTERRUPT,
}
"""Codes that are not about what is in the file; any other is."""
