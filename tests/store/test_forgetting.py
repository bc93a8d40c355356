"""What ended long ago may go; what it taught and the keys it used stay, and nothing else changes."""

import itertools
import sqlite3
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hcs.store.database import Change
from hcs.store.errors import KeyReusedError, KeySpentError, StoreDamagedError, UnknownEntryError
from hcs.store.queue import QueueStore
from hcs.store.schema import MIGRATIONS
from hcs.wide.entries import Entry, Submission
from hcs.wide.lifecycle import ENDED, STATES, State, may_follow


class Lesson(msgspec.Struct, frozen=True):
    """What a run taught."""

    seconds: float


def opened(path: Path) -> QueueStore:
    numbers = itertools.count()
    return QueueStore.open(path, make_id=lambda: f"j{next(numbers):04d}")


def add(store: QueueStore, state: State, now: int, key: str | None = None) -> Entry:
    """A job that came to a state at a moment, on the shortest way there; it ran once."""
    ways: dict[str, list[State]] = {"Queued": []}
    for _ in STATES:
        for before, way in list(ways.items()):
            for after in STATES:
                if may_follow(before, after):  # type: ignore[arg-type]
                    ways.setdefault(after, [*way, after])
    entry, _ = store.submit({"kind": "Job", "name": state}, Submission(name="n"), key=key, now=now)
    for step in ways[state]:
        entry = store.move(entry, step, now=now, reason="Dice", message="a step")
    store.add_run(entry.id, 0, Lesson(now))
    store.put_log(entry.id, 0, f"log of {entry.id}")
    return entry


@given(
    jobs=st.lists(st.tuples(st.sampled_from(STATES), st.integers(1, 20)), max_size=12),
    before=st.integers(0, 25),
    most=st.integers(1, 15),
)
def test_those_that_ended_before_go_and_all_others_stay_as_they_are(
    tmp_path_factory: pytest.TempPathFactory, jobs: list[tuple[State, int]], before: int, most: int
) -> None:
    path = tmp_path_factory.mktemp("queue") / "queue.db"
    with opened(path) as store:
        entries = [add(store, state, now, f"key-{number}") for number, (state, now) in enumerate(jobs)]
        told: list[Change] = []
        store.on_change(told.append)
        while store.forget(before, most=most):
            pass
        assert not told
        ended = [entry for entry in entries if entry.state in ENDED]
        blocked = ended[most:] if all(entry.changed >= before for entry in ended[:most]) else []
        for entry in entries:
            old = entry.state in ENDED and entry.changed < before
            if not old or entry in blocked:
                assert store.get(entry.id) == entry
                assert store.transitions(entry.id)
                assert store.log(entry.id, 0) == f"log of {entry.id}"
    with QueueStore.open(path, make_id=lambda: "fresh") as store:  # it is sound
        assert [run.seconds for run in store.runs(Lesson)] == [now for _, now in jobs]


def test_what_went_is_unknown_and_its_key_makes_no_second_job(tmp_path: Path) -> None:
    with opened(tmp_path / "queue.db") as store:
        old, waiting = add(store, "Succeeded", 1, "old"), add(store, "Queued", 1, "waiting")
        assert store.forget(2) == 1
        assert store.get(old.id) is None
        assert store.log(old.id, 0) is None
        assert store.transitions(old.id) == []
        assert store.counts()["Succeeded"] == 0
        with pytest.raises(KeySpentError, match=f"KeySpent.*'old' made job {old.id}"):
            store.submit(old.manifest, old.submission, key="old", now=9)
        with pytest.raises(KeySpentError):
            store.keyed("old", {"kind": "Another"})
        with pytest.raises(UnknownEntryError):
            store.move(old, "Failed", now=9, reason="Late", message="m")
        assert store.submit(waiting.manifest, waiting.submission, key="waiting", now=9) == (waiting, False)
        with pytest.raises(KeyReusedError):
            store.keyed("waiting", {"kind": "Another"})


def test_entries_are_looked_at_in_the_order_of_their_submission(tmp_path: Path) -> None:
    with opened(tmp_path / "queue.db") as store:
        made = [add(store, "Succeeded", now) for now in (1, 2, 3, 4, 5)]
        assert store.forget(4, most=2) == 2
        assert store.forget(4, most=2) == 1
        assert store.forget(4, most=2) == 0
        assert store.entries() == made[3:]


def test_a_queue_of_the_first_version_is_brought_up_to_date(tmp_path: Path) -> None:
    path = tmp_path / "queue.db"
    with opened(path) as store:
        entry = add(store, "Succeeded", 1, "k")
    with sqlite3.connect(path) as connection:
        first = MIGRATIONS[0]
        begin = first.index("CREATE TABLE run")
        connection.executescript(
            first[begin : first.index("CREATE TABLE log")]
            + "INSERT INTO run SELECT * FROM lesson; DROP TABLE lesson; DROP TABLE spent; PRAGMA user_version = 1;"
        )
    connection.close()
    with pytest.raises(StoreDamagedError, match="QueueTooOld"):
        QueueStore.read(path)
    with QueueStore.open(path, make_id=lambda: "fresh") as store:
        assert [run.seconds for run in store.runs(Lesson)] == [1]
        assert store.get(entry.id) == entry
        assert not store.add_run(entry.id, 0, Lesson(2)), "it is known"
        assert store.forget(2) == 1
        assert [run.seconds for run in store.runs(Lesson)] == [1]


def test_a_damaged_lesson_is_seen_when_the_queue_is_opened(tmp_path: Path) -> None:
    path = tmp_path / "queue.db"
    with opened(path) as store:
        add(store, "Succeeded", 1)
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE lesson SET body = x'00' || substr(body, 2)")
    connection.close()
    with pytest.raises(StoreDamagedError, match="lesson"):
        opened(path)
