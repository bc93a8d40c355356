"""The cluster knows the node's cards, hears of a fault at once, and is not bothered otherwise."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import msgspec
from lightkube.types import PatchType
from tests.agent.scene import NODE, NodeScene, scene, uuid

from hcs.agent.publishing import summary
from hcs.inject.injection import NodeFiles
from hcs.kube.resources import ComputeNode, ComputeNodeStatus, Lease
from hcs.model import names
from hcs.model.devices import Device
from hcs.sandbox.scheduler.virtualtime import run_virtual
from hcs.vendors import emulated
from hcs.vendors.base import HealthObservation, VendorError


async def verdicts(node: NodeScene) -> list[str]:
    return [device.verdict for device in (await node.published()).status.devices]


def test_the_cards_are_published_with_identity_rates_and_verdict(tmp_path: Path) -> None:
    async def story() -> None:
        async with scene(tmp_path) as node:
            await node.start_agent()
            await node.settle()
            published = await node.published()
            assert [device.id for device in published.status.devices] == [uuid(0), uuid(1)]
            assert await verdicts(node) == ["Healthy", "Healthy"]
            first = published.status.devices[0]
            assert first.emulated
            assert first.rate() is not None
            conditions = {condition.type: condition for condition in published.status.conditions}
            assert {name: condition.status for name, condition in conditions.items()} == {
                "Ready": "True",
                "Probed": "True",
                "Calibrated": "False",
                "Healthy": "True",
            }
            assert all(condition.lastTransitionTime for condition in conditions.values())
            assert published.inventory().ready
            assert published.status.abilities.fail_closed

    run_virtual(story())


def test_a_fault_is_published_within_three_tenths_of_a_second(tmp_path: Path) -> None:
    async def story() -> None:
        async with scene(tmp_path) as node:
            await node.start_agent()
            await node.settle()
            emulated.inject_fault(node.cards / "nvidia1.card", 79, "fell off the bus")
            since = node.cluster.loop.time()

            async def failed() -> bool:
                return (await verdicts(node))[1] == "Failed"

            await node.cluster.until(failed, seconds=1)
            assert node.cluster.loop.time() - since <= 0.3
            device = (await node.published()).status.devices[1]
            assert device.verdict_reason == "FellOffTheBus"
            assert "Xid 79" in device.verdict_message
            emulated.clear_fault(node.cards / "nvidia1.card")
            await asyncio.sleep(0.3)
            assert await verdicts(node) == ["Healthy", "Healthy"]

    run_virtual(story())


def test_an_idle_agent_writes_nothing_but_its_heartbeat(tmp_path: Path) -> None:
    async def story() -> None:
        async with scene(tmp_path) as node:
            await node.start_agent()
            await node.settle()
            before = (await node.published()).metadata.resourceVersion
            lease = await node.cluster.client.get(Lease, NODE, namespace=names.NAMESPACE)
            await asyncio.sleep(120)
            assert (await node.published()).metadata.resourceVersion == before
            renewed = await node.cluster.client.get(Lease, NODE, namespace=names.NAMESPACE)
            assert renewed.spec["renewTime"] > lease.spec["renewTime"]
            assert renewed.spec["holderIdentity"] == NODE

    run_virtual(story())


def test_a_restarted_agent_writes_nothing_where_nothing_has_changed(tmp_path: Path) -> None:
    async def story() -> None:
        async with scene(tmp_path) as node:
            await node.start_agent()
            await node.settle()
            before = (await node.published()).metadata.resourceVersion
            await node.stop_agent()
            await node.start_agent()
            await node.settle()
            assert (await node.published()).metadata.resourceVersion == before

    run_virtual(story())


def test_what_others_overwrite_or_delete_is_mended(tmp_path: Path) -> None:
    async def story() -> None:
        async with scene(tmp_path) as node:
            await node.start_agent()
            await node.settle()
            await node.cluster.client.patch(
                ComputeNodeStatus, NODE, {"status": {"devices": []}}, patch_type=PatchType.MERGE
            )
            await node.settle()
            assert await verdicts(node) == ["Healthy", "Healthy"]
            await node.cluster.client.delete(ComputeNode, NODE)
            await node.settle()
            assert await verdicts(node) == ["Healthy", "Healthy"]

    run_virtual(story())


def test_quarantine_belongs_to_others_and_stays(tmp_path: Path) -> None:
    async def story() -> None:
        async with scene(tmp_path) as node:
            await node.start_agent()
            await node.settle()
            await node.quarantine(uuid(0))
            emulated.inject_fault(node.cards / "nvidia1.card", 79, "")
            await asyncio.sleep(0.3)
            assert [entry.device for entry in (await node.published()).spec.quarantine] == [uuid(0)]

    run_virtual(story())


def test_a_server_that_is_away_gets_the_news_when_it_is_back(tmp_path: Path) -> None:
    async def story() -> None:
        async with scene(tmp_path) as node:
            await node.start_agent()
            await node.settle()
            node.cluster.api.fault = lambda request: "refuse"
            emulated.inject_fault(node.cards / "nvidia0.card", 79, "")
            await asyncio.sleep(20)
            node.cluster.api.fault = None
            await asyncio.sleep(6)
            assert await verdicts(node) == ["Failed", "Healthy"]

    run_virtual(story())


def test_a_new_card_is_found_at_the_next_probe(tmp_path: Path) -> None:
    async def story() -> None:
        async with scene(tmp_path) as node:
            await node.start_agent(probe=5.0)
            node.add_card(2)
            await asyncio.sleep(6)
            assert await verdicts(node) == ["Healthy", "Healthy", "Healthy"]

    run_virtual(story())


def test_a_card_that_vanished_has_failed_and_stays_in_the_list(tmp_path: Path) -> None:
    async def story() -> None:
        async with scene(tmp_path) as node:
            await node.start_agent(probe=5.0)
            await node.settle()
            (node.cards / "nvidia0.card").unlink()
            await asyncio.sleep(6)
            devices = (await node.published()).status.devices
            assert [(device.verdict, device.verdict_reason) for device in devices] == [
                ("Failed", "CardMissing"),
                ("Healthy", ""),
            ]

    run_virtual(story())


class MoodyVendor:
    """Answers, or not, as told."""

    word = "moody"

    def __init__(self) -> None:
        self.silent = False

    def probe(self) -> Sequence[Device]:
        return (Device(id="m-0", index=0, vendor="mthreads", model="S4000", vram=48 << 30),)

    def read_health(self) -> Sequence[HealthObservation]:
        if self.silent:
            raise VendorError("no answer from the library")
        return (HealthObservation("m-0"),)

    def forget(self, device: str) -> None:
        pass

    def node_files(self, device: Device) -> NodeFiles:
        return NodeFiles()

    def driver_versions(self) -> dict[str, str]:
        return {"moody": "1.2"}


def test_cards_of_a_silent_vendor_are_unknown_until_it_speaks_again(tmp_path: Path) -> None:
    async def story() -> None:
        async with scene(tmp_path, cards=0) as node:
            vendor = MoodyVendor()
            await node.start_agent(vendors=[vendor])
            await node.settle()
            assert (await node.published()).status.driver_versions == {"moody": "1.2"}
            vendor.silent = True
            await asyncio.sleep(0.3)
            published = await node.published()
            assert [device.verdict for device in published.status.devices] == ["Unknown"]
            probed = next(c for c in published.status.conditions if c.type == "Probed")
            assert (probed.status, probed.message) == ("False", "moody: no answer from the library")
            assert published.inventory().ready, "the agent itself is well"
            vendor.silent = False
            await asyncio.sleep(0.3)
            assert await verdicts(node) == ["Healthy"]

    run_virtual(story())


def test_a_vendor_that_breaks_is_silent_and_takes_nobody_along(tmp_path: Path) -> None:
    """What its driver says for the first time may trip our reading of it; the other vendors' cards go on."""

    class Breaking(MoodyVendor):
        word = "breaking"

        def probe(self) -> Sequence[Device]:
            return (Device(id="b-0", index=0, vendor="mthreads", model="S4000", vram=48 << 30),)

        def read_health(self) -> Sequence[HealthObservation]:
            if self.silent:
                raise KeyError("power")
            return (HealthObservation("b-0"),)

        def driver_versions(self) -> dict[str, str]:
            if self.silent:
                raise UnicodeDecodeError("utf-8", b"", 0, 1, "made up")
            return {}

    async def story() -> None:
        async with scene(tmp_path, cards=0) as node:
            breaking, moody = Breaking(), MoodyVendor()
            await node.start_agent(vendors=[breaking, moody], probe=0.4)
            await node.settle()
            breaking.silent = True
            await asyncio.sleep(1.0)
            devices = {d.id: d for d in (await node.published()).status.devices}
            assert (devices["b-0"].verdict, devices["m-0"].verdict) == ("Unknown", "Healthy")
            assert devices["b-0"].verdict_reason == "VendorSilent"
            breaking.silent = False
            await asyncio.sleep(1.0)
            assert await verdicts(node) == ["Healthy", "Healthy"]

    run_virtual(story())


def test_the_summary_is_what_kubectl_shows() -> None:
    card = Device(id="a", index=0, vendor="nvidia", model="L40S", vram=48 << 30, verdict="Healthy")
    cards = (card, msgspec.structs.replace(card, id="b", verdict="Failed"))
    assert summary(cards) == {"cards": 2, "healthy": 1, "vram": "96Gi", "models": "2x L40S"}
