"""The textbook predictor to compare with: a plain Gaussian process on one-hot names and logarithms of sizes.

Matérn 5/2 with a length for each column, noise, and everything learnt by marginal likelihood, as in Rasmussen and
Williams, Gaussian Processes for Machine Learning (2006), chapters 4 and 5. It knows nothing of cards, batches or
exchanges. At most 500 rows drawn by the seed, and every probe, because its cost grows with the cube of the rows.
"""

import warnings

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel

from hcs.predict.runtime import Forecast
from hcs.predict.table import Floats, Index, Table

_ROWS = 500


def predicted(rows: Table, seconds: Floats, probes: Index, asked: Table, seed: int) -> Forecast:
    """Forecast of the asked rows; ``probes`` are the places of rows that are always used."""
    chosen = np.union1d(np.random.default_rng(seed).permutation(len(rows))[:_ROWS], probes)
    models, cards = np.unique(rows.joined(asked).model), np.unique(rows.joined(asked).card)
    known = _columns(rows.take(chosen), models, cards)
    size = known.shape[1]
    kernel = ConstantKernel(4.0) * Matern(np.full(size, 2.0), (0.05, 1e3), nu=2.5) + WhiteKernel(0.01, (1e-5, 1.0))
    process = GaussianProcessRegressor(kernel, normalize_y=True, random_state=seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # lengths at their bounds: a column that tells nothing
        process.fit(known, np.log(seconds[chosen]))
    mean, spread = process.predict(_columns(asked, models, cards), return_std=True)
    low, high = np.exp(mean - 1.645 * spread), np.exp(mean + 1.645 * spread)
    return Forecast(np.exp(mean), low, high, np.full(len(asked), "textbook"), np.zeros(len(asked), dtype=np.bool_))


def _columns(rows: Table, models: np.ndarray, cards: np.ndarray) -> Floats:
    return np.hstack(
        [
            rows.model[:, None] == models[None, :],
            rows.card[:, None] == cards[None, :],
            np.log(np.maximum(rows.batch, 1.0))[:, None],
            np.log(rows.cards)[:, None],
            np.log(rows.nodes)[:, None],
            np.log(rows.largest / rows.smallest)[:, None],
        ]
    ).astype(np.float64)
