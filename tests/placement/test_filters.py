"""Filters are asked from what never changes to what changes all the time, and never show what is free."""

import itertools

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.placement.fleets import REFERENCE_RATES, Nodes, inventories, node, requests, share, whole

from hcs.model.allocations import Allocation, Grant
from hcs.model.devices import Abilities
from hcs.model.quantities import GIB
from hcs.model.requests import ComputeRequest, ContainerRequest, Total
from hcs.placement.appraisals import appraise
from hcs.placement.engine import explain, place
from hcs.placement.filters import FILTERS, describe, eligible
from hcs.placement.plans import Unplaceable
from hcs.placement.snapshot import Snapshot


def share_request() -> ComputeRequest:
    return ComputeRequest((share(16, 40),))


def whole_request(**entrypoints: str) -> ComputeRequest:
    return ComputeRequest((whole(),), sharing="exclusive", entrypoints=tuple(sorted(entrypoints.items())))


STAGES = ("hardware", "state", "occupancy")


def test_stages_never_go_back() -> None:
    stages = [STAGES.index(check.stage) for check in FILTERS]
    assert stages == sorted(stages)
    assert set(stages) == {0, 1, 2}


@pytest.mark.parametrize(
    ("container", "words"),
    [
        pytest.param(share(16, 40), "16Gi and 40 ACU on one card", id="share"),
        pytest.param(share(16), "16Gi on one card", id="memory"),
        pytest.param(whole(), "one card", id="card"),
        pytest.param(whole(4, 16), "4 cards with 16Gi each", id="cards"),
        pytest.param(
            ContainerRequest("main", total=Total("ai.compute/fp16-tflops", 100)), "100 fp16-tflops in total", id="total"
        ),
        pytest.param(
            ContainerRequest("main", vram=16 * GIB, total=Total("ai.compute/total-acu", 9)),
            "9 total-acu in total, with 16Gi on each card",
            id="total-with-memory",
        ),
    ],
)
def test_a_request_is_told_in_the_words_it_was_made_in(container: ContainerRequest, words: str) -> None:
    assert describe(container) == words


@given(
    used=st.lists(st.tuples(st.integers(0, 2), st.integers(1, 80), st.integers(0, 100)), max_size=6),
    more=st.lists(st.tuples(st.integers(0, 2), st.integers(1, 80), st.integers(0, 100)), max_size=6),
    request=requests(),
)
def test_a_node_that_is_full_says_the_same_however_full_it_is(
    used: list[tuple[int, int, int]], more: list[tuple[int, int, int]], request: ComputeRequest
) -> None:
    """A text that changes while the pod stays refused would make kube-scheduler try again without a pause."""
    nodes = [node("a", "a100", "a100", "910b"), node("b", "t4")]

    def snapshot(taken: list[tuple[int, int, int]]) -> Snapshot:
        ids = [device.id for device in nodes[0].devices]
        grants = [("a", Grant(ids[index], vram * GIB, acu * 1000)) for index, vram, acu in taken]
        return Snapshot.build(
            nodes,
            [
                Allocation("v1", f"p{number}", where, "nvidia", "A100-SXM4-80GB", {"main": (grant,)})
                for number, (where, grant) in enumerate(grants)
            ],
        )

    texts = [
        {refusal.node: refusal for refusal in explain(snapshot(taken), request).refusals}
        for taken in (used, used + more)
    ]
    for name in texts[0].keys() & texts[1].keys():
        assert texts[0][name] == texts[1][name]


@given(nodes=inventories(), request=requests())
def test_a_node_never_refuses_for_its_hardware_what_another_day_it_serves(
    nodes: Nodes, request: ComputeRequest
) -> None:
    """Unresolvable means so: not even with all cards free, healthy, and the node ready."""
    answer = place(Snapshot.build(nodes), request, reference_rates=REFERENCE_RATES)
    if not isinstance(answer, Unplaceable):
        return
    repaired = [
        node(inventory.name, *(device.id.partition("/")[2].partition("-")[0] for device in inventory.devices))
        for inventory in nodes
    ]
    for refusal in answer.refusals:
        again = place(Snapshot.build(repaired), request, nodes=[refusal.node], reference_rates=REFERENCE_RATES)
        assert isinstance(again, Unplaceable) == (not refusal.resolvable)


@given(nodes=inventories(), request=requests())
def test_what_is_eligible_is_what_no_filter_drops(nodes: Nodes, request: ComputeRequest) -> None:
    snapshot = Snapshot.build(nodes)
    for appraisal in appraise(snapshot.fleet, request, REFERENCE_RATES):
        kept = [check.keep(snapshot, appraisal) for check in FILTERS]
        expected = [all(column) for column in zip(*kept, strict=True)]
        assert eligible(snapshot, appraisal).tolist() == expected


@given(nodes=inventories(), request=requests())
def test_no_sentence_is_empty_or_shouts(nodes: Nodes, request: ComputeRequest) -> None:
    for refusal in explain(Snapshot.build(nodes), request, reference_rates=REFERENCE_RATES).refusals:
        assert refusal.refusal.reason.isalnum()
        assert refusal.refusal.reason[0].isupper()
        message = refusal.refusal.message
        assert 10 < len(message) < 400
        assert "\n" not in message
        assert not message.endswith(".")


def test_many_sick_cards_make_one_short_sentence() -> None:
    snapshot = Snapshot.build([node("a", *itertools.repeat("a100:Failed", 8))])
    (refusal,) = explain(snapshot, ComputeRequest((share(8),))).refusals
    assert refusal.refusal.message.endswith("card 0 (Failed), card 1 (Failed), card 2 (Failed) and 5 more")


@pytest.mark.parametrize(
    ("abilities", "request_", "reason"),
    [
        pytest.param(Abilities(), share_request(), None, id="nothing-known"),
        pytest.param(Abilities("containerd v2.3.4", args=True, fail_closed=True), share_request(), None, id="able"),
        pytest.param(Abilities("containerd 1.7.24"), share_request(), "RuntimeFailsOpen", id="share-held-by-nobody"),
        pytest.param(Abilities("containerd 1.7.24"), whole_request(), None, id="a-whole-card-needs-no-hold"),
        pytest.param(
            Abilities("containerd 2.1.9", fail_closed=True),
            whole_request(nvidia="run"),
            "RuntimeTooOld",
            id="entry-point",
        ),
        pytest.param(
            Abilities("containerd 2.1.9", fail_closed=True), whole_request(ascend="run"), None, id="another-vendor's"
        ),
    ],
)
def test_work_goes_where_the_container_runtime_can_do_it(
    abilities: Abilities, request_: ComputeRequest, reason: str | None
) -> None:
    limited = msgspec.structs.replace(node("a", "a100"), abilities=abilities)
    decision = place(Snapshot.build([limited]), request_)
    if reason is None:
        assert not isinstance(decision, Unplaceable)
    else:
        assert isinstance(decision, Unplaceable)
        (found,) = decision.refusals
        assert found.refusal.reason == reason
        assert abilities.runtime in found.refusal.message
