"""The part of a run that is there however few steps it takes: starting a process, loading, connecting.

Runs of a few seconds are mostly start-up, and a time per step that ignores it is wrong by the ratio of the steps. It
is one number for the whole history, the one under which a small regression of the time per step predicts each run
best from all others; with too few runs to tell, a part of the shortest.
"""

import numpy as np

from hcs.predict.table import Floats, Names
from hcs.predict.threads import single_threaded

_FEW, _MOST = 4, 400
_SHARES = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.98)
_USUAL = 0.5  # seconds: what starting a process costs when nothing has told otherwise
_PRIOR = 1.0  # standard deviation, in logarithms, of what a name or a doubling changes


@single_threaded
def startup(names: list[Names], sizes: Floats, steps: Floats, seconds: Floats) -> float:
    """Seconds every run takes before its first step, less than the shortest run took.

    ``names`` are columns of names, ``sizes`` a table of logarithms; all have one entry per run, all steps and seconds
    are positive.
    """
    if not len(seconds):
        return 0.0
    shortest = float(seconds.min())
    usual = min(_USUAL, shortest / 2)
    if len(seconds) > _MOST:
        # The shortest tell most about what is there before the first step, the others about the steps.
        order = np.argsort(seconds, kind="stable")
        some = np.concatenate([order[: _MOST // 2], order[_MOST // 2 :: -(-2 * len(order) // _MOST)]])
        return startup([column[some] for column in names], sizes[some], steps[some], seconds[some])
    if len(seconds) < _FEW or float(np.ptp(np.log(steps))) < 0.1:
        return usual
    columns = [np.ones(len(seconds)), *sizes.T]
    columns += [(column == name).astype(np.float64) for column in names for name in np.unique(column)]
    design = np.column_stack(columns) * _PRIOR
    gain = design.T @ design + 0.01 * np.eye(design.shape[1])
    hat = design @ np.linalg.solve(gain, design.T)
    left = np.maximum(1.0 - np.diag(hat), 0.05)
    best, least = usual, np.inf
    for share in _SHARES:
        before = share * shortest
        target = np.log((seconds - before) / steps)
        centred = target - target.mean()
        guess = target - (centred - hat @ centred) / left
        error = np.log(before + steps * np.exp(np.clip(guess, -60, 60))) - np.log(seconds)
        loss = float(np.mean(np.abs(error)))
        # Among equally good ones the smallest: only a clear gain is evidence of a start-up time.
        if loss < 0.98 * least:
            best, least = before, loss
    return best
