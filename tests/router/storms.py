"""Random schedules of everything that goes wrong around the router, on virtual time, replayable by one number.

Programs crash and come back, calls are lost, refused, repeated and come late, watches lag and are cut, cards fall ill,
pods come, end, are deleted and evicted: single ones, gangs, pods of several priorities, pods that want to be asked. All
the time no card may give more than it has; in the end, when the storm is over, every pod that somebody still wants has
had its turn, and no gang stands half started.
"""

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import msgspec
from lightkube import ApiError
from tests.router.scene import Scene, card, scene

from hcs.model import names
from hcs.model.allocations import allocation_of
from hcs.model.devices import NodeInventory
from hcs.model.offers import offer_on
from hcs.model.pods import Pod
from hcs.placement.snapshot import Snapshot
from hcs.router.extender import Extender
from hcs.sandbox.scheduler.inprocess import InProcessTransport

STORM_SECONDS = 40
CALM_SECONDS = 900
PRIORITIES = (0, 0, 0, 100, 1000)
OWNER = {"apiVersion": "batch/v1", "kind": "Job", "controller": True}
CARDS = {
    "n0": tuple(card(index) for index in range(4)),
    "n1": tuple(card(index) for index in range(4)),
    "n2": tuple(card(index, "ascend") for index in range(4)),
}


class Wanted(msgspec.Struct):
    """A pod that somebody wants: made again whenever it is gone, until it has run; ``serial`` numbers its lives."""

    name: str
    manifest: dict[str, Any]
    gang: str = ""
    serial: int = 0
    uid: str = ""
    served: bool = False

    @property
    def alive(self) -> str:
        """The name of its present life."""
        return f"{self.name}-{self.serial}"


class Lagging(httpx2.AsyncBaseTransport):
    """A way to the API server on which watches lag and requests fail, as long as the storm lasts."""

    def __init__(self, storm: "Storm") -> None:
        self.storm = storm
        self.inner = InProcessTransport(storm.scene.server.application, fault=self._fault)

    def _fault(self, request: httpx2.Request) -> str | None:
        if not self.storm.raging or "watch=" in str(request.url):
            return None
        return self.storm.rng.choices((None, "refuse", "lose"), (0.9, 0.05, 0.05))[0]

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        response = await self.inner.handle_async_request(request)
        if "watch=" in str(request.url):
            response.stream = _Late(response.stream, self.storm)
        return response


class _Late(httpx2.AsyncByteStream):
    def __init__(self, stream: Any, storm: "Storm") -> None:
        self.stream, self.storm = stream, storm

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for piece in self.stream:
            if self.storm.raging and self.storm.rng.random() < 0.3:
                await asyncio.sleep(self.storm.rng.uniform(0, 3))
            yield piece

    async def aclose(self) -> None:
        await self.stream.aclose()


class Storm:
    """One schedule."""

    def __init__(self, s: Scene, seed: int) -> None:
        self.scene, self.rng, self.seed = s, random.Random(seed), seed
        self.raging = True
        self.story: list[str] = []
        self.wanted: dict[str, Wanted] = {}
        self.sick: set[str] = set()
        self.router: asyncio.Task[None] | None = None
        self.scheduler: asyncio.Task[None] | None = None
        self.link: Lagging | None = None
        self.http: httpx2.AsyncClient | None = None
        self.extender: Extender | None = None

    def pods(self) -> dict[str, Pod]:
        """All pods as the API server holds them, read behind its back: a storm asks a thousand times."""
        stored = self.scene.server.cluster.store.objects("pods")
        return {pod.metadata.name: pod for one in stored if (pod := msgspec.convert(one.object, Pod))}

    def tell(self, what: str) -> None:
        self.story.append(f"{self.scene.loop.time():8.2f} {what}")

    async def run(self) -> None:
        """The storm, then the calm; raises AssertionError with the story where a promise was broken."""
        s = self.scene
        for value in sorted(set(PRIORITIES)):
            body = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": f"p{value}"}}
            await s.post("/apis/scheduling.k8s.io/v1/priorityclasses", {**body, "value": value})
        for node, cards in CARDS.items():
            await s.add_node(node, *cards, cpu="32")
        await self.start_router()
        self.start_scheduler()
        end = s.loop.time() + STORM_SECONDS
        while s.loop.time() < end:
            await self.something()
            await self.keep()
            await self.check()
            await asyncio.sleep(self.rng.choice((0.0, 0.01, 0.2, 1.0, 3.0)))
        await self.calm()

    async def start_router(self) -> None:
        s = self.scene
        self.link = Lagging(self)
        self.extender = s.make_extender(self.link, barrier_seconds=20.0, reservation_seconds=30.0, offer_seconds=60.0)
        self.router = asyncio.create_task(self.extender.run())
        transport = s.http(self.extender)._transport
        if self.http is None:
            self.http = s.http(self.extender)
        self.http._transport = transport
        s.extender_fault = self._fault
        self.tell("router starts")

    def start_scheduler(self) -> None:
        assert self.http is not None
        self.scheduler = asyncio.create_task(self._schedule(self.rng.randrange(1 << 30)))
        self.tell("scheduler starts")

    async def _schedule(self, seed: int) -> None:
        s = self.scene
        assert self.http is not None
        driver = s.make_driver(self.http, seed=seed)
        await driver.run()

    def _fault(self, request: httpx2.Request) -> str | None:
        if self.router is None or self.router.done():
            return "refuse"
        if not self.raging:
            return None
        return self.rng.choices((None, "refuse", "lose"), (0.88, 0.06, 0.06))[0]

    async def something(self) -> None:
        """One thing happens."""
        names_ = (
            "come", "come", "gang", "ask", "finish", "delete", "sicken", "recover", "crash_router", "crash_scheduler",
            "cut", "repeat", "answer", "evict",
        )  # fmt: skip
        what = self.rng.choice(names_)
        await getattr(self, f"_{what}")()

    async def _come(self) -> None:
        limits = self.rng.choice(
            ({names.VRAM: "80Gi"}, {names.VRAM: "30Gi"}, {names.VRAM: "10Gi"}, {names.VRAM: "40Gi", names.CARDS: "2"})
        )
        self._want(f"p{len(self.wanted)}", limits, {names.SUBSTITUTION: "auto"})

    async def _gang(self) -> None:
        gang, size = f"g{len(self.wanted)}", self.rng.randint(2, 4)
        if self._crowded():
            return
        priority = self.rng.choice(PRIORITIES)
        for number in range(size):
            notes = {names.GANG: gang, names.GANG_SIZE: str(size)}
            self._want(f"{gang}m{number}", {names.VRAM: "40Gi"}, notes, gate=names.GANG_GATE, gang=gang, rank=priority)

    async def _ask(self) -> None:
        notes = {names.VENDORS: "nvidia", names.SUBSTITUTION: "ask", names.SHARING: "exclusive"}
        self._want(f"a{len(self.wanted)}", {names.VRAM: "60Gi"}, notes, gate=names.ASK_GATE)

    def _want(
        self,
        name: str,
        limits: dict[str, str],
        notes: dict[str, str],
        *,
        gate: str = "",
        gang: str = "",
        rank: int | None = None,
    ) -> None:
        if not gang and self._crowded():
            return
        priority = self.rng.choice(PRIORITIES) if rank is None else rank
        spec: dict[str, Any] = {"priorityClassName": f"p{priority}", "terminationGracePeriodSeconds": 0}
        if gate:
            spec["schedulingGates"] = [{"name": gate}]
        manifest = {"resources": limits, "annotations": notes, "spec": spec}
        self.wanted[name] = Wanted(name, manifest, gang)

    def _crowded(self) -> bool:
        """More would only wait in line."""
        return sum(not one.served for one in self.wanted.values()) > 14

    async def _bound(self) -> list[Pod]:
        return [pod for _, pod in sorted((self.pods()).items()) if pod.spec.nodeName and not pod.finished]

    async def _finish(self, pod: Pod | None = None) -> None:
        """A pod has done its work; of a gang that runs as a whole, all have."""
        bound = await self._bound()
        if not bound:
            return
        one = pod or self.rng.choice(bound)
        gang = one.annotations.get(names.GANG, "")
        mates = [p for p in bound if gang and p.annotations.get(names.GANG) == gang] or [one]
        if gang and len(mates) < int(one.annotations[names.GANG_SIZE]):
            return
        for mate in mates:
            try:
                await self.scene.set_status(mate.metadata.name, phase="Succeeded")
            except ApiError:  # it was evicted this very moment
                continue
            self._life(mate).served = True
            self.tell(f"{mate.metadata.name} succeeds")

    def _life(self, pod: Pod) -> Wanted:
        return self.wanted[pod.metadata.name.rpartition("-")[0]]

    async def _delete(self) -> None:
        pods = self.pods()
        alive = [pod for _, pod in sorted(pods.items()) if not pod.finished]
        if alive:
            pod = self.rng.choice(alive)
            self.tell(f"{pod.metadata.name} is deleted")
            with contextlib.suppress(ApiError):
                await self.scene.delete_pod(pod.metadata.name)

    async def _evict(self) -> None:
        await self._delete()

    async def _sicken(self) -> None:
        node = self.rng.choice(sorted(CARDS))
        device = self.rng.choice(CARDS[node]).id
        await self.scene.quarantine(node, {"device": device, "reason": "Storm"})
        self.sick.add(node)
        self.tell(f"{device} on {node} falls ill")

    async def _recover(self) -> None:
        for node in sorted(self.sick):
            await self.scene.quarantine(node)
        self.sick.clear()

    async def _crash_router(self) -> None:
        if self.router is not None and not self.router.done():
            await _end(self.router)
            self.tell("router crashes")
        else:
            await self.start_router()

    async def _crash_scheduler(self) -> None:
        if self.scheduler is not None and not self.scheduler.done():
            await _end(self.scheduler)
            self.tell("scheduler crashes")
        else:
            self.start_scheduler()

    async def _cut(self) -> None:
        if self.link is not None:
            self.link.inner.cut()

    async def _repeat(self) -> None:
        """Some earlier call comes once more."""
        calls = [(verb, body) for verb, body, _ in self.scene.calls if verb in ("filter", "bind")]
        if calls and self.http is not None:
            verb, body = self.rng.choice(calls[-30:])
            asyncio.get_running_loop().create_task(self._again(verb, body))
            self.tell(f"{verb} is repeated")

    async def _again(self, verb: str, body: dict[str, Any]) -> None:
        assert self.http is not None
        try:
            await self.http.post(f"/{verb}", content=msgspec.json.encode(body))
        except httpx2.HTTPError:
            return

    async def _answer(self) -> None:
        """Owners of pods with offers accept them, or decline."""
        for _, pod in sorted((self.pods()).items()):
            offer = offer_on(pod)
            if offer is not None and not offer.accepted and not pod.spec.nodeName:
                verb = "decline" if self.raging and self.rng.random() < 0.3 else "accept"
                with contextlib.suppress(ApiError):
                    await self.scene.annotate(pod.metadata.name, {names.SUBSTITUTION_ANSWER: f"{verb} {offer.id}"})

    async def keep(self) -> None:
        """What controllers do: pods that are gone and have not run are made again."""
        pods = self.pods()
        for one in self.wanted.values():
            if one.served or one.alive in pods:
                continue
            one.serial += 1
            owner = {**OWNER, "name": one.gang or one.name, "uid": f"job-{one.gang or one.name}"}
            await self.scene.add_pod(one.alive, ownerReferences=[owner], **one.manifest)
            self.tell(f"{one.alive} comes")

    async def check(self) -> None:
        """No card gives more than it has, by what the API server holds."""
        pods = self.pods()
        held = [
            found for _, pod in sorted(pods.items()) if not pod.finished and (found := allocation_of(pod)) is not None
        ]
        over = Snapshot.build([NodeInventory(node, cards) for node, cards in CARDS.items()], held).overcommitted
        assert not over, self.report(f"over-allocated: {over}")

    async def calm(self) -> None:
        """The storm is over: whoever waits gets a turn, one after the other."""
        self.raging = False
        self.tell("calm")
        await self._recover()
        if self.router is None or self.router.done():
            await self.start_router()
        if self.scheduler is None or self.scheduler.done():
            self.start_scheduler()
        end = self.scene.loop.time() + CALM_SECONDS
        while self.scene.loop.time() < end:
            await self.keep()
            await self._answer()
            await self.check()
            for pod in await self._bound():
                await self._finish(pod)
            if all(one.served for one in self.wanted.values()):
                await _end(self.router)
                await _end(self.scheduler)
                return
            await asyncio.sleep(3)
        waiting = sorted(one.alive for one in self.wanted.values() if not one.served)
        raise AssertionError(self.report(f"lost: {waiting}"))

    def report(self, what: str) -> str:
        """What went wrong, how to see it again, and what happened before."""
        again = f"HCS_STORM_SEED={self.seed} python -m pytest tests/router/test_storms.py"
        return "\n".join([what, f"seed {self.seed}; see it again: {again}", *self.story[-60:]])


async def _end(task: asyncio.Task[None] | None) -> None:
    if task is not None:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def storm(data: Path, seed: int) -> list[str]:
    """Run one schedule; returns its story."""
    async with scene(data) as s:
        made = Storm(s, seed)
        try:
            await made.run()
        finally:
            await _end(made.router)
            await _end(made.scheduler)
        return made.story
