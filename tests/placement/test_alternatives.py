"""What could stand in for named cards: every model once, the fairest first, each a place that exists."""

import msgspec
from hypothesis import given
from tests.placement.fleets import card, inventories, node, rates, requests, share, whole

from hcs.model.devices import NodeInventory
from hcs.model.refusals import Refusal
from hcs.model.requests import ComputeRequest
from hcs.placement.alternatives import alternatives
from hcs.placement.appraisals import VendorBound, is_named
from hcs.placement.snapshot import Snapshot

REFERENCE = {"A100-SXM4-80GB": rates(gemm=100, finetune=100)}
ONE = ComputeRequest((whole(1, 40),), models=("A100-SXM4-80GB",), sharing="exclusive", substitution="ask")


def models(nodes: list[NodeInventory], request: ComputeRequest = ONE, bound: VendorBound | None = None) -> list[str]:
    found = alternatives(Snapshot.build(nodes), request, reference_rates=REFERENCE, bound=bound)
    return [f"{one.cards} {one.placement.model}" for one in found]


def other(model: str, vram: int, gemm: int, count: int = 8) -> NodeInventory:
    """A node of cards of a made-up model."""
    cards = tuple(
        msgspec.structs.replace(card("t4", i, model), model=model, vram=vram << 30, rates=rates(gemm=gemm))
        for i in range(count)
    )
    return NodeInventory(model, cards)


def test_the_least_surplus_comes_first() -> None:
    """51 ACU: two are 2 % too much. 90: two are 80 % too much. 34: three are 2 %, and three cards are more than two."""
    room = [other("X90", 48, 90), other("X51", 48, 51), other("X34", 48, 34)]
    assert models(room) == ["2 X51", "3 X34", "2 X90"]


def test_memory_on_each_card_is_never_less() -> None:
    assert models([other("small", 24, 60), other("large", 48, 60)]) == ["2 large"]


def test_too_few_cards_on_any_node_are_no_alternative() -> None:
    assert models([other("X34", 48, 34, count=2)]) == []


def test_a_runtime_that_is_not_offered_for_the_vendor_rules_it_out() -> None:
    bound = VendorBound(frozenset({"ascend"}), Refusal("RuntimeNotOffered", "no"))
    room = [other("X51", 48, 51), node("npu", "910b")]
    assert models(room, bound=bound) == ["1 910B2"]


def test_a_derived_rate_never_stands_in() -> None:
    decode = msgspec.structs.replace(ONE, workload="decode")
    assert models([node("npu", "910b", "910b")], decode) == []


def test_a_share_keeps_the_compute_it_asked_for() -> None:
    asked = ComputeRequest((share(16, 30),), models=("A100-SXM4-80GB",), substitution="ask")
    (one,) = alternatives(Snapshot.build([node("npu", "910b")]), asked, reference_rates=REFERENCE)
    assert (one.cards, one.surplus) == (1, 0)


def test_who_names_nothing_needs_no_alternative() -> None:
    assert models([node("npu", "910b")], ComputeRequest((whole(1),), sharing="exclusive")) == []


@given(inventories(), requests())
def test_each_is_another_model_that_does_at_least_the_work(
    nodes: tuple[NodeInventory, ...], request: ComputeRequest
) -> None:
    snapshot = Snapshot.build(nodes)
    found = alternatives(snapshot, request, reference_rates=REFERENCE)
    assert len({one.placement.model for one in found}) == len(found)
    for one in found:
        place, exchange = one.placement, one.placement.exchange
        assert exchange is not None
        assert exchange.source != "derived"
        position = snapshot.fleet.device_index[place.node, min(place.devices)]
        assert not is_named(request, snapshot.fleet.devices[position])
        if place.exclusive and all(container.total is None for container in request.containers):
            assert one.cards * exchange.got_milliacu >= one.wanted_cards * exchange.wanted_milliacu
        assert snapshot.with_allocation(place.allocation("u")).overcommitted == snapshot.overcommitted
