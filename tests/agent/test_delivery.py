"""Containers start with what they were allocated, and only then: the runtime's side of the agent."""

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import httpx2
import msgspec
import pytest
from tests.agent.scene import GIB, NodeScene, scene, uuid

from hcs.inject.quota_file import parse
from hcs.model import names
from hcs.model.allocations import Grant
from hcs.sandbox.scheduler.inprocess import InProcessTransport
from hcs.sandbox.scheduler.virtualtime import run_virtual
from hcs.vendors import emulated

Story = Callable[[NodeScene], Coroutine[Any, Any, None]]


@pytest.fixture
def tell(tmp_path: Path) -> Callable[[Story], None]:
    """Runs a story on a fresh node with two cards and a running agent."""

    def run(story: Story) -> None:
        async def whole() -> None:
            async with scene(tmp_path) as node:
                await node.start_agent()
                await story(node)

        run_virtual(whole())

    return run


Tell = Callable[[Story], None]


def test_a_share_starts_with_its_card_and_its_quota(tell: Tell) -> None:
    async def story(node: NodeScene) -> None:
        pod = await node.bound_pod("one", 1, amount=10 * GIB)
        got = await node.adjusted(pod, env={"LD_LIBRARY_PATH": "/app"})
        assert got.variables()["HCS_DEVICES"] == uuid(1)
        assert got.variables()["LD_LIBRARY_PATH"] == "/usr/local/nvidia/lib64:/app"
        assert [(n.path, n.source) for n in got.devices] == [("/dev/nvidia1", str(node.cards / "nvidia1.card"))]
        assert got.files == (), "they are on the host, not in the answer"
        for mount in got.mounts:
            assert Path(mount.source).exists(), "a missing source would fail later, without our words"
        quota = parse((node.container_files(pod) / "quota").read_text())
        assert [(card.uuid, card.quota_bytes) for card in quota.cards] == [(uuid(1), 10 * GIB)]
        modes = {path.name: path.stat().st_mode & 0o777 for path in node.container_files(pod).iterdir()}
        assert modes == {"quota": 0o444, "ledger": 0o666, "ld.so.preload": 0o444}

    tell(story)


def test_a_container_that_starts_again_does_not_pay_for_the_one_that_was_killed(tell: Tell) -> None:
    """Its ledger names processes of another pid namespace, of which nobody inside could tell that they are dead."""

    async def story(node: NodeScene) -> None:
        pod = await node.bound_pod("one", 1, amount=10 * GIB)
        mount = (await node.adjusted(pod)).mount("/etc/hcs/ledger")
        assert mount is not None
        ledger = Path(mount.source)
        await node.adjusted(pod)
        first = ledger.stat().st_ino
        ledger.write_bytes(b"somebody was here" * 100)
        await node.adjusted(pod)
        assert (ledger.stat().st_size, ledger.stat().st_mode & 0o777) == (0, 0o666)
        assert ledger.stat().st_ino != first, "who still dies writes into the old one"
        ledger.write_bytes(b"and again" * 100)
        await node.stop_agent()
        await node.start_agent()
        await node.adjusted(pod)
        assert ledger.stat().st_size == 0

    tell(story)


def test_an_init_container_starts_with_the_cards_of_the_main_one(tell: Tell) -> None:
    """Its files are prepared with the others', and it holds nothing beside them."""

    async def story(node: NodeScene) -> None:
        init = {"initContainers": [{"name": "setup", "image": "example.invalid/setup:1"}]}
        pod = await node.bound_pod("one", 1, amount=10 * GIB, reuses={"setup": "main"}, spec=init)
        for name in ("setup", "main"):
            got = await node.ask(pod, name)
            assert got.status_code == 200, got.text
            assert uuid(1) in got.text
            assert (node.container_files(pod, name) / "quota").exists()

    tell(story)


def test_a_pod_that_is_none_of_ours_is_not_touched(tell: Tell) -> None:
    async def story(node: NodeScene) -> None:
        pod = await node.cluster.add_pod("web", resources={"cpu": "1"}, scheduler="default-scheduler")
        got = await node.adjusted(pod)
        assert msgspec.json.encode(got) == b"{}"

    tell(story)


def test_the_runtime_may_be_faster_than_the_informer(tell: Tell) -> None:
    """The agent asks the API server itself before it believes in a pod it has not seen."""

    async def story(node: NodeScene) -> None:
        pod = await node.bound_pod("one", 0)
        assert (await node.adjusted(pod)).variables()["HCS_DEVICES"] == uuid(0)

    tell(story)


def test_a_pod_the_server_does_not_know_is_refused(tell: Tell) -> None:
    """An allocation is believed from the API server alone, whatever the question carries."""

    async def story(node: NodeScene) -> None:
        pod = await node.bound_pod("one", 0)
        ghost = msgspec.structs.replace(pod, metadata=msgspec.structs.replace(pod.metadata, name="ghost"))
        assert (await node.refused(ghost)).reason == "UnknownPod"
        other = msgspec.structs.replace(pod, metadata=msgspec.structs.replace(pod.metadata, uid="made-up"))
        assert (await node.refused(other)).reason in ("UnknownPod", "ForeignAllocation")

    tell(story)


def test_the_servers_annotations_count_not_the_questions(tell: Tell) -> None:
    async def story(node: NodeScene) -> None:
        pod = await node.bound_pod("one", 0)
        text = pod.annotations[names.ALLOCATION].replace(uuid(0), uuid(1))
        forged = msgspec.structs.replace(
            pod, metadata=msgspec.structs.replace(pod.metadata, annotations={names.ALLOCATION: text})
        )
        assert (await node.adjusted(forged)).variables()["HCS_DEVICES"] == uuid(0)

    tell(story)


def test_asking_for_compute_without_an_allocation_is_refused(tell: Tell) -> None:
    async def story(node: NodeScene) -> None:
        pod = await node.cluster.add_pod("stray")
        assert (await node.refused(pod)).reason == "NotRouted"

    tell(story)


def test_the_arbiter_refuses_what_would_over_commit_a_card(tell: Tell) -> None:
    async def story(node: NodeScene) -> None:
        first, second = await node.bound_pod("one", 0, amount=50 * GIB), await node.bound_pod("two", 0, amount=50 * GIB)
        await node.adjusted(first)
        refusal = await node.refused(second)
        assert refusal.reason == "OverCommitted"
        assert "50Gi more would over-commit A100-SXM4-80GB 0 of node node-1, which has 80Gi" in refusal.message
        assert not node.container_files(second).exists(), "a refusal leaves nothing behind"
        await node.adjusted(first)

    tell(story)


def test_two_starts_at_once_are_judged_one_after_the_other(tell: Tell) -> None:
    async def story(node: NodeScene) -> None:
        pods = [await node.bound_pod(f"p{n}", 0, amount=50 * GIB) for n in range(4)]
        answers = await asyncio.gather(*(node.ask(pod) for pod in pods))
        assert sorted(answer.status_code for answer in answers) == [200, 409, 409, 409]

    tell(story)


def test_a_failed_or_quarantined_card_takes_no_new_pod_but_keeps_its_own(tell: Tell) -> None:
    async def story(node: NodeScene) -> None:
        running, late = await node.bound_pod("running", 0), await node.bound_pod("late", 0)
        other = await node.bound_pod("other", 1)
        await node.adjusted(running)
        emulated.inject_fault(node.cards / "nvidia0.card", 79, "fell off the bus")
        await asyncio.sleep(0.3)
        refusal = await node.refused(late)
        assert refusal.reason == "FailedDevice"
        assert "fell off the bus" in refusal.message
        await node.adjusted(running)
        await node.quarantine(uuid(1))
        assert (await node.refused(other)).reason == "QuarantinedDevice"

    tell(story)


def test_a_sidecar_sees_no_card_and_an_unknown_container_does_not_start(tell: Tell) -> None:
    async def story(node: NodeScene) -> None:
        limits = {"limits": {names.VRAM: "16Gi"}}
        containers = [{"name": "main", "image": "a", "resources": limits}, {"name": "sidecar", "image": "b"}]
        pod = await node.bound_pod("two", 0, spec={"containers": containers})
        got = await node.adjusted(pod, "sidecar", env={"NVIDIA_VISIBLE_DEVICES": "all"})
        assert got.variables() == {"NVIDIA_VISIBLE_DEVICES": None}
        assert (got.devices, got.mounts) == ((), ())
        assert (await node.refused(pod, "ghost")).reason == "UnknownContainer"

    tell(story)


def test_room_is_free_again_when_a_pod_has_finished(tell: Tell) -> None:
    async def story(node: NodeScene) -> None:
        first, second = await node.bound_pod("one", 0, amount=50 * GIB), await node.bound_pod("two", 0, amount=50 * GIB)
        await node.adjusted(first)
        await node.cluster.set_status("one", phase="Succeeded")
        await node.settle()
        await node.adjusted(second)
        assert node.container_files(first).exists(), "as long as the pod is there, so are its files"
        await node.removed(first)
        await node.cluster.delete_pod("one")
        await node.settle()
        assert not node.container_files(first).parent.exists()

    tell(story)


def test_a_deleted_pod_holds_its_card_until_its_containers_are_gone(tell: Tell) -> None:
    """A forced deletion takes the pod from the API server while its processes still hold the memory."""

    async def story(node: NodeScene) -> None:
        first, second = await node.bound_pod("one", 0, amount=50 * GIB), await node.bound_pod("two", 0, amount=50 * GIB)
        await node.adjusted(first)
        await node.settle()
        await node.cluster.delete_pod("one")
        await node.settle()
        assert (await node.refused(second)).reason == "OverCommitted"
        await node.removed(first)
        await node.adjusted(second)

    tell(story)


def test_a_runtime_that_never_says_so_does_not_hold_the_card_for_ever(tell: Tell) -> None:
    async def story(node: NodeScene) -> None:
        first, second = await node.bound_pod("one", 0, amount=50 * GIB), await node.bound_pod("two", 0, amount=50 * GIB)
        await node.adjusted(first)
        await node.settle()
        await node.cluster.delete_pod("one")
        await node.settle()
        assert (await node.refused(second)).reason == "OverCommitted"
        await asyncio.sleep(40)
        await node.adjusted(second)

    tell(story)


def test_a_restarted_agent_has_forgotten_nothing(tell: Tell) -> None:
    async def story(node: NodeScene) -> None:
        first, second = await node.bound_pod("one", 0, amount=50 * GIB), await node.bound_pod("two", 0, amount=50 * GIB)
        await node.adjusted(first)
        ledger = node.container_files(first) / "ledger"
        ledger.write_bytes(b"counted")
        with ledger.open("rb") as mounted:
            await node.stop_agent()
            await node.start_agent()
            assert (await node.refused(second)).reason == "OverCommitted"
            assert ledger.read_bytes() == b"counted"
            await node.adjusted(first)
            assert mounted.read() == b"counted", "the ledger of running programs is not touched"

    tell(story)


def test_pods_that_left_while_the_agent_was_away_are_forgotten(tell: Tell) -> None:
    async def story(node: NodeScene) -> None:
        first, second = await node.bound_pod("one", 0, amount=50 * GIB), await node.bound_pod("two", 0, amount=50 * GIB)
        await node.adjusted(first)
        await node.removed(first)
        await node.stop_agent()
        await node.cluster.delete_pod("one")
        await node.start_agent()
        await node.adjusted(second)
        assert not node.container_files(first).exists()

    tell(story)


def test_while_the_api_server_is_silent_unseen_pods_wait_and_known_ones_start(tmp_path: Path) -> None:
    async def whole() -> None:
        async with scene(tmp_path) as node:
            api = node.cluster.api
            known = await node.bound_pod("known", 0)
            await node.start_agent()
            unseen = await node.bound_pod("unseen", 1)
            transport = InProcessTransport(api.application, fault=lambda request: "refuse")
            api.application, application = transport.application, api.application
            api.fault = lambda request: "refuse"
            await node.adjusted(known)
            stranger = msgspec.structs.replace(unseen, metadata=msgspec.structs.replace(unseen.metadata, name="later"))
            answer = await node.ask(stranger)
            assert answer.status_code == 503
            assert "ask again" in answer.text
            api.fault, api.application = None, application

    run_virtual(whole())


def test_a_share_on_an_unbuilt_node_is_refused_and_a_whole_card_is_not(tmp_path: Path) -> None:
    async def whole() -> None:
        async with scene(tmp_path) as node:
            await node.start_agent(interceptor="")
            assert (await node.refused(await node.bound_pod("share", 0))).reason == "InterceptorMissing"
            whole_card = await node.bound_pod("whole", 1, amount=80 * GIB, exclusive=True)
            assert (await node.adjusted(whole_card)).mount("/etc/ld.so.preload") is None

    run_virtual(whole())


def test_a_sites_profile_takes_effect_at_once_and_a_broken_one_has_none(tell: Tell) -> None:
    async def story(node: NodeScene) -> None:
        await node.cluster.add_profile("ours", vendor="nvidia", environment={"OURS": "{indexes}"})
        await node.cluster.add_profile("broken", vendor="nvidia", environment={"OURS": "{cards}"})
        await node.settle()
        pod = await node.bound_pod("one", 1)
        assert (await node.adjusted(pod)).variables()["OURS"] == "1"

    tell(story)


def test_two_containers_of_a_pod_are_admitted_together(tell: Tell) -> None:
    async def story(node: NodeScene) -> None:
        limits = {"limits": {names.VRAM: "16Gi"}}
        containers = [{"name": name, "image": "a", "resources": limits} for name in ("main", "aux")]
        grants = {"main": (Grant(uuid(0), 30 * GIB, 0),), "aux": (Grant(uuid(0), 30 * GIB, 0),)}
        pod = await node.bound_pod("two", spec={"containers": containers}, containers=grants)
        rival = await node.bound_pod("rival", 0, amount=30 * GIB)
        await node.adjusted(pod, "main")
        assert (await node.refused(rival)).reason == "OverCommitted", "the second container's part is kept for it"
        await node.adjusted(pod, "aux")

    tell(story)


async def _status(node: NodeScene, body: bytes) -> int:
    async with httpx2.AsyncClient(transport=InProcessTransport(node.agent.app), base_url="http://agent") as runtime:
        return (await runtime.post("/v1/containers", content=body)).status_code


@pytest.mark.parametrize("body", [b"", b"{}", b"[]", b'{"pod": 1, "container": {"name": "x"}}', b"\xff"])
def test_a_question_that_is_none_is_answered_400(tell: Tell, body: bytes) -> None:
    async def story(node: NodeScene) -> None:
        assert await _status(node, body) == 400

    tell(story)


def test_health_and_metrics_are_served_on_the_same_socket(tell: Tell) -> None:
    async def story(node: NodeScene) -> None:
        await node.adjusted(await node.bound_pod("one", 0))
        assert (await node.fetch("/healthz")).status_code == 200
        text = (await node.fetch("/metrics")).text
        assert 'hcs_agent_containers_total{answer="Adjusted"} 1.0' in text
        assert f'hcs_agent_granted_bytes{{device="{uuid(0)}"}} {16 * GIB:.1f}'.split(" ")[0] in text

    tell(story)
