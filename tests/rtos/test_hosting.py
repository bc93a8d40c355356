"""Which nodes can host a pod's guests."""

from typing import Any

import msgspec
import pytest

from hcs.model import names
from hcs.model.devices import NodeInventory, RtosHost
from hcs.model.pods import Pod
from hcs.rtos.annotations import PREFIX
from hcs.rtos.hosting import asks_for_guests, check_guests, unable

HOST = RtosHost("xen", pcpus=4, total_memory_mb=2048, free_memory_mb=1024, max_guests=3, guests=1, ready=True)


def pod(name: str = "p", memory: str = "512Mi", containers: int = 1, **annotations: str) -> Pod:
    raw: dict[str, Any] = {
        "metadata": {"name": name, "uid": name, "annotations": {PREFIX + k: v for k, v in annotations.items()}},
        "spec": {
            "containers": [
                {"name": f"c{n}", "resources": {"limits": {"memory": memory, names.RTOS_GUESTS: "1"}}}
                for n in range(containers)
            ]
        },
    }
    return msgspec.convert(raw, Pod)


def refused(asking: Pod, host: RtosHost | None = HOST, *bound: Pod) -> str:
    found = unable(asking, ["n"], [NodeInventory("n", rtos=host)], {"n": bound})
    return found["n"].reason if found else ""


def test_a_pod_asks_by_annotation_or_by_resource() -> None:
    assert asks_for_guests(pod())
    assert asks_for_guests(msgspec.convert({"metadata": {"annotations": {f"{PREFIX}container.os": "zephyr"}}}, Pod))
    assert not asks_for_guests(msgspec.convert({"spec": {"containers": [{"name": "a"}]}}, Pod))


@pytest.mark.parametrize(
    ("asking", "host", "reason"),
    [
        pytest.param(pod(), HOST, "", id="fits"),
        pytest.param(pod(), None, "NoRtosHost", id="no-micad"),
        pytest.param(pod(), msgspec.structs.replace(HOST, ready=False), "MicadSilent", id="silent"),
        pytest.param(pod(memory="1500Mi"), HOST, "InsufficientGuestMemory", id="memory-taken"),
        pytest.param(pod(memory="4Gi"), HOST, "MemoryAboveHost", id="memory-never"),
        pytest.param(pod(memory="256Mi", containers=3), HOST, "TooManyGuests", id="too-many"),
        pytest.param(pod(**{"ped.pedestal": "jailhouse"}), HOST, "PedestalMismatch", id="pedestal"),
        pytest.param(pod(memory="600Mi", containers=2), HOST, "InsufficientGuestMemory", id="together"),
        pytest.param(pod(memory="9Gi"), RtosHost(ready=True), "", id="nothing-known"),
    ],
)
def test_a_node_hosts_what_its_agent_says_it_can(asking: Pod, host: RtosHost | None, reason: str) -> None:
    assert refused(asking, host) == reason


def test_pods_on_their_way_count_before_the_agent_has_seen_them() -> None:
    roomy = msgspec.structs.replace(HOST, free_memory_mb=2048, guests=0)
    assert refused(pod("b", "1Gi"), roomy, pod("a", "1Gi")) == ""
    assert refused(pod("b", "1Gi"), roomy, pod("a", "1536Mi")) == "InsufficientGuestMemory"
    assert refused(pod("b", "1Mi"), roomy, *(pod(str(n), "8Mi") for n in range(3))) == "MemoryTooSmall"
    assert refused(pod("b", "8Mi"), roomy, *(pod(str(n), "8Mi") for n in range(3))) == "TooManyGuests"
    assert refused(pod("a", "1536Mi"), roomy, pod("a", "1536Mi")) == "", "it does not stand in its own way"


def test_admission_finds_what_no_node_could_host() -> None:
    assert check_guests(pod()) == []
    assert check_guests(pod(**{"ped.pedestal": "jailhouse"})) == []
    assert [r.reason for r in check_guests(pod(memory="1Mi"))] == ["MemoryTooSmall"]
    assert [r.reason for r in check_guests(pod(**{"container.max_vcpu_num": "zero"}))] == ["MalformedAnnotation"]
