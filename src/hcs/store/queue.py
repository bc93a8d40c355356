"""The durable queue: every entry, every change of its state, and what its runs have taught, in one sqlite file.

What a method returned is on disk: a change of state and its record are one transaction, synced before the answer. A
method that raises has changed nothing. There is one writer, a process that holds the file's lock; others may read. It
may be called from any thread; calls are short and follow one another.
"""

import hashlib
import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Final

import msgspec

from hcs.store.database import Change, Database
from hcs.store.errors import (
    ForbiddenTransitionError,
    KeyReusedError,
    KeySpentError,
    StaleEntryError,
    StoreError,
)
from hcs.store.lessons import Lessons, unknown
from hcs.store.objects import Objects
from hcs.store.sealing import seal
from hcs.wide.entries import Entry, Submission, Transition
from hcs.wide.jobs import Milliseconds
from hcs.wide.lifecycle import ENDED, STATES, State, may_follow

_ID: Final = re.compile(r"[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?")
"""An id becomes part of a Job's name, and its pods carry that as a label: 63 characters with what is put around it."""
_TRIES: Final = 8
_FIXED: Final = frozenset(("id", "manifest", "key", "submitted", "version", "state", "changed", "reason", "message"))


class QueueStore(Lessons, Objects):
    """See the module. Made by :meth:`open` or :meth:`read`; ``queue_id`` is random and made once, with the file."""

    def __init__(self, database: Database, make_id: Callable[[], str]) -> None:
        super().__init__(database)
        self._make_id = make_id
        self._run, self._read = database.run, database.rows
        self.queue_id: str = database.rows("SELECT value FROM fact WHERE name = 'queue'")[0][0]

    @classmethod
    def open(cls, path: Path | str, *, make_id: Callable[[], str]) -> "QueueStore":
        """Open a queue as its writer, and make the file where there is none.

        Args:
            path: the file; ``-wal``, ``-shm`` and ``.lock`` files lie beside it.
            make_id: gives a fresh random id (lower-case letters, digits and dashes, at most 40) on each call.

        Raises:
            StoreBusyError: another process writes it.
            StoreDamagedError: it is not a queue, damaged, or newer than this program.
            NotWritableError: it cannot be written.
        """
        return cls(Database.write(Path(path), _checked(make_id())), make_id)

    @classmethod
    def read(cls, path: Path | str) -> "QueueStore":
        """Open a queue for reading, beside its writer or without one.

        Raises:
            StoreDamagedError: there is none, or it cannot be read.
        """
        return cls(Database.read(Path(path)), lambda: "")

    def close(self) -> None:
        """Close the file and let another process write it. A second call does nothing."""
        self._database.close()

    def __enter__(self) -> "QueueStore":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def on_change(self, listener: Callable[[Change], None]) -> Callable[[], None]:
        """Call ``listener`` after every change that is on disk, on the thread that made it; returns how to stop that.

        It must be quick: to wake a task, set an event.
        """
        return self._database.on_change(listener)

    def together(self) -> AbstractContextManager[None]:
        """Changes inside become one: all of them are on disk when it ends, or, if anything raises, none.

        Inside another such block it is a part of that one, which can fail by itself.
        """
        return self._database.together()

    # Entries

    def submit(
        self, manifest: Mapping[str, Any], submission: Submission, *, key: str | None, now: Milliseconds
    ) -> tuple[Entry, bool]:
        """Take in a job; the second value says whether it is new.

        A key that was given before with the same manifest leads to the entry it made then, whatever became of it.

        Raises:
            KeyReusedError: the key was given with another manifest.
            KeySpentError: the key's job is not kept any more.
            NotWritableError: it could not be written down, so it was not taken in.
        """
        raw = msgspec.json.encode(manifest, order="deterministic")
        digest = hashlib.sha256(raw).hexdigest()
        if key is not None and (known := self._keyed(key, digest)) is not None:
            return known, False
        with self.together():
            if key is not None and (known := self._keyed(key, digest)) is not None:  # another thread was quicker
                return known, False
            entry = Entry(
                id=self._fresh(),
                manifest=msgspec.json.decode(raw),
                submission=submission,
                state="Queued",
                version=1,
                submitted=now,
                changed=now,
                turn=self._last_turn() + 1,
                key=key,
                reason="Submitted",
                message="waits for a place",
            )
            self._run(
                "INSERT INTO entry (id, name, state, version, turn, key, digest, manifest, body) "
                "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (entry.id, submission.name, entry.state, 1, entry.turn, key, digest, raw, _body(entry)),
            )
            self._record(entry, None)
        return entry, True

    def keyed(self, key: str, manifest: Mapping[str, Any]) -> Entry | None:
        """The entry that a key and its manifest have made already.

        Raises:
            KeyReusedError: the key was given with another manifest.
            KeySpentError: its job is not kept any more.
        """
        raw = msgspec.json.encode(manifest, order="deterministic")
        return self._keyed(key, hashlib.sha256(raw).hexdigest())

    def get(self, id: str) -> Entry | None:
        """The entry of an id."""
        rows = self._read("SELECT manifest, body FROM entry WHERE id = ?", (id,))
        return self._entry(*rows[0]) if rows else None

    def find(self, text: str, *, limit: int = 20) -> tuple[Entry, ...]:
        """Entries a person may mean: by id, else by the job's name, newest first, else by the beginning of an id.

        The name of a Job on a cluster (``cpn-ID-ATTEMPT``) leads to its entry too.
        """
        if (exact := self.get(text)) is not None:
            return (exact,)
        if text.startswith("cpn-") and (made := self.get(text[4:].rpartition("-")[0])) is not None:
            return (made,)
        for where in ("name = ?", "substr(id, 1, length(?)) = ?") if text else ():
            values = (text,) * where.count("?")
            rows = self._read(
                f"SELECT manifest, body FROM entry WHERE {where} ORDER BY number DESC LIMIT ?", (*values, limit)
            )
            if rows:
                return tuple(self._entry(*row) for row in rows)
        return ()

    def entries(
        self,
        states: Iterable[State] | None = None,
        *,
        newest: bool = False,
        limit: int | None = None,
        offset: int = 0,
    ) -> list[Entry]:
        """Entries in the order of their turn; ``newest``: those submitted last come first."""
        chosen = tuple(STATES if states is None else states)
        order = "number DESC" if newest else "turn, number"
        rows = self._read(
            f"SELECT manifest, body FROM entry WHERE state IN ({','.join('?' * len(chosen))}) "
            f"ORDER BY {order} LIMIT ? OFFSET ?",
            (*chosen, -1 if limit is None else limit, offset),
        )
        return [self._entry(*row) for row in rows]

    def counts(self) -> dict[State, int]:
        """How many entries are in each state, all states named."""
        found: dict[State, int] = dict.fromkeys(STATES, 0)
        found.update(self._read("SELECT state, count(*) FROM entry GROUP BY state"))
        return found

    def move(
        self,
        entry: Entry,
        after: State,
        *,
        now: Milliseconds,
        reason: str,
        message: str,
        behind: bool = False,
        **changes: Any,
    ) -> Entry:
        """Bring an entry into another state, and record it, in one transaction.

        Args:
            entry: as the caller knows it; its version must be the newest.
            after: the state it goes to.
            now: milliseconds since 1970.
            reason: CamelCase.
            message: a sentence for people.
            behind: give it a new turn, behind all others.
            changes: other fields of the entry that change with it (``placement``, ``attempts``, ``floor``, …). An entry
                that ends gets ``ended``; one that goes back to the queue loses its placement and progress, unless said.

        Raises:
            UnknownEntryError: it is not in this queue.
            StaleEntryError: it has changed since; see ``current`` and ``repeated`` there.
            ForbiddenTransitionError: no such step.
            NotWritableError: it could not be written down, so it did not happen.
        """
        _refuse_fixed(changes)
        if after in ENDED:
            changes.setdefault("ended", now)
        if after == "Queued":
            changes.setdefault("placement", None)
            changes.setdefault("progress", None)
        with self.together():
            current = self._current(entry.id)
            wanted: dict[str, Any] = {**changes, "state": after, "changed": now, "reason": reason, "message": message}
            if current.version != entry.version:
                raise self._stale(entry, current, {**changes, "state": after, "reason": reason, "message": message})
            if not may_follow(current.state, after):
                raise self._forbidden(current, after)
            if behind:
                wanted["turn"] = self._last_turn() + 1
            moved = msgspec.structs.replace(current, version=current.version + 1, **wanted)
            self._write(moved)
            self._record(moved, current.state)
        return moved

    def amend(self, entry: Entry, *, now: Milliseconds, **changes: Any) -> Entry:
        """Change fields of an entry without a change of state: its progress, its placement's uid or start.

        Raises:
            UnknownEntryError, StaleEntryError, NotWritableError: as :meth:`move`.
        """
        _refuse_fixed(changes)
        with self.together():
            current = self._current(entry.id)
            if current.version != entry.version:
                raise self._stale(entry, current, changes)
            amended = msgspec.structs.replace(current, version=current.version + 1, changed=now, **changes)
            self._write(amended)
        return amended

    def transitions(self, id: str) -> list[Transition]:
        """Every change of state of an entry, the oldest first."""
        rows = self._read("SELECT body FROM transition WHERE entry = ? ORDER BY number", (id,))
        return [_TRANSITION.decode(self._database.unsealed(row[0])) for row in rows]

    def forget(self, before: Milliseconds, *, most: int = 200) -> int:
        """Let go of entries that ended before a moment, of those submitted first; returns how many went.

        Their history and logs go with them. What their runs taught stays, and so does the word that their keys were
        used: none makes a second job.

        Args:
            before: milliseconds since 1970.
            most: so many entries are looked at.

        Raises:
            NotWritableError: it could not be written down.
        """
        # By number: an index by state would sort all that ever ended.
        rows = self._read(
            f"SELECT manifest, body FROM entry NOT INDEXED WHERE state IN ({','.join('?' * len(ENDED))}) "
            "ORDER BY number LIMIT ?",
            (*sorted(ENDED), most),
        )
        old = [entry for row in rows if (entry := self._entry(*row)).ended is not None and entry.ended < before]
        if not old:
            return 0
        with self.together():
            for entry in old:
                if entry.key is not None:
                    self._run("INSERT INTO spent VALUES (?, ?)", (entry.key, entry.id))
                for table in ("log", "transition"):
                    self._run(f"DELETE FROM {table} WHERE entry = ?", (entry.id,))
                self._run("DELETE FROM entry WHERE id = ?", (entry.id,))
        return len(old)

    # Inside

    def _keyed(self, key: str, digest: str) -> Entry | None:
        rows = self._read("SELECT digest, manifest, body FROM entry WHERE key = ?", (key,))
        if not rows:
            if spent := self._read("SELECT entry FROM spent WHERE key = ?", (key,)):
                raise KeySpentError(
                    "KeySpent",
                    f"key {key[:80]!r} made job {spent[0][0]}, which ended so long ago that it is not kept any more; "
                    "use a new key for a new job",
                )
            return None
        known = self._entry(rows[0][1], rows[0][2])
        if rows[0][0] != digest:
            raise KeyReusedError(
                "KeyReused",
                f"key {key[:80]!r} was given with another manifest before, as job {known.id}; "
                "use a new key for a new job",
                known,
            )
        return known

    def _current(self, id: str) -> Entry:
        row = self._run("SELECT manifest, body FROM entry WHERE id = ?", (id,)).fetchone()
        if row is None:
            raise unknown(id)
        return self._entry(*row)

    def _entry(self, manifest: bytes, body: bytes) -> Entry:
        found = _ENTRY.decode(self._database.unsealed(body))
        return msgspec.structs.replace(found, manifest=_MANIFEST.decode(manifest))

    def _write(self, entry: Entry) -> None:
        self._run(
            "UPDATE entry SET state = ?, version = ?, turn = ?, body = ? WHERE id = ?",
            (entry.state, entry.version, entry.turn, _body(entry), entry.id),
        )
        self._database.tell(Change(entry))

    def _record(self, entry: Entry, before: State | None) -> None:
        if before is None:
            self._database.tell(Change(entry))
        step = Transition(
            entry.id, entry.changed, before, entry.state, entry.reason, entry.message, placement=entry.placement
        )
        self._run(
            "INSERT INTO transition (entry, version, body) VALUES (?, ?, ?)",
            (entry.id, entry.version, seal(msgspec.json.encode(step))),
        )

    def _fresh(self) -> str:
        for _ in range(_TRIES):
            id = _checked(self._make_id())
            if self._run("SELECT 1 FROM entry WHERE id = ?", (id,)).fetchone() is None:
                return id
        raise StoreError("NoFreshId", f"{_TRIES} new ids in a row were in use already; the source of ids is not random")

    def _last_turn(self) -> int:
        return int(self._run("SELECT coalesce(max(turn), 0) FROM entry").fetchone()[0])

    def _stale(self, entry: Entry, current: Entry, wanted: Mapping[str, Any]) -> StaleEntryError:
        repeated = current.version == entry.version + 1 and all(
            getattr(current, name) == value for name, value in wanted.items() if name not in ("ended", "turn")
        )
        return StaleEntryError(
            "StaleEntry",
            f"job {current.id} is {current.state} at version {current.version} by now, the change was made from "
            f"version {entry.version} ({entry.state}); read it again",
            current,
            repeated=repeated,
        )

    def _forbidden(self, current: Entry, after: State) -> ForbiddenTransitionError:
        steps = self.transitions(current.id)[-8:]
        history = " > ".join(f"{step.after} ({step.reason})" for step in steps)
        return ForbiddenTransitionError(
            "ForbiddenTransition", f"job {current.id} cannot go from {current.state} to {after}; it went {history}"
        )


_ENTRY: Final = msgspec.json.Decoder(Entry)
_TRANSITION: Final = msgspec.json.Decoder(Transition)
_MANIFEST: Final = msgspec.json.Decoder(dict[str, Any])
_CHANGEABLE: Final = frozenset(Entry.__struct_fields__) - _FIXED


def _body(entry: Entry) -> bytes:
    """An entry without its manifest, which never changes and is written once, beside it."""
    return seal(msgspec.json.encode(msgspec.structs.replace(entry, manifest={})))


def _refuse_fixed(changes: Mapping[str, Any]) -> None:
    if wrong := sorted(set(changes) - _CHANGEABLE):
        raise TypeError(f"{', '.join(wrong)} cannot be changed; these can: {', '.join(sorted(_CHANGEABLE))}")


def _checked(id: str) -> str:
    if _ID.fullmatch(id) is None:
        raise ValueError(f"{id!r} cannot be an id; lower-case letters, digits and inner dashes, at most 40")
    return id
