"""A whole job on a real control plane: its Job controller knows suspension and failure policies, ours does not.

Only this can catch a Job that a real server refuses, or one that the real controller ends otherwise.
"""

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest
from tests.cpn.test_end_to_end import FLEETS, job_file
from tests.real.programs import control_plane
from tests.waiting import until

from hcs.cpn.assembly import Parts, Settings, wall_clock
from hcs.cpn.controller import Settings as Controlling
from hcs.cpn.limits import Settings as Dispatching
from hcs.kube.connection import connect
from hcs.kube.resources import Job
from hcs.sandbox.cluster import Sandbox
from hcs.store.clusters import ClusterConfig
from hcs.store.queue import QueueStore
from hcs.wide.lifecycle import ENDED
from hcs.wide.submissions import read_submission

pytestmark = [pytest.mark.real, pytest.mark.nightly, pytest.mark.timeout(300), pytest.mark.xdist_group("sandbox")]


async def story(folder: Path, binaries: Path) -> None:
    sandbox = Sandbox(folder / "s", FLEETS["east"], binaries)
    tasks: list[asyncio.Task[Any]] = []
    try:
        await sandbox.start(lambda _: None)
        with QueueStore.open(folder / "queue.db", make_id=lambda: os.urandom(6).hex()) as queue:
            queue.put_cluster(ClusterConfig("east", kubeconfig=str(sandbox.kubeconfig)))
            dispatching = Dispatching(pending_limit=5)
            parts = Parts(queue, settings=Settings(controller=Controlling(dispatching=dispatching)))
            tasks = [asyncio.create_task(task()) for task in parts.tasks()]  # type: ignore[arg-type]
            made = {}
            for name, script in (("good", ""), ("bad", "echo CUDA out of memory; exit 3"), ("long", "sleep 600")):
                manifest = job_file(1, "alpha", 100, script)
                manifest["metadata"]["name"] = name
                manifest["spec"]["backoffLimit"] = 0
                submission = read_submission(manifest, wall_clock()).submission
                made[name] = queue.submit(manifest, submission, key=None, now=wall_clock())[0].id

            def entry(name: str) -> Any:
                for task in tasks:
                    assert not task.done(), task
                return queue.get(made[name])

            await until(lambda: entry("long").state == "Running")
            queue.move(entry("long"), "Cancelling", now=wall_clock(), reason="Asked", message="by a person")
            await until(lambda: all(entry(name).state in ENDED for name in ("good", "long")))
            assert entry("good").state == "Succeeded"
            assert entry("long").state == "Cancelled"
            await until(lambda: entry("bad").attempts >= 1)
            reasons = [step.reason for step in queue.transitions(made["bad"])]
            assert "AcceleratorOutOfMemory" in reasons
            stuck = job_file(2, "beta", 100)
            stuck["metadata"]["name"] = "stuck"
            stuck["spec"]["template"]["spec"]["nodeSelector"] = {"no-node": "has-this"}
            submission = read_submission(stuck, wall_clock()).submission
            made["stuck"] = queue.submit(stuck, submission, key=None, now=wall_clock())[0].id
            await until(lambda: "NeverStarted" in [step.reason for step in queue.transitions(made["stuck"])])
            names = [step.placement.job for step in queue.transitions(made["stuck"]) if step.placement is not None]
            client = connect(str(sandbox.kubeconfig))
            held = [job.metadata.name async for job in client.list(Job, namespace="default")]
            await client.close()
            assert names[0] not in held, "it was suspended, and is gone with its pods"
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await sandbox.stop()


def test_jobs_run_fail_and_are_cancelled_under_a_real_job_controller(tmp_path: Path) -> None:
    asyncio.run(story(tmp_path, control_plane()))
