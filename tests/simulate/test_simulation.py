"""A queue played through: the same decisions as in earnest, time that jumps, and nothing ever held twice."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.placement.fleets import Nodes, inventories, node, requests, share, whole

from hcs.model.refusals import Refusal
from hcs.model.requests import ComputeRequest
from hcs.placement.engine import place
from hcs.placement.plans import Placement
from hcs.placement.snapshot import Snapshot
from hcs.simulate.simulation import Outcome, Story, simulate
from hcs.simulate.work import Room, Work

HALF = ComputeRequest((share(40),))
CARD = ComputeRequest((whole(),), sharing="exclusive")
PAIR = ComputeRequest((whole(2),), sharing="exclusive")


def work(name: str, request: ComputeRequest = CARD, **changes: object) -> Work:
    return Work(name, request, **{"job": name, **changes})  # type: ignore[arg-type]


def times(story: Story) -> list[tuple[str, str, float | None, float | None]]:
    return [(o.work.name, o.state, o.started, o.ended) for o in story.outcomes]


@pytest.mark.parametrize(
    ("pods", "expected"),
    [
        pytest.param(
            [work("a", duration=10), work("b", duration=10)],
            [("a", "Done", 0, 10), ("b", "Done", 10, 20)],
            id="one-card-one-after-the-other",
        ),
        pytest.param(
            [work("a", HALF, duration=10), work("b", HALF, duration=10)],
            [("a", "Done", 0, 10), ("b", "Done", 0, 10)],
            id="two-halves-of-a-card-at-once",
        ),
        pytest.param(
            [work("a", duration=10), work("low", duration=5, arrive=1), work("high", duration=5, arrive=2, priority=9)],
            [("a", "Done", 0, 10), ("low", "Done", 15, 20), ("high", "Done", 10, 15)],
            id="the-higher-priority-first",
        ),
        pytest.param(
            [work("never", PAIR), work("a", duration=10, arrive=1)],
            [("never", "Waiting", None, None), ("a", "Done", 1, 11)],
            id="what-finds-no-place-holds-up-nobody",
        ),
        pytest.param(
            [work("stays"), work("b", duration=1)],
            [("stays", "Running", 0, None), ("b", "Waiting", None, None)],
            id="work-that-stays-never-gives-back",
        ),
        pytest.param([], [], id="nothing"),
    ],
)
def test_a_queue_on_one_card(pods, expected):
    assert times(simulate(Snapshot.build([node("n", "a100")]), pods)) == expected


def test_the_nodes_processors_count_as_in_kube_scheduler():
    snapshot = Snapshot.build([node("n", "a100", "a100")])
    pods = [work("a", cpu=3000, duration=5), work("b", cpu=2000, duration=5)]
    story = simulate(snapshot, pods, rooms={"n": Room(cpu=4000, memory=0)})
    assert times(story) == [("a", "Done", 0, 5), ("b", "Done", 5, 10)]
    never = simulate(snapshot, [work("c", cpu=5000)], rooms={"n": Room(cpu=4000, memory=0)})
    assert "1 InsufficientCpuOrMemory" in never.outcomes[0].why


def test_what_admission_refused_is_never_tried():
    refusal = Refusal("ZeroCards", "cards is 0")
    story = simulate(Snapshot.build([node("n", "a100")]), [Work("z", refusals=(refusal,)), Work("plain")])
    assert [(o.state, o.why) for o in story.outcomes] == [
        ("Refused", "ZeroCards: cards is 0"),
        ("Refused", "it asks HCS for nothing"),
    ]


def test_usage_is_weighed_by_time():
    story = simulate(Snapshot.build([node("n", "a100", "a100")]), [work("a", duration=10), work("b", duration=30)])
    assert (story.seconds, story.usage.acu_peak) == (30, 1.0)
    assert story.usage.acu_mean == pytest.approx((10 * 1.0 + 20 * 0.5) / 30)
    assert (story.mean_wait, story.waits()) == (0.0, (0.0, 0.0))


def test_an_unknown_policy_is_an_error_at_once():
    with pytest.raises(KeyError):
        simulate(Snapshot.build([node("n", "a100")]), [work("a")], policy="wishful")


@st.composite
def queues(draw: st.DrawFn) -> list[Work]:
    return [
        Work(
            f"p{number}",
            draw(requests()),
            arrive=draw(st.sampled_from((0.0, 0.0, 1.0, 5.0))),
            duration=draw(st.sampled_from((None, 1.0, 3.0, 7.0))),
            priority=draw(st.sampled_from((0, 0, 5))),
        )
        for number in range(draw(st.integers(0, 10)))
    ]


@given(inventories(), queues())
def test_no_card_is_ever_given_twice_and_what_waits_at_the_end_has_no_place(nodes: Nodes, queue: list[Work]):
    empty = Snapshot.build(nodes)
    story = simulate(empty, queue)
    assert [outcome.work for outcome in story.outcomes] == queue
    for instant in {o.started for o in story.outcomes if o.started is not None}:
        assert not _at(empty, story.outcomes, instant).overcommitted
    end = _at(empty, story.outcomes, story.seconds)
    for outcome in story.outcomes:
        if outcome.state == "Waiting":
            assert outcome.work.request is not None
            assert not isinstance(place(end, outcome.work.request), Placement)
    assert story == simulate(empty, queue)


def _at(snapshot: Snapshot, outcomes: tuple[Outcome, ...], instant: float) -> Snapshot:
    """The fleet at an instant, from the story alone."""
    for number, outcome in enumerate(outcomes):
        begun = outcome.started is not None and outcome.started <= instant
        if begun and outcome.placement is not None and (outcome.ended is None or outcome.ended > instant):
            snapshot = snapshot.with_allocation(outcome.placement.allocation(str(number)))
    return snapshot
