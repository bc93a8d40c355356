"""Trouble that looks like an answer: what a proxy says, half a line, a word given once, a pod that was moved."""

import asyncio
import resource
from pathlib import Path
from typing import Any

import httpx2
import msgspec
import pytest
from tests.cpn.test_controlling import JOBS, QUICK, play, reasons, states
from tests.cpn.world import GIB, Place, Pool, World, job_file

from hcs.cpn.learning import MODEL
from hcs.cpn.limits import Settings as Dispatching
from hcs.cpn.views import ClusterView, Reading
from hcs.predict.jobs import Run
from hcs.store.clusters import ClusterConfig
from hcs.wide.entries import LABEL_ENTRY, LABEL_QUEUE
from hcs.wide.planner import Planner
from hcs.wide.snapshot import Plan, Snapshot

PODS = "/api/v1/namespaces/default/pods"
QUOTA = "/api/v1/namespaces/default/resourcequotas/few"


@pytest.mark.parametrize("fate", ["page", "bare"])
def test_what_a_proxy_says_instead_of_a_cluster_is_no_answer(tmp_path: Path, fate: str) -> None:
    """A sign-in page with status 200, an error without a content type: nothing ends, and all goes on afterwards."""

    async def story(w: World) -> None:
        east = w.add("east", Pool("slow", 2))
        running, fresh = w.submit(100), None
        w.start()
        await w.until(lambda: w.state(running.id) == "Running")
        east.fault = lambda request: fate
        east.transport.cut()
        fresh = w.submit(50)
        await w.until(lambda: w.loop.time() > 60)
        assert w.state(running.id) == "Running"
        assert w.state(fresh.id) == "Placing"
        east.fault = None
        await w.until(lambda: w.state(running.id) == w.state(fresh.id) == "Succeeded", seconds=400)
        assert w.done == {running.id: 1, fresh.id: 1}

    play(tmp_path, story, settings=QUICK)


def test_a_watch_that_ends_in_the_middle_of_a_line_is_begun_anew(tmp_path: Path) -> None:
    async def story(w: World) -> None:
        east = w.add("east", Pool("slow", 1))
        entry = w.submit(30)
        w.start()
        await w.until(lambda: w.state(entry.id) == "Running")
        east.transport.cut(halfway=True)
        await w.until(lambda: w.state(entry.id) == "Succeeded", seconds=100)

    play(tmp_path, story, settings=QUICK)


def test_the_word_that_a_cluster_is_gone_is_spent_once_it_is_back(tmp_path: Path) -> None:
    """Else the next short silence, or a start of the controller, would run again what runs there."""

    async def story(w: World) -> None:
        east, west = w.add("east", Pool("fast", 1)), w.add("west", Pool("slow", 1))
        west.taken = {"slow": 1}
        w.store.put_cluster(ClusterConfig("east"))
        w.start()
        east.cut()
        w.store.put_cluster(ClusterConfig("east", gone=True))
        await w.until(lambda: w.loop.time() > 30)
        east.cut_off = False
        entry = w.submit(500)
        await w.until(lambda: w.state(entry.id) == "Running")
        assert [config.gone for config in w.store.clusters()] == [False]
        west.taken = {}
        east.cut()
        await w.until(lambda: w.loop.time() > 200)
        assert w.state(entry.id) == "Running"
        assert "ClusterGone" not in reasons(w, entry.id)
        east.cut_off = False
        await w.until(lambda: w.state(entry.id) == "Succeeded")
        assert w.done == {entry.id: 1}

    play(tmp_path, story, settings=QUICK)


async def evict(place: Place) -> None:
    """As a drain does: the pod goes, and what it had done is no failure."""
    [pod] = [one.object for one in place.server.cluster.store.objects("pods")]
    await place.request("DELETE", f"{PODS}/{pod['metadata']['name']}", {"gracePeriodSeconds": 0})


def test_a_pod_that_a_drain_took_is_made_again_on_its_cluster_however_long_it_ran(tmp_path: Path) -> None:
    async def story(w: World) -> None:
        east = w.add("east", Pool("slow", 1))
        w.add("west", Pool("fast", 1))
        entry = w.submit(5000, kinds=("slow",))
        w.start()
        await w.until(lambda: w.loop.time() > 2000)
        assert w.state(entry.id) == "Running"
        w.start_delay = 60
        await evict(east)
        await w.until(lambda: w.state(entry.id) == "Succeeded", seconds=10_000)
        found = w.store.get(entry.id)
        assert found is not None
        assert (found.attempts, len(states(w, entry.id))) == (0, 5)

    play(tmp_path, story, settings=QUICK)


class Large:
    """A predictor that takes more room than there is."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def forecast(self, *asked: Any) -> Any:
        return self.inner.forecast(*asked)

    def encode(self) -> bytes:
        return bytes(30_000_000)


def test_a_disk_without_room_for_the_predictor_ends_nothing(tmp_path: Path) -> None:
    """The limit of a file's size stands in for a full disk."""

    async def story(w: World) -> None:
        w.add("east", Pool("slow", 1))
        w.fit = lambda runs, seed: Large(w.predictor)
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000_000, before[1]))
        try:
            for _ in range(2):
                entry = w.submit(10)
                if w.controller is None:
                    w.start()
                await w.until(lambda: w.state(entry.id) == "Succeeded", seconds=200)  # noqa: B023
                await asyncio.sleep(5)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
        assert not w.store.kept(MODEL)
        await w.until(lambda: w.store.kept(MODEL), seconds=100)

    play(tmp_path, story, settings=QUICK)


def test_a_planner_that_fails_is_told_and_what_runs_is_followed(tmp_path: Path) -> None:
    async def story(w: World) -> None:
        w.add("east", Pool("slow", 1))
        first = w.submit(50)
        broken = []

        def plan(snapshot: Snapshot) -> Plan:
            if broken:
                raise OverflowError("a number nobody thought of")
            return Planner().decide(snapshot)

        controller = w.start(planner=plan)
        await w.until(lambda: w.state(first.id) == "Running")
        broken.append(True)
        second = w.submit(10)
        await w.until(lambda: w.state(first.id) == "Succeeded", seconds=200)
        assert w.state(second.id) == "Queued"
        refusal = controller.ready()
        assert refusal is not None
        assert refusal.reason == "DecisionFailed"
        broken.clear()
        await w.until(lambda: w.state(second.id) == "Succeeded", seconds=200)
        assert controller.ready() is None

    play(tmp_path, story, settings=QUICK)


def test_a_job_that_somebody_suspended_is_told_of_and_planned_anew_when_that_lasts(tmp_path: Path) -> None:
    async def story(w: World) -> None:
        east = w.add("east", Pool("slow", 1))
        entry = w.submit(5000)
        controller = w.start()
        await w.until(lambda: w.loop.time() > 2000)
        [job] = east.jobs()
        await east.request("PATCH", f"{JOBS}/{job.metadata.name}", {"spec": {"suspend": True}})
        await w.until(lambda: w.loop.time() > 2100)
        assert w.state(entry.id) == "Running", "it may be resumed"
        found = w.store.get(entry.id)
        assert found is not None
        assert controller.why(found).headline.startswith("Suspended: somebody suspended Job")
        await w.until(lambda: "Suspended" in reasons(w, entry.id), seconds=1000)
        await w.until(lambda: w.state(entry.id) == "Succeeded", seconds=10_000)

    play(tmp_path, story, settings=QUICK)


class Hosts(Place):
    """A cluster whose metrics tell how much host memory is free on the host that has most."""

    free: int = 64 * GIB

    def view(self) -> ClusterView:
        return msgspec.structs.replace(super().view(), host_free=Reading(self.free))


def with_hosts(w: World, name: str, free: int, *pools: Pool) -> Hosts:
    place = w.places[name] = Hosts(w, name, pools)
    place.free = free
    return place


def test_pods_of_one_job_live_on_several_hosts(tmp_path: Path) -> None:
    async def story(w: World) -> None:
        with_hosts(w, "east", 64 * GIB, Pool("slow", 4))
        entry = w.submit(20, cards=4, pods=4, host_memory=40 * GIB)
        w.start()
        await w.until(lambda: w.state(entry.id) == "Succeeded", seconds=200)

    play(tmp_path, story, settings=QUICK)


def test_a_job_with_too_much_host_memory_holds_no_card_and_says_why_it_waits(tmp_path: Path) -> None:
    """It would be the first at every decision, and its card would stand idle."""

    async def story(w: World) -> None:
        east = with_hosts(w, "east", 64 * GIB, Pool("slow", 1))
        large = w.submit(5, host_memory=100 * GIB)
        others = [w.submit(50) for _ in range(3)]
        controller = w.start()
        await w.until(lambda: all(w.state(other.id) == "Succeeded" for other in others), seconds=180)
        found = w.store.get(large.id)
        assert found is not None
        assert found.state == "Queued"
        why = controller.why(found)
        assert "HostMemoryShort" in " ".join((why.headline, *why.notes))
        east.free = 128 * GIB
        await w.until(lambda: w.state(large.id) == "Succeeded", seconds=400)

    play(tmp_path, story, settings=msgspec.structs.replace(QUICK, sharing=False))


@pytest.mark.parametrize(("method", "reason"), [("POST", "NotCreated"), ("PATCH", "NotReleased")])
def test_a_cluster_that_answers_and_takes_nothing_does_not_keep_its_jobs(
    tmp_path: Path, method: str, reason: str
) -> None:
    """An admission webhook that is down refuses everything with status 500 for as long as nobody mends it."""

    async def story(w: World) -> None:
        east = w.add("east", Pool("fast", 1))
        w.add("west", Pool("slow", 1))
        w.store.put_cluster(ClusterConfig("east", lost_after=60_000))
        east.fault = lambda request: "bare" if request.method == method else None
        entry = w.submit(100)
        w.start()
        await w.until(lambda: w.state(entry.id) == "Succeeded", seconds=600)
        assert reason in reasons(w, entry.id)
        assert [step.placement.cluster for step in w.store.transitions(entry.id) if step.after == "Running"] == ["west"]
        found = w.store.get(entry.id)
        assert found is not None
        assert found.attempts == 0, "it was not the job's fault"

    play(tmp_path, story, settings=QUICK)


async def limit_jobs(place: Place, count: int) -> None:
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "few"}}
    body: dict[str, Any] = {**quota, "spec": {"hard": {"count/jobs.batch": str(count)}}}
    assert (await place.request("POST", "/api/v1/namespaces/default/resourcequotas", body)).status_code == 201


def test_a_cluster_that_refuses_is_asked_ever_more_rarely(tmp_path: Path) -> None:
    async def story(w: World) -> None:
        east = w.add("east", Pool("slow", 1))
        await limit_jobs(east, 0)
        entry = w.submit(10)
        w.start()
        await w.until(lambda: w.loop.time() > 4 * 3600, seconds=5 * 3600, step=60)
        tries = [step.at for step in w.store.transitions(entry.id) if step.after == "Placing"]
        assert 8 <= len(tries) <= 12, "an hour apart in the end"
        assert w.state(entry.id) == "Queued", "a quota is not the job's fault"

    play(tmp_path, story, settings=QUICK)


def test_a_job_that_fills_its_quota_itself_is_not_taken_for_refused(tmp_path: Path) -> None:
    """The answer to its creation was lost; asked again, the cluster sees its quota used up, by that same Job."""

    async def story(w: World) -> None:
        east = w.add("east", Pool("slow", 1))
        await limit_jobs(east, 1)
        asked = []

        def fault(request: httpx2.Request) -> str | None:
            if request.method in ("POST", "DELETE"):
                asked.append(request.method)
                return "lose" if len(asked) == 1 else None
            return None

        east.fault = fault
        entry = w.submit(10)
        w.start()
        await w.until(lambda: w.state(entry.id) == "Succeeded", seconds=100)
        assert asked == ["POST", "POST"]
        assert states(w, entry.id) == ["Queued", "Placing", "Created", "Running", "Succeeded"]

    play(tmp_path, story, settings=QUICK)


def test_a_job_that_ran_out_of_memory_waits_for_the_larger_cards_that_refuse_it_just_now(tmp_path: Path) -> None:
    async def story(w: World) -> None:
        w.add("east", Pool("slow", 1, 8 * GIB))
        west = w.add("west", Pool("fast", 1, 80 * GIB))
        west.taken = {"fast": 1}
        entry = w.submit(10)
        w.endings[entry.id] = [{"exitCode": 1, "log": "CUDA out of memory\n"}]
        w.start()
        await limit_jobs(west, 0)
        await w.until(lambda: w.state(entry.id) == "Running")
        west.taken = {}
        await w.until(lambda: w.loop.time() > 3600, seconds=7200, step=60)
        assert w.state(entry.id) == "Queued", reasons(w, entry.id)
        assert (await west.request("DELETE", QUOTA, {})).status_code == 200
        await w.until(lambda: w.state(entry.id) == "Succeeded", seconds=7200)

    play(tmp_path, story, settings=msgspec.structs.replace(QUICK, sharing=False))


def test_a_cluster_that_was_removed_is_told_at_once(tmp_path: Path) -> None:
    async def story(w: World) -> None:
        w.add("east", Pool("slow", 1))
        entry = w.submit(5000)
        controller = w.start()
        await w.until(lambda: w.state(entry.id) == "Running")
        east = w.places.pop("east")
        controller.wake()
        await asyncio.sleep(1)
        found = w.store.get(entry.id)
        assert found is not None
        assert controller.why(found).headline.startswith("ClusterUnknown: cluster east is not connected")
        w.places["east"] = east
        controller.wake()
        await w.until(lambda: w.state(entry.id) == "Succeeded", seconds=6000)

    play(tmp_path, story, settings=QUICK)


def test_a_cluster_that_forbids_its_jobs_does_not_use_up_their_attempts(tmp_path: Path) -> None:
    """Its rights are not set up, and the other one is busy for long: whatever waits would fail within minutes."""

    async def story(w: World) -> None:
        w.add("east", Pool("fast", 4)).fault = lambda request: "forbid" if request.method == "POST" else None
        west = w.add("west", Pool("slow", 1))
        west.taken = {"slow": 1}
        entries = [w.submit(10) for _ in range(3)]
        w.start()
        await w.until(lambda: w.loop.time() > 3600, seconds=7200, step=60)
        assert [w.state(entry.id) for entry in entries] == ["Queued"] * 3
        assert "Forbidden" in reasons(w, entries[0].id)
        west.taken = {}
        await w.until(lambda: w.store.counts()["Succeeded"] == 3, seconds=7200)
        assert {entry.attempts for entry in w.store.entries()} == {0}

    play(tmp_path, story, settings=QUICK)


def test_a_job_that_every_cluster_refuses_fails(tmp_path: Path) -> None:
    async def story(w: World) -> None:
        for name in ("east", "west"):
            w.add(name, Pool("slow", 1)).fault = lambda request: "forbid" if request.method == "POST" else None
        entry = w.submit(10)
        w.start()
        await w.until(lambda: w.state(entry.id) == "Failed", seconds=7200)
        found = w.store.get(entry.id)
        assert found is not None
        assert found.message.startswith("Forbidden: cluster")

    play(tmp_path, story, settings=QUICK)


def test_a_cluster_that_swallows_requests_does_not_keep_the_others_waiting(tmp_path: Path) -> None:
    """Every request to it takes as long as a client waits, and there are many jobs on it."""

    async def story(w: World) -> None:
        east = w.add("east", Pool("slow", 80))
        east.black_hole = True
        entries = [w.submit(20_000) for _ in range(80)]
        w.start()
        await w.until(lambda: w.store.counts()["Running"] == 80, seconds=300)
        await asyncio.sleep(10)
        w.add("west", Pool("fast", 1))
        east.cut()
        for entry in entries[:40]:
            running = w.store.get(entry.id)
            assert running is not None
            w.store.move(running, "Cancelling", now=w.now(), reason="Asked", message="by a person")
        await asyncio.sleep(60)
        entry = w.submit(10, kinds=("fast",))
        await w.until(lambda: w.state(entry.id) == "Running", seconds=5)

    dispatching = Dispatching(progress_seconds=5)
    play(tmp_path, story, settings=msgspec.structs.replace(QUICK, sharing=False, dispatching=dispatching))


@pytest.mark.parametrize("seconds", [600, 20_000], ids=["over by then", "running still"])
def test_a_job_that_began_unseen_is_not_taken_back_when_its_cluster_answers_again(tmp_path: Path, seconds: int) -> None:
    """Its cluster fell silent while its pod was pending, for longer than a pod may be; what is known of it is old."""

    async def story(w: World) -> None:
        east = w.add("east", Pool("slow", 1))
        w.start_delay = 60.0
        entry = w.submit(seconds)
        w.start()
        await w.until(lambda: w.state(entry.id) == "Running")
        await asyncio.sleep(5)
        east.cut()
        await asyncio.sleep(2000)
        east.cut_off = False
        await w.until(lambda: w.state(entry.id) == "Succeeded", seconds=100_000, step=5)
        assert w.done == {entry.id: 1}
        assert reasons(w, entry.id) == ["Submitted", "Placed", "JobCreated", "JobReleased", "Completed"]

    play(tmp_path, story, settings=QUICK)


@pytest.mark.parametrize("error", [3600.0, -3600.0])
def test_a_clock_that_is_set_takes_no_job_back_and_leaves_none_behind(tmp_path: Path, error: float) -> None:
    async def story(w: World) -> None:
        east = w.add("east", Pool("slow", 2))
        w.start_delay = 100.0
        entry = w.submit(600)
        w.start()
        await w.until(lambda: w.state(entry.id) == "Running")
        labels = {LABEL_QUEUE: w.store.queue_id}
        for name, of in (("cpn-known-0", entry.id), ("cpn-unknown-0", "e-unknown")):
            left = job_file(name, 10)
            left["metadata"]["labels"] = {**labels, LABEL_ENTRY: of}
            left["spec"]["suspend"] = True
            assert (await east.request("POST", JOBS, left)).status_code == 201
        await asyncio.sleep(10)
        w.clock_error = error
        await asyncio.sleep(60)
        assert {job.metadata.name for job in east.jobs()} == {f"cpn-{entry.id}-0", "cpn-unknown-0"}
        await w.until(lambda: w.state(entry.id) == "Succeeded")
        assert reasons(w, entry.id) == ["Submitted", "Placed", "JobCreated", "JobReleased", "Completed"]

    play(tmp_path, story, settings=QUICK)


@pytest.mark.parametrize(("days", "least"), [(1, 86_400), (1e-6, 60)], ids=["a day", "no longer than its Job"])
def test_jobs_that_ended_long_ago_are_not_kept_where_that_is_said(tmp_path: Path, days: float, least: float) -> None:
    async def story(w: World) -> None:
        east = w.add("east", Pool("slow", 2))
        short, long = w.submit(10), w.submit(20_000)
        w.start()
        for entry in (short, long):
            await w.until(lambda entry=entry: w.store.get(entry.id) is None, seconds=3 * 86_400, step=5)
            assert w.loop.time() >= least
            assert f"cpn-{entry.id}-0" not in [job.metadata.name for job in east.jobs()]
        assert w.loop.time() >= 20_000 + least
        assert len(list(w.store.runs(Run))) == 2
        assert w.done == {short.id: 1, long.id: 1}

    play(tmp_path, story, settings=msgspec.structs.replace(QUICK, keep_ended_days=days))


def test_jobs_that_ended_are_kept_where_nothing_is_said(tmp_path: Path) -> None:
    async def story(w: World) -> None:
        w.add("east", Pool("slow", 1))
        entry = w.submit(10)
        w.start()
        await w.until(lambda: w.loop.time() > 7200, seconds=7300, step=60)
        assert w.state(entry.id) == "Succeeded"

    play(tmp_path, story, settings=QUICK)
