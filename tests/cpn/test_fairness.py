"""The fair line begins anew when the fleet or what is known changes, with what runs then, and for nothing else."""

from hcs.cpn.deciding import Question
from hcs.cpn.fairness import Fairness
from hcs.wide.fleets import Pool
from hcs.wide.jobs import Job, RunTime
from hcs.wide.snapshot import Running, Snapshot

POOL = Pool("east", "east/k", 1)


def job(id: str) -> Job:
    return Job(id, 1, {POOL.kind: RunTime.exactly(1000)})


def question(now: int, *waiting: str, runs: str = "", **pool: int) -> Question:
    """Jobs of a second each on one card."""
    there = Pool(POOL.cluster, POOL.kind, 1, **pool)
    running = (Running(job(runs), POOL.name, 0, 1000),) if runs else ()
    snapshot = Snapshot(now, (there,), tuple(map(job, waiting)), running)
    return Question(snapshot, {}, {there.name: there}, {id: job(id) for id in waiting})


def test_a_busier_cpu_is_no_other_fleet() -> None:
    """The first has ended early, which the line never learns; whoever counts anew has nobody before the second."""
    line = Fairness()
    assert line.patience(question(0, "a", cpu=8000, busy=0), 1) == 0
    assert line.patience(question(100, "b", cpu=8000, busy=4000), 1) == 720
    assert line.patience(question(100, "b", cpu=8000, busy=4000), 2) == 0, "another predictor"


def test_a_line_that_begins_anew_waits_for_what_runs() -> None:
    assert Fairness().patience(question(400, "b", runs="a"), 1) == 480
