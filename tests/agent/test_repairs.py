"""A card that failed is failed until it is known to be repaired, whatever the agent goes through meanwhile."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest
from lightkube.types import PatchType
from tests.agent.scene import NODE, NodeScene, scene, uuid
from tests.agent.test_alarms import TwoCards

from hcs.agent.alarms import Alarms
from hcs.agent.cards import Cards
from hcs.agent.repairs import Repairs, read_repaired
from hcs.health.faults import classify
from hcs.kube.resources import ComputeNode
from hcs.model import names
from hcs.model.devices import Device
from hcs.model.pods import ObjectMeta
from hcs.sandbox.scheduler.virtualtime import run_virtual
from hcs.vendors.base import HealthObservation
from hcs.vendors.parsing.kernel_log import event_of

BUS = "0000:3b:00.0"


class Room:
    """Two cards, their kernel and their cluster, over several lives of an agent."""

    def __init__(self, folder: Path, vendor: TwoCards | None = None) -> None:
        self.folder, self.vendor = folder, vendor or TwoCards()
        self.sysfs, self.boot = folder / "sys", folder / "boot_id"
        self.boot.write_text("first\n")
        self.said: dict[str, str] = {}
        self.bind()
        self.begin()

    def begin(self) -> None:
        """An agent starts."""
        self.cards = Cards([self.vendor])
        self.alarms = Alarms(self.cards)
        self.repairs = Repairs(self.cards, self.folder, observed=self.node, sysfs=self.sysfs, boot_id=self.boot)
        asyncio.run(self._probe())
        self.look()

    async def _probe(self) -> None:
        await self.cards.probe()
        await self.cards.check()

    def check(self) -> None:
        asyncio.run(self.cards.check())

    def look(self) -> None:
        asyncio.run(self.repairs.look())

    def bind(self) -> None:
        """The driver is bound to the card: sysfs makes a link, and it is another each time."""
        place = self.sysfs / "bus/pci/devices" / BUS
        place.mkdir(parents=True, exist_ok=True)
        (place / "driver").symlink_to("../drivers/nvidia")

    def unbind(self) -> None:
        """The link goes. It is kept under another name, for other file systems give its number to the next one."""
        link = self.sysfs / "bus/pci/devices" / BUS / "driver"
        link.rename(link.with_name(f"driver-{link.lstat().st_ino}"))

    def node(self) -> ComputeNode:
        annotations = {names.REPAIRED: msgspec.json.encode(self.said).decode()} if self.said else None
        return ComputeNode(metadata=ObjectMeta(name="n", annotations=annotations))

    def hear(self, line: str) -> None:
        event = event_of(line)
        assert event is not None
        self.alarms.heard(event)
        self.look()

    def fail(self, xid: int = 95) -> None:
        self.hear(f"NVRM: Xid (PCI:0000:3b:00): {xid}, pid=7, name=train, something")

    @property
    def reason(self) -> str:
        return next(device.verdict_reason for device in self.cards.devices if device.id == "gpu")


@pytest.fixture
def room(tmp_path: Path) -> Room:
    return Room(tmp_path)


def test_a_fatal_fault_outlives_the_agent(room: Room) -> None:
    room.fail()
    room.begin()
    assert room.reason == "UncontainedMemoryError"


def test_a_restart_of_the_machine_ends_it(room: Room) -> None:
    room.fail()
    room.boot.write_text("second\n")
    room.begin()
    assert room.reason == ""
    room.begin()
    assert room.reason == ""


def test_a_machine_that_does_not_tell_its_boot_ends_nothing(room: Room) -> None:
    room.fail()
    room.boot.unlink()
    room.begin()
    assert room.reason == "UncontainedMemoryError"


def test_a_driver_that_is_bound_anew_ends_it(room: Room) -> None:
    room.fail()
    room.look()
    assert room.reason == "UncontainedMemoryError"
    room.unbind()
    room.look()
    assert room.reason == "UncontainedMemoryError", "without a driver nobody has set it up"
    room.bind()
    room.look()
    assert room.reason == ""
    room.fail(79)
    room.look()
    assert room.reason == "FellOffTheBus", "a later fault counts again"


def test_a_driver_that_was_loaded_while_the_agent_was_away_ends_it(room: Room) -> None:
    room.fail()
    room.unbind()
    room.bind()
    room.begin()
    assert room.reason == ""


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        pytest.param(
            "GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)", "", id="nothing-wanted"
        ),
        pytest.param(
            "GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)",
            "UncontainedMemoryError",
            id="a-reset-wanted",
        ),
        pytest.param(
            "GPU recovery action changed from 0x1 (GPU Reset Required) to 0x2 (Node Reboot Required)",
            "UncontainedMemoryError",
            id="more-wanted",
        ),
    ],
)
def test_the_driver_takes_its_wish_back(room: Room, message: str, expected: str) -> None:
    room.fail()
    room.hear(f"NVRM: Xid (PCI:0000:3b:00): 154, {message}")
    assert room.reason == expected


def test_a_person_says_so_once(room: Room) -> None:
    room.fail()
    room.said = {"gpu": "monday"}
    room.look()
    assert room.reason == ""
    room.fail()
    room.look()
    room.begin()
    assert room.reason == "UncontainedMemoryError", "what was said on Monday is about Monday"
    room.said = {"gpu": "tuesday"}
    room.look()
    assert room.reason == ""


def test_what_was_said_while_the_agent_was_away_counts(room: Room) -> None:
    room.fail()
    room.said = {"gpu": "monday", "other": "monday"}
    room.begin()
    assert room.reason == ""


def test_a_card_that_was_replaced_is_forgotten_on_a_persons_word(room: Room) -> None:
    room.vendor.read_health = lambda: (HealthObservation("npu"),)  # type: ignore[method-assign]
    probed = room.vendor.probe()
    room.vendor.probe = lambda: probed[1:]  # type: ignore[method-assign]
    asyncio.run(room._probe())
    assert room.reason == "CardMissing"
    room.cards.repaired("gpu", "a reset")
    asyncio.run(room._probe())
    assert room.reason == "CardMissing", "it is still not there"
    room.said = {"gpu": "replaced"}
    room.look()
    asyncio.run(room._probe())
    assert [device.id for device in room.cards.devices] == ["npu"]


def test_a_word_that_is_older_than_the_agents_memory_is_about_nothing(tmp_path: Path) -> None:
    room = Room(tmp_path)
    (tmp_path / "faults.json").unlink()
    room.said = {"gpu": "long ago"}
    room.cards = Cards([room.vendor])
    room.alarms = Alarms(room.cards)
    room.repairs = Repairs(room.cards, tmp_path, observed=room.node, sysfs=room.sysfs, boot_id=room.boot)
    asyncio.run(room._probe())
    room.fail()
    assert room.reason == "UncontainedMemoryError"


def test_what_the_vendor_leaves_to_a_person_only_a_person_ends(room: Room) -> None:
    npu = "npu: [ascend] device_id=5 event_id=0x80E18005 raised"
    for _ in range(3):
        room.hear(npu)
    reasons = {device.id: device.verdict_reason for device in room.cards.devices}
    assert reasons["npu"] == "ManuallySeparateNpu"
    room.boot.write_text("second\n")
    room.begin()
    assert {device.id: device.verdict_reason for device in room.cards.devices}["npu"] == "ManuallySeparateNpu"
    room.cards.repaired("npu", "a reset")
    room.look()
    assert {device.id: device.verdict_reason for device in room.cards.devices}["npu"] == "ManuallySeparateNpu"
    room.said = {"npu": "now"}
    room.look()
    assert {device.id: device.verdict_reason for device in room.cards.devices}["npu"] == ""


class Remembering(TwoCards):
    """A vendor that remembers the worst event of its GPU, as NVIDIA's does."""

    def __init__(self) -> None:
        super().__init__()
        self.code = 0

    def read_health(self) -> Sequence[HealthObservation]:
        return (HealthObservation("gpu", code=self.code, told=True), HealthObservation("npu"))

    def forget(self, device: str) -> None:
        if device == "gpu":
            self.code = 0


def test_an_event_that_only_the_library_told_is_kept_and_forgotten_like_the_others(tmp_path: Path) -> None:
    vendor = Remembering()
    room = Room(tmp_path, vendor)
    vendor.code = 95
    room.check()
    room.look()
    assert room.reason == "UncontainedMemoryError"
    vendor.code = 0  # the library is loaded anew and knows nothing
    room.begin()
    assert room.reason == "UncontainedMemoryError"
    room.said = {"gpu": "now"}
    room.look()
    room.check()
    assert room.reason == ""
    vendor.code = 95
    room.check()
    room.look()
    room.said = {"gpu": "later"}
    room.look()
    assert (room.reason, vendor.code) == ("", 0)
    room.check()
    assert room.reason == ""


def test_an_answer_from_before_the_repair_is_old_news(tmp_path: Path) -> None:
    """The vendor was asked while the card was still failed, and answers after it was repaired."""
    vendor = Remembering()
    room = Room(tmp_path, vendor)

    class Slow:
        def __init__(self) -> None:
            self.vendor = vendor

        async def ask(self, question):  # type: ignore[no-untyped-def]
            answer = question()
            room.cards.repaired("gpu", "in between")
            return answer

    vendor.code = 95
    room.cards._askers = [Slow()]
    room.check()
    room.look()
    assert room.cards.fatal() == {}
    assert room.reason == ""


def test_a_file_that_cannot_be_read_stops_nobody(room: Room) -> None:
    (room.folder / "faults.json").write_text("{")
    room.begin()
    room.fail()
    room.begin()
    assert room.reason == classify("nvidia", 95).reason


def test_an_idle_agent_writes_no_file(room: Room) -> None:
    file = room.folder / "faults.json"
    before = file.stat().st_ino
    for _ in range(3):
        room.look()
    assert file.stat().st_ino == before
    room.fail()
    assert file.stat().st_ino != before


@pytest.mark.parametrize("text", [None, "", "yes", "[]", '{"a": 1}'])
def test_what_is_no_word_is_none(text: str | None) -> None:
    assert read_repaired(text) == {}


class NvidiaRoom(TwoCards):
    """One card by its emulated id."""

    def probe(self) -> Sequence[Device]:
        return (Device(id=uuid(0), index=0, vendor="nvidia", model="A30", vram=1 << 30, bus_id="00000000:3B:00.0"),)

    def read_health(self) -> Sequence[HealthObservation]:
        return (HealthObservation(uuid(0)),)


def test_from_the_annotation_to_the_published_verdict(tmp_path: Path) -> None:
    async def verdict(node: NodeScene) -> str:
        return (await node.published()).status.devices[0].verdict

    async def story() -> None:
        async with scene(tmp_path, cards=0) as node:
            agent = await node.start_agent(vendors=[NvidiaRoom()])
            await node.settle()
            event = event_of("NVRM: Xid (PCI:0000:3b:00): 95, pid=7, name=train, x")
            assert event is not None
            agent.alarms.heard(event)
            await asyncio.sleep(2)
            assert await verdict(node) == "Failed"
            await node.stop_agent()
            await node.start_agent(vendors=[NvidiaRoom()])
            await asyncio.sleep(2)
            assert await verdict(node) == "Failed"
            said = {"metadata": {"annotations": {names.REPAIRED: f'{{"{uuid(0)}": "now"}}'}}}
            await node.cluster.client.patch(ComputeNode, NODE, said, patch_type=PatchType.MERGE)
            await asyncio.sleep(2)
            assert await verdict(node) == "Healthy"

    run_virtual(story())
