"""Pods of higher priority take the place of lower ones: cards, CPU and memory, within what budgets allow."""

import asyncio
import datetime
from pathlib import Path
from typing import Any

import pytest
from tests.router.scene import Scene, card, scene, virtual

from hcs.model import names
from hcs.model.pods import Pod

WHOLE = {names.VRAM: "80Gi"}


def of(priority: int, *, cpu: str = "", grace: int = 0, policy: str = "", **metadata: Any) -> dict[str, Any]:
    """A pod of a priority that asks for a whole card."""
    requests = {"cpu": cpu} if cpu else {}
    resources = {"limits": {**WHOLE, **requests}, "requests": requests}
    container = {"name": "main", "image": "i", "resources": resources}
    spec: dict[str, Any] = {"containers": [container], "priority": priority, "terminationGracePeriodSeconds": grace}
    if policy:
        spec["preemptionPolicy"] = policy
    return {"spec": spec, **metadata}


async def classes(s: Scene, *values: int) -> None:
    """A PriorityClass for each value, so that the server lets pods have it."""
    for value in values:
        body = {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": f"p{value}"},
            "value": value,
        }
        await s.post("/apis/scheduling.k8s.io/v1/priorityclasses", body)


async def add(s: Scene, name: str, priority: int, **changes: Any) -> None:
    made = of(priority, **changes)
    made["spec"]["priorityClassName"] = f"p{priority}"
    await s.add_pod(name, **made)


async def start(s: Scene, *, nodes: int = 1, cards: int = 2, cpu: str = "64") -> Any:
    await classes(s, 10, 100, 1000)
    for number in range(nodes):
        await s.add_node(f"n{number}", *(card(index) for index in range(cards)), cpu=cpu)
    extender = await s.start_extender()
    await s.start_driver(s.http(extender))
    return extender


async def alive(s: Scene) -> set[str]:
    """Pods that are bound and do not end."""
    pods = await s.pods()
    return {name for name, pod in pods.items() if pod.spec.nodeName and not pod.metadata.deletionTimestamp}


async def is_ending(s: Scene, name: str) -> bool:
    """Whether a pod was told to end."""
    return bool((await s.get_pod(name)).metadata.deletionTimestamp)


async def budget(s: Scene, name: str, app: str, allowed: int) -> None:
    """A disruption budget, with the status that its controller would write."""
    path = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
    body = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": name},
        "spec": {"maxUnavailable": 0, "selector": {"matchLabels": {"app": app}}},
    }
    await s.post(path, body)
    status = {"disruptionsAllowed": allowed, "currentHealthy": 1, "desiredHealthy": 1, "expectedPods": 1}
    await s.merge(f"{path}/{name}/status", {"status": {**status, "observedGeneration": 1}})


@virtual
async def test_the_lowest_goes_and_its_card_is_kept_for_the_highest(tmp_path: Path) -> None:
    async with scene(tmp_path) as s:
        await start(s)
        await add(s, "low", 10)
        await add(s, "middle", 100)
        await s.bound("low")
        await s.bound("middle")
        await add(s, "rival", 10)
        await s.waiting("rival")
        await add(s, "high", 1000)
        pod = await s.bound("high", seconds=10)
        assert await alive(s) == {"middle", "high"}
        assert pod.status.nominatedNodeName == "n0"
        assert "Preempting" in dict(await s.events("high"))
        assert (await s.get_pod("rival")).spec.nodeName is None


@virtual
async def test_while_the_victim_takes_its_time_nobody_else_gets_its_card(tmp_path: Path) -> None:
    async with scene(tmp_path) as s:
        extender = await start(s, cards=1)
        await add(s, "low", 10, grace=30)
        await s.bound("low")
        await add(s, "high", 1000)
        await s.waiting("high")
        await asyncio.sleep(5)
        assert (await s.get_pod("low")).metadata.deletionTimestamp
        await add(s, "thief", 100)
        await s.waiting("thief")
        await s.annotate("high", {"note": "woken"})
        await asyncio.sleep(5)
        assert (len(extender.preemption), len(extender.reservations)) == (1, 1)
        await s.delete_pod("low")
        await s.bound("high", seconds=10)
        assert (await s.get_pod("thief")).spec.nodeName is None
        assert len(extender.preemption) == 0


@pytest.mark.parametrize(
    ("priority", "policy"), [pytest.param(10, "", id="no-higher"), pytest.param(1000, "Never", id="never")]
)
@virtual
async def test_nobody_is_evicted_for_an_equal_or_for_one_that_never_preempts(
    tmp_path: Path, priority: int, policy: str
) -> None:
    async with scene(tmp_path) as s:
        await start(s, cards=1)
        await add(s, "low", 10)
        await s.bound("low")
        await add(s, "new", priority, policy=policy)
        await s.waiting("new")
        await asyncio.sleep(60)
        assert await alive(s) == {"low"}


@virtual
async def test_nobody_dies_in_vain(tmp_path: Path) -> None:
    """Two cards are wanted on one node; each node has one pod that no one may touch."""
    async with scene(tmp_path) as s:
        await start(s, nodes=2)
        for number in range(2):
            await add(s, f"low{number}", 10)
            await add(s, f"fixed{number}", 1000)
        for number in range(2):
            await s.bound(f"low{number}")
            await s.bound(f"fixed{number}")
        made = of(1000)
        made["spec"]["containers"][0]["resources"] = {"limits": {names.VRAM: "80Gi", names.CARDS: "2"}}
        made["spec"]["priorityClassName"] = "p1000"
        nodes = {(await s.get_pod(f"low{number}")).spec.nodeName for number in range(2)}
        await s.add_pod("two", **made)
        await s.waiting("two")
        await asyncio.sleep(60)
        assert len(await alive(s)) == (4 if len(nodes) == 2 else 3)


@virtual
async def test_a_budget_protects_and_the_next_best_victim_goes(tmp_path: Path) -> None:
    async with scene(tmp_path) as s:
        await start(s)
        await add(s, "guarded", 10, labels={"app": "guarded"})
        await add(s, "middle", 100)
        await s.bound("guarded")
        await s.bound("middle")
        await budget(s, "guard", "guarded", 0)
        await asyncio.sleep(1)
        await add(s, "high", 1000)
        await s.bound("high", seconds=20)
        assert await alive(s) == {"guarded", "high"}


@virtual
async def test_where_a_budget_that_we_have_not_seen_forbids_the_first_nobody_dies(tmp_path: Path) -> None:
    async with scene(tmp_path) as s:
        await classes(s, 10, 1000)
        await s.add_node("n0", card(0), card(1))
        blind = False
        link = s.faulty(lambda request: "refuse" if blind and "poddisruptionbudgets" in request.url.path else None)
        await s.start_driver(s.http(await s.start_extender(link)))
        await add(s, "guarded", 10, labels={"app": "guarded"})
        await add(s, "other", 10)
        await s.bound("guarded")
        await s.bound("other")
        ready = [{"type": "Ready", "status": "True"}]
        await s.set_status("guarded", phase="Running", conditions=ready)  # a pod that never ran no budget protects
        blind = True
        link.cut()
        await asyncio.sleep(1)
        await budget(s, "guard", "guarded", 0)
        made = of(1000)
        made["spec"]["containers"][0]["resources"] = {"limits": {names.VRAM: "80Gi", names.CARDS: "2"}}
        made["spec"]["priorityClassName"] = "p1000"
        await s.add_pod("two", **made)
        await s.waiting("two")
        await asyncio.sleep(60)
        assert await alive(s) == {"guarded", "other"}


@virtual
async def test_cpu_and_cards_are_freed_together(tmp_path: Path) -> None:
    """The card of one victim would do; only with both is there enough CPU."""
    async with scene(tmp_path) as s:
        await start(s, cpu="4")
        await add(s, "a", 10, cpu="2")
        await add(s, "b", 10, cpu="2")
        await s.bound("a")
        await s.bound("b")
        await add(s, "high", 1000, cpu="4")
        await s.bound("high", seconds=30)
        assert await alive(s) == {"high"}


@virtual
async def test_victims_chosen_for_cpu_are_looked_over(tmp_path: Path) -> None:
    """kube-scheduler would evict a pod without cards for CPU, on a node whose cards stay taken: the router says no."""
    async with scene(tmp_path) as s:
        await start(s, cards=1, cpu="2")
        await add(s, "holder", 1000, cpu="1")
        await s.bound("holder")
        plain = {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}]}
        await s.add_pod("plain", spec={**plain, "priorityClassName": "p10", "priority": 10})
        await s.bound("plain")
        await add(s, "new", 100, cpu="1")
        await s.waiting("new")
        await asyncio.sleep(30)
        assert await alive(s) == {"holder", "plain"}
        answers = [answer for verb, _, answer in s.calls if verb == "preempt"]
        assert answers
        assert all(answer == {"NodeNameToMetaVictims": {}} for answer in answers)


@virtual
async def test_victims_chosen_for_cpu_are_joined_by_one_whose_card_is_needed(tmp_path: Path) -> None:
    async with scene(tmp_path) as s:
        await start(s, cards=1, cpu="3")
        await add(s, "holder", 10)
        await s.bound("holder")
        plain = {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "2"}}}]}
        spec = {**plain, "priorityClassName": "p10", "priority": 10, "terminationGracePeriodSeconds": 0}
        await s.add_pod("plain", spec=spec)
        await s.bound("plain")
        await add(s, "new", 100, cpu="3")
        await s.bound("new", seconds=30)
        assert await alive(s) == {"new"}
        proposed, answered = next((request, answer) for verb, request, answer in s.calls if verb == "preempt")
        assert len(proposed["NodeNameToMetaVictims"]["n0"]["Pods"]) == 1
        assert len(answered["NodeNameToMetaVictims"]["n0"]["Pods"]) == 2


@virtual
async def test_a_gang_takes_the_place_of_lower_ones_whole_or_not_at_all(tmp_path: Path) -> None:
    async with scene(tmp_path) as s:
        await start(s, nodes=2)
        for number in range(4):
            await add(s, f"low{number}", 10)
        for number in range(4):
            await s.bound(f"low{number}")
        for number in range(3):
            made = of(1000, annotations={names.GANG: "g", names.GANG_SIZE: "3"})
            made["spec"] |= {"priorityClassName": "p1000", "schedulingGates": [{"name": names.GANG_GATE}]}
            await s.add_pod(f"g-{number}", **made)
        for number in range(3):
            await s.bound(f"g-{number}", seconds=30)
        left = await alive(s)
        assert len(left) == 4
        assert {"g-0", "g-1", "g-2"} < left


async def restart(s: Scene) -> Any:
    """Router and scheduler die; only a router comes back."""
    for task in s._tasks[:2]:
        task.cancel()
    return await s.start_extender()


@virtual
async def test_a_restarted_router_keeps_the_place_for_whom_it_was_made(tmp_path: Path) -> None:
    """It knows from the pods alone: who is nominated, and what ends on that node."""
    async with scene(tmp_path) as s:
        await start(s, cards=1)
        await add(s, "low", 10, grace=30)
        await s.bound("low")
        await add(s, "high", 1000)
        await s.until(lambda: is_ending(s, "low"))
        assert (await s.get_pod("high")).status.nominatedNodeName == "n0"
        again = await restart(s)
        http = s.http(again)
        await add(s, "thief", 100)
        assert "n0" in (await s.filter(http, "thief", "n0"))["FailedAndUnresolvableNodes"]
        await s.delete_pod("low")
        await s.until(lambda: not again.view.allocations)
        assert "n0" in (await s.filter(http, "thief", "n0"))["FailedAndUnresolvableNodes"], "it is kept for another"
        assert (await s.filter(http, "high", "n0"))["NodeNames"] == ["n0"]
        await s.delete_pod("high")
        await s.until(lambda: len(again.preemption) == 0)
        assert (await s.filter(http, "thief", "n0"))["NodeNames"] == ["n0"]


@virtual
async def test_a_restarted_router_keeps_the_places_of_a_gang(tmp_path: Path) -> None:
    async with scene(tmp_path) as s:
        await start(s, nodes=2, cards=1)
        for number in range(2):
            await add(s, f"low{number}", 10, grace=30)
            await s.bound(f"low{number}")
        for number in range(2):
            made = of(1000, annotations={names.GANG: "g", names.GANG_SIZE: "2"})
            made["spec"] |= {"priorityClassName": "p1000", "schedulingGates": [{"name": names.GANG_GATE}]}
            await s.add_pod(f"g-{number}", **made)
        for number in range(2):
            await s.until(lambda number=number: is_ending(s, f"low{number}"))  # type: ignore[misc]
        again = await restart(s)
        http = s.http(again)
        await add(s, "thief", 100)
        await s.delete_pod("low0")
        await s.until(lambda: len(again.view.allocations) == 1)
        refused = (await s.filter(http, "thief", "n0", "n1"))["FailedAndUnresolvableNodes"]
        assert set(refused) == {"n0", "n1"}, "half of the gang's place is nobody else's"
        await s.delete_pod("low1")
        await s.start_driver(http)
        for number in range(2):
            await s.bound(f"g-{number}", seconds=30)


@virtual
async def test_a_nomination_that_can_never_come_true_keeps_nothing(tmp_path: Path) -> None:
    async with scene(tmp_path) as s:
        await start(s, cards=1)
        await add(s, "low", 10)
        await s.bound("low")
        await add(s, "high", 1000, policy="Never")
        await s.waiting("high")
        await s.set_status("high", nominatedNodeName="n0")
        again = await restart(s)
        assert "n0" in (await s.filter(s.http(again), "high", "n0"))["FailedAndUnresolvableNodes"]
        assert (len(again.preemption), len(again.reservations)) == (0, 0)


@virtual
async def test_a_gang_evicts_nobody_where_its_cpu_will_never_fit(tmp_path: Path) -> None:
    """The cards would be free, and the members could still not start together."""
    async with scene(tmp_path) as s:
        await start(s, cards=2, cpu="5")
        await add(s, "low0", 10)
        await add(s, "low1", 10)
        for name in ("low0", "low1"):
            await s.bound(name)
        for number in range(2):
            made = of(1000, cpu="3", annotations={names.GANG: "g", names.GANG_SIZE: "2"})
            made["spec"] |= {"priorityClassName": "p1000", "schedulingGates": [{"name": names.GANG_GATE}]}
            await s.add_pod(f"g-{number}", **made)
        await asyncio.sleep(60)
        assert await alive(s) == {"low0", "low1"}


@virtual
async def test_a_gang_has_pods_evicted_that_hold_its_cpu(tmp_path: Path) -> None:
    async with scene(tmp_path) as s:
        await start(s, cards=2, cpu="4")
        await add(s, "low", 10, cpu="3")
        await s.bound("low")
        for number in range(2):
            made = of(1000, cpu="2", annotations={names.GANG: "g", names.GANG_SIZE: "2"})
            made["spec"] |= {"priorityClassName": "p1000", "schedulingGates": [{"name": names.GANG_GATE}]}
            await s.add_pod(f"g-{number}", **made)
        for number in range(2):
            await s.bound(f"g-{number}", seconds=30)
        assert await alive(s) == {"g-0", "g-1"}


@virtual
async def test_the_place_is_not_kept_for_ever(tmp_path: Path) -> None:
    """The preemptor is cordoned out between choice and bind; after a while its place is anybody's again."""
    async with scene(tmp_path) as s:
        extender = await start(s, cards=1)
        await add(s, "low", 10, grace=30)
        await s.bound("low")
        await add(s, "high", 1000)
        await s.waiting("high")
        await asyncio.sleep(2)
        assert len(extender.preemption) == 1
        await s.node_patch("n0", {"spec": {"unschedulable": True}})
        await s.delete_pod("low")
        await asyncio.sleep(120)
        assert (len(extender.preemption), len(extender.reservations)) == (0, 0)


@virtual
async def test_among_equals_the_one_with_the_freshest_checkpoint_goes(tmp_path: Path) -> None:
    """The other has worked for longer since its last one."""
    async with scene(tmp_path) as s:
        await classes(s, 10, 1000)
        await s.add_node("n0", card(0), card(1))

        async def locate(pod: Pod) -> datetime.datetime | None:
            age = {"fresh": 60, "stale": 3600}.get(pod.metadata.name)
            return None if age is None else s.today() - datetime.timedelta(seconds=age)

        await s.start_driver(s.http(await s.start_extender(locate=locate)))
        for name in ("fresh", "stale"):
            await add(s, name, 10, annotations={names.CHECKPOINT: "s3://bucket/run"})
            await s.bound(name)
        await asyncio.sleep(7200)
        await add(s, "high", 1000)
        await s.bound("high", seconds=10)
        assert await alive(s) == {"stale", "high"}
