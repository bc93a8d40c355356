"""A card is measured when nobody has it, under a reservation that everybody sees, and never beside a pod."""

import asyncio
from pathlib import Path
from typing import Any

from lightkube.types import PatchType
from tests.agent.scene import MODEL, NODE, NodeScene, scene, uuid

from hcs.agent.calibration import AGAIN_SECONDS, LOOK_SECONDS, REASON, MeasureError
from hcs.kube.resources import ComputeNode, Event, ExchangeRate
from hcs.measure.results import GEMM_FP16_A100, Result
from hcs.measure.suite import VERSION, Figure
from hcs.model.devices import Device
from hcs.sandbox.scheduler.virtualtime import run_virtual


class Bench:
    """Measures in virtual time; remembers what it saw while it did."""

    def __init__(self, node: NodeScene, *speeds: float | None) -> None:
        self.node, self.speeds = node, list(speeds)
        self.asked: list[str] = []
        self.reserved: list[list[str]] = []

    async def __call__(self, device: Device) -> Result | None:
        self.asked.append(device.id)
        entries = (await self.node.published()).spec.quarantine
        self.reserved.append([entry.device for entry in entries if entry.reason == REASON])
        await asyncio.sleep(30)
        speed = self.speeds.pop(0) if self.speeds else 1.0
        if speed is None:
            raise MeasureError("the card fell silent")
        gemm = Figure("gemm_fp16", GEMM_FP16_A100 * speed, "TFLOPS", 0.01, True, 11)
        return Result(device.id, device.vendor, device.model, "2026-11-21", VERSION, "bench", "", {}, (gemm,))


async def measured(node: NodeScene, bench: Bench, count: int) -> None:
    async def done() -> bool:
        published = await node.published()
        return sum(bool(d.measured_at) for d in published.status.devices) >= count and not published.spec.quarantine

    await node.cluster.until(done, seconds=600)


def milliacu(node: ComputeNode) -> list[tuple[int, str]]:
    return [(rate.milliacu, d.measured_at) for d in node.status.devices if (rate := d.rate()) is not None]


def test_every_card_is_measured_once_under_a_reservation(tmp_path: Path) -> None:
    async def story() -> None:
        async with scene(tmp_path) as node:
            bench = Bench(node, 0.9, 1.1)
            await node.start_agent(measurer=bench)
            await node.settle()
            await measured(node, bench, 2)
            assert bench.asked == [uuid(0), uuid(1)]
            assert bench.reserved == [[uuid(0)], [uuid(1)]]
            published = await node.published()
            assert milliacu(published) == [(90_000, "2026-11-21"), (110_000, "2026-11-21")]
            condition = next(c for c in published.status.conditions if c.type == "Calibrated")
            assert (condition.status, condition.reason) == ("True", "AllMeasured")
            (rate,) = [rate async for rate in node.cluster.client.list(ExchangeRate)]
            assert (rate.spec["model"], rate.spec["rates"][0]["milliacu"]) == (MODEL, 100_000)
            await node.stop_agent()
            await node.start_agent(measurer=bench)
            await node.settle()
            await asyncio.sleep(3 * LOOK_SECONDS)
            assert len(bench.asked) == 2  # what was found outlives a restart
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
            await node.start_agent(measurer=bench)
            await node.settle()
            await measured(node, bench, 1)
            assert bench.asked == [uuid(1)]
            await node.cluster.client.delete(type(pod), "trainer", namespace="default", grace_period=0)
            await measured(node, bench, 2)
            assert bench.asked == [uuid(1), uuid(0)]

    run_virtual(story())


def test_no_container_starts_on_a_card_while_it_is_measured(tmp_path: Path) -> None:
    async def story() -> None:
        async with scene(tmp_path, cards=1) as node:
            bench = Bench(node)
            await node.start_agent(measurer=bench)
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
            await node.start_agent(measurer=bench)
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
            await node.start_agent(measurer=bench)
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
            await node.start_agent(measurer=bench)
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
            await node.start_agent(measurer=bench)
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
            agent = await node.start_agent(measurer=bench)
            await node.settle()
            await measured(node, bench, 1)
            calibration = agent.calibration
            assert calibration is not None
            device = agent.cards.devices[0]
            assert calibration.refine(device).measured_at
            other = Device(device.id, 0, device.vendor, "L40S", device.vram)
            assert calibration.refine(other) == other

    run_virtual(story())
