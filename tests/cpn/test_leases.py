"""One acts at a time, and who is deposed has stopped before."""

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from tests.cpn.world import World, world

from hcs.cpn.leases import Leadership, Timing
from hcs.sandbox.scheduler.inprocess import InProcessTransport
from hcs.sandbox.scheduler.virtualtime import run_virtual

TIMING = Timing(duration=45, renew=5, margin=15)


class Candidate:
    """A controller on its own machine, as far as its leadership goes."""

    def __init__(self, w: World, identity: str) -> None:
        self.home = w.add(f"home-of-{identity}") if not w.places else next(iter(w.places.values()))
        self.fault: Callable[[Any], str | None] | None = None
        transport = InProcessTransport(
            self.home.server.application, fault=lambda request: self.fault(request) if self.fault else None
        )
        self.leadership = Leadership(
            self.home._connect(transport),
            name="hcs-cpn",
            namespace="default",
            identity=identity,
            clock=w.loop.time,
            today=w.today,
            timing=TIMING,
        )
        self.task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self.task = asyncio.create_task(self.leadership.run())

    async def kill(self) -> None:
        """As by a power cut: nothing is given back."""
        assert self.task is not None
        self.fault = lambda request: "refuse"
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)

    @property
    def acts(self) -> bool:
        return self.leadership.may_act()


def play(folder: Path, story: Callable[[World], Coroutine[Any, Any, None]]) -> None:
    async def whole() -> None:
        async with world(folder) as w:
            await story(w)

    run_virtual(whole())


async def both_watched(w: World, one: Candidate, other: Candidate, seconds: float) -> None:
    end = w.loop.time() + seconds
    while w.loop.time() < end:
        assert not (one.acts and other.acts), f"both act at {w.loop.time()}"
        await asyncio.sleep(0.5)


def test_the_first_acts_and_the_second_waits(tmp_path: Path) -> None:
    async def story(w: World) -> None:
        one, other = Candidate(w, "one"), Candidate(w, "other")
        one.start()
        await w.until(lambda: one.acts)
        other.start()
        await both_watched(w, one, other, 300)
        assert one.acts
        assert other.leadership.holder == "one"
        for candidate in (one, other):
            await candidate.kill()

    play(tmp_path, story)


def test_who_cannot_renew_has_stopped_before_another_begins(tmp_path: Path) -> None:
    async def story(w: World) -> None:
        one, other = Candidate(w, "one"), Candidate(w, "other")
        one.start()
        await w.until(lambda: one.acts)
        other.start()
        await asyncio.sleep(7)
        one.fault = lambda request: "refuse"
        await both_watched(w, one, other, 100)
        assert other.acts
        one.fault = None
        await both_watched(w, one, other, 100)
        assert other.acts
        for candidate in (one, other):
            await candidate.kill()

    play(tmp_path, story)


def test_answers_that_are_lost_do_not_lengthen_a_lease(tmp_path: Path) -> None:
    async def story(w: World) -> None:
        one, other = Candidate(w, "one"), Candidate(w, "other")
        one.start()
        await w.until(lambda: one.acts)
        other.start()
        one.fault = lambda request: "lose" if request.method == "PUT" else None
        await asyncio.sleep(31)
        assert not one.acts, "it does not know whether it holds the lease"
        await both_watched(w, one, other, 100)
        for candidate in (one, other):
            await candidate.kill()

    play(tmp_path, story)


def test_a_clean_end_lets_the_next_one_begin_at_once(tmp_path: Path) -> None:
    async def story(w: World) -> None:
        one, other = Candidate(w, "one"), Candidate(w, "other")
        one.start()
        await w.until(lambda: one.acts)
        assert one.task is not None
        one.task.cancel()
        await asyncio.gather(one.task, return_exceptions=True)
        other.start()
        begun = w.loop.time()
        await w.until(lambda: other.acts)
        assert w.loop.time() - begun < TIMING.renew + 1
        await other.kill()

    play(tmp_path, story)
