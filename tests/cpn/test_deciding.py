"""What a forecast may decide: a guess of memory takes a whole card at most, and only what was seen keeps a job away."""

import pytest

from hcs.cpn.deciding import Situation, ask, placement_of
from hcs.cpn.views import ClusterView, PoolView
from hcs.predict.jobs import Forecast
from hcs.wide.entries import Entry, Submission
from hcs.wide.fleets import why_never
from hcs.wide.snapshot import Place

GIB = 1 << 30
NOW = 1_000_000
SMALL, LARGE = PoolView("T4", 2, memory=16 * GIB), PoolView("A100", 2, memory=80 * GIB)


def situation(guess: int | None, needed: int, *pools: PoolView, **asked: object) -> Situation:
    entry = Entry("a", {}, Submission("a", **asked), "Queued", 1, NOW, NOW, 1)  # type: ignore[arg-type]
    forecast = Forecast(1000, 2000, 500, guess, "model", False, False, needed)
    view = ClusterView("east", True, pools, seen=NOW)
    return Situation(NOW, (view,), (entry,), (), {"a": {pool.kind: forecast for pool in pools}})


@pytest.mark.parametrize(
    ("memory", "needed", "pools", "planned"),
    [
        pytest.param(8 * GIB, 0, (SMALL, LARGE), 8 * GIB, id="fits"),
        pytest.param(900 * GIB, 4 * GIB, (SMALL, LARGE), 80 * GIB, id="a-guess-takes-the-largest-card"),
        pytest.param(900 * GIB, 20 * GIB, (SMALL,), 20 * GIB, id="what-was-seen-does-not-fit"),
        pytest.param(900 * GIB, 0, (PoolView("A100", 2),), 900 * GIB, id="nobody-knows-the-card"),
        pytest.param(None, 0, (SMALL,), None, id="nobody-knows"),
    ],
)
def test_a_guess_keeps_no_job_waiting_for_a_card_that_nobody_has(
    memory: int | None, needed: int, pools: tuple[PoolView, ...], planned: int | None
) -> None:
    asked = ask(situation(memory, needed, *pools))
    job = asked.jobs["a"]
    assert job.memory == planned
    assert (why_never(job, asked.snapshot.pools) is None) == (needed <= 16 * GIB)


def test_what_the_user_said_and_what_was_too_little_is_not_made_less() -> None:
    stated = ask(situation(900 * GIB, 0, SMALL, memory=100 * GIB))
    assert stated.jobs["a"].memory == 100 * GIB


def test_the_card_is_asked_for_what_was_planned() -> None:
    now = situation(900 * GIB, 4 * GIB, SMALL, LARGE)
    asked = ask(now)
    [large] = [pool for pool in asked.snapshot.pools if pool.kind.endswith("A100")]
    place = Place("a", large.name, NOW, NOW + 2000)
    assert placement_of(now.queued[0], place, asked, now, 0).memory == 80 * GIB
