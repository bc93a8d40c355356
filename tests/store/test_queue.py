"""The durable queue: what was acknowledged is there, once, whatever happens between."""

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from hcs.store.clusters import ClusterConfig, Line
from hcs.store.database import Change
from hcs.store.errors import (
    ForbiddenTransitionError,
    KeyReusedError,
    StaleEntryError,
    StoreBusyError,
    StoreError,
    UnknownEntryError,
)
from hcs.store.lessons import LOG_BYTES, MOST_LOGS
from hcs.store.queue import QueueStore
from hcs.wide.entries import Entry, Placement, Submission

PLACE = Placement("east", "v100", decided=5, expected=100, upper=120, job="cpn-id0001-0")


class Lesson(msgspec.Struct, frozen=True):
    """A run as somebody else might define it."""

    seconds: float
    peak: int | None = None


def ids() -> Callable[[], str]:
    numbers = itertools.count()
    return lambda: f"id{next(numbers):04d}"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[QueueStore]:
    with QueueStore.open(tmp_path / "queue.db", make_id=ids()) as made:
        yield made


def job(name: str = "train") -> dict[str, object]:
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}}


def submit(store: QueueStore, name: str = "train", key: str | None = None) -> Entry:
    return store.submit(job(name), Submission(name=name), key=key, now=1)[0]


def test_a_submission_is_an_entry_with_its_first_transition(store: QueueStore) -> None:
    entry = submit(store)
    assert (entry.state, entry.version, entry.manifest) == ("Queued", 1, job())
    assert store.get(entry.id) == entry
    (first,) = store.transitions(entry.id)
    assert (first.before, first.after, first.reason) == (None, "Queued", "Submitted")


def test_the_same_key_and_manifest_lead_to_the_same_entry(store: QueueStore) -> None:
    first, created = store.submit(job(), Submission(name="train"), key="k", now=1)
    again, created_again = store.submit(dict(reversed(job().items())), Submission(name="train"), key="k", now=9)
    assert (created, created_again) == (True, False)
    assert again == first
    assert store.counts()["Queued"] == 1


def test_the_same_key_with_another_manifest_is_refused(store: QueueStore) -> None:
    first = submit(store, "train", "k")
    with pytest.raises(KeyReusedError, match=f"KeyReused.*'k'.*{first.id}") as refused:
        submit(store, "other", "k")
    assert refused.value.entry == first


def test_every_transition_is_recorded_with_its_state(store: QueueStore) -> None:
    entry = submit(store)
    entry = store.move(entry, "Placing", now=5, reason="Placed", message="east finishes first", placement=PLACE)
    entry = store.move(entry, "Created", now=6, reason="Created", message="it is there")
    entry = store.move(entry, "Running", now=7, reason="Released", message="it may run")
    entry = store.amend(entry, now=8, progress=0.5)
    entry = store.move(entry, "Succeeded", now=9, reason="Completed", message="it ended")
    assert store.get(entry.id) == entry
    assert (entry.ended, entry.progress, entry.placement) == (9, 0.5, PLACE)
    assert [(step.before, step.after, step.at) for step in store.transitions(entry.id)] == [
        (None, "Queued", 1),
        ("Queued", "Placing", 5),
        ("Placing", "Created", 6),
        ("Created", "Running", 7),
        ("Running", "Succeeded", 9),
    ]
    assert store.transitions(entry.id)[1].placement == PLACE


def test_a_step_the_state_machine_lacks_is_refused_with_the_history(store: QueueStore) -> None:
    entry = store.move(submit(store), "Cancelled", now=2, reason="Cancelled", message="on request")
    with pytest.raises(ForbiddenTransitionError, match=r"from Cancelled to Placing.*Queued \(Submitted\) > Cancelled"):
        store.move(entry, "Placing", now=3, reason="Placed", message="too late")
    assert store.get(entry.id) == entry


def test_a_change_from_an_older_version_is_refused_and_a_repeated_one_is_recognised(store: QueueStore) -> None:
    entry = submit(store)
    moved = store.move(entry, "Placing", now=5, reason="Placed", message="m", placement=PLACE)
    with pytest.raises(StaleEntryError) as repeated:
        store.move(entry, "Placing", now=6, reason="Placed", message="m", placement=PLACE)
    with pytest.raises(StaleEntryError) as other:
        store.move(entry, "Cancelled", now=6, reason="Cancelled", message="on request")
    with pytest.raises(StaleEntryError):
        store.amend(entry, now=6, progress=0.1)
    assert (repeated.value.repeated, other.value.repeated) == (True, False)
    assert other.value.current == moved == store.get(entry.id)


def test_a_job_that_goes_back_goes_behind_the_others_without_a_place(store: QueueStore) -> None:
    first, second = submit(store, "first"), submit(store, "second")
    first = store.move(first, "Placing", now=5, reason="Placed", message="m", placement=PLACE)
    first = store.move(first, "Queued", now=6, reason="Failed", message="m", behind=True, attempts=1)
    assert (first.placement, first.attempts) == (None, 1)
    assert [entry.submission.name for entry in store.entries(["Queued"])] == ["second", "first"]
    assert [entry.id for entry in store.entries(newest=True)] == [second.id, first.id]
    assert [entry.id for entry in store.entries(limit=1, offset=1)] == [first.id]


def test_what_may_not_change_cannot_be_changed(store: QueueStore) -> None:
    with pytest.raises(TypeError, match="manifest cannot be changed"):
        store.amend(submit(store), now=2, manifest={})


def test_an_entry_of_another_queue_is_unknown(store: QueueStore, tmp_path: Path) -> None:
    with QueueStore.open(tmp_path / "other.db", make_id=lambda: "elsewhere") as other:
        entry = submit(other)
    for change in (
        lambda: store.move(entry, "Placing", now=1, reason="R", message="m"),
        lambda: store.add_run(entry.id, 0, Lesson(1.0)),
        lambda: store.put_log(entry.id, 0, "x"),
    ):
        with pytest.raises(UnknownEntryError, match="UnknownJob"):
            change()


def test_jobs_are_found_by_id_by_name_by_job_and_by_the_beginning_of_an_id(store: QueueStore) -> None:
    first, second = submit(store, "train"), submit(store, "train")
    assert store.find(first.id) == (first,)
    assert store.find("train") == (second, first)
    assert store.find(f"cpn-{second.id}-3") == (second,)
    assert store.find("id0") == (second, first)
    assert store.find("nothing") == store.find("") == ()


def test_changes_together_happen_all_or_not_at_all(store: QueueStore) -> None:
    told: list[Change] = []
    store.on_change(told.append)

    def two(name: str) -> None:
        with store.together():
            entry = submit(store, name)
            store.move(entry, "Succeeded", now=2, reason="R", message="m")

    with pytest.raises(ForbiddenTransitionError):
        two("first")
    assert (store.entries(), told) == ([], [])
    with store.together():
        kept = submit(store, "second")
        with pytest.raises(ForbiddenTransitionError):
            two("third")
        assert told == []
    assert store.entries() == [kept]
    assert told == [Change(kept)]


def test_listeners_hear_of_entries_and_clusters_until_they_stop(store: QueueStore) -> None:
    told: list[Change] = []
    stop = store.on_change(told.append)
    entry = submit(store)
    moved = store.move(entry, "Cancelled", now=2, reason="R", message="m")
    store.put_cluster(ClusterConfig("east"))
    store.drop_cluster("east")
    store.drop_cluster("east")
    stop()
    submit(store)
    assert told == [Change(entry), Change(moved), Change(cluster="east"), Change(cluster="east")]


def test_a_run_is_kept_once_an_attempt_and_read_as_whatever_the_reader_wants(store: QueueStore) -> None:
    entry = submit(store)
    assert store.add_run(entry.id, 0, Lesson(1.5, 7))
    assert not store.add_run(entry.id, 0, Lesson(2.5))
    assert store.add_run(entry.id, 1, Lesson(float("inf")))
    assert list(store.runs(Lesson)) == [Lesson(1.5, 7), Lesson(float("inf"))]


def test_the_end_of_a_log_is_kept(store: QueueStore) -> None:
    entry = submit(store)
    assert store.log(entry.id, 0) is None
    store.put_log(entry.id, 0, "short")
    store.put_log(entry.id, 0, "".join(f"line {number} é\n" for number in range(20_000)))
    kept = store.log(entry.id, 0)
    assert kept is not None
    assert kept.startswith("line ")
    assert kept.endswith("line 19999 é\n")
    assert LOG_BYTES - 100 < len(kept.encode()) <= LOG_BYTES
    store.put_log(entry.id, 1, "é" * LOG_BYTES)
    assert set(store.log(entry.id, 1) or "") == {"é"}


def test_only_the_newest_logs_are_kept(store: QueueStore) -> None:
    entry = submit(store)
    with store.together():
        for attempt in range(MOST_LOGS + 3):
            store.put_log(entry.id, attempt, "x")
    assert [store.log(entry.id, attempt) for attempt in (0, 2, 3)] == [None, None, "x"]
    assert store.last_log(entry.id) == (MOST_LOGS + 2, "x")


def test_everything_is_there_after_the_file_was_opened_again(tmp_path: Path) -> None:
    path = tmp_path / "queue.db"
    east = ClusterConfig("east", kubeconfig="/etc/east", lines=(Line("archive", 10**9, 20),), overlay={"a": {"b": 1}})
    with QueueStore.open(path, make_id=ids()) as store:
        entry = submit(store, key="k")
        store.add_run(entry.id, 0, Lesson(1.0))
        store.put_log(entry.id, 0, "said")
        store.keep("model", b"\x00\xff")
        store.put_cluster(east)
        name = store.queue_id
    with QueueStore.open(path, make_id=lambda: "another") as store:
        assert (store.queue_id, store.entries(), store.clusters()) == (name, [entry], [east])
        assert (list(store.runs(Lesson)), store.log(entry.id, 0), store.kept("model")) == (
            [Lesson(1.0)],
            "said",
            b"\x00\xff",
        )
        assert store.kept("nothing") is None
        assert submit(store, key="k") == entry


def test_a_line_goes_both_ways() -> None:
    links = ClusterConfig("east", lines=(Line("archive", 10**9, 20),)).links()
    assert [(link.source, link.target, link.latency) for link in links] == [
        ("east", "archive", 20),
        ("archive", "east", 20),
    ]


def test_one_process_writes_and_others_read(tmp_path: Path) -> None:
    path = tmp_path / "queue.db"
    with QueueStore.open(path, make_id=ids()) as store:
        with pytest.raises(StoreBusyError, match=r"QueueInUse: process [0-9]+ writes"):
            QueueStore.open(path, make_id=ids())
        with QueueStore.read(path) as reader:
            entry = submit(store)
            assert reader.entries() == [entry]
            with pytest.raises(StoreError, match="QueueReadOnly"):
                submit(reader)
    with QueueStore.open(path, make_id=ids()) as store:
        assert store.entries() == [entry]


def test_an_id_that_is_in_use_is_not_given_again(tmp_path: Path) -> None:
    given = iter(["queue", "same", "same", "other", *["same"] * 20])
    with QueueStore.open(tmp_path / "queue.db", make_id=lambda: next(given)) as store:
        assert [submit(store).id, submit(store).id] == ["same", "other"]
        with pytest.raises(StoreError, match="NoFreshId"):
            submit(store)
    with pytest.raises(ValueError, match="cannot be an id"):
        QueueStore.open(tmp_path / "bad.db", make_id=lambda: "Not An Id")
