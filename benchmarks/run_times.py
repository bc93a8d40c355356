"""Run times of a trace's jobs as our predictor gives them, for the planning benchmark: never a look at the true ones.

A job's time is that of one step of its model, batch and cards, times its steps. Cards sit together, as the traces
assume. Only the columns ``model``, ``batch_size``, ``gpus`` and ``steps`` are read.
"""

import csv
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from hcs.predict.measurements import MeasurementError, measured
from hcs.predict.runs import LONGEST
from hcs.predict.runtime import RunTimePredictor, Training
from hcs.predict.table import table
from hcs.wide.jobs import RunTime

_COLUMNS = ("model", "batch_size", "gpus", "steps")


def run_times(
    train: Path, rows: Sequence[dict[str, str]], kinds: Sequence[str], *, seed: int = 0
) -> list[dict[str, RunTime]]:
    """For each row its run time on each kind, learnt from a table of measured rates or step times.

    Raises:
        ValueError: the training file or a row cannot be read, with the reason.
        OSError: the training file cannot be opened.
    """
    missing = set(_COLUMNS) - set(rows[0] if rows else _COLUMNS)
    if missing:
        raise ValueError(
            f"the trace lacks the columns {', '.join(sorted(missing))}, which run times are predicted from"
        )
    try:
        with train.open(newline="", encoding="utf-8") as lines:
            learnt = measured(list(csv.DictReader(lines)))
    except (MeasurementError, UnicodeDecodeError, csv.Error) as error:
        raise ValueError(f"{train}: {error}") from error
    predictor = RunTimePredictor(Training(learnt.rows, learnt.seconds, learnt.exchange, seed))
    asked = [(row, kind) for row in rows for kind in kinds]
    found = predictor.predict(
        table(
            [row["model"] for row, _ in asked],
            [kind for _, kind in asked],
            [float(row["batch_size"] or 0) for row, _ in asked],
            [[int(row["gpus"])] for row, _ in asked],
        )
    )
    steps = np.array([float(row["steps"]) for row, _ in asked])
    expected, upper = (np.clip(1000 * steps * ends, 1, 1000 * LONGEST) for ends in (found.seconds, found.high))
    times = iter(
        RunTime(round(middle), max(round(middle), round(end)))
        for middle, end in zip(expected.tolist(), upper.tolist(), strict=True)
    )
    return [{kind: next(times) for kind in kinds} for _ in rows]
