"""The open file: transactions that are synced before they return, reads between them, and listeners told afterwards.

Every change runs inside :meth:`Database.together`. sqlite's errors come out as this package's own, and whatever raises
has changed nothing.
"""

import contextlib
import logging
import sqlite3
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from hcs.store import schema
from hcs.store.errors import NotWritableError
from hcs.store.hold import Hold
from hcs.store.sealing import unseal
from hcs.store.soundness import damaged
from hcs.wide.entries import Entry

log = logging.getLogger(__name__)


class Change(msgspec.Struct, frozen=True):
    """What listeners are told, once it is on disk: an entry as it now stands, or the name of a cluster object."""

    entry: Entry | None = None
    cluster: str = ""


class Database:
    """One connection, used by one thread at a time. Made by :meth:`write` or :meth:`read`."""

    def __init__(self, path: Path, connection: sqlite3.Connection, hold: Hold | None) -> None:
        self._path, self._connection, self._hold = path, connection, hold
        self._guard = threading.RLock()
        self._depth = 0
        self._untold: list[Change] = []
        self._listeners: list[Callable[[Change], None]] = []

    @classmethod
    def write(cls, path: Path, queue_id: str) -> "Database":
        """Open as the one writer; make the file, with this id, where there is none.

        Raises:
            StoreBusyError, StoreDamagedError, NotWritableError: see :mod:`hcs.store.schema` and :mod:`hcs.store.hold`.
        """
        hold = Hold(path)
        try:
            made = cls(path, schema.connect(path, queue_id, new=hold.told == 0), hold)
            try:
                hold.begin(made._changes())
            except BaseException:
                made._connection.close()
                raise
        except BaseException:
            hold.release()
            raise
        return made

    @classmethod
    def read(cls, path: Path) -> "Database":
        """Open for reading, beside a writer or without one.

        Raises:
            StoreDamagedError: there is none, or it cannot be read.
        """
        return cls(path, schema.connect_reader(path), None)

    def close(self) -> None:
        """Close, and let another process write. A second call does nothing."""
        with self._guard:
            self._connection.close()
            if self._hold is not None:
                self._hold.release()

    def on_change(self, listener: Callable[[Change], None]) -> Callable[[], None]:
        """Call ``listener`` after every change, on the thread that made it; returns how to stop that."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener) if listener in self._listeners else None

    def tell(self, change: Change) -> None:
        """Tell listeners, once the change that is being made is on disk."""
        self._untold.append(change)

    @contextlib.contextmanager
    def together(self) -> Iterator[None]:
        """Changes inside become one: all of them are on disk when it ends, or, if anything raises, none.

        Inside another such block it is a part of that one, which can fail by itself.
        """
        if self._hold is None:
            raise NotWritableError(
                "QueueReadOnly", f"{self._path} was opened for reading; ask the controller over HTTP"
            )
        with self._guard:
            depth, told = self._depth, len(self._untold)
            self.run(f"SAVEPOINT part{depth}" if depth else "BEGIN IMMEDIATE")
            before = self._connection.total_changes
            self._depth += 1
            try:
                yield
                if depth:
                    self.run(f"RELEASE part{depth}")
                else:
                    self._commit(changed=self._connection.total_changes != before)
            except BaseException:
                del self._untold[told:]
                with contextlib.suppress(sqlite3.Error):
                    if self._connection.in_transaction:
                        self._connection.execute(f"ROLLBACK TO part{depth}" if depth else "ROLLBACK")
                raise
            finally:
                self._depth -= 1
            if depth:
                return
            changes, self._untold = self._untold, []
        for change in changes:
            for listener in tuple(self._listeners):
                try:
                    listener(change)
                except Exception:
                    log.exception("a listener of the queue failed")

    def run(self, statement: str, values: tuple[Any, ...] = ()) -> sqlite3.Cursor:
        """Run a statement of a change.

        Raises:
            NotWritableError, StoreDamagedError: as the file system or the file would have it.
        """
        with schema.translated(self._path):
            return self._connection.execute(statement, values)

    def rows(self, statement: str, values: tuple[Any, ...] = ()) -> list[Any]:
        """Everything a query finds."""
        with self._guard, schema.translated(self._path):
            return self._connection.execute(statement, values).fetchall()

    def unsealed(self, record: bytes) -> bytes:
        """A record without its checksum.

        Raises:
            StoreDamagedError: it was damaged after the file was opened, or it is one that is not checked then.
        """
        try:
            return unseal(record)
        except (ValueError, TypeError):
            damaged(self._path, "a record has a wrong checksum")

    def _commit(self, *, changed: bool) -> None:
        if not changed:
            self.run("COMMIT")
            return
        changes = self._changes() + 1
        self.run("UPDATE fact SET value = ? WHERE name = 'changes'", (str(changes),))
        self.run("COMMIT")
        if self._hold is not None:
            self._hold.tell(changes)

    def _changes(self) -> int:
        return int(self.rows("SELECT value FROM fact WHERE name = 'changes'")[0][0])
