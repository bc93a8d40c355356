"""Several clusters and a controller in one process, on virtual time.

Each cluster is the sandbox's API server with its Job controller and garbage collector, behind real HTTP requests
without sockets, and an emulated kubelet that lets pods run for as long as their arguments say. The queue is a real
file. What the clusters really did is noted apart from what the controller believes: how often each job's work was done,
and whether two Jobs of one entry ever lived at once.
"""

import asyncio
import datetime
import random
import uuid
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal

import httpx2
import msgspec
from lightkube import AsyncClient, KubeConfig
from lightkube.config.models import Cluster as KubeCluster
from lightkube.config.models import User

from hcs.cpn.controller import Controller, Settings, at_once
from hcs.cpn.endings import over
from hcs.cpn.forecasts import Forecasts
from hcs.cpn.learning import Learner
from hcs.cpn.limits import Settings as Dispatching
from hcs.cpn.tables import load_messages
from hcs.cpn.views import ClusterView, PoolView
from hcs.kube.resources import Job
from hcs.predict.jobs import Forecast, Rate, Run, Work
from hcs.sandbox.apiserver.garbage import Collector
from hcs.sandbox.apiserver.metadata import Sources, timestamp
from hcs.sandbox.apiserver.server import ApiServer
from hcs.sandbox.apiserver.server import Settings as ServerSettings
from hcs.sandbox.jobs.controller import JobController
from hcs.sandbox.scheduler.inprocess import Fault, InProcessTransport
from hcs.store.queue import QueueStore
from hcs.wide.entries import LABEL_ENTRY, LABEL_PULL, Entry, Submission
from hcs.wide.jobs import Blob

START = datetime.datetime(2026, 3, 1, tzinfo=datetime.UTC)
GIB = 1 << 30


class Pool(msgspec.Struct, frozen=True):
    """Cards of one cluster."""

    kind: str
    cards: int
    memory: int = 16 * GIB
    cpu: int | None = None


class Pace(msgspec.Struct, frozen=True):
    """How long jobs really take: seconds on the kind of speed 1000, and each kind's speed."""

    speeds: tuple[tuple[str, int], ...] = (("fast", 2000), ("slow", 1000))

    def seconds(self, seconds: float, kind: str) -> float:
        return seconds * 1000 / dict(self.speeds).get(kind, 1000)


class Oracle:
    """A predictor that knows each model's real time up to an interval; the model's name says it: ``m-SECONDS``."""

    def __init__(self, pace: Pace, spread: float = 1.2) -> None:
        self.pace, self.spread = pace, spread

    def forecast(self, queue: Sequence[Work], kinds: Sequence[str]) -> list[dict[str, Forecast]]:
        return [{kind: self._one(work, kind) for kind in kinds} for work in queue]

    def slowdown(self, a: str, b: str) -> Rate:
        return Rate(0.8, 0.7, 0.9)

    def encode(self) -> bytes:
        return b"oracle"

    def _one(self, work: Work, kind: str) -> Forecast:
        expected = max(1, round(1000 * self.pace.seconds(float(work.model.split("-")[1]), kind)))
        return Forecast(expected, round(expected * self.spread) + 5000, expected, GIB, "known", False, False)


class Place:
    """One cluster: server, Job controller, emulated kubelet, and the view of it that the controller gets."""

    def __init__(self, world: "World", name: str, pools: Sequence[Pool]) -> None:
        self.world, self.name, self.pools = world, name, pools
        numbers = iter(range(1, 1 << 30))
        index = len(world.places) + 1
        folder = world.folder / name
        self.server = ApiServer(
            ServerSettings(
                data=folder,
                history=50_000,
                pod_logs=folder / "pod-logs",
                sources=Sources(now=world.today, uid=lambda: str(uuid.UUID(int=(index << 64) + next(numbers)))),
            )
        )
        self.fault: Fault | None = None
        self.cut_off = False
        self.black_hole = False
        """Whether what is cut off swallows requests instead of refusing them."""
        self.transport = InProcessTransport(self.server.application, fault=self._fault)
        self.client = self._connect(self.transport)
        self.own = self._connect(InProcessTransport(self.server.application))
        self.taken: dict[str, int] = {}
        self.cpu_asked = 0
        self.seen = world.now()
        self.nodes: dict[str, str] = {}
        """Kind of card by node; see :meth:`add_node`."""
        self.pulled: list[tuple[str, str]] = []
        """Node and image, of pulls in advance."""
        self.registry: Literal["here", "away", "silent"] = "here"
        self._started: set[str] = set()
        store = self.server.cluster.store
        store.listen(self._followed)
        self.tasks = [
            asyncio.create_task(Collector(self.server.cluster).run()),
            asyncio.create_task(JobController(self.own, now=world.today).run()),
        ]

    def _connect(self, transport: httpx2.AsyncBaseTransport) -> AsyncClient:
        config = KubeConfig.from_one(
            cluster=KubeCluster(server="http://kubernetes", insecure=True),
            user=User(token="admin-token"),
            namespace="default",
        ).get()
        return AsyncClient(config=config, transport=transport, trust_env=False, field_manager="test")

    def _fault(self, request: httpx2.Request) -> str | None:
        if self.cut_off:
            return "silent" if self.black_hole else "refuse"
        return self.fault(request) if self.fault is not None else None

    def cut(self) -> None:
        """Out of reach, as a network fault would have it."""
        self.cut_off = True
        self.transport.cut()

    def view(self) -> ClusterView:
        """What the controller is told."""
        if not self.cut_off:
            self.seen = self.world.now()
        return ClusterView(
            self.name,
            not self.cut_off,
            tuple(
                PoolView(p.kind, p.cards, self.taken.get(p.kind, 0), p.memory, cpu=p.cpu, cpu_asked=self.cpu_asked)
                for p in self.pools
            ),
            seen=self.seen,
        )

    def jobs(self) -> list[Job]:
        return [msgspec.convert(one.object, Job) for one in self.server.cluster.store.objects("jobs.batch")]

    def _followed(self, change: Any) -> None:
        if change.new.resource == "pods" and change.type != "DELETED":
            self._pod(change.new.object)
        if change.new.resource == "jobs.batch":
            self.world.check(self, change)

    def _pod(self, pod: Mapping[str, Any]) -> None:
        uid = pod["metadata"]["uid"]
        if pod["metadata"].get("deletionTimestamp") and uid in self._started:
            self.tasks.append(asyncio.create_task(self._remove(pod["metadata"])))
        elif uid not in self._started:
            self._started.add(uid)
            run = self._pull if LABEL_PULL in (pod["metadata"].get("labels") or {}) else self._run
            self.tasks.append(asyncio.create_task(run(pod)))

    async def _remove(self, metadata: Mapping[str, Any]) -> None:
        await asyncio.sleep(self.world.rng.choice((0.0, 0.5, 2.0)))
        path = f"/api/v1/namespaces/default/pods/{metadata['name']}"
        await self.request("DELETE", path, {"gracePeriodSeconds": 0, "preconditions": {"uid": metadata["uid"]}})

    async def request(self, method: str, path: str, body: Mapping[str, Any]) -> httpx2.Response:
        """Behind the controller's back."""
        kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
        transport = InProcessTransport(self.server.application)
        async with httpx2.AsyncClient(transport=transport, base_url="https://kubernetes") as http:
            headers = {"Authorization": "Bearer admin-token", "Content-Type": kind}
            return await http.request(method, path, content=msgspec.json.encode(body), headers=headers)

    async def _run(self, pod: Mapping[str, Any]) -> None:
        """The kubelet: bound, running, and after its time over, unless it is deleted before."""
        metadata = pod["metadata"]
        path = f"/api/v1/namespaces/default/pods/{metadata['name']}"
        await asyncio.sleep(self.world.start_delay)
        target = {"apiVersion": "v1", "kind": "Node", "name": "n0"}
        body = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": metadata["name"]}, "target": target}
        if (await self.request("POST", f"{path}/binding", body)).status_code != 201:
            return
        began = timestamp(self.world.today())
        await self._status(metadata, {"phase": "Running"})
        container = pod["spec"]["containers"][0]
        told = dict(word.split("=", 1) for word in container.get("args") or ())
        kind = metadata["annotations"]["ai.compute/models"]
        entry = metadata["labels"][LABEL_ENTRY]
        ending = self.world.endings.get(entry, [])
        ended = ending.pop(0) if ending else {"exitCode": 0}
        await asyncio.sleep(self.world.pace.seconds(float(told["seconds"]), kind) * ended.get("part", 1))
        seen = (await self.request("GET", path, {})).json()["metadata"]
        if seen.get("deletionTimestamp"):
            return  # it was killed in its last moment
        log = self.server.cluster.pod_logs / f"default_{metadata['name']}_{metadata['uid']}" / "main.log"  # type: ignore[operator]
        log.parent.mkdir(parents=True, exist_ok=True)
        log.write_text(ended.get("log", told.get("log", "")))
        terminated = {
            "exitCode": ended["exitCode"],
            "reason": ended.get("reason", "Completed" if ended["exitCode"] == 0 else "Error"),
            "startedAt": began,
            "finishedAt": timestamp(self.world.today()),
        }
        status = {
            "phase": "Succeeded" if ended["exitCode"] == 0 else "Failed",
            "containerStatuses": [{"name": "main", "state": {"terminated": terminated}}],
        }
        if await self._status(metadata, status, seen.get("resourceVersion")) and ended["exitCode"] == 0:
            self.world.done[entry] = self.world.done.get(entry, 0) + 1

    async def add_node(self, name: str, kind: str, images: Sequence[str] = (), **labels: str) -> None:
        """A node of its API with cards of a kind, whose kubelet reports images; pools are told apart from it."""
        self.nodes[name] = kind
        named = {"name": name, "labels": {"kubernetes.io/hostname": f"host-{name}", **labels}}
        await self.request("POST", "/api/v1/nodes", {"apiVersion": "v1", "kind": "Node", "metadata": named})
        await self._report(name, images)

    def nodes_with(self, kind: str) -> tuple[str, ...]:
        return tuple(sorted(name for name, of in self.nodes.items() if of == kind))

    async def _report(self, node: str, images: Sequence[str]) -> None:
        body = {"status": {"images": [{"names": [name], "sizeBytes": 1} for name in images]}}
        assert (await self.request("PATCH", f"/api/v1/nodes/{node}/status", body)).status_code == 200

    async def _pull(self, pod: Mapping[str, Any]) -> None:
        """The kubelet pulls, reports the image, and finds nothing in it that could be run."""
        metadata, [container] = pod["metadata"], pod["spec"]["containers"]
        node = pod["spec"]["nodeSelector"]["kubernetes.io/hostname"].removeprefix("host-")
        self.pulled.append((node, container["image"]))
        await asyncio.sleep(3)
        if self.registry == "silent":
            return
        if self.registry == "here":
            await self._report(node, [container["image"]])
        await self._status(metadata, {"phase": "Failed"})

    async def _status(self, metadata: Mapping[str, Any], status: Mapping[str, Any], version: str | None = None) -> bool:
        """Whether the pod was still there; where a version is given, as it was then."""
        named = {"uid": metadata["uid"], **({"resourceVersion": version} if version else {})}
        body = {"metadata": named, "status": status}
        path = f"/api/v1/namespaces/default/pods/{metadata['name']}/status"
        return (await self.request("PATCH", path, body)).status_code == 200

    async def close(self) -> None:
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        await self.server.stop()


class World:
    """The clusters, the queue, and one controller at a time."""

    def __init__(
        self, folder: Path, *, seed: int = 0, pace: Pace | None = None, settings: Settings | None = None
    ) -> None:
        self.folder, self.rng, self.loop = folder, random.Random(seed), asyncio.get_running_loop()
        self.pace = pace or Pace()
        self.places: dict[str, Place] = {}
        self.start_delay = 0.5
        self.clock_error = 0.0
        """Seconds by which the controller's clock is wrong."""
        self.done: dict[str, int] = {}
        """By entry: how often its work was done."""
        self.endings: dict[str, list[dict[str, Any]]] = {}
        """By entry: how its next attempts end; afterwards well."""
        self.settings = settings or Settings(dispatching=Dispatching(progress_seconds=60))
        self.wrong: list[str] = []
        self.living: dict[str, set[str]] = {}
        """By entry: its Jobs that were released and are not over, wherever they are."""
        self.store = self.open()
        self.controller: Controller | None = None
        self._task: asyncio.Task[None] | None = None
        self.predictor: Any = Oracle(self.pace)
        self.fit: Callable[[list[Run], int], Any] = lambda runs, seed: self.predictor

    def open(self) -> QueueStore:
        numbers = iter(range(self.rng.randrange(1 << 30), 1 << 40))
        return QueueStore.open(self.folder / "queue.db", make_id=lambda: f"e{next(numbers):x}")

    def today(self) -> datetime.datetime:
        """As the clusters' clocks have it."""
        return START + datetime.timedelta(seconds=self.loop.time())

    def now(self) -> int:
        """As the controller's clock has it."""
        return round((self.today().timestamp() + self.clock_error) * 1000)

    def add(self, name: str, *pools: Pool) -> Place:
        self.places[name] = Place(self, name, pools)
        return self.places[name]

    def clusters(self) -> Mapping[str, Any]:
        return self.places

    def submit(
        self, seconds: float, *, cards: int = 1, kinds: Sequence[str] = (), inputs: Sequence[Blob] = (), **fields: Any
    ) -> Entry:
        """A job that runs for so long on a card of speed 1000."""
        manifest = job_file(f"job-{len(self.store.entries())}", seconds, cards)
        submission = Submission(
            manifest["metadata"]["name"],
            model=f"m-{seconds}",
            cards=cards,
            kinds=tuple(kinds),
            inputs=tuple(inputs),
            **fields,
        )
        return self.store.submit(manifest, submission, key=None, now=self.now())[0]

    def start(self, **changes: Any) -> Controller:
        """Start the controller."""
        forecasts = Forecasts(self.predictor)
        learner = Learner(self.store, forecasts, offload=at_once, now=self.now, fit=self.fit)
        self.controller = Controller(
            self.store,
            self,
            forecasts=forecasts,
            learner=learner,
            messages=load_messages(),
            now=self.now,
            settings=self.settings,
            **{"offload": at_once, **changes},
        )
        self._task = asyncio.create_task(self.controller.run())
        return self.controller

    async def kill(self) -> None:
        """End the controller wherever it is, and let go of the file."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = self.controller = None
        self.store.close()

    async def again(self) -> None:
        """Kill it and start anew on the same file."""
        await self.kill()
        self.store = self.open()
        self.start()

    async def until(self, condition: Callable[[], Any], seconds: float = 3600, step: float = 0.25) -> None:
        """Let time pass until a condition holds."""
        async with asyncio.timeout(seconds):
            while not condition():
                if self._task is not None and self._task.done():
                    self._task.result()
                await asyncio.sleep(step)

    def state(self, id: str) -> str:
        found = self.store.get(id)
        assert found is not None
        return found.state

    def check(self, place: Place, change: Any) -> None:
        """No entry has two Jobs that run."""
        job = msgspec.convert(change.new.object, Job)
        if LABEL_PULL in (job.metadata.labels or {}):
            return
        entry = (job.metadata.labels or {}).get(LABEL_ENTRY, "")
        living, name = self.living.setdefault(entry, set()), f"{place.name}/{job.metadata.name}"
        if change.type != "DELETED" and not job.spec.get("suspend") and over(job) is None:
            living.add(name)
        else:
            living.discard(name)
        if len(living) > 1:
            self.wrong.append(f"{entry} runs as {sorted(living)}")

    async def close(self) -> None:
        await self.kill()
        for place in self.places.values():
            await place.close()


def job_file(name: str, seconds: float, cards: int = 1) -> dict[str, Any]:
    """What a user would submit."""
    limits = {"ai.compute/cards": str(cards)} if cards > 1 else {}
    container = {"name": "main", "image": "example.invalid/train:1", "args": [f"seconds={seconds}"]}
    if limits:
        container["resources"] = {"limits": limits}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {"template": {"spec": {"containers": [container], "restartPolicy": "Never"}}},
    }


@asynccontextmanager
async def world(folder: Path, **settings: Any) -> AsyncIterator[World]:
    """A world that is closed at the end; no two Jobs of one entry may have run in it."""
    made = World(folder, **settings)
    try:
        yield made
    finally:
        await made.close()
    assert not made.wrong, made.wrong
