"""Whatever crashes, is lost, repeated or late: no card is ever over-allocated and no pod is lost.

Thirty schedules here, a thousand in the nightly run. A failure prints its seed and what happened;
``HCS_STORM_SEED=17`` runs one schedule alone.
"""

import os
from pathlib import Path

import pytest
from tests.router.scene import run_virtual
from tests.router.storms import storm

ONE = os.environ.get("HCS_STORM_SEED")
SEEDS = range(30) if ONE is None else [int(ONE)]
MORE = range(30, 1000) if ONE is None else []


@pytest.mark.parametrize("seed", SEEDS)
def test_nothing_is_over_allocated_and_nobody_is_lost(tmp_path: Path, seed: int) -> None:
    run_virtual(storm(tmp_path, seed))


@pytest.mark.nightly
@pytest.mark.parametrize("seed", MORE)
def test_nor_in_many_more_schedules(tmp_path: Path, seed: int) -> None:
    """Only many schedules meet the rare orders: a crash between a Binding and its answer while its watch lags."""
    run_virtual(storm(tmp_path, seed))


def test_the_same_seed_is_the_same_storm(tmp_path: Path) -> None:
    stories = [run_virtual(storm(tmp_path / str(number), 3)) for number in range(2)]
    assert stories[0] == stories[1]
