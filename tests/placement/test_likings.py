"""Preferred nodes and prices: they order the places that serve, and never close one."""

import msgspec
import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from tests.placement.fleets import REFERENCE_RATES, Nodes, inventories, node, requests, share

from hcs.model.devices import NodeInventory
from hcs.model.preferences import NodePreference, Requirement
from hcs.model.requests import ComputeRequest
from hcs.placement.engine import place
from hcs.placement.fleet import build_fleet
from hcs.placement.likings import likes
from hcs.placement.placer import Placer
from hcs.placement.plans import Placement
from hcs.placement.snapshot import Snapshot


def tier(weight: int, *values: str) -> NodePreference:
    return NodePreference(weight, (Requirement("tier", "In", values),))


def wishing(*wishes: NodePreference) -> ComputeRequest:
    return ComputeRequest((share(16),), preferences=wishes)


def labelled(name: str, value: str = "", cost: int | None = None) -> NodeInventory:
    return msgspec.structs.replace(node(name, "a100"), labels=(("tier", value),) if value else (), cost=cost)


def test_where_nobody_prefers_there_is_nothing_to_weigh() -> None:
    assert likes(build_fleet([node("a", "a100"), node("b", "a100")]), wishing()) is None
    assert likes(build_fleet([labelled("a", "x", 5), labelled("b", "y", 5)]), wishing(tier(9, "z"))) is None


def test_wishes_count_by_weight_and_prices_by_what_is_saved() -> None:
    fleet = build_fleet([labelled("a", "x"), labelled("b", "y", 25), labelled("c", "z", 100), labelled("d", "y", 0)])
    np.testing.assert_array_equal(likes(fleet, wishing()), [0, 75, 0, 100])
    unpriced = build_fleet([labelled("a", "x"), labelled("b", "y"), labelled("c")])
    np.testing.assert_array_equal(likes(unpriced, wishing(tier(60, "x", "y"), tier(20, "y"))), [75, 100, 0])
    np.testing.assert_array_equal(likes(fleet, wishing(tier(1, "x"))), [50, 37, 0, 50])


def test_the_cheaper_of_equal_nodes_is_taken() -> None:
    nodes = [labelled("a", cost=3_000_000), labelled("b", cost=2_000_000), labelled("c")]
    found = place(Snapshot.build(nodes), wishing())
    assert isinstance(found, Placement)
    assert found.node == "b"


def test_the_memory_follows_a_label_and_a_price() -> None:
    """Nothing else of the nodes changes, and a wish that held nowhere may hold now."""
    placer, wish = Placer([labelled("a"), labelled("b")]), wishing(tier(1, "x"))

    def chosen(request: ComputeRequest) -> str:
        found = placer.place(request)
        assert isinstance(found, Placement)
        return found.node

    assert (chosen(wish), chosen(wishing())) == ("a", "a")
    placer.put_node(labelled("b", "x"))
    assert (chosen(wish), chosen(wishing())) == ("b", "a")
    placer.put_node(labelled("b"))
    assert chosen(wish) == "a"
    placer.put_node(labelled("a", cost=7))
    placer.put_node(labelled("b", cost=6))
    assert (chosen(wish), chosen(wishing())) == ("b", "b")


@given(inventories(), requests(), st.lists(st.sampled_from((tier(1, "a"), tier(100, "b"))), max_size=2))
def test_a_preference_never_makes_a_placeable_pod_unplaceable(
    nodes: Nodes, request: ComputeRequest, wishes: list[NodePreference]
) -> None:
    """Nor brings it to a substitute where a named card is free."""
    bare = [msgspec.structs.replace(one, labels=(), cost=None) for one in nodes]
    without = place(Snapshot.build(bare), request, reference_rates=REFERENCE_RATES)
    wish = msgspec.structs.replace(request, preferences=tuple(wishes))
    found = place(Snapshot.build(nodes), wish, reference_rates=REFERENCE_RATES)
    if isinstance(without, Placement):
        assert isinstance(found, Placement)
        assert (found.exchange is None) == (without.exchange is None)
    else:
        assert found == without
