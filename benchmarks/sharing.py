"""Which measured pairs would be admitted to one card: by cross-validation, each pair judged without having been seen.

``failed_admitted`` must be 0; ``good_admitted_pct`` is what safety leaves. The limit of each fold is settled inside its
training part only. ``forest`` is a plain random forest's share at the best limit that hindsight allows. One JSON line.

    python -m benchmarks.sharing --pairs pairs_train.csv [--folds 5] [--seed 0] --json
"""

import argparse
import csv
import json
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from sklearn.ensemble import RandomForestClassifier

from hcs.predict.fits import Couples, FitsTogether


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark; 0 on success, 2 for a file that cannot be read."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=Path, required=True)
    parser.add_argument("--folds", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true", help="accepted for symmetry; the output is always JSON")
    options = parser.parse_args(arguments)
    try:
        with options.pairs.open(newline="") as lines:
            rows = list(csv.DictReader(lines))
        couples = Couples(
            *(
                np.array([kind(row[name]) for row in rows])
                for name, kind in (
                    ("model_a", str),
                    ("batch_a", float),
                    ("model_b", str),
                    ("batch_b", float),
                    ("gpu", str),
                )
            )
        )
        ran = np.array([row["ran"] == "1" for row in rows])
    except (OSError, KeyError, ValueError) as error:
        print(f"cannot read {options.pairs} as measured pairs: {error!r}", file=sys.stderr)
        return 2
    fold = np.random.default_rng(options.seed).permutation(len(rows)) % options.folds
    admitted, risk = np.zeros(len(rows), dtype=np.bool_), np.zeros(len(rows))
    names = np.unique([*couples.model_a, *couples.model_b])
    plain = np.column_stack(
        [couples.model_a == name for name in names]
        + [couples.model_b == name for name in names]
        + [couples.batch_a, couples.batch_b]
        + [couples.card == name for name in np.unique(couples.card)]
    ).astype(np.float64)
    for held in range(options.folds):
        test = fold == held
        fits = FitsTogether(couples.take(~test), ran[~test], seed=options.seed)
        admitted[test] = fits.admits(couples.take(test))
        forest = RandomForestClassifier(200, random_state=options.seed, n_jobs=1).fit(plain[~test], ~ran[~test])
        risk[test] = forest.predict_proba(plain[test])[:, 1]
    result = {
        "pairs": len(rows),
        "failed": int((~ran).sum()),
        "failed_admitted": int((admitted & ~ran).sum()),
        "good_admitted_pct": round(100 * float(admitted[ran].mean()), 1),
        "forest_good_admitted_pct": round(100 * float((risk[ran] < risk[~ran].min()).mean()), 1),
        "folds": options.folds,
        "seed": options.seed,
    }
    print(json.dumps(result))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
