"""Spikes through the router: counted from pods, placed by wish, taken by priority, cores as rectangles."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
from lightkube.types import PatchType
from tests.neuro.boards import board
from tests.router.scene import Scene, card, pod_manifest, scene, virtual
from tests.router.test_preemption import classes

from hcs.kube.resources import ComputeNodeStatus
from hcs.model import names
from hcs.model.allocations import allocation_of
from hcs.model.devices import SpikingBoard
from hcs.model.pods import Pod
from hcs.model.refusals import RefusedError
from hcs.neuro.occupancy import rectangle_of, report
from hcs.neuro.sites import Site
from hcs.router.spikes import wish_of

KSPS, CORES = "snn.ai.compute/ksps", "snn.ai.compute/cores"


async def offer(s: Scene, name: str, *boards: SpikingBoard, **amounts: int) -> None:
    """What the kubelet and the plugin of a node say now."""
    spikes = {f"snn.ai.compute/{word}": str(amount) for word, amount in amounts.items()}
    await s.node_patch(name, {"status": {"allocatable": spikes, "capacity": spikes}}, subresource="status")
    if boards:
        body = {"status": {"boards": msgspec.to_builtins(boards)}}
        await s.client.patch(ComputeNodeStatus, name, body, patch_type=PatchType.MERGE)


async def spiking(s: Scene, name: str, *boards: SpikingBoard, **amounts: int) -> None:
    """A node with boards and no cards; its agent describes it where the boards are reported."""
    await s.add_node(name)
    if boards:
        await s.add_cards(name)
    await offer(s, name, *boards, **amounts)


async def start(s: Scene) -> Any:
    extender = await s.start_extender()
    await s.start_driver(s.http(extender))
    return extender


def shown(width: int = 8, height: int = 8, **changes: Any) -> SpikingBoard:
    found = report(Site(board(width=width, height=height, **changes)), unit=1)
    assert found is not None
    return found


@virtual
async def test_of_500_ksps_with_400_taken_a_pod_of_101_waits(tmp_path: Path) -> None:
    async with scene(tmp_path) as s:
        await spiking(s, "n0", ksps=500)
        await start(s)
        await s.add_pod("first", resources={KSPS: "400"})
        held = allocation_of(await s.bound("first"))
        assert held is not None
        assert (held.capacities, held.containers) == ({KSPS: 400}, {})
        await s.add_pod("large", resources={KSPS: "101"})
        await s.waiting("large")
        await s.add_pod("small", resources={KSPS: "100"})
        await s.bound("small")
        await s.delete_pod("first")
        await s.bound("large")


@virtual
async def test_the_router_itself_counts_also_after_a_restart_and_what_others_bound(tmp_path: Path) -> None:
    async with scene(tmp_path) as s:
        await spiking(s, "n0", ksps=500)
        first = await s.start_extender()
        http = s.http(first)
        mine = await s.add_pod("mine", resources={KSPS: "300"})
        assert (await s.filter(http, "mine", "n0"))["NodeNames"] == ["n0"]
        await s.add_pod("rival", resources={KSPS: "300"})
        assert "n0" in (await s.filter(http, "rival", "n0"))["FailedAndUnresolvableNodes"], "what is promised counts"
        assert await s.bind(http, mine, "n0") == ""
        other = await s.add_pod("other", resources={KSPS: "100"}, scheduler="default-scheduler")
        await s.post(
            "/api/v1/namespaces/default/pods/other/binding",
            {
                "apiVersion": "v1",
                "kind": "Binding",
                "metadata": {"name": "other", "uid": other.metadata.uid},
                "target": {"kind": "Node", "name": "n0"},
            },
        )
        again = s.http(await s.start_extender())
        await s.add_pod("large", resources={KSPS: "101"})
        await s.add_pod("small", resources={KSPS: "100"})
        refused = await s.filter(again, "large", "n0")
        assert "CapacityTaken" in refused["FailedAndUnresolvableNodes"]["n0"]
        assert (await s.filter(again, "small", "n0"))["NodeNames"] == ["n0"]


@virtual
async def test_cards_and_spikes_of_one_pod_come_from_one_node(tmp_path: Path) -> None:
    async with scene(tmp_path) as s:
        await s.add_node("cards", card(0))
        await spiking(s, "spikes", ksps=500)
        await s.add_node("both", card(0))
        await offer(s, "both", ksps=200)
        await start(s)
        await s.add_pod("p", resources={names.VRAM: "16Gi", KSPS: "150"})
        pod = await s.bound("p")
        held = allocation_of(pod)
        assert held is not None
        assert (held.node, held.capacities) == ("both", {KSPS: 150})
        assert held.devices() == {"nvidia-0"}


@virtual
async def test_nodes_are_chosen_by_wish(tmp_path: Path) -> None:
    async with scene(tmp_path) as s:
        for name, zone, ksps in (("large", "west", 900), ("near", "east", 500), ("small", "west", 200)):
            await s.add_node(name, labels={"topology.kubernetes.io/zone": zone})
            await offer(s, name, ksps=ksps)
        http = s.http(await s.start_extender())
        for wish, node in (
            ("high-capacity", "large"),
            ("near-source zone=east", "near"),
            ("near-source", "small"),
        ):
            name = f"p-{node}"
            await s.add_pod(name, resources={KSPS: "100"}, annotations={names.SPIKING_AFFINITY: wish})
            assert (await s.filter(http, name, "large", "near", "small"))["NodeNames"] == [node]
        await s.add_pod("odd", resources={KSPS: "1"}, annotations={names.SPIKING_AFFINITY: "fast"})
        refused = await s.filter(http, "odd", "near")
        assert "write high-capacity" in refused["FailedAndUnresolvableNodes"]["near"]


@virtual
async def test_the_least_pods_of_lower_priority_go(tmp_path: Path) -> None:
    async with scene(tmp_path) as s:
        await classes(s, 10, 100, 1000)
        await spiking(s, "n0", ksps=500)
        await start(s)
        for name, ksps, priority in (("a", "150", 10), ("b", "250", 10), ("c", "100", 100)):
            await s.add_pod(name, **_of(priority, ksps))
            await s.bound(name)
        await s.add_pod("high", **_of(1000, "200"))
        await s.bound("high")
        assert {name for name, pod in (await s.pods()).items() if pod.spec.nodeName} == {"a", "c", "high"}


@virtual
async def test_rectangles_are_chosen_before_the_bind_and_never_overlap(tmp_path: Path) -> None:
    async with scene(tmp_path) as s:
        await spiking(s, "n0", shown(), cores=64)
        first = await s.start_extender()
        http = s.http(first)
        rectangles = []
        for number in range(3):
            pod = await s.add_pod(f"p{number}", resources={CORES: "16"})
            answer = await s.filter(http, f"p{number}", "n0")
            assert answer["NodeNames"] == ["n0"], answer
            assert await s.bind(http, pod, "n0") == ""
            held = allocation_of(await s.bound(f"p{number}"))
            assert held is not None
            (grant,) = held.cores["main"]
            assert (grant.board, grant.cores, grant.resource) == ("b0", 16, CORES)
            rectangles.append(rectangle_of(grant))
        # A router that starts anew knows them from the pods; the plugin has reported none.
        again = s.http(await s.start_extender())
        await s.add_pod("last", resources={CORES: "16"})
        await s.add_pod("more", resources={CORES: "1"})
        assert (await s.filter(again, "last", "n0"))["NodeNames"] == ["n0"]
        assert "n0" in (await s.filter(again, "more", "n0"))["FailedAndUnresolvableNodes"]
        for one in rectangles:
            assert sum(one.overlaps(other) for other in rectangles) == 1


@virtual
async def test_enough_cores_without_a_rectangle_are_no_place(tmp_path: Path) -> None:
    async with scene(tmp_path) as s:
        striped = msgspec.structs.replace(shown(4, 4), busy=f"{0b1010_1010_1010_1010:x}")
        await spiking(s, "striped", striped, cores=8)
        await spiking(s, "whole", shown(4, 4), cores=16)
        http = s.http(await s.start_extender())
        await s.add_pod("p", resources={CORES: "8"})
        refused = await s.filter(http, "p", "striped")
        assert "Fragmented" in refused["FailedAndUnresolvableNodes"]["striped"]
        assert (await s.filter(http, "p", "striped", "whole"))["NodeNames"] == ["whole"]


@virtual
async def test_victims_make_room_for_a_rectangle_not_only_for_as_many_cores(tmp_path: Path) -> None:
    async with scene(tmp_path) as s:
        await classes(s, 10, 100, 1000)
        await spiking(s, "n0", shown(6, 1), cores=6)
        await start(s)
        for name, priority in (("a", 10), ("b", 10), ("c", 100)):
            await s.add_pod(name, **_of(priority, "2", CORES))
            await s.bound(name)
        assert (await s.allocations())["c"].cores["main"][0].x == 2, "a and b alone would leave two halves"
        await s.add_pod("high", **_of(1000, "4", CORES))
        # kube-scheduler proposes a and b, the least important; that frees four cores and no rectangle of four.
        await s.bound("high")
        assert "c" not in await s.allocations()


async def gang(s: Scene, cores: str, size: int = 2, priority: int = 0) -> None:
    """Members that ask for a whole card and cores each."""
    for number in range(size):
        limits = {names.VRAM: "80Gi", CORES: cores}
        spec: dict[str, Any] = {
            "containers": [{"name": "main", "image": "i", "resources": {"limits": limits}}],
            "schedulingGates": [{"name": names.GANG_GATE}],
        }
        if priority:
            spec |= {"priority": priority, "priorityClassName": f"p{priority}"}
        await s.add_pod(f"g-{number}", spec=spec, annotations={names.GANG: "g", names.GANG_SIZE: str(size)})


@virtual
async def test_members_of_a_gang_get_rectangles_that_do_not_overlap(tmp_path: Path) -> None:
    """On the first node there are enough cores and no rectangle, so nobody goes there."""
    async with scene(tmp_path) as s:
        striped = msgspec.structs.replace(shown(), busy="aa" * 8)
        for name, board_, cores in (("a", striped, 32), ("b", shown(), 64)):
            await s.add_node(name, card(0), card(1))
            await offer(s, name, board_, cores=cores)
        await start(s)
        await gang(s, "16")
        rectangles = []
        for number in range(2):
            pod = await s.bound(f"g-{number}")
            held = allocation_of(pod)
            assert held is not None
            assert held.node == "b"
            (grant,) = held.cores["main"]
            assert f"at ({grant.x},{grant.y})" in pod.annotations[names.ROUTE_REASON]
            rectangles.append(rectangle_of(grant))
        assert not rectangles[0].overlaps(rectangles[1])


@virtual
async def test_a_gang_without_rectangles_for_all_waits_and_takes_nothing(tmp_path: Path) -> None:
    async with scene(tmp_path) as s:
        await s.add_node("a", card(0), card(1))
        await offer(s, "a", msgspec.structs.replace(shown(6, 1), busy="04"), cores=6)
        extender = await start(s)
        await gang(s, "3")
        await s.until(lambda: _told(s, "g-0", "FailedPlacement", "rectangle"))
        assert (await s.allocations(), len(extender.reservations)) == ({}, 0)


@virtual
async def test_a_gang_has_those_evicted_whose_rectangles_it_needs(tmp_path: Path) -> None:
    async with scene(tmp_path) as s:
        await classes(s, 10, 1000)
        await s.add_node("a", card(0), card(1))
        await offer(s, "a", shown(6, 1), cores=6)
        await start(s)
        await s.add_pod("low", **_of(10, "2", CORES))
        await s.bound("low")
        await gang(s, "3", priority=1000)
        for number in range(2):
            await s.bound(f"g-{number}")
        held = await s.allocations()
        assert set(held) == {"g-0", "g-1"}
        assert {held[f"g-{number}"].cores["main"][0].x for number in range(2)} == {0, 3}


async def _told(s: Scene, name: str, reason: str, words: str) -> bool:
    return any(one == reason and words in message for one, message in await s.events(name))


@virtual
async def test_boards_near_the_cards_come_first(tmp_path: Path) -> None:
    async with scene(tmp_path) as s:
        await s.add_node("n0", card(0, numa=1))
        boards = [msgspec.structs.replace(shown(4, 4), id=f"b{numa}", numa=numa) for numa in (0, 1)]
        await offer(s, "n0", *boards, cores=32)
        await start(s)
        await s.add_pod("p", resources={names.VRAM: "16Gi", CORES: "4"})
        held = allocation_of(await s.bound("p"))
        assert held is not None
        assert [grant.board for grant in held.cores["main"]] == ["b1"]


@pytest.mark.parametrize("text", ["", "fast", "high-capacity zone=a", "near-source numa=x", "near-source zone="])
def test_wishes_that_cannot_be_read_are_refused(text: str) -> None:
    pod = msgspec.convert(pod_manifest("p", annotations={names.SPIKING_AFFINITY: text}), Pod)
    with pytest.raises(RefusedError, match="write high-capacity"):
        wish_of(pod)


def _of(priority: int, amount: str, resource: str = KSPS) -> dict[str, Any]:
    container = {"name": "main", "image": "i", "resources": {"limits": {resource: amount}}}
    spec = {"containers": [container], "priority": priority, "priorityClassName": f"p{priority}"}
    return {"spec": {**spec, "terminationGracePeriodSeconds": 0}}
