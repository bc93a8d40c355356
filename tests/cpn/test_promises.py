"""Which promised starts count as kept, moved for a reason, or broken."""

from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from hcs.cpn.deciding import Memory, Question, Situation
from hcs.cpn.promises import SETTLES, Promises
from hcs.wide.entries import Entry, Placement, Submission
from hcs.wide.fleets import Pool
from hcs.wide.jobs import Job, RunTime
from hcs.wide.snapshot import Place, Plan, Snapshot

NOW, LAG = 10_000_000, 2000
SECOND = 1000
PROMISED = Place("a", "east/A100", NOW + 60 * SECOND, NOW + 120 * SECOND)
LATER = Place("a", "east/A100", NOW + 90 * SECOND, NOW + 150 * SECOND)
STARTED = Place("a", "east/A100", NOW, NOW + 60 * SECOND)


def held(decided: int, upper: int, started: int | None = None) -> Entry:
    """A job that runs, placed at a moment for as long as it may take."""
    placement = Placement("east", "A100", decided, upper, upper, "cpn-b-0", started=started or decided)
    return Entry("b", {}, Submission("b"), "Running", 1, 0, 0, 1, placement=placement)


def question(cards: int = 4, *, shut: bool = False) -> Question:
    pool = Pool("east", "east/A100", cards)
    job = Job("a", 1, {"east/A100": RunTime.exactly(60 * SECOND)})
    snapshot = Snapshot(NOW, (pool,), (job,))
    return Question(snapshot, {"east": ("CpuBusy", "m")} if shut else {}, {pool.name: pool}, {"a": job})


RUNS = held(NOW - 10 * SECOND, NOW + 50 * SECOND)
CASES: dict[str, tuple[Plan, dict[str, Any], str]] = {
    "it starts": (Plan((STARTED,)), {}, "kept"),
    "it moves forward": (Plan(promises=(STARTED,)), {}, ""),
    "it stays": (Plan(promises=(PROMISED,)), {}, ""),
    "it moves back": (Plan(promises=(LATER,)), {}, "broken"),
    "it is forgotten": (Plan(), {}, "broken"),
    "it moves while others run as they should": (Plan(promises=(LATER,)), {"placed": (RUNS,)}, "broken"),
    "another overran": (Plan(promises=(LATER,)), {"placed": (held(NOW - 90 * SECOND, NOW - SECOND),)}, "excused"),
    "another began late": (
        Plan(promises=(LATER,)),
        {"placed": (held(NOW - 90 * SECOND, NOW + SECOND, started=NOW - 60 * SECOND),)},
        "excused",
    ),
    "the clock was set back": (
        Plan(promises=(LATER,)),
        {"placed": (held(NOW + 3600 * SECOND, NOW + 3660 * SECOND),)},
        "excused",
    ),
    "its cluster would not have it": (
        Plan(promises=(LATER,)),
        {"refused": {("a", "east"): NOW + SECOND}},
        "excused",
    ),
    "a refusal is over": (Plan(promises=(LATER,)), {"refused": {("a", "east"): NOW - SECOND}}, "broken"),
}


def judged(plan: Plan, now: Question, before: Question | None, *, at: int = NOW, **more: Any) -> dict[str, float]:
    """What is counted of one decision."""
    registry = CollectorRegistry()
    promises = Promises(registry)
    situation = Situation(at, (), (), more.pop("placed", ()), {}, Memory(promises=(PROMISED,)), lag=LAG, **more)
    promises.judge(plan, now, situation, before, elapsed=0)
    names = ("kept", "excused", "broken")
    counted = {name: registry.get_sample_value(f"hcs_cpn_promises_{name}_total") or 0 for name in names}
    return {name: value for name, value in counted.items() if value}


@pytest.mark.parametrize("name", CASES)
def test_what_becomes_of_a_promise(name: str) -> None:
    plan, more, expected = CASES[name]
    assert judged(plan, question(), question(), **more) == ({expected: 1} if expected else {})


def test_cards_that_vanish_a_shut_cluster_and_a_start_excuse_it() -> None:
    plan = Plan(promises=(LATER,))
    assert judged(plan, question(3), question(4)) == {"excused": 1}
    assert judged(plan, question(5), question(4)) == {"broken": 1}
    assert judged(plan, question(shut=True), question()) == {"excused": 1}
    assert judged(plan, question(), None) == {"excused": 1}


def test_a_trouble_excuses_for_a_while_only() -> None:
    registry = CollectorRegistry()
    promises = Promises(registry)

    def moved(after: int, *, ahead: int = NOW, **more: Any) -> None:
        memory = Memory(promises=(PROMISED,))
        situation = Situation(after + ahead, (), (), (), {}, memory)
        promises.judge(Plan(promises=(LATER,)), question(**more), situation, question(), after)

    def broken() -> float | None:
        return registry.get_sample_value("hcs_cpn_promises_broken_total")

    moved(0, shut=True)
    moved(SETTLES)
    assert broken() == 0
    moved(SETTLES + 1)
    assert broken() == 1
    moved(SETTLES + 2, ahead=NOW - 3600 * SECOND)
    moved(2 * SETTLES, ahead=NOW - 3600 * SECOND)
    assert broken() == 1, "somebody set the clock"
    moved(2 * SETTLES + 3, ahead=NOW - 3600 * SECOND)
    assert broken() == 2
