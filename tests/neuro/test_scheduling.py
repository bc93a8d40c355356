"""Spiking capacities as a scheduler sees them: exact numbers, an order of nodes, and the fewest victims."""

from pathlib import Path

import msgspec
import pytest
import yaml

from hcs.model.devices import NodeInventory
from hcs.model.pods import Pod
from hcs.model.requests import ComputeRequest
from hcs.neuro.allocator import Allocator
from hcs.neuro.grids import layout
from hcs.neuro.scheduling import (
    NodeWish,
    SpikingHolder,
    SpikingNode,
    asked_by,
    choose_rectangle,
    offered_by,
    rank,
    refuse,
    victims,
)
from hcs.placement.engine import place
from hcs.placement.plans import Placement, Unplaceable
from hcs.placement.snapshot import Snapshot

KSPS, STREAMS = "snn.ai.compute/ksps", "snn.ai.compute/event-routing-streams"


def holder(pod: str, ksps: int, priority: int = 0) -> SpikingHolder:
    return SpikingHolder(pod, ((KSPS, ksps),), priority)


NODE = SpikingNode("n", ((STREAMS, 12), (KSPS, 500)), (holder("old", 400),))


def test_of_500_ksps_with_400_taken_100_are_left() -> None:
    assert refuse(NODE, ((KSPS, 100),)) is None
    refusal = refuse(NODE, ((KSPS, 101),))
    assert refusal is not None
    assert refusal.reason == "SpikesTaken"


@pytest.mark.parametrize(
    ("wanted", "reason"),
    [(((KSPS, 501),), "SpikesBeyondNode"), ((("snn.ai.compute/cores", 1),), "NoSpikingHardware")],
)
def test_what_a_node_never_has(wanted: tuple[tuple[str, int], ...], reason: str) -> None:
    refusal = refuse(NODE, wanted)
    assert refusal is not None
    assert refusal.reason == reason


def test_sentences_do_not_change_with_what_is_free() -> None:
    fuller = msgspec.structs.replace(NODE, holders=(holder("a", 450), holder("b", 49)))
    assert refuse(NODE, ((KSPS, 200),)) == refuse(fuller, ((KSPS, 200),))


@pytest.mark.parametrize(
    ("wish", "first"),
    [
        (NodeWish(), "full"),
        (NodeWish("high-capacity"), "large"),
        (NodeWish("near-source", zone="east"), "near"),
        (NodeWish("near-source", numa=1), "near"),
    ],
)
def test_nodes_are_ranked_by_wish(wish: NodeWish, first: str) -> None:
    nodes = [
        SpikingNode("large", ((KSPS, 900),), numa=(0,), zone="west"),
        SpikingNode("near", ((KSPS, 500),), numa=(1,), zone="east"),
        SpikingNode("full", ((KSPS, 500),), (holder("x", 300),), numa=(0,), zone="west"),
        SpikingNode("too-full", ((KSPS, 500),), (holder("x", 450),), numa=(1,), zone="east"),
    ]
    ranked = rank(nodes, ((KSPS, 100),), wish)
    assert ranked[0].name == first
    assert "too-full" not in [node.name for node in ranked]


def test_the_fewest_and_least_important_go() -> None:
    node = SpikingNode("n", ((KSPS, 500),), (holder("a", 100, 1), holder("b", 150, 0), holder("c", 200, 5)))
    assert victims(node, ((KSPS, 50),), 9) == []
    chosen = victims(node, ((KSPS, 150),), 9)
    assert chosen is not None
    assert [one.pod for one in chosen] == ["b"]
    chosen = victims(node, ((KSPS, 300),), 9)
    assert chosen is not None
    assert {one.pod for one in chosen} == {"a", "b"}
    assert victims(node, ((KSPS, 400),), 5) is None, "nobody of the same priority goes"


def test_nodes_and_pods_are_read_by_domain() -> None:
    offers = {"snn.vendor.com/ksps": "500", "snn.vendor.com/ksps-type-a": "2k", "cpu": "4", "snn.vendor.com/x": "1"}
    found = offered_by(offers, domain="snn.vendor.com")
    assert found == (("snn.vendor.com/ksps", 500), ("snn.vendor.com/ksps-type-a", 2000))
    example = Path(__file__).parents[2] / "examples" / "snn" / "01-pod.yaml"
    pod = msgspec.convert(yaml.safe_load(example.read_text()), Pod)
    assert dict(asked_by(pod, domain="snn.vendor.com")) == {
        "snn.vendor.com/ksps": 150,
        "snn.vendor.com/event-routing-streams": 2,
    }


def test_a_number_of_cores_becomes_a_rectangle() -> None:
    board = Allocator(layout(10, 4))
    placed = choose_rectangle(board, 25)
    assert placed is not None
    assert placed.rectangle.area >= 25
    assert choose_rectangle(board, 41) is None


def test_placement_counts_spikes_like_any_other_capacity() -> None:
    nodes = [
        NodeInventory(name="large", capacities=offered_by({KSPS: "500", STREAMS: "12"})),
        NodeInventory(name="bare"),
    ]

    def asks(ksps: int) -> ComputeRequest:
        return ComputeRequest(containers=(), capacities=((STREAMS, 2), (KSPS, ksps)))

    snapshot = Snapshot.build(nodes)
    placed = place(snapshot, asks(400))
    assert isinstance(placed, Placement)
    assert placed.node == "large"
    held = snapshot.with_allocation(placed.allocation("uid"))
    assert isinstance(place(held, asks(100)), Placement)
    refused = place(held, asks(101))
    assert isinstance(refused, Unplaceable)
    assert {one.node: one.refusal.reason for one in refused.refusals} == {
        "bare": "CapacityTooSmall",
        "large": "CapacityTaken",
    }
    assert isinstance(place(held.without(placed.allocation("uid")), asks(500)), Placement)
