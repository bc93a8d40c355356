"""How far predictions are from what was measured: run times alone, in new layouts, of new models; slowdown in pairs.

Errors are of run time (of 1/rate where a file gives rates) and, for pairs, of the normalised rates. With ``--probes K``
the first K smallest single-card rows of the test file are given to the training for each model unseen there and for
each unseen pairing of a known model; they are not scored. ``--probe-each pairing`` gives K for every unseen pairing of
an unseen model too. ``sync_s`` of scored rows is never read. Prints one JSON line.

    python -m benchmarks.predictor --set sia --train step_times_train.csv --test step_times_test.csv --json
"""

import argparse
import csv
import json
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from hcs.predict.measurements import measured, shape_of
from hcs.predict.novelty import probes
from hcs.predict.runtime import RunTimePredictor, Training, best_share
from hcs.predict.sharing import PairTraining, SlowdownPredictor, pairs
from hcs.predict.table import Floats, Index, Mask, Names, Table
from hcs.predict.trees import DEFAULT, KINDS, Trees

Row = Mapping[str, str]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark; 0 on success, 2 for a file that cannot be read."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--set", choices=("gavel", "sia", "pairs"), required=True)
    parser.add_argument("--train", type=Path, required=True)
    parser.add_argument("--test", type=Path, required=True)
    parser.add_argument("--probes", type=int, default=0)
    parser.add_argument("--probe-each", choices=("model", "pairing"), default="model")
    parser.add_argument("--trees", choices=KINDS, default=DEFAULT)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--limit", type=int, default=3200, help="rows the process is conditioned on at most")
    parser.add_argument("--json", action="store_true", help="accepted for symmetry; the output is always JSON")
    options = parser.parse_args(arguments)
    if options.probes < 0:
        parser.error("--probes counts probe runs: 0 or more")
    started = time.perf_counter()
    try:
        train, test = _rows(options.train), _rows(options.test)
        score = _pairs if options.set == "pairs" else _times
        result = score(train, test, options)
    except (OSError, KeyError, ValueError) as error:
        detail = f"column {error} is missing" if isinstance(error, KeyError) else str(error)
        print(f"cannot score {options.test} with {options.train}: {detail}", file=sys.stderr)
        return 2
    print(json.dumps({**result, "seed": options.seed, "seconds": round(time.perf_counter() - started, 1)}))
    return 0


def summary(predicted: Floats, low: Floats, high: Floats, truth: Floats, group: Names) -> dict[str, object]:
    """The figures of all rows and of each group."""
    return {
        **_figures(predicted, low, high, truth),
        "by_group": {
            str(name): _figures(*(column[group == name] for column in (predicted, low, high, truth)))
            for name in np.unique(group)
        },
    }


def given(train: Table, test: Table, count: int, each: str) -> Index:
    """Positions in ``test`` of the rows given as probe runs."""
    every = np.arange(len(test), dtype=np.intp)
    chosen: list[Index] = []
    new_models = ~np.isin(test.model, train.model)
    if each == "model":
        chosen += [probes(test, every[test.model == name], count) for name in np.unique(test.model[new_models])]
    rest = ~np.isin(test.pairing, train.pairing) & (~new_models | (each == "pairing"))
    chosen += [probes(test, every[test.pairing == name], count) for name in np.unique(test.pairing[rest])]
    return np.concatenate([np.zeros(0, dtype=np.intp), *chosen])


def _times(train: list[Row], test: list[Row], options: argparse.Namespace) -> dict[str, object]:
    expected = {"gavel": "rates", "sia": "steps"}[options.set]
    for name, lines in (("--train", train), ("--test", test)):
        if (shape := shape_of(list(lines[0]))) != expected:
            raise ValueError(f"--set {options.set} scores {expected}, and {name} holds {shape}")
    learnt, scoring = measured(train), measured(test)
    rows, known, exchange = learnt.rows, learnt.seconds, learnt.exchange
    asked, truth = scoring.rows, scoring.seconds
    positions = given(rows, asked, options.probes, options.probe_each)
    if len(positions):
        rows, known = rows.joined(asked.take(positions)), np.concatenate([known, truth[positions]])
        if exchange is not None and scoring.exchange is not None:
            exchange = np.concatenate([exchange, scoring.exchange[positions]])
    scored: Mask = np.ones(len(asked), dtype=np.bool_)
    scored[positions] = False
    scored &= np.isfinite(truth) & (truth > 0)
    if not scored.any():
        raise ValueError("no row of the test file is left to score; it needs rows with a positive time or rate")
    training = Training(rows, known, exchange, options.seed, options.trees, options.limit, compare=True)
    predictor = RunTimePredictor(training)
    forecast = predictor.predict(asked.take(scored))
    group = np.array([row.get("split") or "all" for row in test])[scored]
    answer = summary(forecast.seconds, forecast.low, forecast.high, truth[scored], group)
    levels, counts = np.unique(forecast.novelty, return_counts=True)
    return {
        **answer,
        "rows": int(scored.sum()),
        "probes": len(positions),
        "fallback": int(forecast.fallback.sum()),
        "trees": _compared(predictor, asked.take(scored), truth[scored], options),
        "novelty": {str(name): int(count) for name, count in zip(levels, counts, strict=True)},
    }


def _compared(
    predictor: RunTimePredictor, asked: Table, truth: Floats, options: argparse.Namespace
) -> dict[str, object]:
    """Both kinds of trees: alone, on logarithms of time; and beside the process, by cross-validation.

    Which is the default was settled by the second, and ``share`` is how much say it found best.
    """
    rows, seconds = predictor.measured, predictor.training.seconds
    good = np.isfinite(seconds) & (seconds > 0) & np.isfinite(predictor.training.rows.batch)
    found: dict[str, object] = {"used": options.trees, "default": DEFAULT}
    for kind in KINDS:
        trees = Trees(kind, options.seed)
        trees.fit(rows, np.log(seconds[good]))
        alone = np.exp(trees.predict(asked))
        losses = predictor.tree_losses[kind]
        found[kind] = {
            "alone_mape_pct": round(100 * float(np.mean(np.abs(alone / truth - 1))), 2),
            "cross_validated_pct": round(100 * min(losses), 2),
            "without_trees_pct": round(100 * losses[0], 2),
            "share": best_share(losses),
        }
    return found


def _pairs(train: list[Row], test: list[Row], options: argparse.Namespace) -> dict[str, object]:
    rows, rates = pairs(train)
    asked, truth = pairs(test)
    group = np.array([row.get("split") or "all" for row in test]).repeat(2)
    scored = np.isfinite(truth) & (truth > 0)
    if not scored.any():
        raise ValueError("no side of a pair that ran has a rate alone; nothing to score")
    compared: dict[str, object] = {"used": options.trees, "default": DEFAULT}
    for kind in KINDS:
        tried = SlowdownPredictor(PairTraining(rows, rates, options.seed, kind))
        found = tried.predict(asked)
        columns = [column[scored] for column in (found.rate, found.low, found.high, truth, group)]
        if kind == options.trees:
            answer = summary(*columns)
        compared[kind] = {
            "mape_pct": round(100 * float(np.mean(np.abs(columns[0] / columns[3] - 1))), 2),
            "cross_validated_pct": round(100 * tried.cross_validated_error, 2),
        }
    return {**answer, "rows": int(scored.sum()), "trees": compared}


def _figures(predicted: Floats, low: Floats, high: Floats, truth: Floats) -> dict[str, float | int]:
    error = np.abs(predicted / truth - 1)
    # Ends of an interval pass through logarithms, and rates are clipped at 1: equal means inside.
    covered = (low <= truth * (1 + 1e-9)) & (truth <= high * (1 + 1e-9))
    return {
        "mape_pct": round(100 * float(error.mean()), 2),
        "median_ape_pct": round(100 * float(np.median(error)), 2),
        "coverage_90_pct": round(100 * float(covered.mean()), 1),
        "rows": len(truth),
    }


def _rows(path: Path) -> list[Row]:
    with path.open(newline="") as lines:
        rows: list[Row] = list(csv.DictReader(lines))
    if not rows:
        raise ValueError(f"{path} has no rows")
    return rows


if __name__ == "__main__":
    raise SystemExit(main())
