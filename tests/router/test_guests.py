"""A pod with RTOS guests goes only where they can be hosted, also while bindings are under way."""

from pathlib import Path
from typing import Any

import msgspec
from lightkube.types import PatchType
from tests.router.scene import Scene, card, pod_manifest, scene, virtual

from hcs.kube.resources import ComputeNodeStatus
from hcs.model import names
from hcs.model.devices import NodeInventory, RtosHost
from hcs.model.pods import Pod
from hcs.placement.snapshot import Snapshot
from hcs.router.decisions import Chosen, NotOurs, Refused, decide
from hcs.router.guests import ExpectedGuests

HOST = RtosHost("xen", pcpus=4, total_memory_mb=1024, free_memory_mb=1024, ready=True)
GUEST = {"memory": "512Mi", names.RTOS_GUESTS: "1"}
SNAPSHOT = Snapshot.build(
    [NodeInventory("rt", rtos=HOST), NodeInventory("gpu", (card(0),)), NodeInventory("both", (card(0),), rtos=HOST)]
)
ALL = ["rt", "gpu", "both"]


def pod(name: str = "p", **limits: str) -> Pod:
    return msgspec.convert(pod_manifest(name, uid=name, resources={**GUEST, **limits}), Pod)


def test_only_nodes_that_can_host_the_guest_are_left() -> None:
    found = decide(pod(), ALL, SNAPSHOT)
    assert isinstance(found, NotOurs)
    assert {name: why.reason for name, why in found.unable.items()} == {"gpu": "NoRtosHost"}
    nowhere = decide(pod(), ["gpu"], SNAPSHOT)
    assert isinstance(nowhere, Refused)
    assert "no micad" in nowhere.summary


def test_a_guest_with_a_card_gets_both_on_one_node() -> None:
    found = decide(pod(**{names.VRAM: "16Gi"}), ALL, SNAPSHOT)
    assert isinstance(found, Chosen)
    assert found.node == "both"
    refused = decide(pod(**{names.VRAM: "16Gi"}), ["rt", "gpu"], SNAPSHOT)
    assert isinstance(refused, Refused)
    assert refused.nodes.keys() == {"rt", "gpu"}


def test_a_guest_is_expected_from_its_binding_until_it_is_seen() -> None:
    expected = ExpectedGuests()
    asking = pod("a")
    expected.expect(asking, "rt")
    expected.expect(msgspec.convert(pod_manifest("b", uid="b"), Pod), "rt")
    assert expected.by_node([asking]) == {"rt": [asking]}
    bound = msgspec.structs.replace(asking, spec=msgspec.structs.replace(asking.spec, nodeName="rt"))
    assert expected.by_node([bound]) == {"rt": [bound]}
    assert expected.by_node([]) == {}
    expected.expect(asking, "rt")
    expected.forget("a")
    assert expected.by_node([]) == {}


async def rtos_node(s: Scene, name: str, host: RtosHost) -> None:
    await s.add_node(name, card(0))
    status: dict[str, Any] = {"rtos": msgspec.to_builtins(host)}
    await s.client.patch(ComputeNodeStatus, name, {"status": status}, patch_type=PatchType.MERGE)


@virtual
async def test_a_second_guest_sees_the_first_before_any_agent_does(tmp_path: Path) -> None:
    async with scene(tmp_path) as s:
        await rtos_node(s, "n1", HOST)
        await s.add_node("n2", card(0))
        http = s.http(await s.start_extender())
        big = {"memory": "768Mi", names.RTOS_GUESTS: "1"}
        first, _ = [await s.add_pod(name, resources=big) for name in ("a", "b")]
        found = await s.filter(http, "a", "n1", "n2")
        assert found["NodeNames"] == ["n1"]
        assert "NoRtosHost" in found["FailedAndUnresolvableNodes"]["n2"]
        assert await s.bind(http, first, "n1") == ""
        refused = await s.filter(http, "b", "n1", "n2")
        assert refused["NodeNames"] == []
        assert "InsufficientGuestMemory" in refused["FailedAndUnresolvableNodes"]["n1"]
