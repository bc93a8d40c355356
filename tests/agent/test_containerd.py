"""The same with a real containerd and real containers: what was answered is what programs in them see.

Only this can catch what a runtime does differently from what we believe of it.
"""

import asyncio
import os
import re
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import grpc
import pytest
from tests.agent.scene import GIB, NodeScene, scene, uuid
from tests.nri.containerd import Containerd, RealPod, find, lacking, real_containerd
from tests.nri.runtime import REQUIRED
from tests.nri.test_failing_closed import Child
from tests.waiting import until

from hcs.agent.cdi import CdiSpecs
from hcs.inject.injection import NodeFiles
from hcs.model import names
from hcs.model.devices import Device
from hcs.model.pods import Pod
from hcs.native import NativeLibraryError, interceptor_path
from hcs.nri.guard import INDEX, NAME, Guard
from hcs.nri.plugin import Plugin
from hcs.nri.runtimes import GUARD_EVENTS

pytestmark = [
    pytest.mark.needs_containerd,
    pytest.mark.xdist_group("containerd"),
]
fit = pytest.mark.skipif(bool(lacking()), reason=lacking() or "-")
old = pytest.mark.skipif(
    bool(lacking((1, 7))) or (find() or (None, (9, 9)))[1] >= (2, 2),
    reason=lacking((1, 7)) or "no containerd before 2.2, for which the guard is",
)
NODE_IN_HOST = next(
    (path for path in ("/dev/loop-control", "/dev/fuse", "/dev/vcs", "/dev/hwrng") if os.path.exists(path)), ""
)


class Ground:
    """A node with two cards, its agent, and a real containerd."""

    def __init__(self, node: NodeScene, containerd: Containerd) -> None:
        self.node, self.containerd = node, containerd

    async def pod(self, name: str, *cards: int, **changes: Any) -> tuple[Pod, RealPod]:
        """A bound pod that the agent has heard of, and its sandbox."""
        annotations = {REQUIRED: f'["{names.NRI_PLUGIN}"]', **changes.pop("annotations", {})}
        pod = await self.node.bound_pod(name, *cards, annotations=annotations, **changes)
        await until(lambda: self.node.agent.delivery.seen(pod) is not None)
        return pod, await self.containerd.run_pod(name, pod.metadata.uid, pod.annotations)

    async def refused(self, pod: RealPod) -> str:
        """Why a container is not created."""
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await pod.start()
        return caught.value.details() or ""


Story = Callable[[Ground], Coroutine[Any, Any, None]]


def tell(folder: Path, story: Story, **settings: Any) -> None:
    """Run a story."""

    async def whole() -> None:
        async with real_containerd(folder) as containerd, scene(folder) as node:
            try:
                node.interceptor = interceptor_path()
            except NativeLibraryError:
                pytest.skip("no interceptor was built")
            agent = await node.start_agent(nri_socket=containerd.nri, poll=5.0, **settings)
            assert agent.link is not None
            await until(lambda: agent.link is not None and agent.link.runtime is not None)
            await story(Ground(node, containerd))

    asyncio.run(whole())


def environment(text: str) -> dict[str, str]:
    return dict(line.partition("=")[::2] for line in text.splitlines())


@fit
def test_variables_mounts_devices_and_arguments_arrive(folder: Path) -> None:
    async def story(ground: Ground) -> None:
        entry = {f"{names.ENTRYPOINT_PREFIX}nvidia": "/bin/sh -c 'echo wrapped > /tmp/args; exec /bin/sleep 3600'"}
        ground.node.agent.cards.files = _with_node(ground.node.agent.cards.files)  # type: ignore[method-assign]
        _, pod = await ground.pod("one", 1, amount=10 * GIB, annotations=entry)
        container = await pod.start(env={"NVIDIA_VISIBLE_DEVICES": "all", "ASCEND_VISIBLE_DEVICES": "3", "OWN": "1"})
        status, shown = await pod.run(container, "/usr/bin/env")
        assert status == 0
        seen = environment(shown)
        assert (seen["HCS_DEVICES"], seen["NVIDIA_VISIBLE_DEVICES"]) == (uuid(1), uuid(1))
        assert (seen["ASCEND_VISIBLE_DEVICES"], seen["OWN"], seen["FROM_IMAGE"]) == ("", "1", "1")
        assert (await pod.run(container, "/bin/cat", "/tmp/args")) == (0, "wrapped\n")
        status, quota = await pod.run(container, "/bin/cat", "/etc/hcs/quota")
        assert f"card nvidia {uuid(1)} {10 * GIB} " in quota
        assert (await pod.run(container, "/bin/sh", "-c", ": > /etc/hcs/quota"))[0] != 0, "read-only"
        assert (await pod.run(container, "/bin/sh", "-c", ": > /etc/ld.so.preload"))[0] != 0, "read-only"
        assert (await pod.run(container, "/bin/sh", "-c", ": >> /etc/hcs/ledger")) == (0, "")
        status, maps = await pod.run(container, "/bin/cat", "/proc/self/maps")
        assert "/usr/local/lib/hcs/libhcs_interceptor.so" in maps, "preloaded, also for programs run later"
        assert (await pod.run(container, "/bin/ls", "/dev/nvidia1")) == (0, "/dev/nvidia1\n")
        if NODE_IN_HOST:
            assert (await pod.run(container, "/bin/sh", "-c", ": < /dev/hcs-test")) == (0, "")

    tell(folder, story)


def _with_node(files: Callable[[Device], NodeFiles]) -> Callable[[Device], NodeFiles]:
    """Beside the emulated card, a real device node that no container has by itself."""
    import msgspec

    from hcs.inject.adjustments import DeviceNode

    def both(device: Device) -> NodeFiles:
        found = files(device)
        extra = (DeviceNode("/dev/hcs-test", NODE_IN_HOST),) if NODE_IN_HOST else ()
        return msgspec.structs.replace(found, devices=(*found.devices, *extra))

    return both


@fit
def test_cards_arrive_by_their_cdi_names(folder: Path) -> None:
    async def story(ground: Ground) -> None:
        agent = ground.node.agent
        agent.cards.files = _with_node(agent.cards.files)  # type: ignore[method-assign]
        await agent.describe()
        _, pod = await ground.pod("one", 1, amount=10 * GIB)
        container = await pod.start()
        assert (ground.containerd.cdi / "ai.compute-nvidia.json").exists()
        assert (await pod.run(container, "/bin/ls", "/dev/nvidia1")) == (0, "/dev/nvidia1\n")
        assert (await pod.run(container, "/bin/ls", "/dev/nvidia0"))[0] != 0
        if NODE_IN_HOST:
            assert (await pod.run(container, "/bin/sh", "-c", ": < /dev/hcs-test")) == (0, "")

    async def whole() -> None:
        async with real_containerd(folder) as containerd, scene(folder) as node:
            node.interceptor = interceptor_path()
            agent = await node.start_agent(nri_socket=containerd.nri, poll=5.0, cdi=CdiSpecs(containerd.cdi))
            await until(lambda: agent.link is not None and agent.link.runtime is not None)
            await story(Ground(node, containerd))

    asyncio.run(whole())


@fit
def test_a_refusal_reaches_whoever_asked_for_the_container(folder: Path) -> None:
    async def story(ground: Ground) -> None:
        _, first = await ground.pod("one", 0, amount=50 * GIB)
        _, second = await ground.pod("two", 0, amount=50 * GIB)
        container = await first.start()
        said = await ground.refused(second)
        assert "failed to get NRI adjustment for container" in said
        assert "OverCommitted: 50Gi more would over-commit A100-SXM4-80GB 0 of node node-1, which has 80Gi" in said
        await first.remove(container)
        again = await first.start()
        assert environment((await first.run(again, "/usr/bin/env"))[1])["HCS_DEVICES"] == uuid(0)
        stranger = await ground.containerd.run_pod("web", "uid-web")
        assert "HCS_NODE" not in environment((await stranger.run(await stranger.start(), "/usr/bin/env"))[1])

    tell(folder, story)


@fit
def test_abilities_are_those_seen_at_work(folder: Path) -> None:
    async def story(ground: Ground) -> None:
        _, pod = await ground.pod("one", 0)
        await pod.start()
        link = ground.node.agent.link
        assert link is not None
        abilities = link.abilities()
        assert (abilities.args, abilities.cdi, abilities.fail_closed) == (True, True, True)
        assert abilities.runtime.startswith("containerd v")

    tell(folder, story)


@fit
def test_what_slipped_through_is_deleted_and_what_runs_well_is_kept(folder: Path) -> None:
    async def story(ground: Ground) -> None:
        node = ground.node
        good, sandbox = await ground.pod("good", 0)
        await sandbox.start()
        bad = await node.bound_pod("bad", 1)  # without the annotation by which the runtime would have refused it
        slipped = await ground.containerd.run_pod("bad", bad.metadata.uid, bad.annotations)
        await node.stop_agent()
        assert "validator plugin 50-hcs failed" in await ground.refused(slipped), "the first one after it has gone"
        container = await slipped.start()
        assert "HCS_NODE" not in environment((await slipped.run(container, "/usr/bin/env"))[1]), "this is the gap"
        await node.start_agent(nri_socket=ground.containerd.nri, poll=5.0)
        await until(lambda: _deleted(node, "bad"))
        assert (await node.cluster.get_pod("good")).metadata.uid == good.metadata.uid
        assert node.agent.delivery.ledger().used(uuid(0)) == 16 * GIB

    tell(folder, story)


async def _deleted(node: NodeScene, name: str) -> bool:
    from lightkube import ApiError

    try:
        return (await node.cluster.get_pod(name)).metadata.deletionTimestamp is not None
    except ApiError:
        return True


@fit
def test_a_runtime_that_restarts_is_served_again_and_starts_nothing_meanwhile(folder: Path) -> None:
    async def story(ground: Ground) -> None:
        _, pod = await ground.pod("one", 0)
        await pod.start()
        link = ground.node.agent.link
        assert link is not None
        ground.containerd.end()
        await until(lambda: link.runtime is None)
        await ground.containerd.start()
        await until(lambda: link.runtime is not None)
        container = await pod.start()
        assert environment((await pod.run(container, "/usr/bin/env"))[1])["HCS_DEVICES"] == uuid(0)

    tell(folder, story)


@fit
@pytest.mark.parametrize("trouble", ["killed", "stopped", "slow", "dying"])
def test_no_container_starts_unadjusted(folder: Path, trouble: str) -> None:
    async def whole() -> None:
        async with real_containerd(folder) as containerd:
            child = Child(containerd.nri, trouble if trouble in ("slow", "dying") else "good")
            try:
                annotations = {names.ALLOCATION: "{}", REQUIRED: '["hcs"]'}
                pod = await containerd.run_pod("one", "uid-1", annotations)
                await until(lambda: _known(folder))
                if trouble in ("killed", "stopped"):
                    container = await pod.start("before")
                    assert environment((await pod.run(container, "/usr/bin/env"))[1])["HCS_CARD"] == "0"
                    child.kill() if trouble == "killed" else child.stop()
                for expected in ("validator plugin 50-hcs failed", 'required plugin "hcs" not present'):
                    with pytest.raises(grpc.aio.AioRpcError) as caught:
                        await pod.start()
                    assert expected in (caught.value.details() or "")
                stranger = await containerd.run_pod("web", "uid-web")
                await stranger.start()
            finally:
                child.kill()

    asyncio.run(whole())


def _known(folder: Path) -> bool:
    """Whether containerd's log lists the plugin among those it asks."""
    log = (folder / "containerd.log").read_text().replace("\\", "")
    return re.search(r'#\d+: "50-hcs"', log) is not None


@old
@pytest.mark.parametrize("trouble", ["killed", "stopped"])
def test_on_an_old_runtime_the_guard_holds_back_what_the_agent_missed(folder: Path, trouble: str) -> None:
    async def whole() -> None:
        async with real_containerd(folder) as containerd:
            child, alive = Child(containerd.nri, "good"), asyncio.Event()
            guard = Plugin(
                NAME,
                INDEX,
                Guard(lambda is_it: alive.set() if is_it else None),
                events=GUARD_EVENTS,
                socket=containerd.nri,
            )
            running = asyncio.create_task(guard.run())
            try:
                await alive.wait()
                await until(lambda: _known(folder))
                pod = await containerd.run_pod("one", "uid-1", {names.ALLOCATION: "{}"})
                container = await pod.start("before")
                assert environment((await pod.run(container, "/usr/bin/env"))[1])["HCS_CARD"] == "0"
                child.kill() if trouble == "killed" else child.stop()
                with pytest.raises(grpc.aio.AioRpcError, match="NotAdjusted: container main was created without"):
                    await pod.start()
                stranger = await containerd.run_pod("web", "uid-web")
                await stranger.start()
            finally:
                child.kill()
                running.cancel()
                await asyncio.gather(running, return_exceptions=True)

    asyncio.run(whole())
