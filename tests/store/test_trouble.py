"""What the queue does when the process is killed, the disk is full, or the file is damaged: lose nothing, say why."""

import random
import resource
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hcs.store import schema
from hcs.store.errors import NotWritableError, StoreDamagedError, StoreError
from hcs.store.queue import QueueStore
from hcs.wide.entries import Entry, Submission

ROOT = Path(__file__).parents[2]


def opened(path: Path) -> QueueStore:
    return QueueStore.open(path, make_id=lambda: f"{random.getrandbits(60):015x}")


def submit(store: QueueStore, name: str) -> Entry:
    manifest = {"kind": "Job", "metadata": {"name": name}, "padding": "x" * 500}
    return store.submit(manifest, Submission(name=name), key=name, now=1)[0]


def filled(path: Path, count: int = 40) -> list[Entry]:
    with opened(path) as store:
        for number in range(count):
            entry = submit(store, f"job-{number}")
            if number % 2:
                store.move(entry, "Cancelled", now=2, reason="R", message="m")
        store.keep("model", b"bytes" * 100)
        return store.entries()


def killed_writer(path: Path, seed: int, lines: int) -> list[list[str]]:
    """What a writer was told is safe, until it was killed after so many lines."""
    command = [sys.executable, "-m", "tests.store.writing", str(path), str(seed)]
    said = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT, text=True) as writer:
        assert writer.stdout is not None
        for line in writer.stdout:
            said.append(line.split())
            if len(said) > lines:
                writer.kill()
                break
        said += [line.split() for line in writer.stdout if line.endswith("\n")]
    return said[1:]


def check_nothing_lost(path: Path, said: list[list[str]]) -> None:
    with opened(path) as store:
        for what, *words in said:
            if what == "submitted":
                entry = store.get(words[1])
                assert entry is not None
                assert entry.key == words[0]
            else:
                version = int(words[1])
                entry = store.get(words[0])
                assert entry is not None
                assert entry.version >= version
                assert store.transitions(words[0])[version - 1].after == words[2]
        for entry in store.entries():
            steps = store.transitions(entry.id)
            assert len(steps) == entry.version
            assert steps[-1].after == entry.state


def test_a_writer_killed_at_any_point_loses_nothing_it_was_told_is_safe(tmp_path: Path) -> None:
    dice = random.Random(0)
    for seed in range(3):
        said = killed_writer(tmp_path / "queue.db", seed, dice.randrange(1, 400))
        check_nothing_lost(tmp_path / "queue.db", said)


@pytest.mark.nightly
@pytest.mark.timeout(600)
def test_many_killed_writers_lose_nothing(tmp_path: Path) -> None:
    """Only many kills meet the rare points: a checkpoint, the first page of a new log."""
    dice = random.Random(1)
    for seed in range(30):
        path = tmp_path / f"queue-{seed % 3}.db"
        said = killed_writer(path, seed, dice.randrange(1, 1000))
        check_nothing_lost(path, said)


def test_a_full_disk_refuses_and_keeps_what_it_has(tmp_path: Path) -> None:
    """The limit of a file's size stands in for a full disk; sqlite sees a write that fails halfway."""
    path = tmp_path / "queue.db"
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    with opened(path) as store:
        kept = [submit(store, "first")]
        resource.setrlimit(resource.RLIMIT_FSIZE, (60_000, before[1]))
        try:
            with pytest.raises(NotWritableError, match=r"QueueNotWritable: .*nothing was changed"):
                kept.extend(submit(store, f"job-{number}") for number in range(1000))
            assert store.entries() == kept
            with pytest.raises(NotWritableError):
                store.move(kept[0], "Cancelled", now=2, reason="R", message="m" * 50_000)
            assert store.entries() == kept
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
        kept.append(submit(store, "there is room again"))
    with opened(path) as store:
        assert store.entries() == kept


def test_a_folder_without_room_for_a_new_queue_is_refused(tmp_path: Path) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, before[1]))
    try:
        with pytest.raises(NotWritableError, match="QueueNotWritable"):
            opened(tmp_path / "queue.db")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert not (tmp_path / "queue.db").exists()
    with opened(tmp_path / "queue.db") as store:
        assert store.entries() == []


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        pytest.param(lambda path: path.write_bytes(b""), "NotAQueue|QueueDamaged", id="emptied"),
        pytest.param(lambda path: path.write_bytes(b"not a queue" * 1000), "QueueDamaged", id="something-else"),
        pytest.param(lambda path: path.write_bytes(path.read_bytes()[:20_000]), "QueueDamaged", id="cut-off"),
        pytest.param(lambda path: _other(path), "NotAQueue", id="another-database"),
        pytest.param(lambda path: _newer(path), "QueueTooNew", id="from-the-future"),
        pytest.param(lambda path: _flip(path, b"job-7"), "QueueDamaged", id="a-flipped-bit"),
        pytest.param(lambda path: _flip(path, b"waits for a place"), "QueueDamaged", id="a-flipped-bit-of-a-sentence"),
        pytest.param(lambda path: _flip(path, b"bytesbytes"), "QueueDamaged", id="a-flipped-bit-of-what-is-kept"),
    ],
)
def test_a_damaged_file_is_refused_and_left_as_it_is(
    tmp_path: Path, damage: Callable[[Path], object], reason: str
) -> None:
    path = tmp_path / "queue.db"
    filled(path)
    damage(path)
    there = path.read_bytes()
    for open_it in (opened, QueueStore.read):
        with pytest.raises(StoreDamagedError, match=reason):
            open_it(path)
    assert path.read_bytes() == there


def _other(path: Path) -> None:
    path.unlink()
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE t (a)")
    connection.close()


def _newer(path: Path) -> None:
    connection = sqlite3.connect(path)
    connection.execute(f"PRAGMA user_version = {schema.VERSION + 1}")
    connection.close()


def _flip(path: Path, text: bytes) -> None:
    raw = bytearray(path.read_bytes())
    raw[raw.rindex(text)] ^= 1
    path.write_bytes(raw)


def test_a_lost_log_of_changes_is_noticed(tmp_path: Path) -> None:
    """sqlite takes a missing or damaged write-ahead log for a clean end, and would forget the jobs in it."""
    path = tmp_path / "queue.db"
    said = killed_writer(path, 7, 30)
    assert said
    log = tmp_path / "queue.db-wal"
    raw = log.read_bytes()
    log.unlink()
    with pytest.raises(StoreDamagedError, match=r"QueueLostChanges: .*queue\.db\.lock to go on"):
        opened(path)
    half = len(raw) // 2  # its very end may be a change that nobody was told of
    log.write_bytes(raw[:half] + b"\0" * half)
    with pytest.raises(StoreDamagedError, match="QueueLostChanges"):
        opened(path)
    (tmp_path / "queue.db.lock").unlink()
    with opened(path) as store:
        assert store.entries()


def test_a_lost_file_is_not_made_anew_while_its_log_is_there(tmp_path: Path) -> None:
    path = tmp_path / "queue.db"
    killed_writer(path, 8, 5)
    path.rename(tmp_path / "moved.db")
    with pytest.raises(StoreDamagedError, match="QueueFileMissing"):
        opened(path)
    (tmp_path / "moved.db").rename(path)
    with opened(path) as store:
        assert store.entries()


def test_a_queue_that_was_removed_after_a_clean_end_is_not_made_anew(tmp_path: Path) -> None:
    path = tmp_path / "queue.db"
    filled(path)
    path.unlink()
    with pytest.raises(StoreDamagedError, match=r"QueueFileMissing: .*remove queue\.db\.lock"):
        opened(path)
    assert not path.exists()


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_damage_anywhere_is_refused_or_harmless(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    folder = tmp_path_factory.getbasetemp() / "damage"
    folder.mkdir(exist_ok=True)
    good, path = folder / "good.db", folder / "queue.db"
    if not good.exists():
        filled(good, 12)
    raw = bytearray(good.read_bytes())
    at = data.draw(st.integers(0, len(raw) - 1))
    raw[at] ^= data.draw(st.integers(1, 255))
    for left in folder.glob("queue.db*"):
        left.unlink()
    path.write_bytes(raw)
    with opened(good) as store:
        kept = store.entries(), store.kept("model")
    try:
        with opened(path) as store:
            assert (store.entries(), store.kept("model")) == kept
    except StoreError as error:
        assert error.refusal.reason in ("QueueDamaged", "NotAQueue", "QueueTooNew", "QueueNotWritable")  # noqa: PT017


def test_a_damaged_log_is_a_reason_and_harms_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "queue.db"
    with opened(path) as store:
        entry = submit(store, "job")
        store.put_log(entry.id, 0, "words of a log")
    _flip(path, b"words of a log")
    with opened(path) as store:
        assert store.get(entry.id) == entry
        with pytest.raises(StoreDamagedError, match="checksum"):
            store.log(entry.id, 0)


def test_an_older_copy_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "queue.db"
    filled(path, 1)
    copy = path.read_bytes()
    with opened(path) as store:
        submit(store, "after the copy")
    path.write_bytes(copy)
    with pytest.raises(StoreDamagedError, match="QueueLostChanges"):
        opened(path)


def test_a_folder_that_is_not_there_is_a_reason(tmp_path: Path) -> None:
    with pytest.raises(NotWritableError, match="QueueNotWritable"):
        opened(tmp_path / "nowhere" / "queue.db")
    with pytest.raises(StoreDamagedError, match="NoQueue"):
        QueueStore.read(tmp_path / "queue.db")
