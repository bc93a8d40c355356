"""Gangs from their gates to their nodes: whole or not at all, whatever goes wrong on the way."""

import asyncio
from pathlib import Path
from typing import Any

import httpx2
import pytest
from tests.router.scene import Scene, card, definition_of, scene, virtual

from hcs.model import names

WHOLE = {names.VRAM: "80Gi"}
GATED = {"schedulingGates": [{"name": names.GANG_GATE}]}


def member(gang: str = "g", size: int = 3, **annotations: str) -> dict[str, Any]:
    """What a member of a gang looks like after admission."""
    notes = {names.GANG: gang, names.GANG_SIZE: str(size), **annotations}
    return {"resources": WHOLE, "annotations": notes, "spec": {**GATED}}


def owned(name: str) -> dict[str, Any]:
    """The pod has a controller that would replace it."""
    reference = {"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": f"job-{name}", "controller": True}
    return {"ownerReferences": [reference]}


async def start(s: Scene, *, nodes: int = 2, cards: int = 2, **settings: Any) -> Any:
    for number in range(nodes):
        await s.add_node(f"n{number}", *(card(index) for index in range(cards)))
    extender = await s.start_extender(**settings)
    await s.start_driver(s.http(extender))
    return extender


async def held(s: Scene, *names_: str) -> set[tuple[str, str]]:
    """(node, device) of these pods, each device once."""
    allocations = await s.allocations()
    found = [(allocations[n].node, d) for n in names_ for d in allocations[n].devices()]
    assert len(found) == len(set(found))
    return set(found)


@virtual
async def test_nobody_is_let_go_before_the_last_one_has_come(tmp_path: Path) -> None:
    async with scene(tmp_path) as s:
        await start(s)
        for name in ("g-0", "g-1"):
            await s.add_pod(name, **member())
        await asyncio.sleep(120)
        assert s.calls == []
        assert await s.allocations() == {}
        await s.add_pod("g-2", **member())
        for name in ("g-0", "g-1", "g-2"):
            await s.bound(name, seconds=5)
        assert len(await held(s, "g-0", "g-1", "g-2")) == 3
        assert all(s.count("filter", name) == 1 for name in ("g-0", "g-1", "g-2"))


@virtual
async def test_a_gang_that_does_not_fit_takes_nothing_from_others(tmp_path: Path) -> None:
    async with scene(tmp_path) as s:
        extender = await start(s, nodes=1)
        for number in range(3):
            await s.add_pod(f"g-{number}", **member())
        await asyncio.sleep(10)
        assert len(extender.reservations) == 0
        assert "FailedPlacement" in dict(await s.events("g-0"))
        await s.add_pod("single", resources=WHOLE)
        await s.bound("single", seconds=5)
        await s.add_node("more", *(card(index) for index in range(2)))
        for number in range(3):
            await s.bound(f"g-{number}", seconds=5)


@virtual
async def test_all_binds_wait_for_the_last(tmp_path: Path) -> None:
    """The bind of one member is late; until it comes, no pod has a node."""
    async with scene(tmp_path) as s:
        await s.add_node("n", *(card(index) for index in range(3)))
        http = s.http(await s.start_extender())
        pods = [await s.add_pod(f"g-{number}", **member()) for number in range(3)]
        await asyncio.sleep(1)
        for pod in pods:
            assert (await s.filter(http, pod.metadata.name, "n"))["NodeNames"] == ["n"]
        first = [asyncio.create_task(s.bind(http, pod, "n")) for pod in pods[:2]]
        await asyncio.sleep(15)
        assert await s.allocations() == {}
        assert not any(task.done() for task in first)
        assert await s.bind(http, pods[2], "n") == ""
        assert [await task for task in first] == ["", ""]
        assert len(await held(s, "g-0", "g-1", "g-2")) == 3


@virtual
async def test_when_one_never_comes_all_fail_and_the_gang_is_planned_again(tmp_path: Path) -> None:
    async with scene(tmp_path) as s:
        await s.add_node("n", *(card(index) for index in range(3)))
        extender = await s.start_extender()
        http = s.http(extender)
        pods = [await s.add_pod(f"g-{number}", **member()) for number in range(3)]
        await asyncio.sleep(1)
        for pod in pods:
            await s.filter(http, pod.metadata.name, "n")
        errors = await asyncio.gather(*(s.bind(http, pod, "n") for pod in pods[:2]))
        assert all("20 s" in error for error in errors)
        assert await s.allocations() == {}
        await s.start_driver(http)
        for pod in pods:
            await s.bound(pod.metadata.name, seconds=60)
        assert len(await held(s, "g-0", "g-1", "g-2")) == 3


@virtual
async def test_a_plan_that_got_stale_at_the_barrier_binds_nobody(tmp_path: Path) -> None:
    async with scene(tmp_path) as s:
        await start(s, nodes=1, cards=4)
        stopped: list[str] = []

        def fault(request: httpx2.Request) -> str | None:
            if request.url.path == "/bind" and len(stopped) < 1:
                stopped.append("once")
                return "refuse"
            return None

        s.extender_fault = fault
        for number in range(3):
            await s.add_pod(f"g-{number}", **member())
        await s.until(lambda: stopped)
        await s.quarantine("n0", {"device": "nvidia-0", "reason": "Drill"})
        for number in range(3):
            await s.bound(f"g-{number}", seconds=60)
        assert await held(s, "g-0", "g-1", "g-2") == {("n0", f"nvidia-{number}") for number in (1, 2, 3)}


@virtual
async def test_a_binding_that_fails_after_others_succeeded_restarts_the_whole_gang(tmp_path: Path) -> None:
    """The API server refuses one member's Binding; the two that started are evicted, to come again as new pods."""
    async with scene(tmp_path) as s:
        failing = True

        def fault(request: httpx2.Request) -> str | None:
            return "refuse" if failing and request.url.path.endswith("/pods/g-1/binding") else None

        await start(s, transport=s.faulty(fault))
        for number in range(3):
            await s.add_pod(f"g-{number}", **member(), **owned("train"))

        async def only_the_failed_one_is_left() -> bool:
            pods = await s.pods()
            return set(pods) == {"g-1"} or all(p.metadata.deletionTimestamp for n, p in pods.items() if n != "g-1")

        await s.until(only_the_failed_one_is_left, seconds=30)
        failing = False
        for name in ("g-0", "g-2"):
            await s.delete_pod(name)
            await s.add_pod(name, **member(), **owned("train"))
        for number in range(3):
            await s.bound(f"g-{number}", seconds=60)
        assert len(await held(s, "g-0", "g-1", "g-2")) == 3


@virtual
async def test_members_that_nobody_would_replace_are_kept_and_told(tmp_path: Path) -> None:
    async with scene(tmp_path) as s:
        failing = True

        def fault(request: httpx2.Request) -> str | None:
            return "refuse" if failing and request.url.path.endswith("/pods/g-1/binding") else None

        await start(s, transport=s.faulty(fault))
        for number in range(3):
            await s.add_pod(f"g-{number}", **member())
        await s.until(lambda: any(verb == "bind" for verb, _, _ in s.calls))
        await asyncio.sleep(10)
        assert "GangIncomplete" in dict(await s.events("g-0"))
        failing = False
        await s.bound("g-1", seconds=60)
        assert len(await held(s, "g-0", "g-1", "g-2")) == 3


@virtual
async def test_a_binding_that_fails_once_is_tried_again_at_once(tmp_path: Path) -> None:
    async with scene(tmp_path) as s:
        failures: list[str] = []

        def fault(request: httpx2.Request) -> str | None:
            if request.url.path.endswith("/pods/g-1/binding") and len(failures) < 2:
                failures.append("no")
                return "refuse" if len(failures) == 1 else "lose"
            return None

        await start(s, transport=s.faulty(fault))
        for number in range(3):
            await s.add_pod(f"g-{number}", **member(), **owned("train"))
        for number in range(3):
            await s.bound(f"g-{number}", seconds=10)
        assert "GangRestarted" not in dict(await s.events("g-0"))


@virtual
async def test_gangs_that_hold_each_others_cpu_take_turns(tmp_path: Path) -> None:
    """Cards are there for both, CPU for one: kube-scheduler mixes them up, and still one after the other starts."""
    async with scene(tmp_path) as s:
        for number in range(2):
            await s.add_node(f"n{number}", *(card(index) for index in range(4)), cpu="4")
        await s.start_driver(s.http(await s.start_extender()))
        container = {
            "name": "main",
            "image": "i",
            "resources": {"limits": {**WHOLE, "cpu": "2"}, "requests": {"cpu": "2"}},
        }
        for number in range(3):
            for gang in ("a", "b"):
                made = member(gang)
                made["spec"] = {**GATED, "containers": [container]}
                await s.add_pod(f"{gang}-{number}", **made)

        async def one_runs() -> bool:
            bound = set(await s.allocations())
            assert {len({n for n in bound if n.startswith(g)}) for g in "ab"} <= {0, 1, 2, 3}
            return any(all(f"{g}-{n}" in bound for n in range(3)) for g in "ab")

        await s.until(one_runs, seconds=300)
        first = "a" if "a-0" in await s.allocations() else "b"
        other = "b" if first == "a" else "a"
        await asyncio.sleep(60)
        assert {name[0] for name in await s.allocations()} == {first}
        for number in range(3):
            await s.delete_pod(f"{first}-{number}")
        for number in range(3):
            await s.bound(f"{other}-{number}", seconds=600)


@virtual
async def test_a_lost_member_is_replaced_beside_the_others(tmp_path: Path) -> None:
    async with scene(tmp_path) as s:
        await start(s)
        for number in range(3):
            await s.add_pod(f"g-{number}", **member())
        for number in range(3):
            await s.bound(f"g-{number}", seconds=5)
        await s.delete_pod("g-1")
        await s.add_pod("g-3", **member())
        await s.bound("g-3", seconds=5)


@virtual
async def test_a_restarted_router_takes_up_gangs_where_they_are(tmp_path: Path) -> None:
    """Gates are open, nobody is bound, and the plan died with the first router."""
    async with scene(tmp_path) as s:
        await s.add_node("n", *(card(index) for index in range(3)))
        http = s.http(await s.start_extender())
        s.extender_fault = lambda request: "refuse" if request.url.path == "/bind" else None
        await s.start_driver(http)
        for number in range(3):
            await s.add_pod(f"g-{number}", **member())
        await s.until(lambda: sum(verb == "bind" for verb, _, _ in s.calls) >= 3)
        s._tasks[0].cancel()
        http._transport = s.http(await s.start_extender())._transport
        s.extender_fault = None
        for number in range(3):
            await s.bound(f"g-{number}", seconds=60)
        assert len(await held(s, "g-0", "g-1", "g-2")) == 3


@pytest.mark.parametrize(
    ("api", "marking"),
    [
        pytest.param(
            "scheduling.x-k8s.io/v1alpha1",
            {"labels": {"scheduling.x-k8s.io/pod-group": "g"}},
            id="scheduler-plugins",
        ),
        pytest.param(
            "scheduling.volcano.sh/v1beta1",
            {"annotations": {"scheduling.k8s.io/group-name": "g"}},
            id="volcano",
        ),
    ],
)
@virtual
async def test_podgroups_of_others_are_gangs_too(tmp_path: Path, api: str, marking: dict[str, Any]) -> None:
    """Three members of which two must start; a fourth, which asks for no card, is counted."""
    async with scene(tmp_path) as s:
        group, _, version = api.partition("/")
        path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
        await s.post(path, definition_of(group, version, "PodGroup", "podgroups"))
        await start(s, nodes=1, cards=2)
        await s.add_pod("g-0", resources=WHOLE, spec=GATED, **marking)
        await s.add_pod("g-1", resources=WHOLE, spec=GATED, **marking)
        await asyncio.sleep(30)
        assert await s.allocations() == {}
        body = {"apiVersion": api, "kind": "PodGroup", "metadata": {"name": "g"}, "spec": {"minMember": 3}}
        await s.post(f"/apis/{api}/namespaces/default/podgroups", body)
        await asyncio.sleep(30)
        assert await s.allocations() == {}
        await s.add_pod("launcher", resources={"cpu": "1"}, scheduler="default-scheduler", **marking)
        await s.bound("g-0", seconds=65)
        await s.bound("g-1", seconds=5)


@virtual
async def test_members_hear_why_their_podgroup_cannot_be_read_and_start_when_it_is_mended(tmp_path: Path) -> None:
    """Nobody looks into the router's log; a gate that never opens must say why on the pod."""
    async with scene(tmp_path) as s:
        path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
        await s.post(path, definition_of("scheduling.volcano.sh", "v1beta1", "PodGroup", "podgroups"))
        await start(s, nodes=1, cards=2)
        groups = "/apis/scheduling.volcano.sh/v1beta1/namespaces/default/podgroups"
        spec = {"minMember": 1, "networkTopology": {"mode": "hard"}}
        body = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PodGroup", "metadata": {"name": "g"}}
        await s.post(groups, {**body, "spec": spec})
        await s.add_pod("g-0", resources=WHOLE, spec=GATED, annotations={"scheduling.k8s.io/group-name": "g"})

        async def told() -> bool:
            return any("HardNetworkTopology" in message for _, message in await s.events("g-0"))

        await s.until(told, seconds=90)
        await s.merge(f"{groups}/g", {"spec": {"networkTopology": None}})
        await s.bound("g-0", seconds=90)


@virtual
async def test_a_gang_stays_with_one_vendor_unless_it_is_portable(tmp_path: Path) -> None:
    async with scene(tmp_path) as s:
        await s.add_node("nv", card(0), card(1))
        await s.add_node("npu", card(0, "ascend", vram=80 << 30))
        await s.start_driver(s.http(await s.start_extender()))
        for number in range(3):
            await s.add_pod(f"g-{number}", **member())
            await s.add_pod(f"p-{number}", **member("p", **{names.PORTABLE: "true"}))
        for number in range(3):
            await s.bound(f"p-{number}", seconds=10)
        assert not any(name.startswith("g-") for name in await s.allocations())
