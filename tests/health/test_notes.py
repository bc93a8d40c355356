"""Who lost a card and who took over: scenarios as data, and one replacement for each note whatever the order."""

import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hcs.health import notes
from hcs.model import names
from hcs.model.allocations import Allocation, Grant, encode_allocation
from hcs.model.devices import EvictedOwner
from hcs.model.pods import ObjectMeta, OwnerReference, Pod, PodSpec, PodStatus

START = datetime.datetime(2026, 3, 1, tzinfo=datetime.UTC)


def at(seconds: float) -> datetime.datetime:
    return START + datetime.timedelta(seconds=seconds)


def pod(
    uid: str,
    created: int,
    *,
    owner: str = "job",
    bound: bool = True,
    resume: bool = True,
    name: str = "",
    namespace: str = "default",
) -> Pod:
    annotations = {names.RESUME: "/ckpt/step-1"} if resume else {}
    if bound:
        allocation = Allocation("v1", uid, "n", "nvidia", "X", {"main": (Grant("a", 1, 0),)})
        annotations[names.ALLOCATION] = encode_allocation(allocation)
    meta = ObjectMeta(
        name=name or uid,
        namespace=namespace,
        uid=uid,
        annotations=annotations,
        creationTimestamp=at(created).strftime("%Y-%m-%dT%H:%M:%SZ"),
        ownerReferences=[OwnerReference("Job", owner, owner, True)],
    )
    return Pod(meta, PodSpec(nodeName="n" if bound else None, schedulerName=names.SCHEDULER))


def note(lost: str, seconds: float, **changes: str) -> EvictedOwner:
    found = {"owner_uid": "job", "resume_from": "/ckpt/step-1", "replaced_by": "", "name": lost} | changes
    return EvictedOwner(
        found["owner_uid"],
        "default",
        found["name"],
        "nvidia",
        found["resume_from"],
        lost,
        notes.stamp(at(seconds)),
        found["replaced_by"],
    )


@pytest.mark.parametrize(
    ("written", "pods", "closed"),
    [
        pytest.param([note("a", 100)], [pod("b", 101)], {"a": "b"}, id="replaced"),
        pytest.param([note("a", 100.9)], [pod("b", 100)], {"a": "b"}, id="within-the-same-second"),
        pytest.param([note("a", 101.5)], [pod("b", 100)], {"a": "b"}, id="clocks-are-a-little-apart"),
        pytest.param([note("a", 100)], [pod("b", 101, bound=False)], {}, id="still-waits"),
        pytest.param([note("a", 100)], [pod("b", 50)], {}, id="a-sibling-that-was-there-before"),
        pytest.param([note("a", 100)], [pod("b", 100, resume=False)], {}, id="a-sibling-made-just-before"),
        pytest.param([note("a", 100)], [pod("b", 103, resume=False)], {"a": "b"}, id="too-late-to-be-told"),
        pytest.param([note("a", 100)], [pod("a", 101)], {}, id="nobody-replaces-itself"),
        pytest.param([note("a", 100)], [pod("b", 101, owner="other")], {}, id="of-another-owner"),
        pytest.param([note("a", 100)], [pod("b", 101, namespace="other")], {}, id="in-another-namespace"),
        pytest.param(
            [note("a", 100, resume_from="")], [pod("b", 101, resume=False)], {"a": "b"}, id="nothing-to-be-told"
        ),
        pytest.param([note("a", 100), note("b", 100)], [pod("c", 101)], {"a": "c"}, id="one-closes-one"),
        pytest.param(
            [note("a", 100, replaced_by="c"), note("b", 100)], [pod("c", 101)], {"a": "c"}, id="already-counted"
        ),
        pytest.param(
            [note("a", 100), note("b", 110)], [pod("b", 105), pod("c", 111)], {"a": "b", "b": "c"}, id="lost-again"
        ),
        pytest.param([note("a", 100), note("a", 100)], [pod("b", 101)], {"a": "b"}, id="lost-two-cards-at-once"),
        pytest.param(
            [note("a", 100, name="set-0"), note("b", 100, name="set-1")],
            [pod("c", 101, name="set-1"), pod("d", 102, name="set-0")],
            {"a": "d", "b": "c"},
            id="statefulset-pods-keep-their-names",
        ),
    ],
)
def test_who_took_over(written: list[EvictedOwner], pods: list[Pod], closed: dict[str, str]) -> None:
    assert notes.replacements(written, pods) == closed


@given(st.integers(1, 6), st.lists(st.integers(0, 30), max_size=8), st.permutations(range(8)))
def test_each_replacement_closes_one_note_and_stays_counted(lost: int, made: list[int], order: list[int]) -> None:
    written = tuple(note(f"lost-{number}", 0) for number in range(lost))
    pods = [pod(f"new-{number}", created) for number, created in enumerate(made)]
    shuffled = [pods[index] for index in order if index < len(pods)]
    so_far: dict[str, str] = {}
    for seen in range(len(shuffled) + 1):  # pods come one by one, and each round starts from what is written
        closed = notes.replacements(written, shuffled[:seen])
        assert closed.items() >= so_far.items()
        assert len(set(closed.values())) == len(closed) == min(lost, seen)
        so_far, written = closed, notes.merged(written, {}, closed)


@pytest.mark.parametrize(
    ("written", "present", "now", "kept"),
    [
        pytest.param([note("a", 0)], [], 9999, {"a"}, id="open"),
        pytest.param([note("a", 0, replaced_by="b")], [], 9999, set(), id="closed-and-gone"),
        pytest.param([note("a", 0, replaced_by="b")], ["a"], 9999, {"a"}, id="its-pod-would-be-noted-again"),
        pytest.param([note("a", 0, replaced_by="b")], [], 30, {"a"}, id="young"),
        pytest.param(
            [note("a", 0, replaced_by="b"), note("c", 5)], [], 9999, {"a", "c"}, id="another-of-its-owner-waits"
        ),
    ],
)
def test_which_notes_are_still_of_use(
    written: list[EvictedOwner], present: list[str], now: float, kept: set[str]
) -> None:
    assert notes.kept(written, present, at(now)) == kept


def test_a_place_that_changed_is_written_until_somebody_took_over() -> None:
    written = (note("a", 0), note("b", 0, replaced_by="c"))
    places = {"a": "/ckpt/step-2", "b": "/ckpt/step-2"}
    assert [n.resume_from for n in notes.merged(written, places, {"b": "c"})] == ["/ckpt/step-2", "/ckpt/step-1"]


def test_a_place_too_long_for_the_schema_is_left_out() -> None:
    lost = pod("a", 0)
    assert notes.note_of(lost, "nvidia", "/" + "x" * 1024, START).resume_from == ""
    assert notes.merged((note("a", 0),), {"a": "/" + "x" * 1024}, {})[0].resume_from == "/ckpt/step-1"


def test_an_entry_takes_no_more_notes_than_the_schema_allows_and_the_open_ones_first() -> None:
    many = [note(f"closed-{n:03}", 0, replaced_by="x") for n in range(100)] + [note(f"open-{n}", 9) for n in range(100)]
    chosen = notes.fitting(many)
    assert len(chosen) == notes.MOST_NOTES
    assert sum(not n.replaced_by for n in chosen) == 100


@pytest.mark.parametrize(
    ("phase", "statuses", "ended"),
    [
        pytest.param("Failed", [{"state": {"terminated": {"finishedAt": "2026-03-01T00:00:07Z"}}}], 7, id="failed"),
        pytest.param("Running", [{"state": {"terminated": {"finishedAt": "2026-03-01T00:00:07Z"}}}], None, id="runs"),
        pytest.param("Failed", [{"state": {"running": {}}}, {}], None, id="nobody-wrote-when"),
        pytest.param("Failed", [{"state": {"terminated": {"finishedAt": "yesterday"}}}], None, id="nonsense"),
    ],
)
def test_when_a_pod_failed(phase: str, statuses: list[dict[str, object]], ended: int | None) -> None:
    found = notes.failed_at(Pod(status=PodStatus(phase=phase, containerStatuses=statuses)))
    assert found == (None if ended is None else at(ended))
