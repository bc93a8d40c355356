"""Objects on disk and their history: the sandbox's etcd.

Promises: a write that was answered survives ``kill -9`` (sqlite in WAL mode, one transaction per write), the
resourceVersion is one counter for everything and continues after a restart, and the last ``history`` changes are kept
so that watches and paged lists can go on from an older version; what is older is *expired*, as after compaction in
etcd. All objects also live in memory, encoded once, because lists and watches only copy bytes. One thread writes.
"""

from __future__ import annotations

import bisect
import itertools
import sqlite3
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal

import msgspec

from hcs.sandbox.apiserver.status import JsonObject

ChangeType = Literal["ADDED", "MODIFIED", "DELETED"]
_SCHEMA = """
CREATE TABLE IF NOT EXISTS objects (resource TEXT, namespace TEXT, name TEXT, version INTEGER, raw BLOB,
    PRIMARY KEY (resource, namespace, name)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS changes (version INTEGER PRIMARY KEY, type TEXT, resource TEXT, namespace TEXT, name TEXT,
    raw BLOB, old_version INTEGER, old_raw BLOB);
CREATE TABLE IF NOT EXISTS counters (name TEXT PRIMARY KEY, value INTEGER);
"""


class Stored(msgspec.Struct, frozen=True):
    """One version of one object. ``object`` is shared: read it, never change it; ``copy()`` gives one to change."""

    resource: str
    namespace: str
    name: str
    version: int
    raw: bytes
    object: JsonObject

    @property
    def key(self) -> tuple[str, str]:
        return self.namespace, self.name

    @property
    def uid(self) -> str:
        return str(self.object["metadata"].get("uid", ""))

    def copy(self) -> JsonObject:
        decoded: JsonObject = msgspec.json.decode(self.raw)
        return decoded


class Change(msgspec.Struct, frozen=True):
    """One write. ``new`` is the object after it, or for DELETED the last state carrying the version of the deletion."""

    type: ChangeType
    new: Stored
    old: Stored | None

    @property
    def version(self) -> int:
        return self.new.version


class StaleError(Exception):
    """Somebody else wrote the object first."""


class ExistsError(Exception):
    """The name is taken."""


class ExpiredError(Exception):
    """The version asked for is older than the kept history; the text names both."""

    def __init__(self, asked: int, oldest: int) -> None:
        super().__init__(f"too old resource version: {asked} ({oldest})")


class Store:
    """Objects by resource, namespace and name, with compare-and-swap writes and listeners for every change."""

    def __init__(self, path: Path, *, history: int = 20_000) -> None:
        self._history = history
        self._held: dict[str, dict[tuple[str, str], Stored]] = {}
        self._listeners: list[Callable[[Change], None]] = []
        self._database = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        self._database.execute("PRAGMA journal_mode=WAL")
        self._database.execute("PRAGMA synchronous=NORMAL")
        self._database.executescript(_SCHEMA)
        counters = dict(self._database.execute("SELECT name, value FROM counters"))
        self.version: int = counters.get("version", 1)
        self.compacted: int = counters.get("compacted", 1)
        self._changes: deque[Change] = deque()
        self._load()

    def _load(self) -> None:
        rows = self._database.execute("SELECT resource, namespace, name, version, raw FROM objects")
        for resource, namespace, name, version, raw in rows:
            stored = Stored(resource, namespace, name, version, raw, msgspec.json.decode(raw))
            self._held.setdefault(resource, {})[stored.key] = stored
        columns = "version, type, resource, namespace, name, raw, old_version, old_raw"
        for version, kind, resource, namespace, name, raw, old_version, old_raw in self._database.execute(
            f"SELECT {columns} FROM changes WHERE version > ? ORDER BY version", (self.compacted,)
        ):
            new = Stored(resource, namespace, name, version, raw, msgspec.json.decode(raw))
            old = None
            if old_raw is not None:
                old = Stored(resource, namespace, name, old_version, old_raw, msgspec.json.decode(old_raw))
            self._changes.append(Change(kind, new, old))

    def close(self) -> None:
        self._database.close()

    def listen(self, listener: Callable[[Change], None]) -> None:
        """Call ``listener`` after every write, in order, before the write is answered."""
        self._listeners.append(listener)

    def get(self, resource: str, namespace: str, name: str) -> Stored | None:
        return self._held.get(resource, {}).get((namespace, name))

    def objects(self, resource: str, namespace: str = "") -> list[Stored]:
        """Objects in key order; an empty namespace means all of them."""
        found = self._held.get(resource, {})
        if not namespace:
            return [found[key] for key in sorted(found)]
        return [found[key] for key in sorted(found) if key[0] == namespace]

    def list_at(self, resource: str, namespace: str, version: int) -> list[Stored]:
        """The list as it stood at an older version, by undoing later changes. Raises ExpiredError."""
        found = {stored.key: stored for stored in self.objects(resource, namespace)}
        for change in reversed(list(self.changes_since(version))):
            if change.new.resource != resource or (namespace and change.new.namespace != namespace):
                continue
            if change.old is None:
                found.pop(change.new.key, None)
            else:
                found[change.new.key] = change.old
        return [found[key] for key in sorted(found)]

    def resources(self) -> list[str]:
        return [resource for resource, objects in self._held.items() if objects]

    def changes_since(self, version: int) -> Iterator[Change]:
        """Changes after a version, oldest first. Raises ExpiredError when some of them are no longer kept."""
        if version < self.compacted:
            raise ExpiredError(version, self.compacted)
        start = bisect.bisect_right(self._changes, version, key=lambda change: change.version)
        return itertools.islice(self._changes, start, len(self._changes))

    def create(self, resource: str, namespace: str, name: str, object: JsonObject) -> Stored:
        if self.get(resource, namespace, name) is not None:
            raise ExistsError(name)
        return self._write("ADDED", resource, namespace, name, object, None)

    def replace(self, old: Stored, object: JsonObject) -> Stored:
        """Write a new version in place of exactly ``old``. Raises StaleError."""
        self._expect(old)
        return self._write("MODIFIED", old.resource, old.namespace, old.name, object, old)

    def remove(self, old: Stored, last: JsonObject | None = None) -> Stored:
        """Remove exactly ``old``; ``last`` is the state to report if it differs. Raises StaleError."""
        self._expect(old)
        return self._write("DELETED", old.resource, old.namespace, old.name, last or old.copy(), old)

    def _expect(self, old: Stored) -> None:
        current = self.get(old.resource, old.namespace, old.name)
        if current is None or current.version != old.version:
            raise StaleError(old.name)

    def _write(
        self, kind: ChangeType, resource: str, namespace: str, name: str, object: JsonObject, old: Stored | None
    ) -> Stored:
        version = self.version + 1
        object["metadata"]["resourceVersion"] = str(version)
        raw = msgspec.json.encode(object)
        new = Stored(resource, namespace, name, version, raw, msgspec.json.decode(raw))
        run = self._database.execute
        run("BEGIN IMMEDIATE")
        if kind == "DELETED":
            run("DELETE FROM objects WHERE resource=? AND namespace=? AND name=?", (resource, namespace, name))
        else:
            run("INSERT OR REPLACE INTO objects VALUES (?,?,?,?,?)", (resource, namespace, name, version, raw))
        before = (old.version, old.raw) if old else (None, None)
        run("INSERT INTO changes VALUES (?,?,?,?,?,?,?,?)", (version, kind, resource, namespace, name, raw, *before))
        run("INSERT OR REPLACE INTO counters VALUES ('version', ?)", (version,))
        run("COMMIT")
        self.version = version
        if kind == "DELETED":
            del self._held[resource][new.key]
        else:
            self._held.setdefault(resource, {})[new.key] = new
        change = Change(kind, new, old)
        self._changes.append(change)
        for listener in self._listeners:
            listener(change)
        if len(self._changes) > self._history * 5 // 4:
            self.compact(self._changes[-self._history].version - 1)
        return new

    def compact(self, version: int) -> None:
        """Forget changes up to and including a version; older versions become Expired."""
        self.compacted = max(self.compacted, min(version, self.version))
        while self._changes and self._changes[0].version <= self.compacted:
            self._changes.popleft()
        self._database.execute("BEGIN IMMEDIATE")
        self._database.execute("DELETE FROM changes WHERE version <= ?", (self.compacted,))
        self._database.execute("INSERT OR REPLACE INTO counters VALUES ('compacted', ?)", (self.compacted,))
        self._database.execute("COMMIT")
