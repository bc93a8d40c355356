"""How far predictions are from rows of a training file that are left out of it, over every split of a kind.

``model`` and ``pairing`` leave each one out in turn; ``layout`` a fifth of the layouts and ``rows`` a fifth of the rows
at a time, drawn by the seed. For development: the mean over splits says what a change is worth, the best split nothing.
``--probes`` as in ``benchmarks.predictor``; ``--method textbook`` scores a plain Gaussian process on the same splits.
Prints one JSON line.

    python -m benchmarks.predictor_splits --set sia --train step_times_train.csv --leave-out model --probes 2 --json
"""

import argparse
import csv
import json
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from benchmarks.predictor import given, summary
from benchmarks.textbook import predicted

from hcs.predict.measurements import Measured, measured
from hcs.predict.runtime import RunTimePredictor, Training
from hcs.predict.table import Mask, Table

_FEWEST = 5


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark; 0 on success, 2 for a file that cannot be read."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--set", choices=("gavel", "sia"), required=True, help="names the shape; the columns decide")
    parser.add_argument("--train", type=Path, required=True)
    parser.add_argument("--leave-out", choices=("model", "pairing", "layout", "rows"), required=True)
    parser.add_argument("--probes", type=int, default=0)
    parser.add_argument("--probe-each", choices=("model", "pairing"), default="model")
    parser.add_argument("--method", choices=("hcs", "textbook"), default="hcs")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--limit", type=int, default=1300, help="rows the process is conditioned on at most")
    parser.add_argument("--json", action="store_true", help="accepted for symmetry; the output is always JSON")
    options = parser.parse_args(arguments)
    try:
        with options.train.open(newline="") as lines:
            known = measured(list(csv.DictReader(lines)))
    except (OSError, ValueError) as error:
        print(f"cannot read {options.train}: {error}", file=sys.stderr)
        return 2
    found = {
        name: _scored(known, held, options)
        for name, held in _splits(known.rows, options.leave_out, options.seed)
        if held.sum() >= _FEWEST and not held.all()
    }
    if not found:
        print(f"cannot split {options.train} by {options.leave_out}: no part has {_FEWEST} rows", file=sys.stderr)
        return 2
    means = {
        figure: round(float(np.mean([float(str(split[figure])) for split in found.values()])), 2)
        for figure in ("mape_pct", "median_ape_pct", "coverage_90_pct")
    }
    print(
        json.dumps(
            {
                **means,
                "splits": found,
                "leave_out": options.leave_out,
                "probes": options.probes,
                "method": options.method,
            }
        )
    )
    return 0


def _splits(rows: Table, by: str, seed: int) -> list[tuple[str, Mask]]:
    if by in ("model", "pairing"):
        column = rows.model if by == "model" else rows.pairing
        return [(str(name).replace("\x1f", "/"), column == name) for name in np.unique(column)]
    draw = np.random.default_rng(seed)
    names, where = np.unique(rows.layout, return_inverse=True)
    if by == "rows":
        names, where = np.arange(len(rows)).astype(np.str_), np.arange(len(rows))
    fold = (draw.permutation(len(names)) % 5)[where]
    return [(f"fold {number}", fold == number) for number in range(5)]


def _scored(known: Measured, held: Mask, options: argparse.Namespace) -> dict[str, object]:
    rows, seconds = known.rows.take(~held), known.seconds[~held]
    exchange = None if known.exchange is None else known.exchange[~held]
    asked, truth = known.rows.take(held), known.seconds[held]
    probes = given(rows, asked, options.probes, options.probe_each)
    if len(probes):
        rows, seconds = rows.joined(asked.take(probes)), np.concatenate([seconds, truth[probes]])
        if exchange is not None and known.exchange is not None:
            exchange = np.concatenate([exchange, known.exchange[held][probes]])
    scored = np.isfinite(truth)
    scored[probes] = False
    if options.method == "textbook":
        last = np.arange(len(rows) - len(probes), len(rows), dtype=np.intp)
        told = predicted(rows, seconds, last, asked.take(scored), options.seed)
    else:
        predictor = RunTimePredictor(Training(rows, seconds, exchange, options.seed, limit=options.limit))
        told = predictor.predict(asked.take(scored))
    group = np.full(int(scored.sum()), "all")
    figures = summary(told.seconds, told.low, told.high, truth[scored], group)
    return {name: value for name, value in figures.items() if name != "by_group"}


if __name__ == "__main__":
    raise SystemExit(main())
