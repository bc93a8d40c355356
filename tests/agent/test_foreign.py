"""What device plugins and DRA drivers gave away is not given a second time."""

import asyncio
from pathlib import Path

import msgspec
import pytest
from tests.agent.scene import GIB, scene, uuid
from tests.deviceplugin.kubelet import fake_kubelet
from tests.inject.node import card
from tests.waiting import until

from hcs.agent.foreign import foreign
from hcs.deviceplugin.podresources import Claimed, Holder, Holding, PodResources
from hcs.model.devices import Device

WHO = Holder("default", "other", "main")


def cards(vendor: str, *ids: str) -> list[Device]:
    return [
        msgspec.structs.replace(card(vendor, index), id=name, index=index, bus_id=f"0000:{index + 0x3B:02x}:00.0")
        for index, name in enumerate(ids)
    ]


UUIDS = ("GPU-5a7b1c00-0000-0000-0000-000000000000", "GPU-5a7b1c00-0000-0000-0000-000000000001")
ALL = [0, 1]


@pytest.mark.parametrize(
    ("vendor", "ids", "resource", "unit", "held"),
    [
        pytest.param("nvidia", UUIDS, "nvidia.com/gpu", UUIDS[1], [1], id="by-uuid"),
        pytest.param("nvidia", UUIDS, "nvidia.com/gpu", f"{UUIDS[0]}::3", [0], id="time-slices"),
        pytest.param("nvidia", UUIDS, "nvidia.com/gpu", f"{UUIDS[0]}-7", [0], id="split-by-hami"),
        pytest.param("nvidia", UUIDS, "nvidia.com/mig-1g.5gb", "MIG-aa11bb22-0000-1111", ALL, id="part-of-some-card"),
        pytest.param("ascend", ("npu-a", "npu-b"), "huawei.com/Ascend910", "Ascend910-1", [1], id="by-number"),
        pytest.param("cambricon", ("mlu-x", "mlu-y"), "cambricon.com/mlu", "0", [0], id="bare-number"),
        pytest.param("amd", ("a", "b"), "amd.com/gpu", "0000:3C:00.0", [1], id="by-bus-id"),
        pytest.param("intel", ("a", "b"), "habana.ai/gaudi", "AP0042HL", ALL, id="serial-number"),
        pytest.param("nvidia", UUIDS, "nvidia.com/gpumem", "17", [], id="an-amount-is-no-card"),
        pytest.param("nvidia", UUIDS, "huawei.com/Ascend910", "Ascend910-0", [], id="another-vendor's"),
        pytest.param("nvidia", UUIDS, "example.com/nic", "0", [], id="no-card-at-all"),
        pytest.param("nvidia", UUIDS, "ai.compute/kspikes", "0", [], id="our-own"),
    ],
)
def test_plugins_name_cards_in_many_ways(
    vendor: str, ids: tuple[str, ...], resource: str, unit: str, held: list[int]
) -> None:
    devices = cards(vendor, *ids)
    found = foreign([Holding(WHO, {resource: frozenset({unit})})], devices)
    assert found == {devices[index].id for index in held}


def test_dra_claims_count_as_well() -> None:
    devices = cards("nvidia", *UUIDS)
    claimed = (Claimed("gpu.nvidia.com", "node-1", "gpu-1"), Claimed("nic.example.com", "node-1", "gpu-0"))
    assert foreign([Holding(WHO, claimed=claimed)], devices) == {UUIDS[1]}


def test_a_card_another_plugin_gave_away_is_published_as_foreign_and_refused(folder: Path) -> None:
    async def whole() -> None:
        now = 0.0
        async with fake_kubelet(folder) as kubelet, scene(folder) as node:
            kubelet.pods["default", "other", "main"] = {"nvidia.com/gpu": [uuid(0)]}
            agent = await node.start_agent(poll=5.0, pod_resources=PodResources(kubelet.pod_resources))
            assert agent.foreign is not None
            agent.foreign._clock = lambda: now
            await until(lambda: [device.foreign for device in agent.cards.devices] == [True, False])
            refusal = await node.refused(await node.bound_pod("one", 0))
            assert refusal.reason == "ForeignDevice"
            await node.adjusted(await node.bound_pod("two", 1, amount=10 * GIB))

            async def published() -> bool:
                return [device.foreign for device in (await node.published()).status.devices] == [True, False]

            await until(published)
            kubelet.remove("other")
            assert agent.foreign is not None
            await agent.foreign.look()
            assert agent.cards.devices[0].foreign, "a kubelet that has just started lists nothing either"
            now = 1000.0
            await agent.foreign.look()
            assert [device.foreign for device in agent.cards.devices] == [False, False]
            await kubelet.stop()
            await agent.foreign.look()
            await kubelet.start()

    asyncio.run(whole())
