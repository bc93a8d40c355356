"""A small made-up fleet whose step times follow from physics, so that what a predictor should say is known."""

import numpy as np

from hcs.predict.table import Floats, Table, table

MODELS = {
    "vision": (0.05, 0.002, 0.06),
    "speech": (0.10, 0.010, 0.10),
    "text": (0.03, 0.020, 0.25),
    "tiny": (0.02, 0.001, 0.02),
}
CARDS = {"slow": (1.6, 3.0), "middle": (1.2, 1.5), "fast": (1.0, 1.0), "fastest": (0.9, 0.6)}
BATCHES = (8, 16, 32, 64)
LAYOUTS = ((1,), (2,), (4,), (1, 1), (2, 2), (4, 4))


def world(noise: float = 0.03, seed: int = 0) -> tuple[Table, Floats]:
    """Every model on every card at every batch and layout, and its seconds per step."""
    cells = [(m, g, b, shape) for m in MODELS for g in CARDS for b in BATCHES for shape in LAYOUTS]
    rows = table(*(list(column) for column in zip(*cells, strict=True)))
    draw = np.random.default_rng(seed)
    seconds = np.array([truth(m, g, b, shape) for m, g, b, shape in cells])
    return rows, seconds * np.exp(noise * draw.standard_normal(len(cells)))


def truth(model: str, card: str, batch: int, shape: tuple[int, ...]) -> float:
    """Computation, and an exchange that grows with the cards and costs more between nodes."""
    overhead, cost, size = MODELS[model]
    host, pace = CARDS[card]
    compute = overhead * host + cost * pace * batch
    exchange = 0.0 if sum(shape) == 1 else size * (0.3 + len(shape) - 1) * np.log(sum(shape))
    return float(np.sqrt(compute**2 + exchange**2))


def error(predicted: Floats, actual: Floats) -> float:
    """Mean absolute relative error."""
    return float(np.mean(np.abs(predicted / actual - 1)))
