"""What the controller asks, as stories: an empty history, a first run, nonsense, and learning round by round."""

import math

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.predict.worlds import CARDS, MODELS, truth

from hcs.model.quantities import GIB
from hcs.predict.jobs import Forecast, JobPredictor, ModelFileError, Run, Settings, Work
from hcs.predict.runs import Outcome


def run(model: str = "vision", kind: str = "fast", **more: object) -> Run:
    first: dict[str, object] = {
        "batch": 8.0,
        "cards": 1,
        "steps": 1000.0,
        "seconds": 60.0,
        "peak_memory": 4 * GIB,
        "outcome": "succeeded",
    }
    return Run(model, kind, **{**first, **more})  # type: ignore[arg-type]


def work(model: str = "vision", **more: object) -> Work:
    return Work("j", model, **{"batch": 8.0, "cards": 1, "steps": 1000.0, **more})  # type: ignore[arg-type]


def one(predictor: JobPredictor, job: Work, kind: str = "fast") -> Forecast:
    return predictor.forecast([job], [kind])[0][kind]


def test_nothing_is_known_and_it_says_so() -> None:
    forecast = one(JobPredictor.fitted([]), work())
    assert forecast.fallback
    assert forecast.probe_wanted
    assert forecast.memory is None
    assert forecast.level == "nothing"
    assert forecast.upper_ms > 1000 * forecast.lower_ms


def test_one_run_is_enough_for_the_same_job_and_a_start_for_others() -> None:
    predictor = JobPredictor.fitted([run()])
    same, longer, elsewhere, unknown = (
        one(predictor, work()),
        one(predictor, work(steps=10_000.0)),
        one(predictor, work(), "other"),
        one(predictor, work("speech")),
    )
    assert same.expected_ms == 60_000
    assert not same.probe_wanted
    assert same.memory is not None
    assert 8 * same.expected_ms < longer.expected_ms < 11 * same.expected_ms
    widths = [math.log(each.upper_ms / each.lower_ms) for each in (same, longer, elsewhere, unknown)]
    assert widths == sorted(widths)
    assert unknown.probe_wanted
    assert unknown.memory is None


def test_a_job_that_ran_is_told_by_its_own_runs_however_odd_they_are() -> None:
    others = [run(batch=batch, seconds=2.0 * batch) for batch in (4.0, 16.0, 32.0, 64.0)]
    odd = [run(seconds=seconds) for seconds in (290.0, 300.0, 3000.0)]
    told = one(JobPredictor.fitted([*others, *odd]), work())
    assert told.expected_ms == 300_000
    assert told.level == "same"


def _round(queue: list[tuple[str, str, float, float]], start: float = 0.2) -> list[Run]:
    """Short processes: start-up, then steps of the world's pace, with a little jitter."""
    draw = np.random.default_rng(1)
    return [
        run(
            model,
            kind,
            batch=batch,
            steps=steps,
            seconds=(start + steps * truth(model, kind, batch, (1,)) / 100) * float(np.exp(0.02 * draw.normal())),
        )
        for model, kind, batch, steps in queue
    ]


def test_the_second_round_of_short_processes_is_predicted_better() -> None:
    draw = np.random.default_rng(2)

    def batch_of_jobs(count: int) -> list[tuple[str, str, float, float]]:
        names, kinds = sorted(MODELS), sorted(CARDS)
        return [
            (
                names[i % len(names)],
                kinds[int(draw.integers(len(kinds)))],
                float(2 ** draw.integers(3, 7)),
                float(draw.integers(20, 400)),
            )
            for i in range(count)
        ]

    def error(predictor: JobPredictor, runs: list[Run]) -> float:
        misses = [
            abs(one(predictor, Work("j", r.model, r.batch, 1, r.steps), r.kind).expected_ms / r.seconds / 1000 - 1)
            for r in runs
        ]
        return float(np.mean(misses))

    first, second = _round(batch_of_jobs(20)), _round(batch_of_jobs(20))
    learned = JobPredictor.fitted(first)
    assert error(learned, second) < 0.35
    assert error(learned.learned(second[:10]), second[10:]) < 0.2


def test_start_up_is_told_from_steps() -> None:
    runs = [run(steps=steps, seconds=0.3 + 0.001 * steps) for steps in (10.0, 30.0, 100.0, 300.0, 1000.0)]
    predictor = JobPredictor.fitted(runs)
    assert one(predictor, work(steps=20.0)).expected_ms == pytest.approx(320, rel=0.1)
    assert one(predictor, work(steps=3000.0)).expected_ms == pytest.approx(3300, rel=0.15)


def test_an_amount_that_nobody_stated_widens_the_interval() -> None:
    predictor = JobPredictor.fitted([run(steps=s, seconds=s / 10) for s in (500.0, 1000.0, 2000.0)])
    stated, open_ = one(predictor, work(steps=900.0)), one(predictor, work(steps=None))
    assert open_.expected_ms == pytest.approx(100_000, rel=0.3)
    assert open_.upper_ms / open_.lower_ms > 3 * stated.upper_ms / stated.lower_ms
    without = JobPredictor.fitted([run(steps=None, batch=None, seconds=90.0), run("speech", steps=None, seconds=400.0)])
    assert one(without, work("speech", steps=None)).expected_ms == 400_000
    assert one(without, work("speech", steps=None, batch=16.0)).expected_ms == pytest.approx(400_000, rel=0.8)


@pytest.mark.parametrize(
    "job",
    [
        pytest.param(work(steps=-5.0), id="steps-below-0"),
        pytest.param(work(steps=float("nan")), id="steps-not-a-number"),
        pytest.param(work(steps=1e300), id="steps-beyond-count"),
        pytest.param(work(batch=1e300), id="batch-beyond-count"),
        pytest.param(work(batch=-1.0), id="batch-below-0"),
        pytest.param(work(cards=0), id="no-card"),
        pytest.param(work(nodes=3), id="more-nodes-than-cards"),
    ],
)
def test_absurd_questions_fall_back(job: Work) -> None:
    forecast = one(JobPredictor.fitted([run(), run(steps=500.0, seconds=31.0)]), job)
    assert forecast.fallback
    assert forecast.upper_ms > 1000 * forecast.lower_ms


def test_running_out_of_the_card_raises_what_is_asked_for_and_only_that() -> None:
    known = JobPredictor.fitted([run()])
    before = known.memory(work())
    assert before is not None
    told = known.learned([run(outcome="accelerator-oom", peak_memory=9 * GIB, seconds=3.0)])
    untold = known.learned([run(outcome="accelerator-oom", peak_memory=None, seconds=3.0)])
    on_host = known.learned([run(outcome="host-oom", peak_memory=None, seconds=3.0)])
    assert (told.memory(work()) or 0) > 9 * GIB
    assert untold.memory(work()) == round(1.5 * before)
    assert on_host.memory(work()) == before
    assert one(told, work()).expected_ms == one(known, work()).expected_ms
    never = JobPredictor.fitted([run(outcome="accelerator-oom", peak_memory=9 * GIB)])
    assert (never.memory(work()) or 0) > 9 * GIB
    assert one(never, work()).probe_wanted


@pytest.mark.parametrize("outcome", ["failed", "host-oom"])
def test_a_run_that_broke_off_early_does_not_say_that_little_memory_is_enough(outcome: Outcome) -> None:
    """It held that much when something else went wrong; with a share of a card it would next run out of that."""
    broke = run(outcome=outcome, peak_memory=GIB // 4, seconds=2.0)
    assert JobPredictor.fitted([broke]).memory(work()) is None
    known = JobPredictor.fitted([run()])
    assert known.learned([broke]).memory(work()) == known.memory(work())


def test_what_was_seen_to_be_needed_is_told_from_what_is_only_guessed() -> None:
    guessed = one(JobPredictor.fitted([run(batch=1.0)]), work(batch=512.0))
    assert guessed.memory is not None
    assert guessed.memory > 1000 * GIB
    assert guessed.needed == 4 * GIB
    ran_out = JobPredictor.fitted([run(), run(outcome="accelerator-oom", peak_memory=79 * GIB, batch=64.0)])
    assert one(ran_out, work(batch=64.0)).needed == 79 * GIB + 1
    assert one(ran_out, work(batch=32.0)).needed == 4 * GIB
    assert one(JobPredictor.fitted([]), work()).needed == 0


def test_two_jobs_share_a_card_only_when_both_are_known_to_fit() -> None:
    predictor = JobPredictor.fitted([run(), run("speech", peak_memory=6 * GIB)])
    vision, speech = work(), work("speech")
    asks = (predictor.memory(vision) or 0) + (predictor.memory(speech) or 0)
    assert predictor.fits(vision, speech, "fast", asks)
    assert not predictor.fits(vision, speech, "fast", asks - 1)
    assert not predictor.fits(vision, work("text"), "fast", 1000 * GIB)
    assert not predictor.fits(vision, work("speech", cards=2), "fast", asks)
    failed = predictor.learned([run(outcome="accelerator-oom", shared_with="speech", batch=4.0, peak_memory=GIB)])
    assert not failed.fits(vision, speech, "fast", 1000 * GIB)
    assert not failed.fits(speech, vision, "fast", 1000 * GIB)
    assert failed.fits(vision, speech, "slow", 1000 * GIB)


def test_what_sharing_costs_is_learnt_from_runs_that_shared() -> None:
    alone = [run(seconds=60.0), run(seconds=61.0), run("speech", seconds=30.0)]
    slow = [run(seconds=200.0, shared_with="speech")] * 3
    before, after = JobPredictor.fitted(alone), JobPredictor.fitted(alone + slow)
    assert after.slowdown("vision", "speech").rate < before.slowdown("vision", "speech").rate
    assert after.slowdown("vision", "speech").rate == pytest.approx(0.3, abs=0.1)
    for rate in (before.slowdown(work(), work("new")), after.slowdown("vision", "speech")):
        assert 0 < rate.low <= rate.rate <= rate.high <= 1
    assert one(after, work()).expected_ms == one(before, work()).expected_ms


SANE_NUMBERS = st.one_of(st.none(), st.floats(1e-3, 1e6))
ANY_NUMBERS = st.one_of(st.none(), st.floats(allow_nan=True, allow_infinity=True))
NAMES = st.sampled_from(["vision", "speech", "text", ""])
RUNS = st.builds(
    Run,
    model=NAMES,
    kind=st.sampled_from(["fast", "slow"]),
    batch=ANY_NUMBERS,
    cards=st.integers(-1, 1 << 40),
    steps=ANY_NUMBERS,
    seconds=st.floats(allow_nan=True, allow_infinity=True),
    peak_memory=st.one_of(st.none(), st.integers(-1, 1 << 62)),
    outcome=st.sampled_from(["succeeded", "accelerator-oom", "host-oom", "failed"]),
    probe=st.booleans(),
    shared_with=st.one_of(st.none(), NAMES),
    nodes=st.integers(-1, 4),
)
USUAL_RUNS = st.builds(
    Run,
    model=NAMES,
    kind=st.sampled_from(["fast", "slow"]),
    batch=st.sampled_from([None, 8.0, 64.0]),
    cards=st.sampled_from([1, 4]),
    steps=st.sampled_from([None, 10.0, 1e5]),
    seconds=st.floats(0.01, 1e6),
    peak_memory=st.one_of(st.none(), st.integers(1, 1 << 40)),
    outcome=st.sampled_from(["succeeded", "accelerator-oom"]),
    shared_with=st.sampled_from([None, "text"]),
)
ASKED = st.builds(
    Work, id=st.just("j"), model=NAMES, batch=ANY_NUMBERS, cards=st.integers(-1, 1 << 40), steps=ANY_NUMBERS
)


@settings(deadline=None)
@given(st.lists(st.one_of(RUNS, USUAL_RUNS), max_size=6), st.lists(ASKED, min_size=1, max_size=3))
def test_every_answer_is_ordered_positive_and_bounded(history: list[Run], queue: list[Work]) -> None:
    predictor = JobPredictor.fitted(history)
    for forecasts in predictor.forecast(queue, ["fast", "never seen"]):
        for forecast in forecasts.values():
            assert 1 <= forecast.lower_ms <= forecast.expected_ms <= forecast.upper_ms <= 1e15
            assert forecast.memory is None or forecast.memory > 0
    absurd = [job for job in queue if job.cards < 1 or (job.steps is not None and not job.steps > 0)]
    for job in absurd:
        assert one(predictor, job).fallback


@settings(deadline=None)
@given(st.lists(USUAL_RUNS, max_size=6))
def test_equal_histories_answer_alike_also_through_a_file(history: list[Run]) -> None:
    queue = [work(), work("text", batch=None), work("speech", steps=None, cards=4)]
    answers = [
        predictor.forecast(queue, ["fast", "slow"])
        for predictor in (
            JobPredictor.fitted(history),
            JobPredictor.fitted(list(reversed(history))),
            JobPredictor.decode(JobPredictor.fitted(history).encode()),
        )
    ]
    assert answers[0] == answers[1] == answers[2]


@settings(deadline=None)
@given(st.lists(USUAL_RUNS, max_size=6), USUAL_RUNS)
def test_a_run_never_moves_its_own_job_away_from_what_was_seen(history: list[Run], new: Run) -> None:
    new = msgspec.structs.replace(new, outcome="succeeded", shared_with=None)
    job = Work("j", new.model, new.batch, new.cards, new.steps)
    before = one(JobPredictor.fitted(history), job, new.kind)
    after = one(JobPredictor.fitted([*history, new]), job, new.kind)
    seen = 1000 * new.seconds
    rounding = 1 + 1 / min(after.expected_ms, seen)
    assert abs(math.log(after.expected_ms / seen)) <= abs(math.log(before.expected_ms / seen)) + math.log(rounding) * 2


def _resealed(**changes: object) -> bytes:
    from hcs.predict.sealed import sealed

    content = msgspec.json.decode(JobPredictor.fitted([run()]).encode().split(b"\n")[1])
    return sealed("hcs-job-predictor", 1, msgspec.json.encode({**content, **changes}))


def _raw(content: bytes) -> bytes:
    from hcs.predict.sealed import sealed

    return sealed("hcs-job-predictor", 1, content)


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        pytest.param(b"", "no predictor's file", id="empty"),
        pytest.param(JobPredictor.fitted([run()]).encode()[:-20], "checksum", id="cut"),
        pytest.param(b'{"x":' + b"[" * 100_000, "no predictor's file", id="deep-header"),
        pytest.param(b'{"format":"\xff"}', "no predictor's file", id="no-text"),
        pytest.param(b'{"format":"hcs-job-predictor","version":7,"sha256":""}', "a later version", id="newer"),
        pytest.param(b'{"format":"hcs-predictor","version":1,"sha256":""}', "hcs-predictor version 1", id="another"),
        pytest.param(_raw(b'{"runs":' + b"[" * 100_000), "cannot be read", id="deep"),
        pytest.param(_raw(b'{"runs":[{"model":"\xff"}]}'), "cannot be read", id="no-text-inside"),
        pytest.param(_resealed(runs=[{"model": 3}]), "cannot be read", id="types"),
        pytest.param(_resealed(seed=-1), "seed -1", id="seed"),
        pytest.param(_resealed(settings={"trees": "forest", "limit": 0}), "out of range", id="limit"),
        pytest.param(_resealed(settings={"trees": "oak"}), "cannot be read", id="trees"),
    ],
)
def test_a_file_that_is_not_ours_is_refused(data: bytes, sentence: str) -> None:
    with pytest.raises(ModelFileError, match=sentence):
        JobPredictor.decode(data)


def test_a_file_keeps_runs_that_make_no_sense_without_choking_on_them() -> None:
    odd = [run(), run(seconds=float("nan")), run(batch=float("inf"), steps=float("-inf"))]
    predictor = JobPredictor.fitted(odd, settings=Settings(trees="forest"))
    assert JobPredictor.decode(predictor.encode()).forecast([work()], ["fast"]) == predictor.forecast(
        [work()], ["fast"]
    )
