"""Promises lapse, commitments do not; nobody's own reservation stands in its way."""

from hypothesis import given
from hypothesis import strategies as st

from hcs.model.allocations import Allocation, Grant
from hcs.router.reservations import Reservations


def allocation(pod: str, device: str = "card-0") -> Allocation:
    return Allocation("v1", pod, "n1", "nvidia", "A100", {"main": (Grant(device, 1, 0),)})


def held(book: Reservations, uid: str, now: float) -> set[str]:
    return {reservation.allocation.pod for reservation in book.others(uid, now)}


def test_a_promise_holds_until_it_lapses() -> None:
    book = Reservations(60)
    book.hold("ns/a", allocation("a"), "why", now=0)
    assert held(book, "b", 59.9) == {"a"}
    assert held(book, "b", 60) == set()
    assert book.get("a", 60) is None
    assert [lapsed.allocation.pod for lapsed in book.lapse(60)] == ["a"]
    assert len(book) == 0


def test_time_alone_never_frees_what_is_committed() -> None:
    book = Reservations(60)
    book.commit("ns/a", allocation("a"), "why", now=0)
    assert held(book, "b", 1e9) == {"a"}
    assert book.lapse(1e9) == []
    assert [doubt.pod_key for doubt in book.doubtful(60)] == ["ns/a"]
    assert book.doubtful(59) == []


def test_a_pod_does_not_stand_in_its_own_way_and_holds_one_thing_at_a_time() -> None:
    book = Reservations(60)
    book.hold("ns/a", allocation("a", "card-0"), "first", now=0)
    book.hold("ns/a", allocation("a", "card-1"), "second", now=1)
    assert held(book, "a", 2) == set()
    assert [one.allocation.devices() for one in book.others("b", 2)] == [{"card-1"}]
    assert book.drop("a")
    assert not book.drop("a")


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(["hold", "commit", "drop", "lapse"]), st.floats(0, 30)))
)
def test_whatever_happens_a_pod_has_one_reservation_at_most(steps: list[tuple[str, str, float]]) -> None:
    book, now, committed = Reservations(10), 0.0, set()
    for pod, step, pause in steps:
        now += pause
        match step:
            case "hold":
                book.hold(f"ns/{pod}", allocation(pod), "", now)
                committed.discard(pod)
            case "commit":
                book.commit(f"ns/{pod}", allocation(pod), "", now)
                committed.add(pod)
            case "drop":
                book.drop(pod)
                committed.discard(pod)
            case "lapse":
                book.lapse(now)
        assert committed <= held(book, "x", now)
        assert len(book) <= 3


def test_what_is_committed_is_not_promised_anew() -> None:
    """The view of a pod may lag behind its Binding: then somebody would promise it other devices."""
    from hcs.model.allocations import Allocation, Grant

    def on(node: str) -> Allocation:
        return Allocation("v1", "u", node, "nvidia", "A100", {"main": (Grant("d", 1, 0),)})

    book = Reservations(60.0)
    book.commit("default/p", on("n1"), "bound", 0.0)
    book.hold("default/p", on("n2"), "promised", 1.0)
    held = book.get("u", 2.0)
    assert held is not None
    assert (held.allocation.node, held.committed) == ("n1", True)
