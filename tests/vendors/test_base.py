"""Vendors are asked off the event loop, and none can hold the agent up."""

import asyncio
import threading
from collections.abc import Sequence

import pytest

from hcs.inject.injection import NodeFiles
from hcs.model.devices import Device
from hcs.vendors.base import HealthObservation, Questioner, Vendor, VendorError, VendorHungError


class StubbornVendor:
    """Answers only when told to."""

    word = "stubborn"

    def __init__(self) -> None:
        self.answers = threading.Event()
        self.asked = 0

    def probe(self) -> Sequence[Device]:
        self.asked += 1
        assert self.answers.wait(10)
        return ()

    def read_health(self) -> Sequence[HealthObservation]:
        raise VendorError("the library says no")

    def forget(self, device: str) -> None:
        pass

    def node_files(self, device: Device) -> NodeFiles:
        return NodeFiles()

    def driver_versions(self) -> dict[str, str]:
        return {"stubborn": threading.current_thread().name}


def test_a_vendor_that_hangs_is_given_up_and_not_asked_again_until_it_answers() -> None:
    vendor = StubbornVendor()
    typed: Vendor = vendor

    async def story() -> None:
        questioner = Questioner(typed, limit=0.01)
        with pytest.raises(VendorHungError, match=r"stubborn has not answered within 0.01 s"):
            await questioner.ask(vendor.probe)
        with pytest.raises(VendorHungError, match="an earlier question"):
            await questioner.ask(vendor.probe)
        assert vendor.asked == 1, "threads do not pile up behind a dead driver"
        vendor.answers.set()
        while True:
            try:
                assert await questioner.ask(vendor.probe) == ()
                break
            except VendorHungError:
                await asyncio.sleep(0.001)

    asyncio.run(story())


def test_the_answer_comes_from_a_thread_and_errors_come_through() -> None:
    vendor = StubbornVendor()

    async def story() -> None:
        questioner = Questioner(vendor)
        assert await questioner.ask(vendor.driver_versions) == {"stubborn": "ask-stubborn"}
        with pytest.raises(VendorError, match="the library says no"):
            await questioner.ask(vendor.read_health)

    asyncio.run(story())


def test_an_answer_that_comes_after_the_loop_has_ended_harms_nobody() -> None:
    vendor = StubbornVendor()

    async def story() -> None:
        with pytest.raises(VendorHungError):
            await Questioner(vendor, limit=0.01).ask(vendor.probe)

    asyncio.run(story())
    vendor.answers.set()
    for thread in threading.enumerate():
        if thread.name == "ask-stubborn":
            thread.join(5)
            assert not thread.is_alive()
