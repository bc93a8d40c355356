"""The process's closed forms against doing it the long way."""

import numpy as np
import pytest
from tests.predict.worlds import world

from hcs.predict.process import Process, Settings, _Likelihood, covariance, noise

ROWS, SECONDS = world()
SOME = np.arange(0, len(ROWS), 4)
PART, TARGET = ROWS.take(SOME), np.log(SECONDS[SOME])


def test_leaving_a_block_out_equals_conditioning_on_the_rest() -> None:
    process = Process(PART, TARGET, Settings.first())
    block = np.flatnonzero(PART.layout == PART.layout[3])
    rest = np.setdiff1d(np.arange(len(PART)), block)
    [(error, spread)] = process.left_out([block])
    value, jacobian = process.formula.design(PART).at(process.coefficients)
    scaled = jacobian * process.spreads
    total = covariance(PART, PART, process.settings) + np.diag(noise(PART, process.settings)) + scaled @ scaled.T
    wanted = TARGET - process.level - value + jacobian @ process.coefficients
    gain = np.linalg.solve(total[np.ix_(rest, rest)], total[np.ix_(rest, block)]).T
    np.testing.assert_allclose(error, wanted[block] - gain @ wanted[rest], atol=1e-8)
    left = total[np.ix_(block, block)] - gain @ total[np.ix_(rest, block)]
    np.testing.assert_allclose(spread, np.sqrt(np.diag(left)), rtol=1e-6)


def test_a_prediction_is_that_same_conditioning() -> None:
    block = np.flatnonzero(PART.layout == PART.layout[3])
    rest = np.setdiff1d(np.arange(len(PART)), block)
    whole = Process(PART, TARGET, Settings.first())
    [(_, spread)] = whole.left_out([block])
    at = whole.coefficients.copy()
    at[0] += whole.level - np.median(TARGET[rest])  # levels count from the median of the rows
    part = Process(PART.take(rest), TARGET[rest], Settings.first(), passes=0, at=at)
    np.testing.assert_allclose(part.predict(PART.take(block))[1], spread, rtol=1e-6)


def test_the_slope_of_the_likelihood_is_its_slope() -> None:
    few = np.arange(0, len(PART), 2)
    likelihood = _Likelihood(PART.take(few), TARGET[few], Settings.first())
    at = Settings.first().flat() + 0.1
    _, slope = likelihood(at)
    for index in range(len(at)):
        step = np.zeros(len(at))
        step[index] = 1e-5
        numeric = (likelihood(at + step)[0] - likelihood(at - step)[0]) / 2e-5
        assert slope[index] == pytest.approx(numeric, rel=1e-3, abs=1e-3)


def test_the_slope_of_the_formula_is_its_slope() -> None:
    process = Process(PART, TARGET, Settings.first())
    design = process.formula.design(PART)
    at = process.coefficients
    _, jacobian = design.at(at)
    for index in range(0, len(at), 5):
        step = np.zeros(len(at))
        step[index] = 1e-6
        numeric = (design.at(at + step)[0] - design.at(at - step)[0]) / 2e-6
        np.testing.assert_allclose(jacobian[:, index], numeric, atol=1e-5)
