"""A card is measured when nobody has it, under a reservation that everybody sees, and never beside a pod."""

import asyncio
from datetime import date
from pathlib import Path
from typing import Any

from lightkube.types import PatchType
from tests.agent.scene import MODEL, NODE, NodeScene, scene, uuid

from hcs.agent.calibration import AGAIN_SECONDS, LOOK_SECONDS, REASON, MeasureError
from hcs.kube.resources import ComputeNode, Event, ExchangeRate
from hcs.measure.backends import Unit
from hcs.measure.emulated_backend import EmulatedBackend, Speed, write_speed
from hcs.measure.results import GEMM_FP16_A100, Result, result_of
from hcs.measure.suite import VERSION, Figure, measure
from hcs.model.devices import Device, Link
from hcs.model.locality import Locality
from hcs.placement.topology import best_set, wire
from hcs.sandbox.scheduler.virtualtime import run_virtual
from hcs.vendors import emulated


class Bench:
    """Measures in virtual time; remembers what it saw while it did."""

    def __init__(self, node: NodeScene, *speeds: float | None) -> None:
        self.node, self.speeds = node, list(speeds)
        self.asked: list[str] = []
        self.peers: list[list[str]] = []
        self.reserved: list[list[str]] = []

    async def __call__(self, device: Device, peers: tuple[Device, ...]) -> Result | None:
        self.asked.append(device.id)
        self.peers.append([peer.id for peer in peers])
        entries = (await self.node.published()).spec.quarantine
        self.reserved.append([entry.device for entry in entries if entry.reason == REASON])
        await asyncio.sleep(30)
        speed = self.speeds.pop(0) if self.speeds and not peers else 1.0
        if speed is None:
            raise MeasureError("the card fell silent")
        ways = [
            Figure(f"p2p_{word}_{peer.index}", 100.0, "GB/s", 0.01, True, 11, peer=peer.id)
            for peer in peers
            for word in ("to", "from")
        ]
        if peers:
            return Result(device.id, device.vendor, device.model, "2026-11-21", VERSION, "bench", "", {}, tuple(ways))
        gemm = Figure("gemm_fp16", GEMM_FP16_A100 * speed, "TFLOPS", 0.01, True, 11)
        return Result(device.id, device.vendor, device.model, "2026-11-21", VERSION, "bench", "", {}, (gemm,))


async def measured(node: NodeScene, bench: Bench, count: int, *, ways: int = 0) -> None:
    """Wait until so many cards, and so many ways between them, are measured, and nothing is reserved any more."""

    async def done() -> bool:
        published = await node.published()
        devices = published.status.devices
        known = sum(link.mbps is not None for device in devices for link in device.links) // 2
        return sum(bool(d.measured_at) for d in devices) >= count and known >= ways and not published.spec.quarantine

    await node.cluster.until(done, seconds=600)


def milliacu(node: ComputeNode) -> list[tuple[int, str]]:
    return [(rate.milliacu, d.measured_at) for d in node.status.devices if (rate := d.rate()) is not None]


def test_every_card_is_measured_once_under_a_reservation(tmp_path: Path) -> None:
    async def story() -> None:
        async with scene(tmp_path) as node:
            bench = Bench(node, 0.9, 1.1)
            await node.start_agent(measurer=bench, poll=5.0)
            await node.settle()
            await measured(node, bench, 2, ways=1)
            assert bench.asked == [uuid(0), uuid(1), uuid(0)]
            assert bench.reserved == [[uuid(0)], [uuid(1)], [uuid(0), uuid(1)]]
            assert bench.peers == [[], [], [uuid(1)]]  # each way once, and no other card waits for a card's own figures
            published = await node.published()
            assert milliacu(published) == [(90_000, "2026-11-21"), (110_000, "2026-11-21")]
            condition = next(c for c in published.status.conditions if c.type == "Calibrated")
            assert (condition.status, condition.reason) == ("True", "AllMeasured")
            (rate,) = [rate async for rate in node.cluster.client.list(ExchangeRate)]
            assert (rate.spec["model"], rate.spec["rates"][0]["milliacu"]) == (MODEL, 100_000)
            await node.stop_agent()
            await node.start_agent(measurer=bench, poll=5.0)
            await node.settle()
            await asyncio.sleep(3 * LOOK_SECONDS)
            assert len(bench.asked) == 3  # what was found outlives a restart
            assert milliacu(await node.published())[0][0] == 90_000

    run_virtual(story())


def test_a_card_in_use_is_left_alone_until_it_is_free(tmp_path: Path) -> None:
    async def story() -> None:
        async with scene(tmp_path) as node:
            bench = Bench(node)
            await node.start_agent()
            pod = await node.bound_pod("trainer", 0)
            await node.settle()
            await node.stop_agent()
            await node.start_agent(measurer=bench, poll=5.0)
            await node.settle()
            await measured(node, bench, 1)
            assert bench.asked == [uuid(1)]
            assert bench.reserved == [[uuid(1)]]
            await node.cluster.client.delete(type(pod), "trainer", namespace="default", grace_period=0)
            await measured(node, bench, 2, ways=1)
            assert bench.asked == [uuid(1), uuid(0), uuid(0)]
            assert bench.peers == [[], [], [uuid(1)]]  # never to a card in use

    run_virtual(story())


def test_ways_to_a_card_that_was_out_of_service_come_later(tmp_path: Path) -> None:
    async def story() -> None:
        async with scene(tmp_path, cards=3) as node:
            await node.start_agent()
            await node.settle()
            await node.quarantine(uuid(2))
            await node.stop_agent()
            bench = Bench(node)
            agent = await node.start_agent(measurer=bench, poll=5.0)
            await node.cluster.until(lambda: _true(len(bench.asked) == 3), seconds=200)
            assert bench.peers == [[], [], [uuid(1)]]
            await node.cluster.client.patch(ComputeNode, NODE, {"spec": {"quarantine": []}}, patch_type=PatchType.MERGE)
            await measured(node, bench, 3, ways=3)
            tried = {
                frozenset((one, peer)) for one, peers in zip(bench.asked, bench.peers, strict=True) for peer in peers
            }
            assert len(tried) == sum(map(len, bench.peers)) == 3, "each way once"
            assert agent.calibration is not None
            assert agent.calibration.due() is None

    run_virtual(story())


def test_a_way_that_nobody_told_of_is_asked_for_again_and_the_rest_is_kept(tmp_path: Path) -> None:
    async def story() -> None:
        async with scene(tmp_path, cards=3) as node:

            class Forgetful(Bench):
                async def __call__(self, device: Device, peers: tuple[Device, ...]) -> Result | None:
                    return await super().__call__(device, peers[:1])

            bench = Forgetful(node, 0.9)
            await node.start_agent(measurer=bench, poll=5.0)
            await node.settle()
            await measured(node, bench, 3, ways=3)
            assert sum(map(len, bench.peers)) == 3
            assert milliacu(await node.published())[0] == (90_000, "2026-11-21")  # its own figures are still there

    run_virtual(story())


async def _true(answer: bool) -> bool:
    return answer


def test_measured_ways_reach_the_router(tmp_path: Path) -> None:
    """Four cards with the same word between all of them; only timed copies tell which two are near each other."""

    async def story() -> None:
        async with scene(tmp_path, cards=4) as node:
            for index, speed in enumerate((20.0, 90.0, 20.0, 90.0)):
                path = node.cards / f"nvidia{index}.card"
                write_speed(path, Speed({"fp16": 250.0}, 1500.0, speed))
                others = (other for other in range(4) if other != index)
                emulated.write_place(path, numa=0, links=[Link(uuid(other), "PHB") for other in others])

            async def measurer(device: Device, peers: tuple[Device, ...]) -> Result:
                backend = EmulatedBackend(node.cards)
                units = [Unit(peer.index, peer.model, peer.id) for peer in peers]
                outcomes = measure(backend, device.index, peers=units, sizes=(4096,))
                return result_of(
                    outcomes,
                    device=device.id,
                    vendor=device.vendor,
                    model=device.model,
                    backend=backend.name,
                    driver="",
                    clocks={},
                    today=date(2026, 11, 21),
                    emulated=True,
                )

            await node.start_agent()
            await node.settle()
            before = (await node.published()).inventory()
            assert best_set(wire(before, "nvidia", MODEL, Locality()), 2, 0b1111) == (0, 1)
            await node.stop_agent()
            await node.start_agent(measurer=measurer, poll=5.0)
            await node.settle()

            async def done() -> bool:
                published = await node.published()
                ways = [link.mbps for device in published.status.devices for link in device.links]
                return len(ways) == 12 and all(ways) and not published.spec.quarantine

            await node.cluster.until(done, seconds=300)
            after = (await node.published()).inventory()
            assert best_set(wire(after, "nvidia", MODEL, Locality()), 2, 0b1111) == (1, 3)
            one = next(device for device in after.devices if device.id == uuid(1))
            assert {(link.peer, link.kind): link.mbps for link in one.links} == {
                (uuid(0), "PHB"): 40_000,
                (uuid(2), "PHB"): 40_000,
                (uuid(3), "PHB"): 180_000,
            }

    run_virtual(story())


def test_no_container_starts_on_a_card_while_it_is_measured(tmp_path: Path) -> None:
    async def story() -> None:
        async with scene(tmp_path, cards=1) as node:
            bench = Bench(node)
            await node.start_agent(measurer=bench, poll=5.0)
            await node.settle()

            async def begun() -> bool:
                return bool(bench.asked)

            await node.cluster.until(begun, seconds=60)
            pod = await node.bound_pod("late", 0)
            await node.settle()
            refusal = await node.refused(pod)
            assert refusal.reason == "QuarantinedDevice"
            assert "being measured" in refusal.message
            await measured(node, bench, 1)
            await node.settle()
            await node.adjusted(pod)

    run_virtual(story())


def test_a_pod_that_came_in_between_wins(tmp_path: Path) -> None:
    async def story() -> None:
        async with scene(tmp_path, cards=1) as node:
            bench = Bench(node)
            await node.start_agent(measurer=bench, poll=5.0)
            await node.settle()

            async def reserved() -> bool:
                return bool((await node.published()).spec.quarantine)

            await node.cluster.until(reserved, seconds=60)
            await node.bound_pod("quick", 0)
            await asyncio.sleep(3 * LOOK_SECONDS)
            assert bench.asked == []
            assert not (await node.published()).spec.quarantine

    run_virtual(story())


def test_a_measurement_that_fails_gives_the_card_back_and_is_tried_later(tmp_path: Path) -> None:
    async def story() -> None:
        async with scene(tmp_path, cards=1) as node:
            bench = Bench(node, None)
            await node.start_agent(measurer=bench, poll=5.0)
            await node.settle()
            await asyncio.sleep(2 * LOOK_SECONDS)
            assert bench.asked == [uuid(0)]
            published = await node.published()
            assert not published.spec.quarantine
            condition = next(c for c in published.status.conditions if c.type == "Calibrated")
            assert (condition.status, condition.reason) == ("False", "NotMeasured")
            await asyncio.sleep(AGAIN_SECONDS)
            await measured(node, bench, 1)
            assert len(bench.asked) == 2

    run_virtual(story())


def test_a_measurement_that_cannot_begin_does_not_end_the_agent(tmp_path: Path) -> None:
    async def story() -> None:
        async with scene(tmp_path, cards=1) as node:
            asked: list[str] = []

            async def measurer(device: Device, peers: tuple[Device, ...]) -> Result | None:
                asked.append(device.id)
                raise OSError(12, "Cannot allocate memory")

            await node.start_agent(measurer=measurer, poll=5.0)
            await node.settle()
            await asyncio.sleep(2 * LOOK_SECONDS)
            assert asked == [uuid(0)]
            assert not (await node.published()).spec.quarantine
            await asyncio.sleep(AGAIN_SECONDS)
            assert len(asked) == 2

    run_virtual(story())


def test_a_reservation_that_a_crash_left_behind_is_taken_away_and_no_other(tmp_path: Path) -> None:
    async def story() -> None:
        async with scene(tmp_path, cards=1) as node:
            await node.start_agent()
            await node.settle()
            left = [
                {"device": uuid(0), "reason": REASON, "by": "agent"},
                {"device": "other", "reason": "Maintenance", "by": "anna"},
            ]
            await node.cluster.client.patch(
                ComputeNode, NODE, {"spec": {"quarantine": left}}, patch_type=PatchType.MERGE
            )
            await node.stop_agent()
            bench = Bench(node)
            await node.start_agent(measurer=bench, poll=5.0)
            await node.settle()

            async def done() -> bool:
                published = await node.published()
                return [entry.by for entry in published.spec.quarantine] == ["anna"] and bool(
                    published.status.devices[0].measured_at
                )

            await node.cluster.until(done, seconds=120)

    run_virtual(story())


def test_a_card_far_below_its_model_is_flagged(tmp_path: Path) -> None:
    async def story() -> None:
        async with scene(tmp_path, cards=3) as node:
            bench = Bench(node, 1.0, 1.0, 0.8)
            await node.start_agent(measurer=bench, poll=5.0)
            await node.settle()
            await measured(node, bench, 3)

            async def flagged() -> bool:
                conditions: Any = (await node.published()).status.conditions
                return any(c.reason == "SlowCards" and uuid(2) in c.message for c in conditions)

            await node.cluster.until(flagged, seconds=60)
            events = [event async for event in node.cluster.client.list(Event, namespace="default")]
            assert [e.type for e in events if e.reason == "SlowCard"] == ["Warning"]

    run_virtual(story())


def test_another_driver_or_model_makes_a_result_stale(tmp_path: Path) -> None:
    async def story() -> None:
        async with scene(tmp_path, cards=1) as node:
            bench = Bench(node)
            agent = await node.start_agent(measurer=bench, poll=5.0)
            await node.settle()
            await measured(node, bench, 1)
            calibration = agent.calibration
            assert calibration is not None
            device = agent.cards.devices[0]
            assert calibration.refine(device).measured_at
            other = Device(device.id, 0, device.vendor, "L40S", device.vram)
            assert calibration.refine(other) == other

    run_virtual(story())
