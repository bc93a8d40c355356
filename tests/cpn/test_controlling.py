"""From the queue to the cluster and back, with everything real but time and the kubelet."""

from pathlib import Path

from tests.cpn.world import Pool, world

from hcs.sandbox.scheduler.virtualtime import run_virtual


def test_a_job_is_placed_runs_and_succeeds(tmp_path: Path) -> None:
    async def story() -> None:
        async with world(tmp_path) as w:
            w.add("east", Pool("slow", 1))
            entry = w.submit(30)
            w.start()
            await w.until(lambda: w.state(entry.id) == "Succeeded")
            assert [step.after for step in w.store.transitions(entry.id)] == [
                "Queued", "Placing", "Created", "Running", "Succeeded",
            ]  # fmt: skip
            assert w.done == {entry.id: 1}

    run_virtual(story())


def test_forty_jobs_drain_over_two_clusters(tmp_path: Path) -> None:
    async def story() -> None:
        async with world(tmp_path) as w:
            w.add("east", Pool("slow", 2))
            w.add("west", Pool("fast", 3))
            entries = [w.submit(20 + 7 * number % 50, cards=1 + (number % 5 == 0)) for number in range(40)]
            w.start()
            await w.until(lambda: all(w.state(entry.id) == "Succeeded" for entry in entries))
            assert w.done == {entry.id: 1 for entry in entries}

    run_virtual(story())
