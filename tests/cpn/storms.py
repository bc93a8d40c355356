"""Random schedules of everything that goes wrong around the controller, on virtual time, replayable by one number, but
for the order in which tasks end that are cancelled together.

It is killed between any two of its steps and started again on its file; calls are refused, answered with errors or by a
proxy, or carried out and never answered; watches end in the middle of a line; clusters go out of reach, some so that
requests to them take as long as a client waits, and come back, are removed and added again, or are called gone rightly,
with all that ran there, and come back empty; their API takes nothing for a while; cards vanish from a view or appear
taken; clocks jump; jobs fail, run out of memory, are deleted or suspended by somebody, lose their pod to a drain, begin
late, or are cancelled by their owners. In the end every entry has ended once, what succeeded was done exactly once, no
two Jobs of one entry ever lived at once, nothing of ours is left on the clusters, and no promise was broken that
nothing excuses.
"""

import asyncio
import random
from collections import Counter
from pathlib import Path
from typing import Any

import httpx2
import msgspec
from tests.cpn.world import Place, Pool, World

from hcs.cpn.controller import Settings
from hcs.cpn.endings import over
from hcs.cpn.limits import Settings as Dispatching
from hcs.cpn.orphans import Graces
from hcs.store.clusters import ClusterConfig
from hcs.wide.entries import LABEL_ENTRY
from hcs.wide.lifecycle import ENDED, PLACED

STORM_SECONDS = 400
CALM_SECONDS = 40_000
FLEETS = (
    (("east", (Pool("slow", 2), Pool("fast", 1))), ("west", (Pool("fast", 2),))),
    (("east", (Pool("slow", 4),)), ("west", (Pool("fast", 3),)), ("north", (Pool("slow", 2),))),
)
SETTINGS = Settings(
    dispatching=Dispatching(attempts=4, progress_seconds=60, pending_limit=300),
    graces=Graces(suspended=20_000, leftover=20_000, unknown=600_000, finished=60_000),
    sweep=10,
)
CUDA = "RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB\n"
ENDINGS: tuple[dict[str, Any], ...] = (
    {"exitCode": 1, "part": 0.5, "log": "Traceback: it broke\n"},
    {"exitCode": 1, "part": 0.2, "log": CUDA},
    {"exitCode": 137, "part": 0.3, "reason": "OOMKilled"},
)


class Storm:
    """One schedule."""

    def __init__(self, w: World, seed: int, jobs: int) -> None:
        self.world, self.rng, self.seed, self.jobs = w, random.Random(seed), seed, jobs
        self.raging = True
        self.story: list[str] = []
        self.cancelled: set[str] = set()
        self.deleted: Counter[str] = Counter()
        self.broken = 0.0
        self.away: dict[str, Place] = {}

    def tell(self, what: str) -> None:
        self.story.append(f"{self.world.loop.time():8.2f} {what}")

    def fault(self, request: httpx2.Request) -> str | None:
        if not self.raging or "watch=" in str(request.url):
            return None
        return self.rng.choices((None, "refuse", "lose", "page", "bare"), (0.84, 0.05, 0.07, 0.02, 0.02))[0]

    async def run(self) -> None:
        w = self.world
        for name, pools in self.rng.choice(FLEETS):
            w.add(name, *pools).fault = self.fault
            w.store.put_cluster(ClusterConfig(name, lost_after=20_000))
        w.start()
        end = w.loop.time() + STORM_SECONDS
        submitted = 0
        while w.loop.time() < end or submitted < self.jobs:
            if submitted < self.jobs and self.rng.random() < 0.7:
                entry = w.submit(self.rng.choice((5, 20, 40, 90)), cards=self.rng.choice((1, 1, 1, 2)))
                w.endings[entry.id] = [self.rng.choice(ENDINGS)] * self.rng.choice((0, 0, 0, 1, 2))
                submitted += 1
            await getattr(self, "_" + self.rng.choice(HAPPENINGS))()
            await asyncio.sleep(self.rng.choice((0.0, 0.02, 0.5, 2.0, 8.0)))
        await self.calm()

    async def _nothing(self) -> None:
        """Time goes by."""

    async def _kill(self) -> None:
        for _ in range(self.rng.randrange(60)):
            await asyncio.sleep(0)  # anywhere between two of its steps
        self._count()
        await self.world.kill()
        self.tell("killed")
        if self.rng.random() < 0.5:
            await asyncio.sleep(self.rng.choice((0.1, 5.0, 60.0)))
        self.world.store = self.world.open()
        self.world.start()

    async def _cut(self) -> None:
        place = self._place()
        if place.cut_off:
            place.cut_off = False
            self.tell(f"{place.name} is back")
        elif not any(other.cut_off for other in self.world.places.values()):
            place.black_hole = self.rng.random() < 0.3
            place.cut()
            self.tell(f"{place.name} is cut off{' and swallows requests' if place.black_hole else ''}")

    async def _drop(self) -> None:
        self._place().transport.cut(halfway=self.rng.random() < 0.5)

    async def _jam(self) -> None:
        """An admission webhook is down: nothing is created or changed, everything else works."""
        place = self._place()
        jammed = place.fault == self._jammed
        place.fault = self.fault if jammed else self._jammed
        self.tell(f"{place.name} takes {'Jobs again' if jammed else 'nothing'}")

    def _jammed(self, request: httpx2.Request) -> str | None:
        return "bare" if self.raging and request.method in ("POST", "PATCH") else self.fault(request)

    async def _clock(self) -> None:
        """Somebody sets the controller's clock; in half of the storms nobody does, for that excuses moved promises."""
        if self.seed % 2:
            return
        self.world.clock_error = self.rng.choice((-3600.0, -30.0, 0.0, 0.0, 30.0, 3600.0))
        self.tell(f"the clock is wrong by {self.world.clock_error:g} s")

    async def _remove(self) -> None:
        """A cluster object is removed, or added again; what runs there goes on."""
        if self.away:
            name, place = self.away.popitem()
            self.world.places[name] = place
            self.world.store.put_cluster(ClusterConfig(name, lost_after=20_000))
            self.tell(f"{name} is added again")
        elif len(self.world.places) > 1:
            place = self._place()
            self.away[place.name] = self.world.places.pop(place.name)
            self.world.store.drop_cluster(place.name)
            self.tell(f"{place.name} is removed")

    async def _burn(self) -> None:
        """A cluster is lost with all that ran there; its operator says so; it comes back empty."""
        place = self._place()
        if place.cut_off or self.rng.random() < 0.7:
            return
        place.cut()
        for job in place.jobs():
            entry = (job.metadata.labels or {})[LABEL_ENTRY]
            self.deleted[entry] += 1
            path = f"/apis/batch/v1/namespaces/default/jobs/{job.metadata.name}"
            await place.request("DELETE", path, {"propagationPolicy": "Background"})
        await asyncio.sleep(5)  # its pods go with them
        known = {config.name: config for config in self.world.store.clusters()}
        if (config := known.get(place.name)) is not None and place.cut_off:
            self.world.store.put_cluster(msgspec.structs.replace(config, gone=True))
            self.tell(f"{place.name} is gone")
        await asyncio.sleep(self.rng.choice((0.0, 3.0, 30.0)))
        place.cut_off = False
        self.tell(f"{place.name} is back, empty")

    async def _suspend(self) -> None:
        """Somebody suspends a Job that runs, or resumes it."""
        place = self._place()
        jobs = sorted((job for job in place.jobs() if over(job) is None), key=lambda job: job.metadata.name)
        running = [job for job in jobs if not job.spec.get("suspend")]
        if not running or self.rng.random() < 0.5:
            return
        job = self.rng.choice(running)
        path = f"/apis/batch/v1/namespaces/default/jobs/{job.metadata.name}"
        await place.request("PATCH", path, {"spec": {"suspend": True}})
        self.tell(f"somebody suspends {place.name}/{job.metadata.name}")

    async def _drain(self) -> None:
        """A node is drained: a pod goes, and its Job makes another."""
        place = self._place()
        pods = [one.object for one in place.server.cluster.store.objects("pods")]
        running = sorted(pod["metadata"]["name"] for pod in pods if pod["status"].get("phase") == "Running")
        if running and self.rng.random() < 0.5:
            name = self.rng.choice(running)
            await place.request("DELETE", f"/api/v1/namespaces/default/pods/{name}", {"gracePeriodSeconds": 0})
            self.tell(f"{place.name}/{name} is evicted")

    async def _slow(self) -> None:
        """Pods wait for a node or an image before they begin, some longer than their Job may."""
        self.world.start_delay = self.rng.choice((0.5, 0.5, 20.0, 60.0, 400.0))
        self.tell(f"pods begin after {self.world.start_delay:g} s")

    async def _take(self) -> None:
        """Others take cards, or give them back; a view is wrong about it for a while."""
        place = self._place()
        pool = self.rng.choice(place.pools)
        place.taken[pool.kind] = self.rng.choice((0, 0, 1))

    async def _cancel(self) -> None:
        waiting = self.world.store.entries(["Queued", "Placing", "Created", "Running"])
        if not waiting or self.rng.random() < 0.6:
            return
        entry = self.rng.choice(waiting)
        after: Any = "Cancelled" if entry.state == "Queued" else "Cancelling"
        self.world.store.move(entry, after, now=self.world.now(), reason="Asked", message="somebody asked for its end")
        self.cancelled.add(entry.id)
        self.tell(f"{entry.id} is cancelled while {entry.state}")

    async def _delete(self) -> None:
        place = self._place()
        jobs = sorted(place.jobs(), key=lambda job: job.metadata.name)
        if not jobs or self.rng.random() < 0.7:
            return
        job = self.rng.choice(jobs)
        self.deleted[(job.metadata.labels or {})[LABEL_ENTRY]] += 1
        policy = self.rng.choice(("Background", "Foreground", "Orphan"))
        path = f"/apis/batch/v1/namespaces/default/jobs/{job.metadata.name}"
        await place.request("DELETE", path, {"propagationPolicy": policy})
        self.tell(f"somebody deletes {place.name}/{job.metadata.name} ({policy})")

    def _place(self) -> Place:
        return self.world.places[self.rng.choice(sorted(self.world.places))]

    def _count(self) -> None:
        if self.world.controller is not None:
            self.broken += self.world.controller.registry.get_sample_value("hcs_cpn_promises_broken_total") or 0

    async def calm(self) -> None:
        """The storm is over: everything ends, once."""
        w = self.world
        self.raging = False
        self.tell("calm")
        w.start_delay = 0.5
        w.places.update(self.away)
        for place in w.places.values():
            place.cut_off, place.taken = False, {}
            w.store.put_cluster(ClusterConfig(place.name, lost_after=20_000))
        end = w.loop.time() + CALM_SECONDS
        while not all(entry.state in ENDED for entry in w.store.entries()):
            assert w.loop.time() < end, self.report("lost: " + self._where())
            assert w._task is not None
            if w._task.done():
                w._task.result()
            await asyncio.sleep(1)
        await asyncio.sleep(SETTINGS.graces.finished / 1000 + 3 * SETTINGS.sweep + 60)
        self._count()
        self.judge()

    def _where(self) -> str:
        w = self.world
        assert w.controller is not None
        notes = w.controller.dispatcher.notes
        return ", ".join(f"{e.id} {e.state} {notes.get(e.id)}" for e in w.store.entries() if e.state not in ENDED)

    def judge(self) -> None:
        """What must hold at the end of every storm."""
        w = self.world
        assert not w.wrong, self.report(f"two at once: {w.wrong}")
        assert not self.broken, self.report(f"{self.broken:g} promises broken")
        assert not w.store.entries(PLACED)
        for entry in w.store.entries():
            done, told = w.done.get(entry.id, 0), f"{entry.id} is {entry.state} ({entry.reason}: {entry.message})"
            if entry.state == "Succeeded":
                # What somebody destroyed together with its result is done again, each time; anything else once.
                most = 1 + self.deleted[entry.id]
                assert 1 <= done <= most, self.report(f"{told}, done {done} times")
            elif entry.state == "Cancelled":
                assert entry.id in self.cancelled, self.report(told)
                assert done <= 1, self.report(f"{told}, done {done} times")
            else:
                assert entry.attempts > 0, self.report(told)
            steps = w.store.transitions(entry.id)
            ends = [step.after for step in steps if step.after in ENDED]
            assert len(ends) == 1, self.report(f"{told}, ended {ends}")
        left = [f"{p.name}/{j.metadata.name}" for p in w.places.values() for j in p.jobs() if not over(j)]
        assert not left, self.report(f"left behind: {left}")
        runs = list(w.store.runs(_Run))
        assert len(runs) <= sum(entry.attempts + 1 for entry in w.store.entries()), self.report("runs counted twice")

    def report(self, what: str) -> str:
        """What went wrong, how to see it again, and what happened before."""
        again = f"HCS_STORM_SEED={self.seed} python -m pytest tests/cpn/test_cpn_storms.py"
        return "\n".join([what, f"seed {self.seed}; see it again: {again}", *self.story[-60:]])


class _Run(msgspec.Struct):
    model: str


HAPPENINGS = (
    "nothing", "nothing", "kill", "kill", "cut", "drop", "take", "cancel", "delete",
    "jam", "clock", "remove", "burn", "suspend", "drain", "slow",
)  # fmt: skip


async def storm(folder: Path, seed: int, jobs: int = 24) -> list[str]:
    """Run one schedule; returns its story."""
    w = World(folder, seed=seed, settings=msgspec.structs.replace(SETTINGS, sharing=seed % 2 == 0))
    made = Storm(w, seed, jobs)
    try:
        await made.run()
    finally:
        await w.close()
    return made.story
