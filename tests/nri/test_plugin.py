"""A plugin is asked, answers in time or says no, and finds its way back to a runtime that went away."""

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from tests.nri.plugins import GIVEN, Scripted
from tests.nri.runtime import BEFORE_NAMES, NEW, OLD, WITHOUT_ARGS, CreationError, Kind, StubRuntime, stub_runtime
from tests.waiting import until

from hcs.inject.adjustments import Adjustment, DeviceNode, Mount, Variable
from hcs.model import names
from hcs.model.refusals import Refusal
from hcs.nri.plugin import Plugin
from hcs.nri.runtimes import PLUGIN_EVENTS

OURS = {names.ALLOCATION: "{}"}
Story = Callable[[StubRuntime, Scripted], Coroutine[Any, Any, None]]


def tell(folder: Path, story: Story, kind: Kind = NEW, handlers: Scripted | None = None, **settings: Any) -> None:
    """Run a story with one plugin on a runtime of this kind."""

    async def whole() -> None:
        scripted = handlers or Scripted()
        plugin = Plugin("hcs", "50", scripted, events=PLUGIN_EVENTS, socket=folder / "nri.sock")
        async with stub_runtime(folder, kind, [plugin.run], **settings) as runtime:
            await runtime.plugin()
            await story(runtime, scripted)

    asyncio.run(whole())


@pytest.mark.parametrize("kind", [NEW, BEFORE_NAMES, WITHOUT_ARGS, OLD], ids=lambda kind: kind.version)
@pytest.mark.parametrize("cut", [4096, 7], ids=["whole-frames", "small-frames"])
def test_a_container_gets_what_was_answered(folder: Path, kind: Kind, cut: int) -> None:
    async def story(runtime: StubRuntime, handlers: Scripted) -> None:
        handlers.adjustment = Adjustment(
            env=(Variable("NEW", "1"), Variable("BOTH", "ours")),
            mounts=(Mount("/host/preload", "/etc/ld.so.preload", ("bind", "ro")),),
            devices=(DeviceNode("/dev/nvidia0", "/dev/null"),),
            args=("wrapper", "train") if kind.args else None,
            cdi=("vendor.test/card=0",) if kind.cdi else (),
            annotations={"ai.compute/adjusted": "nvidia"},
        )
        pod = await runtime.run_pod("one", annotations=OURS)
        container = await runtime.create(pod, env={"OLD": "x", "BOTH": "user's"})
        assert container.env == {"OLD": "x", "NEW": "1", "BOTH": "ours"}
        assert container.mounts == {"/etc/ld.so.preload": ("/host/preload", ["bind", "ro"])}
        assert container.devices == {"/dev/nvidia0": ("c", 1, 3)}
        assert container.args == (["wrapper", "train"] if kind.args else ["train"])
        assert container.cdi == (["vendor.test/card=0"] if kind.cdi else [])
        assert container.annotations == {"ai.compute/adjusted": "nvidia"}
        await runtime.remove(container)
        heard = ["connected", "RunPodSandbox one", "create default/one main", "RemoveContainer one main"]
        assert handlers.heard == [*heard[:3], *(["validate main"] if kind.validates else []), heard[3]]

    tell(folder, story, kind, cut=cut)


def test_a_long_answer_comes_in_frames_the_runtime_can_read(folder: Path) -> None:
    """A payload of 4097 bytes in one frame would end the connection, and the container would start unadjusted."""

    async def story(runtime: StubRuntime, handlers: Scripted) -> None:
        handlers.adjustment = Adjustment(env=(Variable("LONG", "x" * 9000),))
        container = await runtime.create(await runtime.run_pod("one", annotations=OURS))
        assert container.env == {"LONG": "x" * 9000}
        assert runtime.dropped == []

    tell(folder, story)


def test_a_refusal_is_the_creations_error_and_the_plugin_stays(folder: Path) -> None:
    async def story(runtime: StubRuntime, handlers: Scripted) -> None:
        pod = await runtime.run_pod("one", annotations=OURS)
        handlers.refusal = Refusal("OverCommitted", "no room on the card")
        with pytest.raises(CreationError, match="code = 9 desc = OverCommitted: no room on the card"):
            await runtime.create(pod)
        assert handlers.heard[-1] == "RemoveContainer one main"
        handlers.refusal = None
        assert (await runtime.create(pod)).env == {"HCS_CARD": "0"}
        assert runtime.dropped == []

    tell(folder, story)


@pytest.mark.parametrize("ours", [True, False], ids=["ours", "somebody-else's"])
@pytest.mark.parametrize("trouble", ["late", "broken"])
def test_what_goes_wrong_is_a_no_for_our_pods_and_nothing_to_others(folder: Path, trouble: str, ours: bool) -> None:
    async def story(runtime: StubRuntime, handlers: Scripted) -> None:
        pod = await runtime.run_pod("one", annotations=OURS if ours else {})
        if trouble == "late":
            handlers.wait = 30.0
        else:
            handlers.error = RuntimeError("a mistake of ours")
        if ours:
            with pytest.raises(CreationError, match="AgentSlow" if trouble == "late" else "a mistake of ours"):
                await runtime.create(pod)
        else:
            assert (await runtime.create(pod)).env == {}
        handlers.wait, handlers.error = 0.0, None
        await runtime.create(pod)
        assert runtime.dropped == [], "the answer came before the runtime's own limit"

    tell(folder, story)


def test_creations_of_other_pods_are_answered_while_one_is_slow(folder: Path) -> None:
    """The connection carries questions that overlap; nothing here queues them."""

    async def story(runtime: StubRuntime, handlers: Scripted) -> None:
        peer = await runtime.plugin()
        pod = await runtime.run_pod("one", annotations=OURS)
        handlers.wait = 0.5
        slow = asyncio.ensure_future(runtime.create(pod))
        await until(lambda: "create default/one main" in handlers.heard)
        await peer.call("StopPodSandbox", b"", 2.0)
        assert not slow.done()
        await slow

    tell(folder, story)


def test_a_method_from_the_future_is_unimplemented(folder: Path) -> None:
    async def story(runtime: StubRuntime, handlers: Scripted) -> None:
        peer = await runtime.plugin()
        with pytest.raises(CreationError, match="code = 12 desc = no method FreezePodSandbox"):
            await peer.call("FreezePodSandbox", b"", 2.0)
        await runtime.create(await runtime.run_pod("one", annotations=OURS))

    tell(folder, story)


def test_bytes_that_cannot_be_read_end_the_connection_not_the_plugin(folder: Path) -> None:
    async def story(runtime: StubRuntime, handlers: Scripted) -> None:
        peer = await runtime.plugin()
        peer.writer.write(b"\x00\x00\x00\x09\x00\x00\x00\x01x")
        await until(lambda: peer.closed)
        runtime.peers.clear()
        peer = await runtime.plugin()
        peer.send(1, 9, 1, b"\xff\xff\xff")
        await until(lambda: peer.closed)
        runtime.peers.clear()
        await runtime.plugin()
        await runtime.create(await runtime.run_pod("one", annotations=OURS))

    tell(folder, story)


class Forgetful(Scripted):
    """Fails once where it must not wait."""

    def synchronize(self, pods: Any, containers: Any) -> None:
        super().synchronize(pods, containers)
        if len(self.synchronized) == 1:
            raise KeyError("a mistake of ours")


def test_a_mistake_of_ours_at_the_beginning_is_made_good_at_the_next_connection(folder: Path) -> None:
    async def story(runtime: StubRuntime, handlers: Scripted) -> None:
        assert len(handlers.synchronized) == 2
        await runtime.create(await runtime.run_pod("one", annotations=OURS))

    tell(folder, story, handlers=Forgetful())


def test_a_restarted_runtime_is_found_again(folder: Path) -> None:
    async def story(runtime: StubRuntime, handlers: Scripted) -> None:
        pod = await runtime.run_pod("one", annotations=OURS)
        await runtime.create(pod)
        await runtime.stop()
        await until(lambda: handlers.heard[-1] == "disconnected")
        await runtime.start()
        await runtime.plugin()
        assert handlers.synchronized == [([], []), (["one"], ["main"])]
        assert (await runtime.create(pod, "again")).env == {"HCS_CARD": "0"}

    tell(folder, story)


@pytest.mark.parametrize("kind", [NEW, OLD], ids=lambda kind: kind.version)
def test_many_pods_are_collected_whether_in_parts_or_at_once(folder: Path, kind: Kind) -> None:
    """containerd 1.7 sends everything in one message, above any limit; later ones send parts."""

    async def whole() -> None:
        handlers = Scripted()
        async with stub_runtime(folder, kind, part_bytes=100_000) as runtime:
            for number in range(60):
                pod = await runtime.run_pod(f"p{number}", annotations={"filler": "x" * 90_000})
                await runtime.create(pod)
            plugin = Plugin("hcs", "50", handlers, events=PLUGIN_EVENTS, socket=runtime.socket)
            running = asyncio.create_task(plugin.run())
            await runtime.plugin()
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
        ((pods, containers),) = handlers.synchronized
        assert pods == [f"p{number}" for number in range(60)]
        assert len(containers) == 60

    asyncio.run(whole())


def test_a_registration_that_is_refused_is_tried_again_ever_more_slowly(folder: Path) -> None:
    async def whole() -> None:
        async with stub_runtime(folder) as runtime:
            pauses: list[float] = []

            async def pause(seconds: float) -> None:
                pauses.append(seconds)
                if len(pauses) == 8:
                    await asyncio.Event().wait()

            plugin = Plugin("hcs", "5", Scripted(), events=PLUGIN_EVENTS, socket=runtime.socket, pause=pause)
            running = asyncio.create_task(plugin.run())
            await until(lambda: len(pauses) == 8)
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            assert set(runtime.refused) == {"invalid index '5'"}
            assert pauses[:7] == [0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 2.0]

    asyncio.run(whole())


def test_two_plugins_that_want_the_same_are_refused_by_the_runtime(folder: Path) -> None:
    """Hence no second agent during an update: both would answer."""

    async def whole() -> None:
        plugins = [
            Plugin(name, index, Scripted(), events=PLUGIN_EVENTS, socket=folder / "nri.sock")
            for name, index in (("hcs", "50"), ("copy", "51"))
        ]
        async with stub_runtime(folder, NEW, [plugin.run for plugin in plugins]) as runtime:
            await runtime.plugin("hcs")
            await runtime.plugin("copy")
            with pytest.raises(CreationError, match="both tried to set Env HCS_CARD"):
                await runtime.create(await runtime.run_pod("one", annotations=OURS))

    asyncio.run(whole())


def test_nothing_is_changed_where_nothing_is_answered(folder: Path) -> None:
    async def story(runtime: StubRuntime, handlers: Scripted) -> None:
        container = await runtime.create(await runtime.run_pod("web"), env={"A": "1"})
        assert (container.env, container.annotations) == ({"A": "1"}, {})
        assert GIVEN.env

    tell(folder, story)
