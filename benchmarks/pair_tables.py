"""What is true of measured pairs on one card, and what our predictor believes of each without having seen it.

Folds are made of pairs, not rows: a pair measured in two campaigns is judged without either. The predictor says whether
the two fit, and how fast each then is; the measurement says what really happens. Rates are the mean of the campaigns.
"""

import csv
from collections import defaultdict
from pathlib import Path

import numpy as np
from benchmarks.queues import profile

from hcs.predict.fits import Couples, FitsTogether
from hcs.predict.sharing import PairTraining, SlowdownPredictor, pairs
from hcs.wide.sharing import Rates, symmetric

Key = tuple[str, str, str]
Table = dict[Key, Rates]


def pair_tables(path: Path, seed: int, folds: int = 5) -> tuple[Table, Table]:
    """The truth, and what cross-validated predictions believe; a rate of zero in the truth: the pair does not run.

    Pairs whose rates alone are not given are in neither table: nobody could tell what came of them.

    Raises:
        ValueError: the file is no table of pairs.
    """
    try:
        with path.open(newline="", encoding="utf-8") as lines:
            rows = list(csv.DictReader(lines))
        ran = np.array([row["ran"] == "1" for row in rows])
        names = [
            (row["gpu"], profile(row["model_a"], row["batch_a"]), profile(row["model_b"], row["batch_b"]))
            for row in rows
        ]
        couples = Couples(
            np.array([row["model_a"] for row in rows]),
            np.array([float(row["batch_a"]) for row in rows]),
            np.array([row["model_b"] for row in rows]),
            np.array([float(row["batch_b"]) for row in rows]),
            np.array([row["gpu"] for row in rows]),
        )
        sides, rates = pairs(rows)
    except (KeyError, ValueError, IndexError) as error:
        raise ValueError(f"cannot read {path} as measured pairs: {error!r}") from error
    numbers: dict[tuple[str, frozenset[str]], int] = {}
    which = np.array([numbers.setdefault((gpu, frozenset((a, b))), len(numbers)) for gpu, a, b in names])
    if len(numbers) < 2 * folds:
        raise ValueError(f"{path} has {len(numbers)} pairs; at least {2 * folds} are needed to judge each unseen")
    fold = (np.random.default_rng(seed).permutation(len(numbers)) % folds)[which]
    admitted, believed = np.zeros(len(rows), dtype=np.bool_), np.zeros(2 * len(rows))
    for held in range(folds):
        test = fold == held
        both = test.repeat(2)
        admitted[test] = FitsTogether(couples.take(~test), ran[~test], seed=seed).admits(couples.take(test))
        slowdown = SlowdownPredictor(PairTraining(sides.take(~both), rates[~both], seed))
        believed[both] = slowdown.predict(sides.take(both)).rate
    measured: dict[Key, list[tuple[float, float]]] = defaultdict(list)
    guessed: dict[Key, list[tuple[float, float]]] = defaultdict(list)
    refused, failed = set[Key](), set[Key]()
    for row, name in enumerate(names):
        if not ran[row]:
            failed.add(name)
        elif np.isfinite(rates[2 * row : 2 * row + 2]).all():
            measured[name].append((rates[2 * row], rates[2 * row + 1]))
        guessed[name].append((believed[2 * row], believed[2 * row + 1]))
        if not admitted[row]:
            refused.add(name)
    truth = {name: _mean(found) for name, found in measured.items()} | dict.fromkeys(failed, Rates(0, 0))
    belief = {name: _mean(guessed[name]) for name in truth if name not in refused}
    return symmetric(truth), symmetric(belief)


def _mean(found: list[tuple[float, float]]) -> Rates:
    first, second = np.mean(found, axis=0)
    return Rates(min(1000, max(1, round(1000 * first))), min(1000, max(1, round(1000 * second))))
