"""Parts of cards that a vendor holds: the agent has them made for its pods, and taken back when the pods are done."""

from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.agent.scene import GIB, NodeScene, scene

from hcs.inject.instances import Instance
from hcs.inject.vdcu import parse_vdcu
from hcs.model.allocations import Grant
from hcs.model.devices import Device, Rate
from hcs.model.pods import Pod
from hcs.sandbox.scheduler.virtualtime import run_virtual
from hcs.ura.catalogue import Catalogue
from hcs.vendors.base import HealthObservation, VendorError, Wanted
from hcs.vendors.hygon import HygonVendor
from hcs.vendors.source import ToolSource

MODEL = "K100"
ID = "DCU-0001"


class Dcus(HygonVendor):
    """One DCU with 80 compute units, which this machine does not have: what its tools would say is said here."""

    def __init__(self, folder: Path) -> None:
        nodes = folder / "sys/class/kfd/kfd/topology/nodes/1"
        nodes.mkdir(parents=True, exist_ok=True)
        (nodes / "properties").write_text(f"simd_count 320\nsimd_per_cu 4\ndomain 0\nlocation_id {0xC3 << 8}\n")
        for path in ("opt/hyhal", "opt/dtk"):
            (folder / path).mkdir(parents=True, exist_ok=True)
        super().__init__(ToolSource([]), Catalogue(()), sysfs=folder / "sys", root=folder)
        self.kept: list[frozenset[str]] = []
        self.refuses = False

    def probe(self) -> Sequence[Device]:
        rates = (Rate("gemm", 100_000, "datasheet"),)
        return [Device(ID, 0, "hygon", MODEL, 64 * GIB, bus_id="0000:c3:00.0", rates=rates)]

    def read_health(self) -> Sequence[HealthObservation]:
        return [HealthObservation(ID)]

    def instance(self, wanted: Wanted, device: Device, grant: Grant) -> Instance | None:
        if self.refuses:
            raise VendorError("the driver is busy")
        return super().instance(wanted, device, grant)

    def keep(self, live: Callable[[], frozenset[str]]) -> None:
        self.kept.append(live())


Story = Callable[[NodeScene, Dcus], Coroutine[Any, Any, None]]
PRESENT = {"/dev/kfd", "/dev/mkfd", "/opt/hyhal"}


async def start(node: NodeScene) -> Dcus:
    vendor = Dcus(node.folder)
    await node.start_agent(vendors=[vendor], exists=lambda path: path in PRESENT)
    return vendor


@pytest.fixture
def tell(tmp_path: Path) -> Callable[[Story], None]:
    """Runs a story on a fresh node with one DCU and a running agent."""

    def run(story: Story) -> None:
        async def whole() -> None:
            async with scene(tmp_path, cards=0) as node:
                await story(node, await start(node))

        run_virtual(whole())

    return run


Tell = Callable[[Story], None]


async def share(node: NodeScene, name: str, milliacu: int) -> Pod:
    grants = {"main": (Grant(ID, 10 * GIB, milliacu),)}
    return await node.bound_pod(name, vendor="hygon", model=MODEL, containers=grants, exclusive=False)


def test_a_share_starts_as_a_virtual_dcu(tell: Tell) -> None:
    async def story(node: NodeScene, vendor: Dcus) -> None:
        pod = await share(node, "one", 25_000)
        got = await node.adjusted(pod)
        assert got.variables()["HCS_COMPUTE_SHARE"] == "vdcu:25"
        mount = got.mount("/etc/vdev/docker")
        assert mount is not None
        record = parse_vdcu((Path(mount.source) / "vdev0.conf").read_text())
        assert (record.mask.bit_count(), record.mebibytes) == (20, 10 * 1024)
        assert got.mount("/etc/ld.so.preload") is None, "the runtime holds the memory; ours is not needed"
        published = await node.published()
        assert not published.status.devices[0].whole_only, "the router may give shares of it"

    tell(story)


def test_a_restarted_agent_gives_what_it_gave(tell: Tell) -> None:
    async def story(node: NodeScene, vendor: Dcus) -> None:
        first, second = await share(node, "one", 25_000), await share(node, "two", 25_000)
        before = [await node.adjusted(first), await node.adjusted(second)]
        await node.stop_agent()
        await start(node)
        assert [await node.adjusted(first), await node.adjusted(second)] == before

    tell(story)


def test_what_a_pod_had_is_taken_back_when_it_is_done(tell: Tell) -> None:
    """Also while the finished pod is still there: a completed Job may stay for days."""

    async def story(node: NodeScene, vendor: Dcus) -> None:
        pod = await share(node, "one", 90_000)
        await node.adjusted(pod)
        await node.settle()
        assert pod.metadata.uid in vendor.kept[-1]
        await node.cluster.set_status("one", phase="Succeeded")
        await node.settle()
        assert pod.metadata.uid not in vendor.kept[-1]
        rounds = len(vendor.kept)
        other = await share(node, "two", 90_000)
        await node.adjusted(other)
        await node.settle()
        assert len(vendor.kept) > rounds

    tell(story)


def test_a_card_without_room_refuses_and_a_busy_driver_is_asked_again(tell: Tell) -> None:
    async def story(node: NodeScene, vendor: Dcus) -> None:
        await node.adjusted(await share(node, "one", 90_000))
        assert (await node.refused(await share(node, "two", 20_000))).reason == "NoComputeLeft"
        vendor.refuses = True
        answer = await node.ask(await share(node, "three", 5_000))
        assert answer.status_code == 503, answer.text
        vendor.refuses = False
        assert (await node.ask(await share(node, "four", 5_000))).status_code == 200

    tell(story)


def test_where_nothing_holds_a_share_cards_are_offered_whole(tell: Tell) -> None:
    async def story(node: NodeScene, vendor: Dcus) -> None:
        (node.folder / "opt/dtk").rmdir()
        await node.agent.cards.probe()
        await node.settle()
        assert (await node.published()).status.devices[0].whole_only

    tell(story)


def test_a_clusters_own_profile_decides_and_is_followed_at_once(tell: Tell) -> None:
    async def story(node: NodeScene, vendor: Dcus) -> None:
        await node.cluster.add_profile("whole", vendor="hygon", quota="none")
        await node.settle()
        assert (await node.published()).status.devices[0].whole_only

    tell(story)
