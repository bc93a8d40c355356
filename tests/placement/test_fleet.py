"""The fleet as arrays says what the nodes say, in one order, whatever the agents got wrong."""

import msgspec
import numpy as np
from hypothesis import given
from tests.placement.fleets import Nodes, card, inventories, node

from hcs.model.devices import NodeInventory
from hcs.placement.fleet import Fleet, build_fleet


def test_devices_are_in_one_order_with_nodes_and_models_together() -> None:
    fleet = build_fleet([node("b", "t4"), node("a", "t4", "910b", "t4"), node("empty")])
    assert [device.id for device in fleet.devices] == ["a/910b-1", "a/t4-0", "a/t4-2", "b/t4-0"]
    assert [inventory.name for inventory in fleet.nodes] == ["a", "b", "empty"]
    assert fleet.node.tolist() == [0, 0, 0, 1]
    assert fleet.group.tolist() == [0, 1, 1, 2]
    assert fleet.kind.tolist() == [0, 1, 1, 1]
    assert fleet.group_node.tolist() == [0, 0, 1]
    assert fleet.group_first.tolist() == [0, 1, 3, 4]
    assert fleet.first_device.tolist() == [0, 3, 4, 4]
    assert fleet.device_index["a", "a/t4-2"] == 2
    assert fleet.any_on_node(np.array([False, False, True, False])).tolist() == [True, False, False]


def test_cards_of_one_model_with_other_rates_are_another_kind_of_one_group() -> None:
    slower = card("a100", 1, "a", rates=())
    fleet = build_fleet([NodeInventory("a", (card("a100", 0, "a"), slower))])
    assert sorted(fleet.kind.tolist()) == [0, 1]
    assert fleet.group.tolist() == [0, 0]


def test_only_healthy_free_and_own_cards_are_usable() -> None:
    fleet = build_fleet([node("a", "t4", "t4:SubHealthy", "t4:Failed", "t4:Unknown", "t4:foreign")])
    assert fleet.usable.tolist() == [True, True, False, False, False]
    assert fleet.degraded.tolist() == [False, True, False, False, False]


def test_nodes_with_the_same_cards_have_one_shape() -> None:
    fleet = build_fleet([node("a", "t4", "a100"), node("b", "a100", "t4"), node("c", "t4")])
    assert fleet.shape[0] == fleet.shape[1] != fleet.shape[2]


def test_an_agents_mistake_stops_nobody() -> None:
    """A device listed twice counts once; a node listed twice is as it was listed last."""
    twin = node("a", "t4", "t4")
    twin = msgspec.structs.replace(twin, devices=(twin.devices[0], twin.devices[0]))
    fleet = build_fleet([node("a", "a100"), twin, node("b", "t4")])
    assert [device.id for device in fleet.devices] == ["a/t4-0", "b/t4-0"]
    assert fleet.first_device.tolist() == [0, 1, 2]


def test_a_fleet_without_nodes_is_a_fleet() -> None:
    fleet = build_fleet([])
    assert len(fleet.devices) == len(fleet.nodes) == len(fleet.kinds) == 0


@given(nodes=inventories(), changed=inventories())
def test_a_fleet_changed_node_by_node_is_the_fleet_built_anew(nodes: Nodes, changed: Nodes) -> None:
    fleet, there = build_fleet(nodes), {one.name: one for one in nodes}
    for one in changed:
        fleet, there[one.name] = fleet.with_node(one), one
        assert_same(fleet, build_fleet(there.values()))
        sick = msgspec.structs.replace(
            one, devices=tuple(msgspec.structs.replace(device, verdict="Failed") for device in one.devices), ready=False
        )
        fleet, there[one.name] = fleet.with_node(sick), sick
        assert_same(fleet, build_fleet(there.values()))
    for name in [*there]:
        del there[name]
        fleet = fleet.without_node(name)
        assert_same(fleet, build_fleet(there.values()))


def assert_same(one: Fleet, other: Fleet) -> None:
    for field in Fleet.__struct_fields__:
        left, right = getattr(one, field), getattr(other, field)
        if isinstance(left, np.ndarray):
            assert np.array_equal(left, right), field
        elif field == "device_index":
            assert dict(left) == dict(right)
        elif field not in ("laid",):
            assert left == right, field
