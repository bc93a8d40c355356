"""The emulated node as an object."""

import datetime

from hcs.model import names
from hcs.sandbox.fleet import DEMO
from hcs.sandbox.kubelet.__main__ import emulated_nodes
from hcs.sandbox.kubelet.nodes import EmulatedNode, node_manifest

NOW = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)


def test_a_node_says_that_it_is_emulated_and_ready() -> None:
    manifest = node_manifest(EmulatedNode("n", cpu="8", memory="16Gi", labels={"zone": "a"}), NOW)
    assert manifest["metadata"]["labels"]["ai.compute/emulated"] == "true"
    assert manifest["metadata"]["labels"]["zone"] == "a"
    assert manifest["status"]["capacity"] == {"cpu": "8", "memory": "16Gi", "pods": "110"}
    assert [(c["type"], c["status"]) for c in manifest["status"]["conditions"]] == [("Ready", "True")]
    assert not any(name.startswith(names.DOMAIN) for name in manifest["status"]["capacity"]), "never advertised"


def test_only_nodes_with_an_agent_keep_others_off() -> None:
    assert node_manifest(EmulatedNode("n"), NOW)["spec"] == {}
    (taint,) = node_manifest(EmulatedNode("n", "/a.sock"), NOW)["spec"]["taints"]
    assert (taint["key"], taint["effect"]) == ("ai.compute/managed", "NoSchedule")


def test_the_fleet_file_says_what_a_node_has() -> None:
    known, unknown = emulated_nodes(["gpu-a=/run/a.sock", "elsewhere"], DEMO)
    assert (known.name, known.socket, known.cpu) == ("gpu-a", "/run/a.sock", "64")
    assert (unknown.name, unknown.socket) == ("elsewhere", None)
