"""The agent as a plugin of a container runtime: what reaches containers, and what never starts.

The whole agent, the sandbox's API server in process, and a runtime that speaks NRI over a real socket; so the time is
real too.
"""

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from tests.agent.scene import GIB, NodeScene, scene, uuid
from tests.nri.plugins import Scripted
from tests.nri.runtime import NEW, OLD, REQUIRED, Container, CreationError, Kind, Sandbox, StubRuntime, stub_runtime
from tests.waiting import until

from hcs.agent.node import Agent
from hcs.inject.adjustments import Adjustment, Variable
from hcs.inject.injection import MARK
from hcs.inject.quota_file import parse
from hcs.kube.resources import Event
from hcs.kube.resources import Pod as PodResource
from hcs.model import names
from hcs.model.pods import Pod
from hcs.nri.messages import MESSAGES, REMOVE
from hcs.nri.plugin import Plugin


class Ground:
    """A node with two cards, its agent, and its container runtime."""

    def __init__(self, node: NodeScene, runtime: StubRuntime) -> None:
        self.node, self.runtime = node, runtime

    @property
    def agent(self) -> Agent:
        return self.node.agent

    async def bound(self, name: str, *cards: int, **changes: Any) -> Pod:
        """A bound pod that the agent has heard of, as is usual by the time its containers are made."""
        pod = await self.node.bound_pod(name, *cards, **changes)
        await until(lambda: self.agent.delivery.seen(pod) is not None)
        return pod

    async def sandbox(self, pod: Pod) -> Sandbox:
        """The pod's sandbox, as a kubelet makes it: with the annotations of that moment."""
        return await self.runtime.run_pod(pod.metadata.name, pod.metadata.uid, pod.annotations)

    async def started(self, pod: Pod, name: str = "main", **facts: Any) -> Container:
        """A container of the pod."""
        return await self.runtime.create(await self.sandbox(pod), name, **facts)

    async def refused(self, pod: Pod) -> str:
        """Why a container of the pod is not created."""
        with pytest.raises(CreationError) as caught:
            await self.started(pod)
        return str(caught.value)


Story = Callable[[Ground], Coroutine[Any, Any, None]]


def tell(folder: Path, story: Story, kind: Kind = NEW, agent: dict[str, Any] | None = None, **settings: Any) -> None:
    """Run a story."""

    async def whole() -> None:
        async with stub_runtime(folder, kind, **settings) as runtime, scene(folder) as node:
            await node.start_agent(nri_socket=runtime.socket, poll=5.0, **(agent or {}))
            await runtime.plugin()
            await story(Ground(node, runtime))
            if node.agent.link is not None:
                await node.agent.link.settled()

    asyncio.run(whole())


@pytest.mark.parametrize("kind", [NEW, OLD], ids=lambda kind: kind.version)
def test_a_share_arrives_with_card_quota_and_interceptor(folder: Path, kind: Kind) -> None:
    async def story(ground: Ground) -> None:
        pod = await ground.bound("one", 1, amount=10 * GIB)
        container = await ground.started(pod, env={"LD_LIBRARY_PATH": "/app", "ASCEND_RT_VISIBLE_DEVICES": "5"})
        assert container.env["HCS_DEVICES"] == uuid(1)
        assert container.env["LD_LIBRARY_PATH"] == "/usr/local/nvidia/lib64:/app"
        assert container.env["ASCEND_RT_VISIBLE_DEVICES"] == "0", "it cannot be taken away, so it chooses all there is"
        assert container.annotations == {MARK: "nvidia"}
        assert container.mounts["/dev/nvidia1"][0] == str(ground.node.cards / "nvidia1.card")
        for source, _ in container.mounts.values():
            assert Path(source).exists(), "a missing source would fail later, without our words"
        assert container.mounts["/etc/ld.so.preload"][1][1] == "ro"
        quota = parse((ground.node.container_files(pod) / "quota").read_text())
        assert [card.quota_bytes for card in quota.cards] == [10 * GIB]

    tell(folder, story, kind)


def test_nothing_waits_for_a_disk_once_the_pod_has_come(folder: Path) -> None:
    async def story(ground: Ground) -> None:
        done: list[str] = []
        pod = await ground.bound("one", 0)
        sandbox = await ground.sandbox(pod)
        link = ground.agent.link
        assert link is not None
        await link.settled()
        quota = ground.node.container_files(pod) / "quota"
        assert quota.exists(), "it was written when the pod came"
        before = quota.stat()
        blocked = asyncio.Event()

        async def work(_: Callable[[], Any]) -> Any:
            done.append("waits for a disk")
            await blocked.wait()

        ground.agent.delivery._work = work
        container = await ground.runtime.create(sandbox)
        assert container.env["HCS_DEVICES"] == uuid(0)
        assert quota.stat().st_mtime_ns == before.st_mtime_ns
        blocked.set()

    tell(folder, story)


def test_a_disk_that_hangs_is_a_refusal_in_time(folder: Path) -> None:
    given_up = asyncio.Event()

    async def hang(_: Callable[[], Any]) -> Any:
        await given_up.wait()
        raise OSError("input/output error")

    async def story(ground: Ground) -> None:
        assert "AgentSlow" in await ground.refused(await ground.bound("one", 0))
        assert ground.agent.delivery.ledger().held == {}, "what did not start holds nothing"
        other = await ground.runtime.create(await ground.runtime.run_pod("web"))
        assert (other.env, ground.runtime.dropped) == ({}, [])
        given_up.set()

    tell(folder, story, agent={"work": hang})


def test_the_arbiter_refuses_and_the_kubelet_reads_why(folder: Path) -> None:
    async def story(ground: Ground) -> None:
        first, second = await ground.bound("one", 0, amount=50 * GIB), await ground.bound("two", 0, amount=50 * GIB)
        container = await ground.started(first)
        assert "code = 9 desc = OverCommitted: 50Gi more would over-commit" in await ground.refused(second)
        await ground.started(first, "main")
        await ground.runtime.remove(container)
        assert "OverCommitted" in await ground.refused(second), "a second container of that name still runs"

    tell(folder, story)


def test_room_is_free_again_when_the_last_container_of_a_deleted_pod_is_removed(folder: Path) -> None:
    async def story(ground: Ground) -> None:
        first, second = await ground.bound("one", 0, amount=50 * GIB), await ground.bound("two", 0, amount=50 * GIB)
        crashed = await ground.started(first)
        again = await ground.started(first)
        await ground.node.cluster.delete_pod("one")
        await until(lambda: ground.agent.delivery.seen(first) is None)
        assert "OverCommitted" in await ground.refused(second)
        await ground.runtime.remove(crashed)
        assert "OverCommitted" in await ground.refused(second), "the one that took its place still runs"
        await ground.runtime.remove(again)
        await ground.started(second)
        await until(lambda: not ground.node.container_files(first).exists())

    tell(folder, story)


def test_the_servers_allocation_counts_whatever_the_sandbox_carries(folder: Path) -> None:
    async def story(ground: Ground) -> None:
        pod = await ground.bound("one", 0)
        text = pod.annotations[names.ALLOCATION].replace(uuid(0), uuid(1))
        forged = await ground.runtime.run_pod("one", pod.metadata.uid, {names.ALLOCATION: text})
        assert (await ground.runtime.create(forged)).env["HCS_DEVICES"] == uuid(0)
        made_up = await ground.runtime.run_pod("ghost", "no-such-uid", {names.ALLOCATION: text})
        with pytest.raises(CreationError, match=r"NotNow|ForeignAllocation"):
            await ground.runtime.create(made_up)

    tell(folder, story)


def test_a_pod_the_agent_has_not_heard_of_is_asked_about_and_then_starts(folder: Path) -> None:
    """The runtime may be faster than the watch: nothing is asked while it waits, but it asks again."""

    async def story(ground: Ground) -> None:
        pod = await ground.bound("one", 0)
        delivery, link = ground.agent.delivery, ground.agent.link
        assert link is not None
        informer = delivery._pods
        store, informer._store = informer._store, {}
        sandbox = await ground.runtime.run_pod("one", pod.metadata.uid, pod.annotations)
        await link.settled()
        assert (await ground.runtime.create(sandbox)).env["HCS_DEVICES"] == uuid(0)
        informer._store = store

    tell(folder, story)


def test_a_sidecar_sees_no_card_and_a_strangers_container_is_left_alone(folder: Path) -> None:
    async def story(ground: Ground) -> None:
        limits = {"limits": {names.VRAM: "16Gi"}}
        containers = [{"name": "main", "image": "a", "resources": limits}, {"name": "sidecar", "image": "b"}]
        pod = await ground.bound("two", 0, spec={"containers": containers})
        sidecar = await ground.started(pod, "sidecar", env={"NVIDIA_VISIBLE_DEVICES": "all", "OWN": "1"})
        assert sidecar.env == {"NVIDIA_VISIBLE_DEVICES": "", "OWN": "1"}, "empty means none; it cannot be taken away"
        assert sidecar.annotations == {MARK: "none"}
        stranger = await ground.runtime.create(await ground.runtime.run_pod("web"), env={"A": "1"})
        assert (stranger.env, stranger.annotations, stranger.mounts) == ({"A": "1"}, {}, {})

    tell(folder, story)


def test_another_entry_point_needs_a_runtime_that_takes_it(folder: Path) -> None:
    async def entry(ground: Ground) -> Pod:
        return await ground.bound("one", 0, annotations={f"{names.ENTRYPOINT_PREFIX}nvidia": "wrapper --fast train"})

    async def takes(ground: Ground) -> None:
        assert (await ground.started(await entry(ground))).args == ["wrapper", "--fast", "train"]

    async def would_ignore(ground: Ground) -> None:
        assert "RuntimeTooOld: containerd 1.7.24~ds1 cannot change" in await ground.refused(await entry(ground))
        assert ground.runtime.started == []

    for name, story, kind in (("new", takes, NEW), ("old", would_ignore, OLD)):
        (folder / name).mkdir()
        tell(folder / name, story, kind)


def test_what_another_plugin_takes_away_is_noticed(folder: Path) -> None:
    async def story(ground: Ground) -> None:
        thief = Scripted(Adjustment(env=(Variable("-HCS_DEVICES", ""),)))  # NRI's mark for "take it away"
        other = Plugin("thief", "60", thief, events=(4,), socket=ground.runtime.socket)
        running = asyncio.create_task(other.run())
        await ground.runtime.plugin("thief")
        said = await ground.refused(await ground.bound("one", 0))
        assert "AdjustmentLost: another plugin of the container runtime took away variable HCS_DEVICES" in said
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    tell(folder, story)


def test_containers_that_never_came_to_be_leave_no_trail(folder: Path) -> None:
    """Another plugin refuses after us, and a runtime that does not tell of it; it is tried as long as the pod lives."""

    async def story(ground: Ground) -> None:
        pod, link = await ground.bound("one", 0), ground.agent.link
        assert link is not None
        event = MESSAGES["Event"]()
        event.pod.name, event.pod.namespace, event.pod.uid = "one", "default", pod.metadata.uid
        event.container.name = "main"
        for attempt in range(5):
            event.container.id = f"attempt-{attempt}"
            assert await link.create(event.pod, event.container) is not None
            assert link.answered == 1
        await link.event(REMOVE, event.pod, event.container)
        assert link.answered == 0
        await ground.node.cluster.client.delete(PodResource, "one", namespace="default", grace_period=0)
        await until(lambda: not ground.agent.delivery.ledger().holders(uuid(0)))

    tell(folder, story)


def test_the_runtimes_abilities_are_published_and_nothing_is_placed_without_it(folder: Path) -> None:
    async def story(ground: Ground) -> None:
        async def published(runtime: str, ready: str, closed: bool) -> bool:
            state = (await ground.node.published()).status
            told = next(c for c in state.conditions if c.type == "Ready")
            return (state.abilities.runtime, told.status, state.abilities.fail_closed) == (runtime, ready, closed)

        await until(lambda: published("containerd v2.3.4", "True", True))
        await ground.runtime.create(await ground.runtime.run_pod("web"))
        await until(lambda: published("containerd v2.3.4", "True", False))
        await ground.runtime.stop()
        await until(lambda: published("", "False", False))
        inventory = (await ground.node.published()).inventory()
        assert not inventory.ready
        ground.runtime.validator = True
        await ground.runtime.start()
        await ground.runtime.plugin()
        await ground.runtime.create(await ground.runtime.run_pod("web2"))
        await until(lambda: published("containerd v2.3.4", "True", True))

    tell(folder, story)


@pytest.mark.parametrize("kind", [NEW, OLD], ids=lambda kind: kind.version)
@pytest.mark.parametrize("guarded", [False, True])
def test_without_a_validator_a_node_fails_closed_only_with_a_guard(folder: Path, kind: Kind, guarded: bool) -> None:
    async def story(ground: Ground) -> None:
        await ground.runtime.create(await ground.runtime.run_pod("web"))
        link = ground.agent.link
        assert link is not None
        assert link.abilities().fail_closed == guarded
        assert link.abilities().args == kind.args

    tell(folder, story, kind, agent={"guarded": lambda: guarded})


@pytest.mark.parametrize("kind", [NEW, OLD], ids=lambda kind: kind.version)
def test_what_slipped_through_while_the_agent_was_away_is_deleted_with_a_reason(folder: Path, kind: Kind) -> None:
    async def story(ground: Ground) -> None:
        good, bad = await ground.bound("good", 0), await ground.bound("bad", 1)
        kept = await ground.started(good)
        sandbox = await ground.sandbox(bad)
        await ground.node.stop_agent()
        await until(lambda: all(peer.closed for peer in ground.runtime.peers))
        ground.runtime.peers.clear()
        slipped = await ground.runtime.create(sandbox)
        assert MARK not in slipped.annotations, "the default validator is off here"
        await ground.node.start_agent(nri_socket=ground.runtime.socket, poll=5.0)
        await ground.runtime.plugin()
        await until(lambda: _gone(ground, "bad"))
        assert (await ground.node.cluster.get_pod("good")).metadata.deletionTimestamp is None
        events = [event async for event in ground.node.cluster.client.list(Event, namespace="default")]
        assert [(e.reason, e.involvedObject.name) for e in events if e.reason == "NotAdjusted"] == [
            ("NotAdjusted", "bad")
        ]
        ledger = ground.agent.delivery.ledger()
        assert ledger.used(uuid(0)) == 16 * GIB, "what runs as it should is still counted"
        await ground.runtime.remove(kept)

    tell(folder, story, kind)


async def _gone(ground: Ground, name: str) -> bool:
    from lightkube import ApiError

    try:
        pod = await ground.node.cluster.get_pod(name)
    except ApiError:
        return True
    return pod.metadata.deletionTimestamp is not None


def test_an_agent_that_lost_its_files_learns_from_the_runtime_what_runs(folder: Path) -> None:
    async def story(ground: Ground) -> None:
        first, second = await ground.bound("one", 0, amount=50 * GIB), await ground.bound("two", 0, amount=50 * GIB)
        await ground.started(first)
        await ground.node.stop_agent()
        for path in (folder / "state" / "admitted").iterdir():
            path.unlink()
        ground.runtime.peers.clear()
        await ground.node.start_agent(nri_socket=ground.runtime.socket, poll=5.0)
        await ground.runtime.plugin()
        assert "OverCommitted" in await ground.refused(second)

    tell(folder, story)


def test_a_required_plugin_is_ours_by_the_name_admission_writes(folder: Path) -> None:
    async def story(ground: Ground) -> None:
        annotated = {REQUIRED: f'["{names.NRI_PLUGIN}"]'}
        await ground.runtime.create(await ground.runtime.run_pod("ready"))
        ground.node.agent.delivery  # noqa: B018
        known = await ground.bound("one", 0, annotations=annotated)
        await ground.started(known)
        await ground.node.stop_agent()
        ground.runtime.peers.clear()
        with pytest.raises(CreationError, match='required plugin "hcs" not present'):
            await ground.started(known)

    tell(folder, story, validator=True)


def test_a_pod_only_the_annotation_speaks_for_waits(folder: Path) -> None:
    """Admission names our plugin for pods that ask for compute; until the API server has told, such a one must wait."""

    async def story(ground: Ground) -> None:
        sandbox = await ground.runtime.run_pod("one", "uid-1", {REQUIRED: '["hcs"]'})
        with pytest.raises(CreationError, match="NotNow: pod default/one is not known here yet"):
            await ground.runtime.create(sandbox)

    tell(folder, story)
