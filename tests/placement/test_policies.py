"""What must hold for every placement, on random fleets, requests and histories; each policy checks the other."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.placement.fleets import REFERENCE_RATES, Story, requests, stories
from tests.placement.simple import first_place

from hcs.model.allocations import Allocation
from hcs.model.requests import ComputeRequest
from hcs.placement.engine import explain, place
from hcs.placement.plans import Placement, Unplaceable
from hcs.placement.policies import POLICIES
from hcs.placement.snapshot import Snapshot

policies = pytest.mark.parametrize("policy", ["hcs", "fgd", "gpupacking", "random", "firstfit"])
every_policy = pytest.mark.parametrize("policy", sorted(POLICIES))


def play(story: Story, policy: str) -> tuple[Snapshot, dict[str, tuple[ComputeRequest, Allocation]]]:
    """Place one pod after another; sometimes the oldest ends. Return what is there at the end."""
    snapshot = Snapshot.build(story.nodes)
    live: dict[str, tuple[ComputeRequest, Allocation]] = {}
    for number, (request, ends) in enumerate(story.pods):
        answer = place(snapshot, request, reference_rates=REFERENCE_RATES, policy=policy)
        if isinstance(answer, Placement):
            allocation = answer.allocation(f"pod-{number}")
            snapshot = snapshot.with_allocation(allocation)
            live[allocation.pod] = request, allocation
        if ends and live:
            _, ended = live.pop(next(iter(live)))
            snapshot = snapshot.without(ended)
    return snapshot, live


@policies
@given(story=stories())
def test_no_card_ever_gives_more_than_it_has(policy: str, story: Story) -> None:
    """Added up here card by card, not by the ledger under test."""
    snapshot, live = play(story, policy)
    assert snapshot.overcommitted == ()
    assert snapshot.stray == ()
    for inventory in story.nodes:
        for device in inventory.devices:
            grants = [
                (allocation, grant)
                for _, allocation in live.values()
                if allocation.node == inventory.name
                for of_container in allocation.containers.values()
                for grant in of_container
                if grant.device == device.id
            ]
            gemm = device.rate()
            assert sum(grant.bytes for _, grant in grants) <= device.vram
            assert sum(grant.milliacu for _, grant in grants) <= (gemm.milliacu if gemm else 0)
            if any(allocation.exclusive or grant.bytes == device.vram for allocation, grant in grants):
                assert len(grants) == 1


@policies
@given(story=stories())
def test_a_pod_gets_what_it_asked_for_on_cards_fit_for_use(policy: str, story: Story) -> None:
    by_name = {inventory.name: inventory for inventory in story.nodes}
    for request, allocation in play(story, policy)[1].values():
        inventory = by_name[allocation.node]
        devices = {device.id: device for device in inventory.devices}
        assert inventory.ready
        assert list(allocation.containers) == [container.name for container in request.containers]
        for container in request.containers:
            grants = allocation.containers[container.name]
            for grant in grants:
                device = devices[grant.device]
                assert (device.vendor, device.model) == (allocation.vendor, allocation.model)
                assert not device.foreign
                assert inventory.quarantined(device.id) is None
                assert device.verdict == "Healthy" or (device.verdict == "SubHealthy" and len(grants) == 1)
                assert grant.bytes >= container.vram
                assert not request.exclusive or grant.bytes == device.vram
            if allocation.exchange is None and container.total is None:
                assert len(grants) == container.cards
        named = (not request.vendors or allocation.vendor in request.vendors) and (
            not request.models or allocation.model in request.models
        )
        assert named == (allocation.exchange is None)
        assert named or request.substitution == "auto"
        if allocation.exchange is not None:
            assert allocation.exchange.source != "derived"
            if request.exclusive and request.containers[0].total is None:
                (first, *_) = allocation.containers.values()
                asked = request.containers[0].cards * allocation.exchange.wanted_milliacu
                assert len(first) * allocation.exchange.got_milliacu >= asked


@given(story=stories(), request=requests())
def test_whatever_first_fit_can_place_hcs_can_place(story: Story, request: ComputeRequest) -> None:
    """Two independent ways to the same yes or no: arrays here, plain loops there."""
    snapshot, _ = play(story, "hcs")
    simple = first_place(snapshot, request, REFERENCE_RATES)
    ours = place(snapshot, request, reference_rates=REFERENCE_RATES)
    if simple is not None:
        assert isinstance(ours, Placement)
        assert (ours.exchange is None) >= (not simple[1])  # no substitute where a named card serves
    if len(request.containers) == 1:
        assert isinstance(ours, Placement) == (simple is not None)


@policies
@given(story=stories(), request=requests())
def test_every_policy_places_what_any_choice_of_devices_could_serve(
    policy: str, story: Story, request: ComputeRequest
) -> None:
    snapshot, _ = play(story, "firstfit")
    possible = first_place(snapshot, request, REFERENCE_RATES, every_choice=True) is not None
    answer = place(snapshot, request, reference_rates=REFERENCE_RATES, policy=policy)
    assert isinstance(answer, Placement) == possible


@given(story=stories(), request=requests())
def test_an_explanation_agrees_with_the_placement(story: Story, request: ComputeRequest) -> None:
    snapshot, _ = play(story, "hcs")
    answer = place(snapshot, request, reference_rates=REFERENCE_RATES)
    why = explain(snapshot, request, reference_rates=REFERENCE_RATES)
    assert {*why.serving, *(refusal.node for refusal in why.refusals)} == {inventory.name for inventory in story.nodes}
    assert len(why.serving) + len(why.refusals) == len(story.nodes)
    if isinstance(answer, Unplaceable):
        assert why.placement is None
        assert why.serving == ()
        assert why.refusals == answer.refusals
        assert why.summary == answer.summary
    else:
        assert why.placement == answer
        assert answer.node in why.serving
    for name in why.serving:
        assert isinstance(place(snapshot, request, nodes=[name], reference_rates=REFERENCE_RATES), Placement)


@every_policy
@given(story=stories(), request=requests())
@settings(max_examples=8)
def test_the_same_question_has_the_same_answer(policy: str, story: Story, request: ComputeRequest) -> None:
    snapshot, live = play(story, policy)
    again = Snapshot.build(reversed(story.nodes), [allocation for _, allocation in live.values()])
    assert place(snapshot, request, policy=policy) == place(again, request, policy=policy)


@given(story=stories(), request=requests(), data=st.data())
def test_only_the_nodes_given_are_chosen_from(story: Story, request: ComputeRequest, data: st.DataObject) -> None:
    snapshot, _ = play(story, "hcs")
    left = data.draw(st.sets(st.sampled_from([inventory.name for inventory in story.nodes])))
    answer = place(snapshot, request, nodes=left, reference_rates=REFERENCE_RATES)
    if isinstance(answer, Placement):
        assert answer.node in left
    else:
        assert [refusal.node for refusal in answer.refusals] == sorted(left)
