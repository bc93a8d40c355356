"""What is said of models never measured: the exchange between cards is told by a run on one."""

import numpy as np
from tests.predict.worlds import world

from hcs.predict.far import Far
from hcs.predict.novelty import probes

ROWS, SECONDS = world()
# Gradients to exchange: as long as the step itself for one model, next to nothing for another.
WEIGHT = {"vision": 0.1, "speech": 0.4, "text": 1.6, "tiny": 0.02}


def _measured(weight: dict[str, float]) -> tuple[np.ndarray, np.ndarray]:
    heavy = np.array([weight[str(name)] for name in ROWS.model])
    exchange = np.where(ROWS.cards > 1, heavy * np.log2(ROWS.cards) * ROWS.nodes, 0.01 * heavy)
    alone = np.where(ROWS.cards > 1, 0.05, SECONDS)
    return alone + exchange, exchange


def _asked(weight: dict[str, float], new: str, draw: int = 0) -> np.ndarray:
    """Forecast for a model of which two probes on one card are known, on several cards."""
    seconds, exchange = _measured(weight)
    held = ROWS.model == new
    held[probes(ROWS, np.flatnonzero(held), 2)] = False
    far = Far(ROWS.take(~held), seconds[~held], exchange[~held], 200, np.random.default_rng(draw))
    many = held & (ROWS.cards > 1)
    return np.asarray(far.predict(ROWS.take(many))[0] - np.log(seconds[many]))


def test_a_run_on_one_card_tells_how_heavy_the_exchange_will_be() -> None:
    for weight in (0.1, 6.0):
        error = _asked({**WEIGHT, "speech": weight}, "speech")
        assert abs(float(np.median(error))) < 0.6


def test_without_any_measured_exchange_the_whole_is_one_process() -> None:
    far = Far(ROWS, SECONDS, np.full(len(ROWS), np.nan), 100, np.random.default_rng(0))
    assert far.exchange is None
    assert np.mean(np.abs(far.predict(ROWS)[0] - np.log(SECONDS))) < 0.1


def test_one_odd_pairing_does_not_move_what_is_said_of_its_model_elsewhere() -> None:
    seconds, exchange = _measured(WEIGHT)
    odd = (ROWS.model == "text") & (ROWS.card == "fastest") & (ROWS.cards > 1)
    strange = np.where(odd, exchange / 50, exchange)  # as if the cards of that kind had another fabric for it alone
    held = (ROWS.model == "text") & (ROWS.card == "slow")
    far = Far(ROWS.take(~held), (seconds - exchange + strange)[~held], strange[~held], 200, np.random.default_rng(0))
    assert far.exchange is not None
    many = held & (ROWS.cards > 1)
    error = far.exchange.predict(ROWS.take(many))[0] - np.log(exchange[many])
    assert abs(float(np.median(error))) < 0.15
