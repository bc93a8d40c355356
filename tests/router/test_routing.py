"""Router, scheduler and API server together: nothing lost or placed twice, nobody forgotten, nobody poked for fun."""

import asyncio
from collections import Counter
from pathlib import Path

import httpx2
import pytest
from tests.router.scene import GIB, Scene, card, scene, virtual

from hcs.model import names

WHOLE = {names.VRAM: "80Gi"}


async def check_books(s: Scene) -> Counter[tuple[str, str]]:
    """Bytes taken on each card; fails where a card gave more than it has."""
    taken: Counter[tuple[str, str]] = Counter()
    for held in (await s.allocations()).values():
        for grants in held.containers.values():
            for grant in grants:
                taken[held.node, grant.device] += grant.bytes
    assert all(amount <= 80 * GIB for amount in taken.values()), taken
    return taken


@pytest.mark.parametrize("seed", [1, 2])
@virtual
async def test_twenty_pods_on_eight_cards_never_overcommit(tmp_path: Path, seed: int) -> None:
    """Sixteen pods of half a card fill eight cards; the other four wait, and take the places of those that go."""
    async with scene(tmp_path) as s:
        for node in ("n1", "n2"):
            await s.add_node(node, *(card(index) for index in range(4)))
        await s.start_driver(s.http(await s.start_extender()), seed=seed)
        pods = [f"p{number}" for number in range(20)]
        await asyncio.gather(*(s.add_pod(name, resources={names.VRAM: "36Gi"}) for name in pods))

        async def bound() -> set[str]:
            return set(await s.allocations())

        async def sixteen() -> bool:
            return len(await bound()) == 16

        await s.until(sixteen)
        await asyncio.sleep(20)
        assert len(await check_books(s)) == 8
        first = await bound()
        assert len(first) == 16
        for name in sorted(first)[:4]:
            await s.delete_pod(name)
        await s.until(sixteen)
        await check_books(s)
        assert set(pods) - first <= await bound()


@virtual
async def test_shares_of_one_group_are_on_one_card_and_of_two_never(tmp_path: Path) -> None:
    """Also after a restart of the router, which knows groups by what is written on the pods alone."""
    async with scene(tmp_path) as s:
        for node in ("n1", "n2"):
            await s.add_node(node, *(card(index) for index in range(4)))
        driver = s.make_driver(s.http(await s.start_extender()))
        first = s.spawn(driver.run())
        hosts = [f"host-{number}" for number in range(7)]
        for name in hosts:
            await s.add_pod(name, resources={names.VRAM: "4Gi"}, annotations={names.SHARING_GROUP: name})
        for name in hosts:
            await s.bound(name)
        first.cancel()
        await s.start_driver(s.http(await s.start_extender()))
        await s.add_pod("open", resources={names.VRAM: "4Gi"})
        for name in hosts:
            guest = name.replace("host", "guest")
            await s.add_pod(guest, resources={names.VRAM: "60Gi"}, annotations={names.SHARING_GROUP: name})
            await s.bound(guest)
        await s.bound("open")
        held = await s.allocations()
        where = {name: (one.node, *one.devices()) for name, one in held.items()}
        assert len({where[name] for name in (*hosts, "open")}) == 8
        assert all(where[name.replace("host", "guest")] == where[name] for name in hosts)


@virtual
async def test_an_undisturbed_pod_costs_one_filter_and_one_bind(tmp_path: Path) -> None:
    async with scene(tmp_path) as s:
        await s.add_node("n1", card(0, "ascend"))
        await s.add_profile("cann", vendor="ascend", runtime="pytorch-2.6", image="r.example/cann:1")
        await s.start_driver(s.http(await s.start_extender()))
        await s.add_pod("p", annotations={names.RUNTIME: "pytorch-2.6"})
        pod = await s.bound("p")
        await asyncio.sleep(60)
        assert (s.count("filter", "p"), s.count("bind", "p")) == (1, 1)
        assert pod.spec.containers[0].image == "r.example/cann:1"


@virtual
async def test_a_refused_pod_rests_after_two_calls(tmp_path: Path) -> None:
    async with scene(tmp_path) as s:
        await s.add_node("n1", card(0))
        await s.start_driver(s.http(await s.start_extender()))
        await s.add_pod("big", resources={names.VRAM: "200Gi"})
        assert "1 VramTooSmall" in await s.waiting("big")
        await asyncio.sleep(250)
        assert s.count("filter", "big") == 2


@virtual
async def test_a_lost_bind_answer_places_nothing_twice(tmp_path: Path) -> None:
    async with scene(tmp_path) as s:
        await s.add_node("n1", card(0), card(1))
        await s.start_driver(s.http(await s.start_extender()))
        lost: list[str] = []

        def fault(request: httpx2.Request) -> str | None:
            if request.url.path == "/bind" and not lost:
                lost.append("once")
                return "lose"
            return None

        s.extender_fault = fault
        await s.add_pod("p", resources=WHOLE)
        await s.bound("p")
        await asyncio.sleep(60)
        assert (s.count("filter", "p"), s.count("bind", "p")) == (1, 1)
        assert sum((await check_books(s)).values()) == 80 * GIB


@virtual
async def test_a_restart_between_filter_and_bind_loses_nothing(tmp_path: Path) -> None:
    """Every bind of the first router is refused; the second one, which promised nothing, binds all."""
    async with scene(tmp_path) as s:
        await s.add_node("n1", *(card(index) for index in range(4)))
        old = await s.start_extender()
        http = s.http(old)
        s.extender_fault = lambda request: "refuse" if request.url.path == "/bind" else None
        await s.start_driver(http)
        for number in range(4):
            await s.add_pod(f"p{number}", resources=WHOLE)
        await s.until(lambda: sum(verb == "bind" for verb, _, _ in s.calls) >= 4)
        new = await s.start_extender()
        http._transport = s.http(new)._transport
        s.extender_fault = None

        async def all_bound() -> bool:
            return len(await s.allocations()) == 4

        await s.until(all_bound)
        assert len(await check_books(s)) == 4


@virtual
async def test_a_pod_is_woken_when_only_the_fleet_changed(tmp_path: Path) -> None:
    async with scene(tmp_path) as s:
        await s.add_node("n1", card(0))
        await s.quarantine("n1", {"device": "*", "reason": "Maintenance"})
        extender = await s.start_extender()
        await s.start_driver(s.http(extender))
        await s.add_pod("p")
        await s.waiting("p")
        await asyncio.sleep(30)
        assert s.count("filter", "p") == 2
        await s.quarantine("n1")
        assert (await s.bound("p", seconds=5)).annotations[names.POKE] == "1"
        assert extender.meters.pokes._value.get() == 1


@virtual
async def test_changes_that_help_nobody_poke_nobody(tmp_path: Path) -> None:
    async with scene(tmp_path) as s:
        await s.add_node("n1", card(0), card(1))
        extender = await s.start_extender()
        await s.start_driver(s.http(extender))
        await s.add_pod("big", resources={names.VRAM: "200Gi"})
        await s.waiting("big")
        for number in range(10):
            await s.set_cards("n1", card(0, verdict="SubHealthy" if number % 2 else "Healthy"), card(1))
            await asyncio.sleep(5)
        assert names.POKE not in (await s.get_pod("big")).annotations
        assert s.count("filter", "big") == 2


@virtual
async def test_a_pod_that_other_checks_keep_out_is_not_poked_in_a_loop(tmp_path: Path) -> None:
    """The cards would do, the CPU does not: one poke for each change of the fleet, not one after the other."""
    async with scene(tmp_path) as s:
        await s.add_node("n1", card(0), cpu="2")
        await s.quarantine("n1", {"device": "*", "reason": "Maintenance"})
        extender = await s.start_extender()
        await s.start_driver(s.http(extender))
        await s.add_pod("p")
        await s.waiting("p")
        await s.node_patch("n1", {"status": {"allocatable": {"cpu": "0"}}})
        await s.node_patch("n1", {"spec": {"unschedulable": True}})
        await asyncio.sleep(30)
        before = s.count("filter", "p")
        await s.quarantine("n1")
        await asyncio.sleep(200)
        assert extender.meters.pokes._value.get() == 1
        assert s.count("filter", "p") == before


@virtual
async def test_a_restarted_router_wakes_those_its_predecessor_refused(tmp_path: Path) -> None:
    async with scene(tmp_path) as s:
        await s.add_node("n1", card(0))
        await s.quarantine("n1", {"device": "*", "reason": "Maintenance"})
        http = s.http(await s.start_extender())
        await s.start_driver(http)
        await s.add_pod("p")
        await s.waiting("p")
        await asyncio.sleep(30)
        s._tasks[0].cancel()
        await s.quarantine("n1")
        await asyncio.sleep(30)
        assert (await s.get_pod("p")).spec.nodeName is None
        http._transport = s.http(await s.start_extender())._transport
        await s.bound("p", seconds=5)


@virtual
async def test_a_lapsed_promise_wakes_whom_it_kept_waiting(tmp_path: Path) -> None:
    async with scene(tmp_path) as s:
        await s.add_node("n1", card(0))
        extender = await s.start_extender()
        http = s.http(extender)
        await s.add_pod("gone", resources=WHOLE, spec={"schedulingGates": [{"name": "example.com/held"}]})
        await s.filter(http, "gone", "n1")
        await s.start_driver(http)
        await s.add_pod("next", resources=WHOLE)
        await s.waiting("next")
        await s.bound("next", seconds=70)


@virtual
async def test_until_it_has_read_the_cluster_the_router_is_an_error(tmp_path: Path) -> None:
    async with scene(tmp_path) as s:
        await s.add_node("n1", card(0))
        late = s.make_extender()
        await s.start_driver(s.http(late))
        pod = await s.add_pod("p")
        assert "code 503" in await s.waiting("p")
        assert (await s.get_pod("p")).status.conditions[0].reason == "SchedulerError"  # type: ignore[index]
        s.spawn(late.run())
        assert (await s.bound("p")).metadata.uid == pod.metadata.uid
