"""Sharing a card: how much slower, and whether both fit at all."""

import numpy as np
import pytest

from hcs.predict.fits import Couples, FitsTogether
from hcs.predict.sharing import PairTraining, SlowdownPredictor, pairs

NEED = {"small": (1.0, 0.01), "big": (2.0, 0.05)}
ROOM = {"narrow": 9.0, "wide": 16.0}


def _measured() -> list[dict[str, str]]:
    rows = []
    jobs = [(model, batch) for model in NEED for batch in (16, 32, 64, 128)]
    for card, room in ROOM.items():
        for i, (a, batch_a) in enumerate(jobs):
            for b, batch_b in jobs[i:]:
                need = sum(NEED[m][0] + NEED[m][1] * n for m, n in ((a, batch_a), (b, batch_b)))
                busy = {m: (0.3 if m == "small" else 0.6) + n / 400 for m, n in ((a, batch_a), (b, batch_b))}
                crowd = max(1.0, busy[a] + busy[b])
                rate = {a: 1000 / (batch_a + 50), b: 1000 / (batch_b + 50)}
                ran = need <= room
                rows.append(
                    {
                        "set": "one",
                        "gpu": card,
                        "model_a": a,
                        "batch_a": str(batch_a),
                        "model_b": b,
                        "batch_b": str(batch_b),
                        "alone_a": str(rate[a]),
                        "alone_b": str(rate[b]),
                        "rate_a": str(rate[a] / crowd if ran else 0.0),
                        "rate_b": str(rate[b] / crowd if ran else 0.0),
                        "ran": "1" if ran else "0",
                    }
                )
    return rows


ROWS = _measured()
RAN = np.array([row["ran"] == "1" for row in ROWS])


def _couples(rows: list[dict[str, str]]) -> Couples:
    def column(name: str) -> np.ndarray:
        return np.array([row[name] for row in rows])

    return Couples(
        column("model_a"),
        column("batch_a").astype(float),
        column("model_b"),
        column("batch_b").astype(float),
        column("gpu"),
    )


@pytest.mark.parametrize("kind", ["forest", "boosted"])
def test_kept_back_pairs_are_predicted_within_one(kind: str) -> None:
    train = [row for index, row in enumerate(ROWS) if index % 5]
    test = [row for index, row in enumerate(ROWS) if index % 5 == 0]
    forecast = SlowdownPredictor(PairTraining(*pairs(train), kind=kind)).predict(pairs(test)[0])  # type: ignore[arg-type]
    truth = pairs(test)[1]
    ran = np.isfinite(truth)
    assert np.mean(np.abs(forecast.rate[ran] / truth[ran] - 1)) < 0.12
    assert (forecast.low <= forecast.rate).all()
    assert (forecast.rate <= forecast.high).all()
    assert (forecast.high <= 1.0).all()
    assert (forecast.low > 0).all()


def test_a_rate_alone_that_is_missing_is_no_rate() -> None:
    sides, rates = pairs([{**ROWS[0], "alone_a": ""}])
    assert np.isnan(rates[0])
    assert np.isfinite(rates[1])
    assert np.isnan(sides.alone[0])


def test_too_few_pairs_are_refused() -> None:
    with pytest.raises(ValueError, match="at least"):
        SlowdownPredictor(PairTraining(*pairs(ROWS[:2])))


def test_no_pair_that_failed_is_admitted_and_most_others_are() -> None:
    fold = np.random.default_rng(0).permutation(len(ROWS)) % 5
    couples = _couples(ROWS)
    admitted = np.zeros(len(ROWS), dtype=bool)
    for held in range(5):
        test = fold == held
        admitted[test] = FitsTogether(couples.take(~test), RAN[~test]).admits(couples.take(test))
    assert not (admitted & ~RAN).any()
    assert admitted[RAN].mean() > 0.5


def _growing(model: str) -> list[dict[str, str]]:
    return [{**ROWS[0], "model_b": model, "batch_b": str(n)} for n in (16, 64, 128, 512)]


def test_a_larger_batch_fits_worse() -> None:
    fits = FitsTogether(_couples(ROWS), RAN)
    assert (np.diff(fits.scores(_couples(_growing("big")))) > 0).all()


def test_a_larger_batch_never_fits_better_whatever_failed_by_chance() -> None:
    couples = _couples(ROWS)
    # Some runs of the smallest batch die of something else: left to itself, a fit would call large batches safer.
    unlucky = ((couples.model_a == "small") & (couples.batch_a == 16)) | (
        (couples.model_b == "small") & (couples.batch_b == 16)
    )
    fits = FitsTogether(couples, RAN & ~unlucky)
    assert (np.diff(fits.scores(_couples(_growing("small")))) >= 0).all()


def test_a_model_never_seen_shares_nothing() -> None:
    fits = FitsTogether(_couples(ROWS), RAN)
    assert not fits.admits(_couples([{**ROWS[0], "model_a": "new"}])).any()
