"""From a line in the kernel's log to the verdict of the card it names."""

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest
from tests.waiting import until

from hcs.agent.aer import PcieError
from hcs.agent.alarms import Alarms, plain_bus
from hcs.agent.cards import Cards
from hcs.agent.kernellog import KernelLog
from hcs.health.casebook import CORRECTED
from hcs.inject.injection import NodeFiles
from hcs.model.devices import Device
from hcs.vendors.base import HealthObservation, VendorError
from hcs.vendors.parsing.kernel_log import Event, event_of


class TwoCards:
    """An NVIDIA card and an NPU that say of themselves that all is well."""

    word = "test"

    def __init__(self) -> None:
        self.answers = True

    def probe(self) -> Sequence[Device]:
        return (
            Device(id="gpu", index=0, vendor="nvidia", model="A30", vram=1, bus_id="00000000:3B:00.0"),
            Device(id="npu", index=5, vendor="ascend", model="Ascend910B3", vram=1, bus_id="0000:C1:00.0"),
        )

    def read_health(self) -> Sequence[HealthObservation]:
        if not self.answers:
            raise VendorError("the library says no")
        return (HealthObservation("gpu"), HealthObservation("npu"))

    def forget(self, device: str) -> None:
        pass

    def node_files(self, device: Device) -> NodeFiles:
        return NodeFiles()

    def driver_versions(self) -> dict[str, str]:
        return {}


def room(clock: list[float]) -> tuple[Cards, Alarms, TwoCards]:
    vendor = TwoCards()
    cards = Cards([vendor], clock=lambda: clock[0])

    async def begin() -> None:
        await cards.probe()
        await cards.check()

    asyncio.run(begin())
    return cards, Alarms(cards), vendor


def verdicts(cards: Cards) -> dict[str, tuple[str, str]]:
    return {device.id: (device.verdict, device.verdict_reason) for device in cards.devices}


def test_an_xid_condemns_its_card_and_no_other() -> None:
    cards, alarms, _ = room([0.0])
    alarms.heard(Event("xid", code=79, bus_id="0000:3b:00", pid=4))
    assert verdicts(cards) == {"gpu": ("Failed", "FellOffTheBus"), "npu": ("Healthy", "")}
    alarms.heard(Event("xid", code=31, bus_id="0000:3b:00", pid=5))
    asyncio.run(cards.check())
    assert verdicts(cards)["gpu"] == ("Failed", "FellOffTheBus"), "a card that says it is well is not believed"


def test_an_emulated_card_hears_nothing_of_the_real_kernel() -> None:
    cards, alarms, vendor = room([0.0])
    real = TwoCards.probe(vendor)
    vendor.probe = lambda: tuple(msgspec.structs.replace(card, emulated=True) for card in real)  # type: ignore[method-assign]
    asyncio.run(cards.probe())
    alarms.heard(Event("xid", code=79, bus_id="0000:3b:00", pid=4))
    assert (verdicts(cards)["gpu"], alarms.strays) == (("Healthy", ""), 1)


def test_what_was_told_outweighs_a_silent_driver() -> None:
    cards, alarms, vendor = room([0.0])
    alarms.heard(Event("xid", code=119, bus_id="0000:3b:00"))
    vendor.answers = False
    asyncio.run(cards.check())
    assert verdicts(cards) == {"gpu": ("Failed", "GspTimeout"), "npu": ("Unknown", "VendorSilent")}


def test_a_card_that_fell_off_the_bus_may_be_told_without_an_xid() -> None:
    cards, alarms, _ = room([0.0])
    alarms.heard(Event("lost", bus_id="0000:3b:00.0"))
    assert verdicts(cards)["gpu"] == ("Failed", "FellOffTheBus")


def test_an_ascend_fault_finds_its_npu_by_number() -> None:
    cards, alarms, _ = room([0.0])
    alarms.heard(Event("ascend", code=0x80C98001, device=5))
    alarms.heard(Event("ascend", code=0x80C98001, device=6))
    assert verdicts(cards) == {"gpu": ("Healthy", ""), "npu": ("Failed", "RestartNpu")}
    assert alarms.strays == 1


def test_an_ascend_fault_ends_with_the_word_that_it_is_over() -> None:
    cards, alarms, _ = room([0.0])
    line = "[ascend] [dms] fault event, dev_id=5, event_id=0x80E01801, assertion={}"
    for assertion, reason in (("1", "RestartBusiness"), ("0", "")):
        event = event_of(line.format(assertion))
        assert event is not None
        alarms.heard(event)
        assert verdicts(cards)["npu"][1] == reason


def test_corrected_pcie_errors_count_only_in_numbers_and_pass() -> None:
    clock = [0.0]
    cards, alarms, _ = room(clock)
    alarms.struck(PcieError("0000:3b:00.0", "corrected", count=29))
    assert verdicts(cards)["gpu"] == ("Healthy", "")
    alarms.struck(PcieError("0000:3b:00.0", "corrected", ("Bad TLP",)))
    assert verdicts(cards)["gpu"] == ("SubHealthy", "PcieCorrected")
    clock[0] = 61.0
    asyncio.run(cards.check())
    assert verdicts(cards)["gpu"] == ("Healthy", "")
    alarms.struck(PcieError("0000:c1:00.0", "fatal"))
    assert verdicts(cards)["npu"] == ("Failed", "PcieFatal")


def test_a_pcie_error_in_the_log_is_counted_once() -> None:
    """A port announces what it received, and the device's own line follows; where sysfs counts, the log does not."""
    lines = (
        "pcieport 0000:00:07.0: AER: Correctable error message received from 0000:3b:00.0",
        "nvidia 0000:3b:00.0: PCIe Bus Error: severity=Correctable, type=Data Link Layer, (Receiver ID)",
    )
    events = [event for line in lines if (event := event_of(line)) is not None]
    assert len(events) == 2
    cards, alarms, _ = room([0.0])
    for event in events * (CORRECTED - 1):
        alarms.heard(event)
    assert verdicts(cards)["gpu"] == ("Healthy", "")
    for event in events:
        alarms.heard(event)
    assert verdicts(cards)["gpu"] == ("SubHealthy", "PcieCorrected")
    cards, alarms, _ = room([0.0])
    alarms.aer.source = "sysfs"
    for event in events * CORRECTED:
        alarms.heard(event)
    assert verdicts(cards)["gpu"] == ("Healthy", "")
    announced = event_of(lines[0].replace("Correctable error", "Uncorrectable (Fatal) error"))
    assert announced is not None
    alarms.heard(announced)
    assert verdicts(cards)["gpu"] == ("Failed", "PcieFatal"), "a fatal one may be all that is ever said"


def test_a_line_written_to_the_log_reaches_the_verdict(tmp_path: Path) -> None:
    """Through a pipe in the place of /dev/kmsg, with lines before and after that mean nothing."""
    pipe = tmp_path / "kmsg"
    os.mkfifo(pipe)
    vendor = TwoCards()
    changes: list[None] = []
    cards = Cards([vendor], changed=lambda: changes.append(None))
    alarms = Alarms(cards, kernel_log=str(pipe), sysfs=tmp_path)

    async def story() -> None:
        await cards.probe()
        await cards.check()
        watching = asyncio.create_task(alarms.watch(asyncio.sleep))
        await asyncio.sleep(0)
        writer = os.open(pipe, os.O_WRONLY)
        before = len(changes)
        os.write(writer, b"6,1,1,-;usb 1-1: new device\n")
        os.write(writer, b"3,2,2,-;NVRM: Xid (PCI:0000:3b:00): 79, pid=9, name=python3, GPU has fallen off the bus.\n")
        await until(lambda: verdicts(cards)["gpu"] == ("Failed", "FellOffTheBus"))
        assert len(changes) == before + 1, "what changed is published, once"
        os.close(writer)
        watching.cancel()

    asyncio.run(story())


def test_a_log_that_cannot_be_read_is_said(tmp_path: Path) -> None:
    log = KernelLog(lambda _: None, device=str(tmp_path / "none"))

    async def story() -> bool:
        return log.start()

    assert asyncio.run(story()) is False
    assert "No such file" in log.problem


@pytest.mark.skipif(not os.access("/dev/kmsg", os.R_OK | os.W_OK), reason="/dev/kmsg may not be written")
def test_the_real_log_is_followed_from_its_end() -> None:
    """A line about a card that cannot exist is written to this machine's own log, and heard."""
    heard: list[Event] = []
    log = KernelLog(heard.append)

    async def story() -> None:
        if not log.start():
            pytest.skip(f"the kernel log may not be read: {log.problem}")
        with open("/dev/kmsg", "wb", buffering=0) as kmsg:
            kmsg.write(b"<6>hcs test: NVRM: Xid (PCI:ffff:ff:1f): 45, pid=1, name=test, written by a test\n")
        await until(lambda: bool(heard))
        log.stop()

    asyncio.run(story())
    assert {(event.kind, event.code, event.bus_id) for event in heard} == {("xid", 45, "ffff:ff:1f")}


@pytest.mark.parametrize("text", ["00000000:9B:00.0", "0000:9b:00.0", "0000:9b:00", "9B:00.0", "9b:00"])
def test_one_place_has_many_spellings(text: str) -> None:
    assert plain_bus(text) == "0000:9b:00"
