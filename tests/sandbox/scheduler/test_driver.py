"""The driver has the habits of kube-scheduler 1.36 that an extender meets; each test is one of them.

The extender here is a script: it answers what the test says and notes what it was asked.
"""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
import msgspec
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from tests.router.scene import Scene, pod_manifest, scene, virtual

from hcs.kube.writes import bind
from hcs.model import names
from hcs.sandbox.scheduler.configuration import Configuration, read_configuration
from hcs.sandbox.scheduler.driver import SchedulerDriver, explain
from hcs.sandbox.scheduler.inprocess import InProcessTransport

CONFIGURATION = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles: [{schedulerName: hcs-scheduler}, {schedulerName: default-scheduler}]
extenders:
  - urlPrefix: http://extender
    filterVerb: filter
    bindVerb: bind
    nodeCacheCapable: true
    httpTimeout: 5s
    managedResources: [{name: ai.compute/vram, ignoredByScheduler: true}]
"""


class Script:
    """An extender that does as it is told: by default every node is fit, and bind binds."""

    def __init__(self, s: Scene) -> None:
        self.scene = s
        self.filters: list[tuple[str, tuple[str, ...], float]] = []
        self.binds: list[tuple[str, str, float]] = []
        self.on_filter: Callable[[str, tuple[str, ...]], dict[str, Any] | int] = lambda pod, nodes: {"NodeNames": nodes}
        self.on_bind: Callable[[str, str], str] = lambda pod, node: ""
        self.bind_seconds = 0.0
        self.fault: Callable[[httpx2.Request], str | None] = lambda request: None
        routes = [Route(f"/{verb}", getattr(self, verb), methods=["POST"]) for verb in ("filter", "bind")]
        transport = InProcessTransport(Starlette(routes=routes), fault=lambda request: self.fault(request))
        self.http = httpx2.AsyncClient(transport=transport)

    async def filter(self, request: Request) -> Response:
        body = msgspec.json.decode(await request.body())
        assert body["Nodes"] is None
        name, nodes = body["Pod"]["metadata"]["name"], tuple(body["NodeNames"])
        self.filters.append((name, nodes, self.scene.loop.time()))
        await asyncio.sleep(0.001)
        answer = self.on_filter(name, nodes)
        return Response(status_code=answer) if isinstance(answer, int) else Response(msgspec.json.encode(answer))

    async def bind(self, request: Request) -> Response:
        body = msgspec.json.decode(await request.body())
        self.binds.append((body["PodName"], body["Node"], self.scene.loop.time()))
        await asyncio.sleep(self.bind_seconds)
        error = self.on_bind(body["PodName"], body["Node"])
        if not error:
            await bind(
                self.scene.client,
                namespace=body["PodNamespace"],
                name=body["PodName"],
                uid=body["PodUID"],
                node=body["Node"],
                annotations={},
            )
        return Response(msgspec.json.encode({"Error": error}))

    def filtered(self, pod: str) -> int:
        """How often a pod was filtered."""
        return sum(name == pod for name, _, _ in self.filters)

    def times(self, pod: str) -> list[float]:
        """When a pod was filtered."""
        return [round(time, 3) for name, _, time in self.filters if name == pod]

    def refuse(self, text: str | Callable[[], str]) -> None:
        """Refuse every node from now on, with this text."""
        self.on_filter = lambda pod, nodes: {
            "NodeNames": [],
            "FailedAndUnresolvableNodes": dict.fromkeys(nodes, text if isinstance(text, str) else text()),
        }


async def start(s: Scene, *nodes: str, configuration: str = CONFIGURATION) -> tuple[Script, SchedulerDriver]:
    """Nodes, a script and a running driver."""
    for node in nodes:
        await s.add_node(node, cpu="4")
    script = Script(s)
    read: Configuration = read_configuration(configuration)
    return script, await s.start_driver(script.http, configuration=read)


async def condition(s: Scene, name: str) -> tuple[str | None, str | None]:
    """Reason and message of a pod's PodScheduled condition."""
    for found in (await s.get_pod(name)).status.conditions or ():
        if found.type == "PodScheduled" and found.status == "False":
            return found.reason, found.message
    return None, None


@virtual
async def test_the_extender_is_asked_about_the_nodes_that_passed_and_only_for_its_pods(tmp_path: Path) -> None:
    async with scene(tmp_path) as s:
        script, _ = await start(s, "n1", "n2")
        await s.node_patch("n2", {"spec": {"unschedulable": True}})
        await s.add_pod("ours")
        await s.add_pod("plain", resources={"cpu": "1"})
        await s.add_pod("foreign", scheduler="somebody-else")
        await s.bound("ours")
        await s.bound("plain")
        assert [(name, nodes) for name, nodes, _ in script.filters] == [("ours", ("n1",))]
        assert [(name, node) for name, node, _ in script.binds] == [("ours", "n1")]
        assert (await s.get_pod("foreign")).spec.nodeName is None


@virtual
async def test_without_a_fit_node_the_extender_is_not_asked(tmp_path: Path) -> None:
    async with scene(tmp_path) as s:
        script, _ = await start(s, "n1", "n2")
        await s.node_patch("n2", {"spec": {"taints": [{"key": "a", "value": "b", "effect": "NoSchedule"}]}})
        await s.add_pod("p", resources={names.VRAM: "1Gi", "cpu": "5"})
        message = await s.waiting("p")
        assert message == "0/2 nodes are available: 1 Insufficient cpu, 1 node(s) had untolerated taint {a: b}."
        assert script.filters == []


@virtual
async def test_texts_of_checks_and_extender_end_in_one_message(tmp_path: Path) -> None:
    async with scene(tmp_path) as s:
        script, _ = await start(s, "n1", "n2", "n3")
        await s.node_patch("n1", {"spec": {"unschedulable": True}})
        script.refuse("no card")
        await s.add_pod("p")
        assert await s.waiting("p") == "0/3 nodes are available: 1 node(s) were unschedulable, 2 no card."
        assert (await condition(s, "p"))[0] == "Unschedulable"


@virtual
async def test_every_first_refusal_costs_two_filter_calls(tmp_path: Path) -> None:
    async with scene(tmp_path) as s:
        script, driver = await start(s, "n1")
        script.refuse("no card")
        await s.add_pod("p")
        await asyncio.sleep(200)
        assert script.filtered("p") == 2
        assert driver.queue.places() == {"default/p": "waiting"}


@virtual
async def test_a_text_that_changes_makes_a_busy_loop(tmp_path: Path) -> None:
    async with scene(tmp_path) as s:
        script, _ = await start(s, "n1")
        numbers = iter(range(1_000_000))
        script.refuse(lambda: f"{next(numbers)} bytes free")
        await s.add_pod("p")
        await s.until(lambda: len(script.filters) > 100, seconds=1)


@pytest.mark.parametrize("what", ["annotation", "label", "status", "image", "node", "deletion", "finish", "new-node"])
@virtual
async def test_what_wakes_a_refused_pod(tmp_path: Path, what: str) -> None:
    async with scene(tmp_path) as s:
        script, _ = await start(s, "n1")
        await s.add_pod("running")
        await s.bound("running")
        script.refuse("no card")
        await s.add_pod("p")
        await asyncio.sleep(30)
        before = script.filtered("p")
        match what:
            case "annotation":
                await s.annotate("p", {"example.com/x": "1"})
            case "label":
                await s.pod_patch("p", {"metadata": {"labels": {"x": "1"}}})
            case "status":
                await s.set_status("p", nominatedNodeName="elsewhere")
            case "image":
                containers = pod_manifest("p")["spec"]["containers"]
                await s.pod_patch("p", {"spec": {"containers": [{**containers[0], "image": "example.invalid/two:2"}]}})
            case "node":
                await s.node_patch("n1", {"metadata": {"annotations": {"x": "1"}}})
            case "deletion":
                await s.delete_pod("running")
            case "finish":
                await s.set_status("running", phase="Succeeded")
            case "new-node":
                await s.add_node("n2")
        await asyncio.sleep(30)
        assert script.filtered("p") > before


@virtual
async def test_what_does_not_wake_a_refused_pod(tmp_path: Path) -> None:
    """Heartbeats, Events, ConfigMaps, other pods' coming and changing: none of them is tried for."""
    async with scene(tmp_path) as s:
        script, _ = await start(s, "n1")
        await s.add_pod("running")
        await s.bound("running")
        script.refuse("no card")
        await s.add_pod("p")
        await asyncio.sleep(30)
        condition = {"type": "Ready", "status": "True", "lastHeartbeatTime": "2026-03-01T00:00:30Z"}
        await s.node_patch("n1", {"status": {"conditions": [condition]}}, subresource="status")
        await asyncio.sleep(30)
        before = script.filtered("p")
        condition["lastHeartbeatTime"] = "2026-03-01T00:01:00Z"
        await s.node_patch("n1", {"status": {"conditions": [condition]}}, subresource="status")
        await s.post(
            "/api/v1/namespaces/default/configmaps",
            {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": {"a": "b"}},
        )
        await s.annotate("running", {"example.com/x": "1"})
        await asyncio.sleep(30)
        assert script.filtered("p") == before


@virtual
async def test_gated_pods_are_invisible_until_the_gate_opens(tmp_path: Path) -> None:
    async with scene(tmp_path) as s:
        script, driver = await start(s, "n1")
        await s.add_pod("p", spec={"schedulingGates": [{"name": "ai.compute/gang"}]})
        await asyncio.sleep(60)
        assert script.filters == []
        assert driver.queue.places() == {}
        assert (await condition(s, "p"))[0] == "SchedulingGated"
        await s.pod_patch("p", {"spec": {"schedulingGates": None}})
        await s.bound("p")


@virtual
async def test_a_nominated_node_is_probed_alone_first(tmp_path: Path) -> None:
    async with scene(tmp_path) as s:
        script, _ = await start(s, "n1", "n2", "n3")
        script.refuse("no card")
        await s.add_pod("p")
        await asyncio.sleep(20)
        script.filters.clear()
        script.on_filter = lambda pod, nodes: {"NodeNames": nodes}
        await s.set_status("p", nominatedNodeName="n2")
        assert (await s.bound("p")).spec.nodeName == "n2"
        assert [nodes for _, nodes, _ in script.filters] == [("n2",)]


@virtual
async def test_when_the_nominated_node_is_refused_all_are_asked(tmp_path: Path) -> None:
    async with scene(tmp_path) as s:
        script, _ = await start(s, "n1", "n2")
        script.refuse("no card")
        await s.add_pod("p")
        await asyncio.sleep(20)
        script.filters.clear()
        script.on_filter = lambda pod, nodes: {"NodeNames": [name for name in nodes if name == "n1"]}
        await s.set_status("p", nominatedNodeName="n2")
        assert (await s.bound("p")).spec.nodeName == "n1"
        assert [nodes for _, nodes, _ in script.filters] == [("n2",), ("n1", "n2")]


@virtual
async def test_the_next_pod_is_filtered_before_the_last_one_is_bound(tmp_path: Path) -> None:
    """And it sees the assumed pod's CPU as taken."""
    async with scene(tmp_path) as s:
        script, _ = await start(s, "n1")
        script.bind_seconds = 1.0
        for name in ("a", "b", "c"):
            await s.add_pod(name, resources={names.VRAM: "1Gi", "cpu": "2"})
        await asyncio.sleep(0.5)
        assert [name for name, _, _ in script.filters] == ["a", "b"]
        assert (await s.get_pod("a")).spec.nodeName is None
        assert (await condition(s, "c")) == ("Unschedulable", "0/1 nodes are available: 1 Insufficient cpu.")
        await s.bound("a")
        await s.bound("b")


@virtual
async def test_a_refused_bind_goes_to_the_error_backoff(tmp_path: Path) -> None:
    async with scene(tmp_path) as s:
        script, _ = await start(s, "n1")
        script.on_bind = lambda pod, node: "the card is gone"
        await s.add_pod("p")
        await asyncio.sleep(30)
        reason, message = await condition(s, "p")
        assert (reason, message) == ("SchedulerError", "binding rejected: the card is gone")
        pauses = [after - before for before, after in zip(script.times("p"), script.times("p")[1:], strict=False)]
        assert [round(pause) for pause in pauses] == [1, 2, 4, 8, 10]
        script.on_bind = lambda pod, node: ""
        await s.bound("p")


@virtual
async def test_a_refused_bind_gives_the_cpu_back_and_wakes_others(tmp_path: Path) -> None:
    async with scene(tmp_path) as s:
        script, _ = await start(s, "n1")
        script.bind_seconds = 2.0
        script.on_bind = lambda pod, node: "no" if pod == "a" else ""
        await s.add_pod("a", resources={names.VRAM: "1Gi", "cpu": "4"})
        await s.add_pod("b", resources={names.VRAM: "1Gi", "cpu": "4"})
        await s.bound("b", seconds=10)


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        pytest.param(503, "code 503", id="status"),
        pytest.param({"Error": "not synced"}, "not synced", id="says-so"),
        pytest.param({"NodeNames": ["n9"]}, "not found in the input node list", id="unknown-node"),
    ],
)
@virtual
async def test_a_failed_filter_is_an_error_and_tried_again(
    tmp_path: Path, answer: dict[str, Any] | int, words: str
) -> None:
    async with scene(tmp_path) as s:
        script, _ = await start(s, "n1")
        script.on_filter = lambda pod, nodes: answer
        await s.add_pod("p")
        await asyncio.sleep(2.5)
        reason, message = await condition(s, "p")
        assert reason == "SchedulerError"
        assert words in (message or "")
        assert script.times("p") == pytest.approx([0, 1], abs=0.1)
        script.on_filter = lambda pod, nodes: {"nodenames": nodes}
        await s.bound("p")


@virtual
async def test_an_extender_that_is_too_slow_is_an_error(tmp_path: Path) -> None:
    async with scene(tmp_path) as s:
        script, _ = await start(s, "n1")
        script.bind_seconds = 6.0
        await s.add_pod("p")
        await asyncio.sleep(5.5)
        assert (await condition(s, "p"))[0] == "SchedulerError"


@virtual
async def test_a_lost_bind_answer_is_not_tried_again_and_leaves_a_cosmetic_condition(tmp_path: Path) -> None:
    async with scene(tmp_path) as s:
        script, driver = await start(s, "n1")
        script.fault = lambda request: "lose" if request.url.path == "/bind" else None
        await s.add_pod("p")
        await s.bound("p")
        await asyncio.sleep(60)
        assert (script.filtered("p"), len(script.binds)) == (1, 1)
        assert (await condition(s, "p"))[0] == "SchedulerError"
        assert (await s.get_pod("p")).spec.nodeName == "n1"
        assert driver.queue.places() == {}


@virtual
async def test_an_ignorable_extender_that_fails_is_skipped(tmp_path: Path) -> None:
    async with scene(tmp_path) as s:
        text = CONFIGURATION.replace("    bindVerb: bind\n", "    ignorable: true\n")
        script, _ = await start(s, "n1", configuration=text)
        script.on_filter = lambda pod, nodes: 500
        await s.add_pod("p")
        await s.bound("p")


@virtual
async def test_equal_nodes_are_chosen_among_at_random_but_repeatably(tmp_path: Path) -> None:
    async def chosen(seed: int, folder: Path) -> list[str | None]:
        async with scene(folder) as s:
            for node in ("n1", "n2", "n3"):
                await s.add_node(node)
            script = Script(s)
            await s.start_driver(script.http, configuration=read_configuration(CONFIGURATION), seed=seed)
            found = []
            for number in range(6):
                await s.add_pod(f"p{number}")
                found.append((await s.bound(f"p{number}")).spec.nodeName)
            return found

    assert await chosen(1, tmp_path / "a") == await chosen(1, tmp_path / "b")
    assert len(set(await chosen(2, tmp_path / "c"))) > 1


@virtual
async def test_a_pod_deleted_while_it_waits_is_forgotten(tmp_path: Path) -> None:
    async with scene(tmp_path) as s:
        script, driver = await start(s, "n1")
        script.refuse("no card")
        await s.add_pod("p")
        await asyncio.sleep(10)
        await s.delete_pod("p")
        await asyncio.sleep(10)
        assert len(driver.queue) == 0


@virtual
async def test_without_nodes_the_message_says_so(tmp_path: Path) -> None:
    async with scene(tmp_path) as s:
        await start(s)
        await s.add_pod("p")
        assert await s.waiting("p") == "no nodes available to schedule pods"


def test_reasons_are_counted_and_sorted_as_text() -> None:
    reasons = {"a": ["z", "b"], "b": ["b"], "c": ["b"]}
    assert explain(reasons, 4) == "0/4 nodes are available: 1 z, 3 b."
