"""The process's closed forms against doing it the long way."""

import numpy as np
import pytest
from tests.predict.worlds import world

from hcs.predict.process import Process, Settings, _Likelihood

ROWS, SECONDS = world()
SOME = np.arange(0, len(ROWS), 4)
PART, TARGET = ROWS.take(SOME), np.log(SECONDS[SOME])


def test_leaving_a_block_out_equals_fitting_without_it() -> None:
    process = Process(PART, TARGET, Settings.first(), passes=30)
    block = np.flatnonzero(PART.layout == PART.layout[3])
    [(error, spread)] = process.left_out([block])
    rest = np.setdiff1d(np.arange(len(PART)), block)
    at = process.coefficients.copy()
    at[0] += process.level - np.median(TARGET[rest])  # levels count from the median of the rows
    again = Process(PART.take(rest), TARGET[rest], Settings.first(), passes=0, at=at)
    mean, deviation = again.predict(PART.take(block))
    np.testing.assert_allclose(TARGET[block] - error, mean, atol=0.002)
    np.testing.assert_allclose(spread, deviation, rtol=1e-6)


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
