"""No container starts unadjusted: a plugin process that is killed, stopped or slow, and what stands behind it.

By itself NRI fails open: a plugin that does not answer is dropped, and the container is created without it. The first
test shows that the runtime here really does so; the others, what closes the gap.
"""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from tests.nri.runtime import BEFORE_NAMES, NEW, OLD, REQUIRED, CreationError, Kind, Sandbox, StubRuntime, stub_runtime
from tests.waiting import until

from hcs.inject.injection import MARK
from hcs.model import names
from hcs.nri.guard import INDEX, NAME, Guard
from hcs.nri.plugin import Plugin
from hcs.nri.runtimes import GUARD_EVENTS

ROOT = Path(__file__).parents[2]
OURS = {names.ALLOCATION: "{}"}
REQUIRING = {**OURS, REQUIRED: '["hcs"]'}


class Child:
    """A plugin in a process of its own."""

    def __init__(self, socket: Path, behaviour: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.nri.plugins", str(socket), behaviour],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'src'}"},
            stderr=subprocess.DEVNULL,
        )

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def stop(self) -> None:
        """As a debugger, a frozen cgroup or a machine that is out of memory would."""
        self.process.send_signal(signal.SIGSTOP)


Story = Callable[[StubRuntime, Child], Awaitable[None]]


def tell(folder: Path, story: Story, kind: Kind = NEW, behaviour: str = "good", **settings: Any) -> None:
    """Run a story with a plugin in a process of its own."""

    async def whole() -> None:
        async with stub_runtime(folder, kind, **settings) as runtime:
            child = Child(runtime.socket, behaviour)
            try:
                await runtime.plugin()
                await story(runtime, child)
            finally:
                child.kill()

    asyncio.run(whole())


def unadjusted(runtime: StubRuntime) -> list[str]:
    """Containers of ours that were started without the mark."""
    return [
        container.id
        for container in runtime.containers.values()
        if names.ALLOCATION in container.sandbox.annotations and MARK not in container.annotations
    ]


async def refused(runtime: StubRuntime, pod: Sandbox, words: str) -> None:
    with pytest.raises(CreationError, match=words):
        await runtime.create(pod)


def test_by_itself_a_runtime_without_validation_goes_on_without_the_plugin(folder: Path) -> None:
    async def story(runtime: StubRuntime, child: Child) -> None:
        pod = await runtime.run_pod("one", annotations=OURS)
        child.kill()
        await runtime.create(pod)
        assert unadjusted(runtime), "this is the gap"

    tell(folder, story, OLD)


@pytest.mark.parametrize("kind", [NEW, BEFORE_NAMES], ids=lambda kind: kind.version)
@pytest.mark.parametrize("behaviour", ["good", "slow", "dying"])
def test_the_last_look_refuses_what_a_plugin_could_not_adjust(folder: Path, kind: Kind, behaviour: str) -> None:
    """Killed while idle, slower than the runtime allows, dead in the middle of the call."""

    async def story(runtime: StubRuntime, child: Child) -> None:
        pod = await runtime.run_pod("one", annotations=REQUIRING)
        if behaviour == "good":
            await runtime.create(pod, "before")
            child.kill()
        runtime.request_seconds = 0.5
        await refused(runtime, pod, "validator plugin 50-hcs failed")
        await refused(runtime, pod, 'required plugin "hcs" not present')
        assert unadjusted(runtime) == []

    tell(folder, story, kind, behaviour, validator=True)


@pytest.mark.parametrize("kind", [NEW, BEFORE_NAMES], ids=lambda kind: kind.version)
def test_a_stopped_plugin_starts_nothing(folder: Path, kind: Kind) -> None:
    async def story(runtime: StubRuntime, child: Child) -> None:
        pod = await runtime.run_pod("one", annotations=REQUIRING)
        child.stop()
        runtime.request_seconds = 0.5
        await refused(runtime, pod, "validator plugin 50-hcs failed")
        await refused(runtime, pod, 'required plugin "hcs" not present')
        other = await runtime.run_pod("web")
        await runtime.create(other)
        assert unadjusted(runtime) == [], "and a pod that is none of ours started meanwhile"

    tell(folder, story, kind, validator=True)


def test_a_plugin_that_comes_back_serves_again(folder: Path) -> None:
    async def story(runtime: StubRuntime, child: Child) -> None:
        pod = await runtime.run_pod("one", annotations=REQUIRING)
        child.kill()
        await refused(runtime, pod, "validator plugin 50-hcs failed")
        again = Child(runtime.socket, "good")
        try:
            await runtime.plugin()
            container = await runtime.create(pod)
            assert container.env == {"HCS_CARD": "0"}
        finally:
            again.kill()

    tell(folder, story, validator=True)


@pytest.mark.parametrize("trouble", ["killed", "stopped"])
def test_on_an_old_runtime_the_guard_stands_behind_the_plugin(folder: Path, trouble: str) -> None:
    async def story(runtime: StubRuntime, child: Child) -> None:
        alive: list[bool] = []
        guard = Plugin(NAME, INDEX, Guard(alive.append), events=GUARD_EVENTS, socket=runtime.socket)
        running = asyncio.create_task(guard.run())
        await runtime.plugin(NAME)
        assert alive == [True]
        ours, other = await runtime.run_pod("one", annotations=OURS), await runtime.run_pod("web")
        await runtime.create(ours)
        child.kill() if trouble == "killed" else child.stop()
        runtime.request_seconds = 0.5
        await refused(runtime, ours, "NotAdjusted: container main was created without the node agent's word")
        runtime.request_seconds = 2.0
        await runtime.create(other)
        assert unadjusted(runtime) == []
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await until(lambda: alive == [True, False])

    tell(folder, story, OLD)
