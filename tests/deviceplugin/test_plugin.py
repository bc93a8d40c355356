"""A resource is known to the kubelet, stays known through its restarts, and gives what it promised.

The kubelet here is our own, but speaks the wire as the real one does; the sockets are real.
"""

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import grpc
import pytest
from tests.deviceplugin.kubelet import FakeKubelet, fake_kubelet
from tests.waiting import until

from hcs.deviceplugin.plugin import LOOK_SECONDS, DevicePlugin
from hcs.deviceplugin.podresources import Holder, PodResources
from hcs.deviceplugin.resource import Grant, HostDevice, HostMount, Unit
from hcs.model.refusals import Refusal, RefusedError

SPIKES = "example.test/kspikes"


class Spikes:
    """A resource for tests: prefers the highest ids, remembers who started."""

    name = SPIKES

    def __init__(self) -> None:
        self.started: list[tuple[frozenset[str], Holder | None]] = []
        self.refusal: Refusal | None = None

    async def prefer(self, available: tuple[str, ...], required: tuple[str, ...], size: int) -> tuple[str, ...]:
        return tuple(sorted(available, reverse=True))[:size]

    async def allocate(self, ids: tuple[str, ...]) -> Grant:
        if self.refusal is not None:
            raise RefusedError(self.refusal)
        return Grant(
            env={"SPIKES": ",".join(ids)},
            mounts=(HostMount("/host/lib", "/lib/snn"), HostMount("/host/state", "/state", read_only=False)),
            devices=(HostDevice("/dev/chip0", "/dev/chip"),),
            annotations={"example.test/units": str(len(ids))},
            cdi=("example.test/chip=0",),
        )

    async def start(self, ids: tuple[str, ...], holder: Holder | None) -> None:
        if self.refusal is not None:
            raise RefusedError(self.refusal)
        self.started.append((frozenset(ids), holder))


def units(count: int) -> list[Unit]:
    return [Unit(f"k{number:04}") for number in range(count)]


class Ground:
    """A kubelet, and a plugin running beside it."""

    def __init__(self, kubelet: FakeKubelet, plugin: DevicePlugin, spikes: Spikes) -> None:
        self.kubelet, self.plugin, self.spikes = kubelet, plugin, spikes
        self.looks = 0


Story = Callable[[Ground], Coroutine[Any, Any, None]]


@pytest.fixture
def tell(folder: Path) -> Callable[[Story], None]:
    """Runs a story with 8 units on the node."""

    def run(story: Story) -> None:
        async def whole() -> None:
            spikes, looks = Spikes(), 0

            async def pause(seconds: float) -> None:
                nonlocal looks
                looks += seconds == LOOK_SECONDS
                if ground is not None:
                    ground.looks = looks
                await asyncio.sleep(seconds / 20)

            ground: Ground | None = None
            plugin = DevicePlugin(
                spikes,
                directory=folder / "device-plugins",
                pod_resources=PodResources(folder / "pod-resources.sock"),
                preference=True,
                pause=pause,
            )
            await plugin.publish(units(8))
            async with fake_kubelet(folder, [plugin.run]) as kubelet:
                await kubelet.has(SPIKES, 8, 8)
                ground = Ground(kubelet, plugin, spikes)
                await story(ground)

        asyncio.run(whole())

    return run


Tell = Callable[[Story], None]


def test_the_kubelet_knows_the_resource(tell: Tell) -> None:
    async def story(ground: Ground) -> None:
        assert ground.kubelet.registrations == [("v1beta1", "hcs-example.test-kspikes.sock", SPIKES)]
        endpoint = ground.kubelet.endpoints[SPIKES]
        assert endpoint.pre_start
        assert endpoint.prefers
        await ground.plugin.publish([Unit("near", numa=(0, 1)), Unit("anywhere")])
        await ground.kubelet.has(SPIKES, 2, 2)
        assert endpoint.numa == {"near": [0, 1], "anywhere": []}

    tell(story)


def test_a_container_gets_what_its_units_mean(tell: Tell) -> None:
    async def story(ground: Ground) -> None:
        answer = await ground.kubelet.admit("one", SPIKES, 3)
        assert answer.env == {"SPIKES": "k0007,k0006,k0005"}, "the kubelet followed the advice"
        assert answer.mounts == [("/host/lib", "/lib/snn", True), ("/host/state", "/state", False)]
        assert answer.devices == [("/dev/chip0", "/dev/chip", "rw")]
        assert answer.annotations == {"example.test/units": "3"}
        assert answer.cdi == ["example.test/chip=0"]

    tell(story)


def test_a_refusal_reaches_the_kubelet_with_its_sentence(tell: Tell) -> None:
    async def story(ground: Ground) -> None:
        ground.spikes.refusal = Refusal("ChipBusy", "the chip is being loaded; try again")
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await ground.kubelet.admit("one", SPIKES, 1)
        assert caught.value.code() == grpc.StatusCode.FAILED_PRECONDITION
        assert caught.value.details() == "ChipBusy: the chip is being loaded; try again"
        ground.spikes.refusal = None
        await ground.kubelet.admit("one", SPIKES, 1)

    tell(story)


def test_a_unit_that_is_no_longer_there_is_not_given(tell: Tell) -> None:
    async def story(ground: Ground) -> None:
        stale = ground.kubelet.endpoints[SPIKES].call("Allocate")
        with pytest.raises(grpc.aio.AioRpcError, match="UnknownUnit"):
            await stale(b"\x0a\x07\x0a\x05k9999")

    tell(story)


def test_a_container_that_starts_is_known_by_name_each_time(tell: Tell) -> None:
    """The protocol never says whose container it is; podresources does. Units of one container come in several parts
    there, one for each NUMA node."""

    async def story(ground: Ground) -> None:
        await ground.kubelet.admit("one", SPIKES, 2)
        await ground.kubelet.admit("two", SPIKES, 1, container="side")
        for _ in range(2):
            await ground.kubelet.start_container("one", SPIKES)
        await ground.kubelet.start_container("two", SPIKES, "side")
        one = (frozenset({"k0007", "k0006"}), Holder("default", "one", "main"))
        assert ground.spikes.started == [one, one, (frozenset({"k0005"}), Holder("default", "two", "side"))]
        ground.spikes.refusal = Refusal("ModelMissing", "the model cannot be loaded")
        with pytest.raises(grpc.aio.AioRpcError, match="ModelMissing"):
            await ground.kubelet.start_container("one", SPIKES)

    tell(story)


def test_sick_units_are_no_longer_given(tell: Tell) -> None:
    async def story(ground: Ground) -> None:
        await ground.plugin.publish([Unit(unit.id, healthy=number >= 2) for number, unit in enumerate(units(8))])
        await ground.kubelet.has(SPIKES, 8, 6)
        await ground.plugin.publish(units(8))
        await ground.kubelet.has(SPIKES, 8, 8)

    tell(story)


def test_a_restarted_kubelet_is_told_again(tell: Tell) -> None:
    async def story(ground: Ground) -> None:
        await ground.kubelet.stop()
        before = ground.looks
        await ground.kubelet.start()
        assert ground.kubelet.capacity(SPIKES) == (0, 0)
        await ground.kubelet.has(SPIKES, 8, 8)
        assert len(ground.kubelet.registrations) == 2
        assert (ground.looks - before) * LOOK_SECONDS <= 2.0, "that is how soon"
        await ground.kubelet.admit("one", SPIKES, 1)

    tell(story)


def test_a_kubelet_that_stops_listening_is_told_again(tell: Tell) -> None:
    """Its stream may end for reasons of its own; it waits to be registered with, for ever."""

    async def story(ground: Ground) -> None:
        watching = ground.kubelet.endpoints[SPIKES].watching
        assert watching is not None
        watching.cancel()
        await until(lambda: len(ground.kubelet.registrations) == 2)
        await ground.kubelet.has(SPIKES, 8, 8)

    tell(story)


def test_a_kubelet_that_is_away_or_refuses_is_asked_again(tell: Tell) -> None:
    async def story(ground: Ground) -> None:
        await ground.kubelet.stop()
        for path in ground.kubelet.directory.iterdir():
            path.unlink(missing_ok=True)
        await until(lambda: not ground.plugin.registered.is_set())
        ground.kubelet.refuse_registrations = 2
        await ground.kubelet.start()
        await ground.kubelet.has(SPIKES, 8, 8)

    tell(story)


def test_a_list_the_kubelet_could_not_read_is_refused_here(tell: Tell) -> None:
    async def story(ground: Ground) -> None:
        with pytest.raises(RefusedError, match="ListTooLong"):
            await ground.plugin.publish(units(100_001))
        await ground.kubelet.admit("one", SPIKES, 1)
        assert ground.kubelet.capacity(SPIKES) == (8, 8), "what was published before stays"

    tell(story)


def test_health_that_flickers_makes_few_lists(folder: Path) -> None:
    """One list a second at most: the kubelet writes its checkpoint for each."""

    async def whole() -> None:
        now, pauses = 0.0, asyncio.Queue[float]()

        async def pause(seconds: float) -> None:
            nonlocal now
            if seconds >= 0.6:  # the stream's own pause; the directory is looked at in half-second steps
                await pauses.put(seconds)
                await until(lambda: now > 100)
            await asyncio.sleep(0.01)

        plugin = DevicePlugin(Spikes(), directory=folder / "device-plugins", pause=pause, clock=lambda: now)
        await plugin.publish(units(4))
        async with fake_kubelet(folder, [plugin.run]) as kubelet:
            await kubelet.has(SPIKES, 4, 4)
            for count in (3, 2, 1):
                await plugin.publish(units(count))
                assert count == 3 or pauses.empty()
                if count == 3:
                    assert await pauses.get() == 1.0
            assert kubelet.capacity(SPIKES) == (4, 4)
            now = 101.0
            await kubelet.has(SPIKES, 1, 1)
            assert kubelet.endpoints[SPIKES].lists == 2

    asyncio.run(whole())
