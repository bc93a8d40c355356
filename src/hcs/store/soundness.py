"""What is checked when a queue is opened: that the file is ours, whole, and says in every place the same.

sqlite checks how its pages hang together; records carry a checksum each, and the columns by which they are found must
agree with them. Logs are checked when they are read: there are many, and losing one loses no job.
"""

import hashlib
import sqlite3
from pathlib import Path
from typing import Final, NoReturn

import msgspec

from hcs.store.errors import StoreDamagedError
from hcs.store.sealing import unseal
from hcs.wide.entries import Entry

_NAMED: Final = {"transition": "number", "run": "number", "lesson": "number", "cluster": "name", "kept": "name"}
"""Tables of sealed records, of all versions, and what names a record."""
_ENTRY: Final = msgspec.json.Decoder(Entry)


def check(connection: sqlite3.Connection, path: Path, application: int, scripts: tuple[str, ...]) -> None:
    """Check all of it.

    Raises:
        StoreDamagedError: something is wrong; the message says what was seen.
        sqlite3.DatabaseError: sqlite cannot read it at all.
    """
    if connection.execute("PRAGMA application_id").fetchone()[0] != application:
        raise StoreDamagedError(
            "NotAQueue", f"{path} is not a queue of this program; name another file, it was left as it is"
        )
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    if not 1 <= version <= len(scripts):
        raise StoreDamagedError(
            "QueueTooNew",
            f"{path} has version {version}, this program knows versions 1 to {len(scripts)}; "
            "use the program that wrote it",
        )
    found = [row[0] for row in connection.execute("PRAGMA integrity_check(3)")]
    if found != ["ok"]:
        damaged(path, "; ".join(found))
    if _schema(connection) != _expected(scripts[:version]):
        damaged(path, "its tables are not those of its version")
    if orphan := connection.execute("PRAGMA foreign_key_check").fetchone():
        damaged(path, f"a row of {orphan[0]} belongs to no entry")
    facts = dict(connection.execute("SELECT name, value FROM fact"))
    if not {"queue", "changes"} <= facts.keys() or not facts["changes"].isdecimal():
        damaged(path, "the queue's own facts are not in it")
    _check_records(connection, path)
    _check_entries(connection, path)


def _check_records(connection: sqlite3.Connection, path: Path) -> None:
    there = {row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    for table, name in ((table, name) for table, name in _NAMED.items() if table in there):
        for key, body in connection.execute(f"SELECT {name}, body FROM {table}"):
            try:
                unseal(body)
            except (ValueError, TypeError):
                damaged(path, f"the record of {table} {key} has a wrong checksum")


def _check_entries(connection: sqlite3.Connection, path: Path) -> None:
    columns = "id, name, state, version, turn, key, digest, manifest, body"
    steps = dict(connection.execute("SELECT entry, max(version) FROM transition GROUP BY entry"))
    for *columned, digest, manifest, body in connection.execute(f"SELECT {columns} FROM entry"):
        try:
            entry = _ENTRY.decode(unseal(body))
            sound = hashlib.sha256(manifest).hexdigest() == digest
        except (ValueError, TypeError, msgspec.MsgspecError):
            sound = False
        if not sound:
            damaged(path, f"the record of job {columned[0]} has a wrong checksum")
        if columned != [entry.id, entry.submission.name, entry.state, entry.version, entry.turn, entry.key]:
            damaged(path, f"the record of job {columned[0]} does not belong to its row")
        if not 1 <= steps.get(entry.id, 0) <= entry.version:
            damaged(path, f"the history of job {entry.id} does not belong to it")


def _schema(connection: sqlite3.Connection) -> list[tuple[str, ...]]:
    return connection.execute("SELECT type, name, tbl_name, sql FROM sqlite_master ORDER BY name").fetchall()


def _expected(scripts: tuple[str, ...]) -> list[tuple[str, ...]]:
    connection = sqlite3.connect(":memory:")
    try:
        for script in scripts:
            connection.executescript(script)
        return _schema(connection)
    finally:
        connection.close()


def damaged(path: Path, seen: str) -> NoReturn:
    """Refuse the file.

    Raises:
        StoreDamagedError: always.
    """
    raise StoreDamagedError(
        "QueueDamaged",
        f"{path} is damaged ({' '.join(seen.split())[:200]}); it was left as it is: restore a copy, "
        "or save what can be read with 'sqlite3 FILE .recover'",
    )
