"""The nearest miss names the place that lacks least, in figures of this moment, and never a place that serves."""

import pytest
from hypothesis import given
from tests.placement.fleets import Story, node, placed, share, stories, whole

from hcs.model.requests import ComputeRequest
from hcs.placement.engine import place
from hcs.placement.misses import nearest_miss
from hcs.placement.plans import Placement
from hcs.placement.snapshot import Snapshot

NODES = (node("n1", "a100", "a100"), node("n2", "t4"), node("n3", "910b", "910b", "910b"))


def filled(*requests: ComputeRequest) -> Snapshot:
    snapshot = Snapshot.build(NODES)
    for number, request in enumerate(requests):
        snapshot = snapshot.with_allocation(placed(snapshot, request, f"p{number}"))
    return snapshot


NVIDIA = ("nvidia",)
OWNER = ComputeRequest((whole(),), models=("A100-SXM4-80GB",), sharing="exclusive")


@pytest.mark.parametrize(
    ("held", "asked", "sentence"),
    [
        pytest.param(
            [ComputeRequest((share(50),), models=("A100-SXM4-80GB",)), OWNER],
            ComputeRequest((share(40),), vendors=NVIDIA),
            "card 0 of n1, NVIDIA A100-SXM4-80GB, has 30Gi free of the 40Gi it would take",
            id="the-card-with-most-left",
        ),
        pytest.param(
            [OWNER],
            ComputeRequest((whole(2),), vendors=NVIDIA, sharing="exclusive"),
            "n1 has 1 free NVIDIA A100-SXM4-80GB of the 2 it would take; 1 there are held by other pods",
            id="whole-cards",
        ),
        pytest.param(
            [OWNER, OWNER],
            ComputeRequest((share(10, 50),), models=("A100-SXM4-80GB",)),
            "card 0 of n1, NVIDIA A100-SXM4-80GB, has 0 and 0 ACU free of the 10Gi and 50 ACU it would take",
            id="a-card-that-is-owned-has-nothing",
        ),
    ],
)
def test_what_it_says(held, asked, sentence):
    miss = nearest_miss(filled(*held), asked)
    assert miss is not None
    assert miss.sentence == sentence


def test_hardware_that_will_not_grow_is_no_near_miss():
    assert nearest_miss(filled(), ComputeRequest((whole(9),), sharing="exclusive")) is None
    assert nearest_miss(filled(), ComputeRequest((share(40),), vendors=("mthreads",))) is None
    assert nearest_miss(filled(OWNER, OWNER), OWNER, nodes=["n2"]) is None


@given(stories())
def test_a_miss_is_told_only_where_there_is_none_and_lacks_a_part(story: Story):
    snapshot = Snapshot.build(story.nodes)
    for number, (request, _) in enumerate(story.pods):
        answer = place(snapshot, request)
        miss = nearest_miss(snapshot, request)
        if isinstance(answer, Placement):
            if len(request.containers) == 1:
                assert miss is None
            snapshot = snapshot.with_allocation(answer.allocation(f"p{number}"))
        elif miss is not None:
            assert 0 < miss.lacking <= 1
