"""Volcano's extender plug-in: its calls replayed in the shapes of its own types, and its way of binding.

The requests are written by the fields of Volcano's ``TaskInfo`` and ``NodeInfo`` (Go names, no tags), for schedules
that no recording has; see ``test_volcano_recorded.py``. The binder does what Volcano's does: it binds in a second step,
with the annotations that its session saw.
"""

import asyncio
from pathlib import Path
from typing import Any

import httpx2
import msgspec
import pytest
import yaml
from tests.router.scene import ROOT, Scene, card, pod_manifest, scene, virtual

from hcs.kube.resources import Binding, ObjectReference
from hcs.model import names
from hcs.model.pods import ObjectMeta, Pod

WHOLE = {names.VRAM: "80Gi"}


class Session:
    """One of Volcano's sessions: a snapshot of pods, then decisions, then binds."""

    def __init__(self, s: Scene, http: httpx2.AsyncClient) -> None:
        self.scene, self.http = s, http
        self.seen: dict[str, dict[str, Any]] = {}

    async def open(self) -> None:
        stored = self.scene.server.cluster.store.objects("pods")
        self.seen = {
            one.object["metadata"]["name"]: msgspec.json.decode(msgspec.json.encode(one.object)) for one in stored
        }

    def task(self, name: str, node: str = "") -> dict[str, Any]:
        pod = self.seen[name]
        if node:
            pod["spec"]["nodeName"] = node  # Volcano writes it into its own copy
        return {
            "UID": pod["metadata"]["uid"],
            "Job": "default/job",
            "Name": name,
            "Namespace": "default",
            "TaskRole": "worker",
            "Resreq": {"MilliCPU": 0, "Memory": 0, "ScalarResources": {names.VRAM: 8.589934592e13}},
            "NodeName": node,
            "Status": 2,
            "Priority": 1,
            "Pod": pod,
            "PodAnnotations": pod["metadata"].get("annotations"),
        }

    @staticmethod
    def node(name: str) -> dict[str, Any]:
        return {"Name": name, "Node": {"metadata": {"name": name}}, "Idle": {"MilliCPU": 64000}, "Tasks": {}}

    async def call(self, verb: str, body: dict[str, Any]) -> dict[str, Any]:
        answer = await self.http.post(f"/volcano/{verb}", content=msgspec.json.encode(body))
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        return found

    async def predicate(self, name: str, node: str) -> dict[str, Any]:
        return await self.call("predicate", {"task": self.task(name), "node": self.node(node)})

    async def allocate(self, name: str, node: str) -> str:
        return str((await self.call("allocate", {"task": self.task(name, node)}))["errorMessage"])

    async def deallocate(self, name: str, node: str) -> None:
        await self.call("deallocate", {"task": self.task(name, node)})

    async def bind(self, name: str, node: str) -> None:
        """As Volcano's binder: with the annotations of the session."""
        metadata = self.seen[name]["metadata"]
        await self.scene.client.create(
            Binding(
                apiVersion="v1",
                kind="Binding",
                metadata=ObjectMeta(
                    name=name,
                    namespace="default",
                    uid=metadata["uid"],
                    annotations=dict(metadata.get("annotations") or {}),
                ),
                target=ObjectReference(apiVersion="v1", kind="Node", name=node),
            ),
            name,
            namespace="default",
        )


async def start(s: Scene, *pods: str) -> tuple[Any, Session]:
    await s.add_node("n1", card(0), card(1))
    await s.add_node("n2", card(0, "ascend"))
    extender = await s.start_extender()
    session = Session(s, s.http(extender))
    for name in pods:
        await s.add_pod(name, resources=WHOLE, scheduler=names.VOLCANO, annotations={"note": "mine"})
    await session.open()
    return extender, session


@virtual
async def test_a_pod_is_bound_once_and_its_devices_are_ours(tmp_path: Path) -> None:
    async with scene(tmp_path) as s:
        extender, session = await start(s, "a")
        assert await session.predicate("a", "n1") == {"status": "", "code": 0}
        refused = await session.predicate("a", "n2")
        assert (refused["code"], "VramTooSmall" in refused["status"]) == (2, True)
        nodes = [session.node(name) for name in ("n1", "n2")]
        scores = await session.call("prioritize", {"task": session.task("a"), "nodes": nodes})
        assert scores == {"nodeScore": {"n1": 1000.0, "n2": 0.0}, "errorMessage": ""}
        assert await session.allocate("a", "n1") == ""
        assert await s.allocations() == {}
        await session.bind("a", "n1")
        held = (await s.allocations())["a"]
        assert (held.node, len(held.devices())) == ("n1", 1)
        assert (await s.get_pod("a")).annotations["note"] == "mine"
        await s.until(lambda: len(extender.reservations) == 0)


@virtual
async def test_members_allocated_one_by_one_never_share_a_card(tmp_path: Path) -> None:
    """Three members, two cards: the third is refused, Volcano takes all back, and nothing is left of it."""
    async with scene(tmp_path) as s:
        extender, session = await start(s, "a", "b", "c")
        assert [await session.allocate(name, "n1") for name in ("a", "b")] == ["", ""]
        assert "CardsTaken" in await session.allocate("c", "n1")
        for name in ("a", "b"):
            await session.deallocate(name, "n1")
        assert len(extender.reservations) == 0
        assert all(names.ALLOCATION not in pod.annotations for pod in (await s.pods()).values())


@virtual
async def test_a_record_that_the_session_already_saw_is_taken_off_before_anything_else(tmp_path: Path) -> None:
    """Volcano would write it back with its Binding, over a newer one."""
    async with scene(tmp_path) as s:
        _, session = await start(s, "a")
        assert await session.allocate("a", "n1") == ""
        await session.open()
        assert (await session.predicate("a", "n1"))["code"] == 2
        assert "earlier attempt" in await session.allocate("a", "n1")
        await session.open()
        assert await session.allocate("a", "n1") == ""
        await session.bind("a", "n1")
        assert (await s.allocations())["a"].node == "n1"


@virtual
async def test_volcano_asks_again_about_a_pod_it_never_bound_and_has_it_seconds_later(tmp_path: Path) -> None:
    """It was killed after ``allocate``. A Binding may still be on its way for a moment; after that nobody binds it."""
    async with scene(tmp_path) as s:
        _, session = await start(s, "a")
        assert await session.allocate("a", "n1") == ""
        await session.open()
        assert (await session.predicate("a", "n1"))["code"] == 2
        await asyncio.sleep(3)
        assert names.ALLOCATION in (await s.get_pod("a")).annotations, "the Binding might come"

        async def allowed() -> bool:
            await session.open()
            return bool((await session.predicate("a", "n1"))["code"] == 0)

        await s.until(allowed, seconds=10)
        assert await session.allocate("a", "n1") == ""
        await session.bind("a", "n1")
        assert (await s.allocations())["a"].node == "n1"


@virtual
async def test_a_record_that_was_taken_off_and_comes_by_late_holds_nothing(tmp_path: Path) -> None:
    """The watch shows the past: first the pod with the record, then without, both after it was taken off."""
    async with scene(tmp_path) as s:
        extender, session = await start(s, "a", "b", "c")
        assert await session.allocate("a", "n1") == ""
        recorded = await s.get_pod("a")
        await session.deallocate("a", "n1")
        await s.until(lambda: names.ALLOCATION not in extender.view.pod(recorded.metadata.uid).annotations)
        plain = extender.view.pod(recorded.metadata.uid)
        extender.view._pods._apply("MODIFIED", recorded)
        assert len(extender.reservations) == 1, "it may be what a router before us wrote"
        extender.view._pods._apply("MODIFIED", plain)
        assert len(extender.reservations) == 0
        assert [await session.allocate(name, "n1") for name in ("b", "c")] == ["", ""]


@virtual
async def test_a_restarted_router_keeps_what_is_recorded_and_not_bound_yet(tmp_path: Path) -> None:
    async with scene(tmp_path) as s:
        _, session = await start(s, "a", "b", "c")
        assert [await session.allocate(name, "n1") for name in ("a", "b")] == ["", ""]
        s._tasks[0].cancel()
        again = await s.start_extender()
        other = Session(s, s.http(again))
        await other.open()
        assert "CardsTaken" in await other.allocate("c", "n1")
        await session.bind("a", "n1")
        await session.bind("b", "n1")
        devices = [device for held in (await s.allocations()).values() for device in held.devices()]
        assert sorted(devices) == ["nvidia-0", "nvidia-1"]


@virtual
async def test_a_record_that_volcano_never_binds_is_taken_off_in_the_end(tmp_path: Path) -> None:
    async with scene(tmp_path) as s:
        extender, session = await start(s, "a")
        assert await session.allocate("a", "n1") == ""
        await s.until(lambda: len(extender.reservations) == 0, seconds=120)
        assert names.ALLOCATION not in (await s.get_pod("a")).annotations


@virtual
async def test_a_pod_of_volcanos_gang_waits_behind_no_gate_of_ours(tmp_path: Path) -> None:
    async with scene(tmp_path) as s:
        _, session = await start(s)
        notes = {"scheduling.k8s.io/group-name": "g"}
        await s.add_pod("g-0", resources=WHOLE, scheduler=names.VOLCANO, annotations=notes)
        await session.open()
        assert await session.allocate("g-0", "n1") == ""
        await session.bind("g-0", "n1")
        assert "g-0" in await s.allocations()


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"task": {"Pod": 3}}', b'{"task": null}'])
@virtual
async def test_what_is_no_request_is_an_error(tmp_path: Path, body: bytes) -> None:
    async with scene(tmp_path) as s:
        http = s.http(await s.start_extender())
        assert (await http.post("/volcano/predicate", content=body)).status_code == 400
        assert (await http.post("/volcano/steal", content=body)).status_code == 404


def test_the_shipped_configuration_names_every_resource_and_the_verbs_we_serve() -> None:
    documents = list(yaml.safe_load_all((ROOT / "config" / "volcano.yaml").read_text()))
    conf = yaml.safe_load(documents[0]["data"]["volcano-scheduler.conf"])
    plugins = {plugin["name"]: plugin for tier in conf["tiers"] for plugin in tier["plugins"]}
    arguments = plugins["extender"]["arguments"]
    assert set(arguments["extender.managedResources"]) == {*names.REQUESTED, *names.CHARGED}
    verbs = {value for key, value in arguments.items() if key.endswith("Verb")}
    assert verbs == {"predicate", "prioritize", "allocate", "deallocate"}
    assert arguments["extender.ignorable"] is False
    assert arguments["extender.urlPrefix"].endswith("/volcano")


def test_an_allocation_counts_on_a_pod_that_volcano_bound() -> None:
    assert names.VOLCANO in names.SCHEDULERS
    pod = msgspec.convert(pod_manifest("p", scheduler=names.VOLCANO), Pod)
    assert pod.spec.schedulerName == "volcano"
