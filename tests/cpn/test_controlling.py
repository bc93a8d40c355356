"""From the queue to the cluster and back, with everything real but time and the kubelet."""

import asyncio
import shutil
from collections.abc import Callable, Coroutine
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from tests.cpn.world import GIB, Pool, World, job_file, world

from hcs.cpn.controller import Controller, Settings
from hcs.cpn.limits import Settings as Dispatching
from hcs.cpn.orphans import Graces
from hcs.model.names import SHARING_GROUP
from hcs.predict.jobs import Run
from hcs.sandbox.scheduler.virtualtime import run_virtual
from hcs.store.clusters import ClusterConfig
from hcs.store.queue import QueueStore
from hcs.wide.entries import LABEL_ENTRY, Submission
from hcs.wide.lifecycle import ENDED

JOBS = "/apis/batch/v1/namespaces/default/jobs"
QUICK = Settings(
    dispatching=Dispatching(progress_seconds=60),
    graces=Graces(suspended=20_000, leftover=20_000, unknown=600_000, finished=60_000),
    sweep=5,
)


def play(folder: Path, story: Callable[[World], Coroutine[Any, Any, None]], **settings: Any) -> None:
    """Run a story in a world of its own."""

    async def whole() -> None:
        async with world(folder, **settings) as w:
            await story(w)

    run_virtual(whole())


def promises(controller: Controller) -> dict[str, float | None]:
    """How promised starts were kept."""
    return {
        what: controller.registry.get_sample_value(f"hcs_cpn_promises_{what}_total")
        for what in ("broken", "excused", "kept")
    }


def states(w: World, id: str) -> list[str]:
    return [step.after for step in w.store.transitions(id)]


def reasons(w: World, id: str) -> list[str]:
    return [step.reason for step in w.store.transitions(id)]


def test_a_job_is_placed_runs_and_succeeds(tmp_path: Path) -> None:
    async def story(w: World) -> None:
        w.add("east", Pool("slow", 1))
        entry = w.submit(30)
        w.start()
        await w.until(lambda: w.state(entry.id) == "Succeeded")
        assert states(w, entry.id) == ["Queued", "Placing", "Created", "Running", "Succeeded"]
        assert w.done == {entry.id: 1}

    play(tmp_path, story)


def test_many_submissions_in_a_row_are_decided_together_where_deciding_takes_long(tmp_path: Path) -> None:
    async def story(w: World) -> None:
        w.add("east", Pool("slow", 1))
        began: list[float] = []

        async def slowly(work: Callable[[], Any]) -> Any:
            began.append(w.loop.time())
            await asyncio.sleep(0.3)
            return work()

        w.submit(1000)
        w.start(offload=slowly)
        await w.until(lambda: began)
        for _ in range(100):
            w.submit(1000)
            await asyncio.sleep(0.05)
        rounds = [later - earlier for earlier, later in pairwise(began)]
        assert max(rounds) <= 1, "an end is followed by a decision within a second"
        assert len(began) * 0.3 <= 0.6 * (w.loop.time() - began[0]) + 0.3, "the other half is for everything else"

    play(tmp_path, story)


@pytest.mark.parametrize(
    "count",
    [
        40,
        pytest.param(100, marks=pytest.mark.nightly),
        pytest.param(1000, marks=[pytest.mark.nightly, pytest.mark.timeout(1200)]),
    ],
)
def test_queues_drain_over_two_clusters(tmp_path: Path, count: int) -> None:
    async def story(w: World) -> None:
        w.add("east", Pool("slow", 2 + count // 20))
        w.add("west", Pool("fast", 3 + count // 20))
        entries = [w.submit(20 + 7 * number % 50, cards=1 + (number % 5 == 0)) for number in range(count)]
        controller = w.start()
        await w.until(lambda: w.store.counts()["Succeeded"] == count, seconds=100_000, step=1)
        assert w.done == {entry.id: 1 for entry in entries}
        assert promises(controller) == {"broken": 0, "excused": 0, "kept": 0}, "nobody waited beyond patience"

    play(tmp_path, story)


def nothing_learnt(runs: list[Run], seed: int) -> Any:
    raise ValueError("nothing can be learnt from these")


def test_an_end_starts_the_next_job_within_a_second(tmp_path: Path) -> None:
    """Of virtual time: what counts is that no look at the clock lies between."""

    async def story(w: World) -> None:
        w.add("east", Pool("slow", 1))
        w.fit = nothing_learnt  # a new predictor is a reason to decide as well
        first, second = w.submit(30, cards=1, priority=1), w.submit(30)
        w.start()
        await w.until(lambda: w.state(second.id) == "Succeeded")
        [ended] = [step.at for step in w.store.transitions(first.id) if step.after == "Succeeded"]
        [placed] = [step.at for step in w.store.transitions(second.id) if step.after == "Placing"]
        assert ended <= placed <= ended + 1000

    w_settings = Settings(sharing=False, dispatching=Dispatching(progress_seconds=60))
    play(tmp_path, story, settings=w_settings)


def test_a_wide_job_is_promised_a_place_and_the_promise_is_kept(tmp_path: Path) -> None:
    """Narrow ones keep coming, and each alone would be better served first."""

    async def story(w: World) -> None:
        w.add("east", Pool("slow", 4))
        w.start_delay = 0.1
        first = [w.submit(200) for _ in range(4)]
        controller = w.start()
        await w.until(lambda: all(w.state(entry.id) == "Running" for entry in first))
        wide = w.submit(300, cards=4)
        while w.state(wide.id) == "Queued":
            if len(w.store.entries(["Queued"])) < 4:
                w.submit(60)
            await asyncio.sleep(10)
            assert w.loop.time() < 20_000
        assert promises(controller)["kept"]
        assert promises(controller)["broken"] == promises(controller)["excused"] == 0

    play(tmp_path, story, settings=Settings(sharing=False, dispatching=Dispatching(progress_seconds=60)))


def test_two_jobs_share_a_card_and_each_has_its_quota(tmp_path: Path) -> None:
    async def story(w: World) -> None:
        place = w.add("east", Pool("slow", 1))
        first, second = w.submit(60), w.submit(60)
        w.start()
        await w.until(lambda: w.state(first.id) == w.state(second.id) == "Running")
        for job in place.jobs():
            template = job.spec["template"]
            assert template["metadata"]["annotations"]["ai.compute/sharing"] == "shared"
            assert template["spec"]["containers"][0]["resources"]["limits"]["ai.compute/vram"] == str(GIB)
        placements = [entry.placement for e in (first, second) if (entry := w.store.get(e.id))]
        assert {p.host for p in placements if p} == {None, first.id}
        assert {p.group for p in placements if p} == {f"cpn-{first.id}-0"}, "they find each other's card"
        assert all(p.rate == 800 for p in placements if p)
        await w.until(lambda: w.state(first.id) == w.state(second.id) == "Succeeded")
        assert {run.shared_with for run in w.store.runs(Run)} == {"m-60"}

    play(tmp_path, story)


def test_shares_that_the_plan_keeps_apart_are_in_groups_of_their_own(tmp_path: Path) -> None:
    """Whoever comes when the first guest has ended is in the group of the card's founder, and of nobody else."""

    async def story(w: World) -> None:
        place = w.add("east", Pool("slow", 2))
        long = [w.submit(600), w.submit(600)]
        w.start()
        await w.until(lambda: all(w.state(entry.id) == "Running" for entry in long))
        guests = [w.submit(60)]
        await w.until(lambda: w.state(guests[0].id) == "Succeeded")
        guests.append(w.submit(60))
        await w.until(lambda: w.state(guests[1].id) == "Running")
        groups = {
            job.metadata.labels["ai.compute/cpn-entry"]: job.spec["template"]["metadata"]["annotations"][SHARING_GROUP]
            for job in place.jobs()
        }
        assert len({groups[entry.id] for entry in long}) == 2
        for guest in guests:
            placement = next(t.placement for t in w.store.transitions(guest.id) if t.after == "Placing")
            assert placement is not None
            assert placement.host in {entry.id for entry in long}
            assert groups[guest.id] == groups[placement.host]

    play(tmp_path, story)


def test_a_guest_waits_while_others_keep_the_cpu_of_its_host_busy(tmp_path: Path) -> None:
    """What both ask for leaves the CPU below the threshold; with what others ask for beside them it does not."""

    async def story(w: World) -> None:
        place = w.add("east", Pool("slow", 1, cpu=8000))
        place.cpu_asked = 2000
        first = w.submit(600, cpu=3000)
        w.start()
        await w.until(lambda: w.state(first.id) == "Running")
        second = w.submit(60, cpu=3000)
        await asyncio.sleep(120)
        assert w.state(second.id) == "Queued"
        place.cpu_asked = 0
        await w.until(lambda: w.state(second.id) == "Running", 60)
        assert w.state(first.id) == "Running"

    play(tmp_path, story)


def test_a_job_that_failed_goes_behind_the_others_and_is_given_up_after_some_attempts(tmp_path: Path) -> None:
    async def story(w: World) -> None:
        w.add("east", Pool("slow", 1))
        bad = w.submit(10)
        w.endings[bad.id] = [{"exitCode": 3, "log": "Traceback: it broke\n"}] * 9
        good = w.submit(10)
        w.start()
        await w.until(lambda: w.state(bad.id) == "Failed")
        found = w.store.get(bad.id)
        assert found is not None
        assert (found.attempts, found.reason) == (4, "TooManyFailures")
        assert "exit code 3" in found.message
        assert "attempt 4 of 4" in found.message
        assert w.state(good.id) == "Succeeded"
        assert [w.store.log(bad.id, attempt) for attempt in range(4)] == ["Traceback: it broke\n"] * 4
        assert len(list(w.store.runs(Run))) == 5
        told = [step.at for step in w.store.transitions(bad.id) if step.after in ("Queued", "Placing")]
        pauses = [(placed - queued) // 1000 for queued, placed in zip(told[2::2], told[3::2], strict=True)]
        assert all(pause >= least for pause, least in zip(pauses, (10, 20, 40), strict=True)), pauses

    play(tmp_path, story, settings=Settings(sharing=False, dispatching=Dispatching(progress_seconds=60)))


def test_a_users_backoff_limit_of_nothing_is_kept(tmp_path: Path) -> None:
    async def story(w: World) -> None:
        w.add("east", Pool("slow", 1))
        manifest = job_file("once", 10)
        manifest["spec"]["backoffLimit"] = 0
        bad, _ = w.store.submit(manifest, Submission("once", model="m-10"), key=None, now=w.now())
        w.endings[bad.id] = [{"exitCode": 1}] * 9
        w.start()
        await w.until(lambda: w.state(bad.id) == "Failed")
        assert w.store.get(bad.id).attempts == 1  # type: ignore[union-attr]

    play(tmp_path, story)


def test_running_out_of_accelerator_memory_raises_what_is_asked_for(tmp_path: Path) -> None:
    async def story(w: World) -> None:
        place = w.add("east", Pool("slow", 1))
        entry = w.submit(10)
        w.endings[entry.id] = [{"exitCode": 1, "log": "RuntimeError: CUDA out of memory. Tried to allocate 2 GiB\n"}]
        w.start()
        await w.until(lambda: w.state(entry.id) == "Succeeded")
        assert "AcceleratorOutOfMemory" in reasons(w, entry.id)
        asked = [job.spec["template"]["spec"]["containers"][0]["resources"]["limits"] for job in place.jobs()]
        assert sorted(int(limits["ai.compute/vram"]) for limits in asked) == [GIB, 2 * GIB]
        assert [run.outcome for run in w.store.runs(Run)] == ["accelerator-oom", "succeeded"]

    play(tmp_path, story, settings=Settings(dispatching=Dispatching(progress_seconds=60)))


def test_out_of_memory_on_the_largest_card_there_is_ends_with_a_reason(tmp_path: Path) -> None:
    async def story(w: World) -> None:
        w.add("east", Pool("slow", 2))
        entry = w.submit(10, cards=2)
        w.endings[entry.id] = [{"exitCode": 1, "log": "CUDA out of memory\n"}] * 9
        w.start()
        await w.until(lambda: w.state(entry.id) == "Failed")
        assert reasons(w, entry.id)[-2:] == ["AcceleratorOutOfMemory", "TooLittleMemory"]

    play(tmp_path, story)


def test_running_out_of_host_memory_is_another_thing(tmp_path: Path) -> None:
    async def story(w: World) -> None:
        place = w.add("east", Pool("slow", 1))
        entry = w.submit(10, host_memory=4 * GIB)
        w.endings[entry.id] = [{"exitCode": 137, "reason": "OOMKilled"}]
        w.start()
        await w.until(lambda: w.state(entry.id) == "Succeeded")
        assert "HostOutOfMemory" in reasons(w, entry.id)
        found = w.store.get(entry.id)
        assert found is not None
        assert (found.floor, found.host_floor) == (None, 6 * GIB)
        last = max(place.jobs(), key=lambda job: job.metadata.name)
        assert last.spec["template"]["spec"]["containers"][0]["resources"]["requests"]["memory"] == str(6 * GIB)

    play(tmp_path, story)


@pytest.mark.parametrize("when", ["Queued", "Placing", "Created", "Running"])
def test_a_job_is_cancelled_in_any_state(tmp_path: Path, when: str) -> None:
    async def story(w: World) -> None:
        place = w.add("east", Pool("slow", 1))
        entry = w.submit(600)
        if when != "Queued":
            w.start()
            # Each state is held by a request that is not answered.
            place.fault = {
                "Placing": lambda request: "lose" if request.method == "POST" else None,
                "Created": lambda request: "lose" if request.method == "PATCH" else None,
                "Running": lambda request: None,
            }[when]
            await w.until(lambda: w.state(entry.id) == when)
        now = w.store.get(entry.id)
        assert now is not None
        after: Any = "Cancelled" if when == "Queued" else "Cancelling"
        w.store.move(now, after, now=w.now(), reason="Asked", message="by a person")
        place.fault = None
        if when == "Queued":
            w.start()
        await w.until(lambda: w.state(entry.id) == "Cancelled")
        await w.until(lambda: not place.jobs())
        assert w.done == {}

    play(tmp_path, story, settings=QUICK)


def test_a_name_that_is_somebody_elses_is_refused(tmp_path: Path) -> None:
    async def story(w: World) -> None:
        place = w.add("east", Pool("slow", 1))
        entry = w.submit(10)
        foreign = job_file(f"cpn-{entry.id}-0", 600)
        assert (await place.request("POST", JOBS, foreign)).status_code == 201
        w.start()
        await w.until(lambda: w.state(entry.id) in ENDED)
        assert w.state(entry.id) == "Refused"
        assert reasons(w, entry.id)[-1] == "NameTaken"
        assert len(place.jobs()) == 1, "it is left alone"

    play(tmp_path, story)


def test_a_cluster_that_refuses_is_left_out_and_another_one_tried(tmp_path: Path) -> None:
    async def story(w: World) -> None:
        w.add("west", Pool("slow", 1))
        east = w.add("east", Pool("fast", 1))
        quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "none"}}
        quota["spec"] = {"hard": {"count/jobs.batch": "0"}}  # type: ignore[assignment]
        assert (await east.request("POST", "/api/v1/namespaces/default/resourcequotas", quota)).status_code == 201
        entry = w.submit(10)
        w.start()
        await w.until(lambda: w.state(entry.id) == "Succeeded")
        assert w.done == {entry.id: 1}
        found = w.store.get(entry.id)
        assert found is not None
        assert found.placement is not None
        assert found.placement.cluster in ("west", "east")

    play(tmp_path, story)


def test_a_cluster_out_of_reach_keeps_its_jobs_and_says_why(tmp_path: Path) -> None:
    async def story(w: World) -> None:
        east = w.add("east", Pool("slow", 1))
        entry = w.submit(50)
        controller = w.start()
        await w.until(lambda: w.state(entry.id) == "Running")
        east.cut()
        w.add("west", Pool("fast", 4))
        waiting = w.submit(20, kinds=("slow",))
        await w.until(lambda: w.loop.time() > 2000)
        assert w.state(entry.id) == "Running", "nobody knows that it is gone, so it is not run twice"
        found = w.store.get(waiting.id)
        assert found is not None
        why = controller.why(found)
        assert any(v.refusal is not None and v.refusal.reason == "ClusterUnreachable" for v in why.verdicts)
        east.cut_off = False
        await w.until(lambda: w.state(entry.id) == w.state(waiting.id) == "Succeeded")
        assert w.done == {entry.id: 1, waiting.id: 1}

    play(tmp_path, story)


def test_jobs_of_a_cluster_that_is_gone_run_elsewhere_once_its_operator_says_so(tmp_path: Path) -> None:
    async def story(w: World) -> None:
        east, west = w.add("east", Pool("fast", 1)), w.add("west", Pool("slow", 1))
        west.taken = {"slow": 1}
        w.store.put_cluster(ClusterConfig("east"))
        entry, other = w.submit(500), w.submit(500, kinds=("slow",))
        w.start()
        await w.until(lambda: w.state(entry.id) == "Running")
        east.cut()
        await w.until(lambda: w.loop.time() > 1500)
        assert w.state(entry.id) == "Running"
        w.store.put_cluster(ClusterConfig("east", gone=True))
        west.taken = {}
        await w.until(lambda: w.state(entry.id) == "Succeeded")
        found = w.store.get(entry.id)
        assert found is not None
        assert found.attempts == 0, "it was not the job's fault"
        assert "ClusterGone" in reasons(w, entry.id)
        east.cut_off = False
        w.store.put_cluster(ClusterConfig("east"))
        await w.until(lambda: w.state(other.id) == "Succeeded" and not east.jobs(), seconds=20_000)
        w.wrong.clear()  # its operator was wrong: it ran on

    play(tmp_path, story, settings=QUICK)


def test_a_restored_database_takes_back_what_runs_already(tmp_path: Path) -> None:
    """A copy from before the job was sent knows nothing of it; starting it again would run it twice."""

    async def story(w: World) -> None:
        w.add("east", Pool("slow", 1))
        w.add("west", Pool("fast", 4))
        entry = w.submit(200)
        await w.kill()
        shutil.copytree(tmp_path, tmp_path.parent / "copy", ignore=shutil.ignore_patterns("east", "west"))
        w.store = w.open()
        w.start()
        await w.until(lambda: w.state(entry.id) == "Running")
        await w.kill()
        for file in tmp_path.glob("queue.db*"):
            file.unlink()
        shutil.copy(tmp_path.parent / "copy" / "queue.db", tmp_path)
        w.store = w.open()
        assert w.state(entry.id) == "Queued"
        w.start()
        await w.until(lambda: w.state(entry.id) == "Succeeded")
        assert w.done == {entry.id: 1}
        assert "TakenBack" in reasons(w, entry.id)

    play(tmp_path, story, settings=QUICK)


def test_jobs_nobody_knows_are_left_alone_for_long_and_then_removed(tmp_path: Path) -> None:
    async def story(w: World) -> None:
        east = w.add("east", Pool("slow", 1))
        stray = job_file("stray", 5000)
        stray["metadata"]["labels"] = {"ai.compute/cpn-queue": w.store.queue_id, LABEL_ENTRY: "nobody"}
        await east.request("POST", JOBS, stray)
        others = job_file("others", 5000)
        others["metadata"]["labels"] = {"ai.compute/cpn-queue": "another-queue", LABEL_ENTRY: "another"}
        await east.request("POST", JOBS, others)
        w.start()
        await w.until(lambda: w.loop.time() > 500)
        assert len(east.jobs()) == 2, "somebody may still put the right database back"
        await w.until(lambda: len(east.jobs()) == 1)
        assert east.jobs()[0].metadata.name == "others"

    play(tmp_path, story, settings=QUICK)


def test_a_second_controller_on_the_same_queue_does_not_start(tmp_path: Path) -> None:
    async def story(w: World) -> None:
        with pytest.raises(Exception, match="one writer"):
            QueueStore.open(tmp_path / "queue.db", make_id=lambda: "x")

    play(tmp_path, story)


def test_a_controller_that_may_not_act_does_nothing(tmp_path: Path) -> None:
    async def story(w: World) -> None:
        east = w.add("east", Pool("slow", 1))
        entry = w.submit(10)
        leads = [False]
        controller = w.start(may_act=lambda: leads[0])
        await w.until(lambda: w.loop.time() > 100)
        assert (w.state(entry.id), east.jobs()) == ("Queued", [])
        refusal = controller.ready()
        assert refusal is not None
        assert refusal.reason == "NotLeading"
        leads[0] = True
        await w.until(lambda: w.state(entry.id) == "Succeeded")

    play(tmp_path, story)
