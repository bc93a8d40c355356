"""Where nodes stand, from the labels that sites, clouds and vendors write."""

import pytest

from hcs.model.devices import Location
from hcs.model.locations import locate


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        ({}, Location()),
        ({"topology.kubernetes.io/zone": "z1"}, Location(zone="z1")),
        ({"topology.kubernetes.io/zone": "z1", "ai.compute/zone": "hall-2"}, Location(zone="hall-2")),
        ({"nvidia.com/gpu.clique": "c.0", "ai.compute/rack": "r7"}, Location(rack="r7", domain="c.0")),
        (
            {"topology.k8s.aws/network-node-layer-2": "nn-2", "topology.k8s.aws/network-node-layer-3": "nn-3"},
            Location(fabric="nn-2", rack="nn-3"),
        ),
    ],
)
def test_a_node_is_located_by_its_labels(labels: dict[str, str], expected: Location) -> None:
    assert locate(labels) == expected


def test_what_a_person_states_wins_level_by_level() -> None:
    labels = {"ai.compute/rack": "r7", "ai.compute/zone": "z"}
    assert locate(labels, Location(rack="r8", fabric="ib-a")) == Location("z", "ib-a", "r8")
