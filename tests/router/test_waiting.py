"""Who is woken when only the fleet changed: those it would serve, once for each change, and not too often."""

import itertools

from hcs.router.waiting import BATCH, LATE_SECONDS, WaitingRoom


def room(*pods: str) -> WaitingRoom:
    made = WaitingRoom()
    for pod in pods:
        made.refuse(pod, ("n1",), "no room")
    return made


def test_words_are_new_once() -> None:
    made = WaitingRoom()
    assert made.refuse("a", ("n1",), "no room")
    assert not made.refuse("a", ("n1", "n2"), "no room")
    assert made.refuse("a", ("n1",), "no card")
    made.leave("a")
    assert made.refuse("a", ("n1",), "no card")


def test_who_is_gone_or_never_was_is_forgotten_after_a_while() -> None:
    """kube-scheduler may ask about a pod whose end we saw already, or whose beginning we have not seen yet."""
    made = WaitingRoom()
    for pod in ("gone", "here"):
        made.refuse(pod, ("n1",), "no room", now=10)
    made.forget(lambda uid: uid == "here", now=10 + LATE_SECONDS - 1)
    assert made.uids() == ("gone", "here")
    made.forget(lambda uid: uid == "here", now=10 + LATE_SECONDS)
    assert made.uids() == ("here",)


def test_without_growth_nobody_is_poked() -> None:
    assert room("a").due(lambda *_: True, 0) == ([], None)


def test_only_who_would_be_placed_is_poked() -> None:
    made = room("a", "b")
    made.grown()
    assert made.due(lambda uid, _: uid == "b", 0)[0] == ["b"]


def test_one_growth_pokes_a_pod_once_even_when_that_led_nowhere() -> None:
    made = room("a")
    made.grown()
    poked, again = made.due(lambda *_: True, 0)
    assert (poked, again) == (["a"], 1.0)
    made.refuse("a", ("n1",), "no room")
    assert made.due(lambda *_: True, 1.0) == ([], None)
    assert made.due(lambda *_: True, 1000.0) == ([], None)


def test_the_next_growth_waits_for_the_pause_which_doubles() -> None:
    made, times = room("a"), []
    now = 0.0
    for _ in range(12):
        made.grown()
        poked, again = made.due(lambda *_: True, now)
        while not poked:
            assert again is not None
            now = again
            poked, again = made.due(lambda *_: True, now)
        times.append(now)
    pauses = [after - before for before, after in itertools.pairwise(times)]
    assert pauses[:4] == [1, 2, 4, 8]
    assert max(pauses) == 300


def test_what_the_first_do_not_take_is_offered_to_others() -> None:
    made = room("a", "b")
    made.grown()

    def one_card() -> object:
        taken: list[str] = []

        def fits(uid: str, _: object) -> bool:
            taken.append(uid)
            return len(taken) == 1

        return fits

    assert made.due(one_card(), 0)[0] == ["a"]  # type: ignore[arg-type]
    assert made.due(one_card(), 1)[0] == ["b"]  # type: ignore[arg-type]


def test_a_long_queue_is_weighed_in_batches() -> None:
    made = room(*(f"p{number}" for number in range(2 * BATCH + 1)))
    made.grown()
    sizes, poked = [], []
    for _ in range(3):
        weighed: list[str] = []
        found, again = made.due(lambda uid, _, weighed=weighed: bool(weighed.append(uid)) or uid == "p20", 5)  # type: ignore[misc]
        sizes.append(len(weighed))
        poked += found
    assert sizes == [BATCH, BATCH, 1]
    assert (poked, again) == (["p20"], 6)


def test_pods_refused_by_a_router_before_us_are_known_without_their_nodes() -> None:
    made = room("a")
    made.find("a")
    made.find("b")
    made.grown()
    seen = {}
    made.due(lambda uid, waiting: seen.setdefault(uid, waiting.nodes) is None, 0)
    assert seen == {"a": ("n1",), "b": None}
