"""A card's CDI name stands for all it needs, and for nothing of its neighbours."""

import pytest
from tests.inject.node import card

from hcs.inject.adjustments import DeviceNode, Mount
from hcs.inject.cdi import card_name, resolvable, specification


def test_nodes_stay_nodes_and_files_are_mounted() -> None:
    device = card("nvidia", 0)
    files = ([DeviceNode("/dev/nvidia0", "/dev/nvidia0"), DeviceNode("/dev/x", "/tmp/x.card")], [Mount("/a", "/b")])
    spec = specification("nvidia", [(device, files)], lambda path: path.startswith("/dev/"))
    assert spec is not None
    assert (spec["cdiVersion"], spec["kind"]) == ("0.6.0", "ai.compute/nvidia")
    (entry,) = spec["devices"]
    assert entry["name"] == device.id
    assert entry["containerEdits"]["deviceNodes"] == [{"path": "/dev/nvidia0", "hostPath": "/dev/nvidia0"}]
    assert [(m["hostPath"], m["containerPath"]) for m in entry["containerEdits"]["mounts"]] == [
        ("/a", "/b"),
        ("/tmp/x.card", "/dev/x"),
    ]
    assert resolvable(spec) == {card_name(device)}


def test_a_card_without_files_or_with_an_unusable_id_has_no_name() -> None:
    import msgspec

    odd = msgspec.structs.replace(card("nvidia", 1), id="card one")
    node = ([DeviceNode("/dev/nvidia1", "/dev/nvidia1")], [])
    assert specification("nvidia", [(card("nvidia", 0), ([], [])), (odd, node)], lambda _: True) is None


@pytest.mark.parametrize(
    "content", [None, [], "text", {"kind": 1}, {"kind": "a/b", "devices": {}}, {"kind": "a/b", "devices": [1, {}]}]
)
def test_what_is_no_specification_defines_no_name(content: object) -> None:
    assert resolvable(content) == frozenset()
