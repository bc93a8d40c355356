"""Rectangles that the router chose before the bind, handed out by the plugin: from a pod to its environment."""

import asyncio
import datetime
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import grpc
import pytest
from tests.deviceplugin.kubelet import FakeKubelet, fake_kubelet
from tests.neuro.boards import board
from tests.neuroplugin.room import CORES, SETTINGS, node
from tests.neuroplugin.test_neuraltasks import define
from tests.router.scene import scene

from hcs.deviceplugin.podresources import Holder
from hcs.kube.resources import ComputeNode
from hcs.model.allocations import CoreGrant, allocation_of
from hcs.neuro.allocator import CoreRequest
from hcs.neuro.grids import Rectangle
from hcs.neuro.occupancy import CoreNeed, choose_cores, rectangle_of, report
from hcs.neuroplugin.node import NeuroNode
from hcs.neuroplugin.plans import Plan


class Listed:
    """Plans as a test wants them."""

    def __init__(self, *plans: Plan) -> None:
        self.plans = plans

    async def look(self) -> tuple[Plan, ...]:
        return self.plans


def plan(pod: str, ids: int, at: Sequence[int] = ()) -> Plan:
    """A pod of so many cores, and the rectangle (x, y, width, height) the router chose for it."""
    grant = CoreGrant(CORES, "b0", ids, at[2], at[3], at[0], at[1]) if at else None
    return Plan(f"uid-{pod}", Holder("default", pod, "main"), CORES, ids, grant)


def told(env: Any) -> Rectangle:
    x, y, width, height = map(int, env["SNN_CORE_RECTANGLE"].split(","))
    return Rectangle(x, y, width, height)


def tell(story: Any, folder: Path, *plans: Plan) -> None:
    async def whole() -> None:
        made, _ = node(folder=folder, plans=Listed(*plans))
        await made.publish()
        async with fake_kubelet(folder, made.tasks()) as kubelet, asyncio.timeout(30):
            await kubelet.has(CORES, 64, 64)
            await story(kubelet, made)

    asyncio.run(whole())


def test_from_the_router_to_the_container(tmp_path: Path, folder: Path) -> None:
    """The router chooses from what the plugin reports; the plugin hands out what it chose, also after a restart."""

    async def whole() -> None:
        async with scene(tmp_path) as s, asyncio.timeout(50):
            await define(s)
            s.today = lambda: datetime.datetime.now(datetime.UTC)  # type: ignore[method-assign]
            await s.add_node("node-1")
            made, _ = node(board(), folder=folder, client=s.connect(s.api), node="node-1")
            await made.publish()
            made.service.lease("tenant", 16, request=CoreRequest(4, 4))
            async with fake_kubelet(folder, made.tasks()) as kubelet:
                await kubelet.has(CORES, 64, 64)

                async def reports(busy: int) -> None:
                    for _ in range(100):
                        async for found in s.client.list(ComputeNode):
                            if sum(int(one.busy, 16).bit_count() for one in found.status.boards) == busy:
                                return
                        await asyncio.sleep(0.05)
                    raise AssertionError(f"never {busy} cores busy")

                await reports(16)
                spikes = {CORES: "48"}
                await s.node_patch(
                    "node-1", {"status": {"allocatable": spikes, "capacity": spikes}}, subresource="status"
                )
                extender = await s.start_extender()
                await s.start_driver(s.http(extender))
                chosen = {}
                for name, cores in (("p1", "9"), ("p2", "16"), ("p3", "9")):
                    await s.add_pod(name, resources={CORES: cores})
                    held = allocation_of(await s.bound(name))
                    assert held is not None
                    chosen[name] = rectangle_of(held.cores["main"][0])
                for name, asked in (("p2", 16), ("p1", 9), ("p3", 9)):
                    env = (await kubelet.admit(name, CORES, asked)).env
                    assert told(env) == chosen[name], name
                    await kubelet.start_container(name, CORES)
                await reports(16 + sum(one.area for one in chosen.values()))
                again, _ = node(board(), folder=folder, client=s.connect(s.api), node="node-1")
                await again.look()
                assert set(again.service.sites["b0"].cores.held.values()) == set(chosen.values())

    asyncio.run(whole())


def test_a_rectangle_that_is_taken_meanwhile_is_refused_with_a_sentence(folder: Path) -> None:
    async def story(kubelet: FakeKubelet, made: NeuroNode) -> None:
        made.service.sites["b0"].cores.hold(99, Rectangle(1, 1, 1, 1))
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await kubelet.admit("p", CORES, 9)
        assert "the router chose 3x3 at (0,0) of board b0 for default/p" in (caught.value.details() or "")
        assert list(made.service.sites["b0"].cores.held) == [99], "nothing half allocated"

    tell(story, folder, plan("p", 9, (0, 0, 3, 3)))


def test_what_the_router_promised_stays_free_for_whom_it_is(folder: Path) -> None:
    async def story(kubelet: FakeKubelet, made: NeuroNode) -> None:
        free = told((await kubelet.admit("plain", CORES, 32)).env)
        assert told((await kubelet.admit("routed", CORES, 16)).env) == Rectangle(2, 0, 4, 4)
        assert not free.overlaps(Rectangle(2, 0, 4, 4))

    tell(story, folder, plan("routed", 16, (2, 0, 4, 4)), plan("plain", 32))


def test_equal_pods_that_are_mistaken_for_each_other_are_found_out(folder: Path) -> None:
    async def story(kubelet: FakeKubelet, made: NeuroNode) -> None:
        second = told((await kubelet.admit("p2", CORES, 4)).env)
        assert second == Rectangle(0, 0, 2, 2), "the oldest is taken for whoever asks"
        await kubelet.start_container("p2", CORES)
        assert made.books.served == {("uid-p2", "main")}
        assert told((await kubelet.admit("p1", CORES, 4)).env) == Rectangle(4, 4, 2, 2), "what is left of the two"
        await kubelet.start_container("p1", CORES)
        assert made.books.served == {("uid-p1", "main"), ("uid-p2", "main")}

    tell(story, folder, plan("p1", 4, (0, 0, 2, 2)), plan("p2", 4, (4, 4, 2, 2)))


def test_a_report_is_what_the_router_chooses_from() -> None:
    made, _ = node(board(width=4, height=4, dead_cores=frozenset({(0, 0)}), dead_routers=frozenset({(3, 3)})))
    made.service.lease("a", 4, request=CoreRequest(2, 2))
    shown = report(made.service.sites["b0"], unit=SETTINGS.units.cores)
    assert shown is not None
    (held,) = made.service.sites["b0"].cores.held.values()
    for ids in range(1, 17):
        chosen = choose_cores([CoreNeed("main", CORES, "", ids)], [shown])
        if chosen is None:
            continue
        (grant,) = chosen["main"]
        assert not rectangle_of(grant).overlaps(held)
        assert not rectangle_of(grant).holds((3, 3))
        assert made.service.sites["b0"].cores.live_in(rectangle_of(grant)) >= ids
