"""The whole controller over hours of virtual time, with the arrivals and durations of a real cluster."""

import asyncio
import csv
import os
from pathlib import Path

import pytest
from tests.cpn.world import Pool, World, world

from hcs.cpn.controller import Settings
from hcs.cpn.limits import Settings as Dispatching
from hcs.cpn.orphans import Graces
from hcs.sandbox.scheduler.virtualtime import run_virtual

TRACE = (
    Path(os.environ.get("HCS_SHARED") or Path(__file__).parents[3] / "shared") / "data" / "philly" / "jobs_train.csv"
)
JOBS = 600
SETTINGS = Settings(
    at_least=600,
    sweep=600,
    dispatching=Dispatching(progress_seconds=3600, pending_limit=3600),
    graces=Graces(finished=3_600_000),
)


def rows() -> list[tuple[float, float, int]]:
    """Arrival after the one before, duration, cards; the busiest stretch of so many jobs that fit the fleet."""
    with TRACE.open() as file:
        every = [
            (float(row["submit_s"]), float(row["duration_s"]), int(row["num_gpus"])) for row in csv.DictReader(file)
        ]
    fitting = [row for row in every if row[2] <= 8 and row[1] >= 1]
    starts = range(0, len(fitting) - JOBS, JOBS)
    begin = min(starts, key=lambda at: fitting[at + JOBS][0] - fitting[at][0])
    chosen = fitting[begin : begin + JOBS]
    return [
        (row[0] - before[0], min(row[1], 86_400.0), row[2])
        for before, row in zip([chosen[0], *chosen], chosen, strict=False)
    ]


@pytest.mark.nightly
@pytest.mark.timeout(1200)
@pytest.mark.skipif(not TRACE.is_file(), reason=f"no trace at {TRACE}; set HCS_SHARED")
def test_a_real_clusters_work_goes_through_once_with_the_controller_killed_now_and_then(tmp_path: Path) -> None:
    """Only many jobs over a long time show what grows or is forgotten: finished Jobs, promises, late ends."""

    async def story(w: World) -> None:
        w.add("east", Pool("fast", 16), Pool("slow", 16))
        w.add("west", Pool("fast", 24))
        w.start()
        entries = []
        for number, (pause, duration, cards) in enumerate(rows()):
            await asyncio.sleep(pause)
            entries.append(w.submit(duration, cards=cards))
            if number % 150 == 149:
                await w.again()
        await w.until(lambda: w.store.counts()["Succeeded"] == JOBS, step=600, seconds=1e9)
        assert w.done == {entry.id: 1 for entry in entries}
        assert w.controller is not None
        assert w.controller.registry.get_sample_value("hcs_cpn_promises_broken_total") == 0
        await w.until(lambda: not any(place.jobs() for place in w.places.values()), step=600, seconds=1e6)

    async def whole() -> None:
        async with world(tmp_path, settings=SETTINGS) as w:
            await story(w)

    run_virtual(whole())
