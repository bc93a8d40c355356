"""What runs have left behind: what they taught, once for each attempt, and the ends of their logs."""

from collections.abc import Iterator
from typing import Final, TypeVar

import msgspec

from hcs.store.database import Database
from hcs.store.errors import UnknownEntryError
from hcs.store.sealing import seal

LOG_BYTES: Final = 64 * 1024
"""What is kept of the log of one attempt: its end."""
MOST_LOGS: Final = 10_000
"""Of how many attempts logs are kept; the oldest go first."""

T = TypeVar("T")


class Lessons:
    """This part of :class:`hcs.store.queue.QueueStore`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add_run(self, id: str, attempt: int, run: msgspec.Struct) -> bool:
        """Keep what one attempt has taught, once; False where it is kept already, and stays as it was.

        Raises:
            UnknownEntryError: there is no such entry.
            NotWritableError: it could not be written down.
        """
        with self._database.together():
            self._require(id)
            added = self._database.run(
                "INSERT INTO lesson (entry, attempt, body) VALUES (?, ?, ?) ON CONFLICT DO NOTHING",
                (id, attempt, seal(msgspec.msgpack.encode(run))),
            )
            return added.rowcount > 0

    def runs(self, kind: type[T]) -> Iterator[T]:
        """All runs in the order in which they were added, read as ``kind``."""
        decoder = msgspec.msgpack.Decoder(kind)
        last = 0
        while rows := self._database.rows(
            "SELECT number, body FROM lesson WHERE number > ? ORDER BY number LIMIT 1000", (last,)
        ):
            for number, body in rows:
                last = number
                yield decoder.decode(self._database.unsealed(body))

    def put_log(self, id: str, attempt: int, text: str) -> None:
        """Keep the end of an attempt's log, at most :data:`LOG_BYTES`; a later call replaces it. The oldest logs go.

        Raises:
            UnknownEntryError, NotWritableError: as :meth:`add_run`.
        """
        raw = text.encode("utf-8", "replace")
        if len(raw) > LOG_BYTES:
            raw = raw[-LOG_BYTES:]
            begin = raw.find(b"\n") + 1
            raw = raw[begin:] if 0 < begin < len(raw) else raw.decode("utf-8", "ignore").encode()
        with self._database.together():
            self._require(id)
            self._database.run(
                "INSERT INTO log (entry, attempt, body) VALUES (?, ?, ?) "
                "ON CONFLICT DO UPDATE SET body = excluded.body",
                (id, attempt, seal(raw)),
            )
            self._database.run("DELETE FROM log WHERE number <= (SELECT max(number) FROM log) - ?", (MOST_LOGS,))

    def log(self, id: str, attempt: int) -> str | None:
        """What was kept of an attempt's log; None where nothing was."""
        rows = self._database.rows("SELECT body FROM log WHERE entry = ? AND attempt = ?", (id, attempt))
        return self._database.unsealed(rows[0][0]).decode("utf-8", "replace") if rows else None

    def last_log(self, id: str) -> tuple[int, str] | None:
        """The newest attempt of which a log was kept, and what was."""
        rows = self._database.rows("SELECT max(attempt) FROM log WHERE entry = ?", (id,))
        if rows[0][0] is None:
            return None
        return rows[0][0], self.log(id, rows[0][0]) or ""

    def _require(self, id: str) -> None:
        if not self._database.rows("SELECT 1 FROM entry WHERE id = ?", (id,)):
            raise unknown(id)


def unknown(id: str) -> UnknownEntryError:
    """There is no such entry."""
    return UnknownEntryError("UnknownJob", f"there is no job {id[:80]!r} in this queue; 'hcs cpn queue' lists them")
