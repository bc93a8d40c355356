"""Spikes and streams as the kubelet hands them out; the kubelet is ours, the wire is the real one's."""

from pathlib import Path

import grpc
import pytest
from tests.deviceplugin.kubelet import FakeKubelet
from tests.neuro.boards import board, package
from tests.neuroplugin.room import CORES, KSPS, SETTINGS, STREAMS, tell
from tests.waiting import until

from hcs.model.refusals import RefusedError
from hcs.neuroplugin.node import NeuroNode
from hcs.neuroplugin.settings import Settings, Units
from hcs.vendors.emulated_board import EmulatedBoard

Drivers = dict[str, EmulatedBoard]


async def admit(kubelet: FakeKubelet, pod: str, ksps: int, streams: int) -> dict[str, str]:
    env = dict((await kubelet.admit(pod, KSPS, ksps)).env)
    env.update((await kubelet.admit(pod, STREAMS, streams)).env)
    return env


def test_a_pod_is_told_its_queue_channels_and_limits(folder: Path) -> None:
    async def story(kubelet: FakeKubelet, node: NeuroNode, drivers: Drivers) -> None:
        env = await admit(kubelet, "pod-1", 150, 2)
        assert env["SNN_MAX_KSPS"] == env["SNN_KSPS_ALLOCATED"] == "150"
        assert env["SNN_ROUTING_STREAMS_ALLOCATED"] == "2"
        assert env["SNN_PULSE_INPUT_QUEUE_ID"].startswith("b0-q")
        channels = env["SNN_ROUTER_CHANNEL"].split(",")
        assert len(set(channels)) == 2
        assert node.service.sites["b0"].free().ksps == 350
        assert node.service.sites["b0"].free().streams == 10
        for resource in (KSPS, STREAMS):
            await kubelet.start_container("pod-1", resource)
        assert [limits.ksps for limits in drivers["b0"].limits().values()] == [150]
        assert [sorted(f"{p}/{c}" for p, c in v.channels) for v in drivers["b0"].limits().values()] == [
            sorted(channels)
        ]

    tell(story, folder)


def test_two_equal_pods_that_start_together_get_their_own(folder: Path) -> None:
    async def story(kubelet: FakeKubelet, node: NeuroNode, drivers: Drivers) -> None:
        first, second = {}, {}
        # Allocations of both arrive interleaved, and nothing in them says whose they are.
        first.update((await kubelet.admit("pod-1", KSPS, 100)).env)
        second.update((await kubelet.admit("pod-2", KSPS, 100)).env)
        second.update((await kubelet.admit("pod-2", STREAMS, 2)).env)
        first.update((await kubelet.admit("pod-1", STREAMS, 2)).env)
        for pod in ("pod-2", "pod-1"):
            for resource in (STREAMS, KSPS):
                await kubelet.start_container(pod, resource)
        for pod, env in (("pod-1", first), ("pod-2", second)):
            key = int(env["SNN_PULSE_INPUT_QUEUE_ID"].rpartition("q")[2])
            limits = drivers["b0"].limits()[key]
            assert limits.ksps == 100
            assert ",".join(f"{p}/{c}" for p, c in limits.channels) == env["SNN_ROUTER_CHANNEL"], pod
        assert first["SNN_ROUTER_CHANNEL"] != second["SNN_ROUTER_CHANNEL"]

    tell(story, folder)


def test_what_pods_leave_is_found_through_podresources(folder: Path) -> None:
    async def story(kubelet: FakeKubelet, node: NeuroNode, _: Drivers) -> None:
        await admit(kubelet, "pod-1", 150, 2)
        await kubelet.admit("pod-1", CORES, 10)
        await until(lambda: all(t.seen for held in node.books._taken.values() for t in held.values()))
        assert node.service.sites["b0"].cores.held
        kubelet.remove("pod-1")
        await until(lambda: node.service.sites["b0"].free() == node.service.sites["b0"].capacity)
        assert node.service.sites["b0"].cores.held == {}

    tell(story, folder)


def test_what_the_service_takes_the_kubelet_no_longer_counts(folder: Path) -> None:
    async def story(kubelet: FakeKubelet, node: NeuroNode, _: Drivers) -> None:
        await node.operator.install("a", package(m=(4, {"ksps": 400, "streams": 3})))
        await node.operator.create("a", "app")
        await kubelet.has(KSPS, 500, 100)
        await kubelet.has(STREAMS, 12, 9)
        await kubelet.has(CORES, 64, 60)
        await kubelet.admit("pod-1", KSPS, 100)
        with pytest.raises(AssertionError, match="Insufficient"):
            await kubelet.admit("pod-2", KSPS, 1)
        with pytest.raises(RefusedError, match="has 0 of 500 left"):
            await node.operator.create("a", "app")
        await node.operator.destroy("a", 1)
        await kubelet.has(KSPS, 500, 500)

    tell(story, folder)


def test_a_kubelet_that_has_not_heard_yet_is_refused_with_a_sentence(folder: Path) -> None:
    async def story(kubelet: FakeKubelet, node: NeuroNode, _: Drivers) -> None:
        await node.operator.install("a", package(m=(4, {"ksps": 400})))
        node.service.create("a", "app")
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await kubelet.admit("pod-1", KSPS, 150)
        assert "has 100 left" in (caught.value.details() or "")
        assert node.service.sites["b0"].free().ksps == 100

    tell(story, folder)


def test_after_a_kubelets_restart_everything_is_registered_again_and_kept(folder: Path) -> None:
    async def story(kubelet: FakeKubelet, node: NeuroNode, _: Drivers) -> None:
        await admit(kubelet, "pod-1", 150, 2)
        before = len(kubelet.registrations)
        await kubelet.stop()
        await kubelet.start()
        for name in node.books.names:
            await until(lambda name=name: kubelet.capacity(name)[0] > 0)  # type: ignore[misc]
        assert len(kubelet.registrations) == before + len(node.books.names)
        assert node.service.sites["b0"].free().ksps == 350

    tell(story, folder)


def test_after_our_own_restart_what_pods_hold_is_booked_again(folder: Path) -> None:
    async def story(kubelet: FakeKubelet, node: NeuroNode, _: Drivers) -> None:
        ids = [unit.id for unit in node.books.units(KSPS)][:120]
        channels = [unit.id for unit in node.books.units(STREAMS)][:2]
        kubelet.pods["default", "old", "main"] = {KSPS: ids, STREAMS: channels}
        await until(lambda: node.service.sites["b0"].free().ksps == 380)
        await until(lambda: node.service.sites["b0"].free().streams == 10)
        kubelet.remove("old")
        await until(lambda: node.service.sites["b0"].free().ksps == 500)

    tell(story, folder)


def test_cores_come_as_a_rectangle_without_dead_ones_too_few(folder: Path) -> None:
    async def story(kubelet: FakeKubelet, node: NeuroNode, _: Drivers) -> None:
        env = (await kubelet.admit("pod-1", CORES, 9)).env
        _x, _y, width, height = map(int, env["SNN_CORE_RECTANGLE"].split(","))
        assert width * height >= 9
        assert node.service.sites["b0"].cores.held

    tell(story, folder, board(dead_cores=frozenset({(0, 0)})), settings=SETTINGS)


def test_ids_of_one_board_are_preferred_and_others_refused(folder: Path) -> None:
    async def story(kubelet: FakeKubelet, node: NeuroNode, _: Drivers) -> None:
        env = (await kubelet.admit("pod-1", KSPS, 60)).env
        assert env["SNN_BOARD"] == "b1", "the smaller board that has enough"
        with pytest.raises(RefusedError, match="no task runs on two boards"):
            node.books.allocate(KSPS, ("k0-000", "k1-60"))

    tell(story, folder, board("b0", ksps=500), board("b1", ksps=100))


def test_unlike_boards_have_resources_of_their_own_and_numa(folder: Path) -> None:
    async def story(kubelet: FakeKubelet, _: NeuroNode, __: Drivers) -> None:
        name = "snn.vendor.com/ksps-type-a"
        assert kubelet.capacity(name) == (20, 20)
        assert set(map(tuple, kubelet.endpoints[name].numa.values())) == {(1,)}
        env = (await kubelet.admit("pod-1", name, 15)).env
        assert env["SNN_MAX_KSPS"] == "150", "one id stands for ten"

    settings = Settings(domain="snn.vendor.com", units=Units(ksps=10), resources=("ksps",))
    tell(story, folder, board("b0", ksps=200, module="type-a", numa=1), settings=settings)


def test_dead_cores_take_ids_out(folder: Path) -> None:
    async def story(kubelet: FakeKubelet, node: NeuroNode, drivers: Drivers) -> None:
        drivers["b0"].fail(cores=[(1, 1)], routers=[(2, 2)])
        await kubelet.has(CORES, 64, 62)

    tell(story, folder)


def test_files_and_mounts_come_with_any_resource(folder: Path) -> None:
    async def story(kubelet: FakeKubelet, _: NeuroNode, __: Drivers) -> None:
        answer = await kubelet.admit("pod-1", KSPS, 1)
        assert answer.devices == [("/dev/snn-b0", "/dev/snn-b0", "rw")]
        assert answer.mounts == [("/opt/snn", "/opt/snn", True)]

    settings = Settings(resources=("ksps",), device_nodes=("/dev/snn-{board}",), mounts=(("/opt/snn", "/opt/snn"),))
    tell(story, folder, settings=settings)
