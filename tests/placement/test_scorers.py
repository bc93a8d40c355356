"""Each scorer judges one thing, in whole numbers from 0 to 100, and the weights keep their order."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hcs.model.quantities import GIB, MAX_AMOUNT
from hcs.placement.scorers import (
    SCORERS,
    Candidates,
    Healthy,
    InUse,
    Named,
    Scorer,
    Thrifty,
    Tight,
    best_first,
    score,
)


def places(**columns: list[int]) -> Candidates:
    """Places that are alike but for the columns given."""
    count = len(next(iter(columns.values())))
    usual = {"named": 1, "degraded": 0, "vram": 16 * GIB, "milliacu": 20_000, "left": 50, "in_use": 0}
    values = {
        name: np.array(columns.get(name, [value] * count), dtype=np.bool_ if value in (0, 1) else np.int64)
        for name, value in usual.items()
    }
    order = np.arange(count, dtype=np.int64)
    return Candidates(group=order, device=order, first=order, **values)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("scorer", "candidates", "expected"),
    [
        pytest.param(Named(), places(named=[1, 0]), [100, 0], id="named-before-substitutes"),
        pytest.param(Healthy(), places(degraded=[1, 0]), [0, 100], id="healthy-first"),
        pytest.param(Thrifty(), places(vram=[80 * GIB, 40 * GIB]), [0, 25], id="small-cards-first"),
        pytest.param(Thrifty(), places(milliacu=[100_000, 20_000]), [0, 40], id="slow-cards-first"),
        pytest.param(Thrifty(), places(milliacu=[0, 0], vram=[0, 0]), [100, 100], id="unknown-is-not-a-reason"),
        pytest.param(Tight(), places(left=[0, 90]), [100, 10], id="little-left"),
        pytest.param(InUse(), places(in_use=[1, 0]), [100, 0], id="shared-cards-first"),
    ],
)
def test_one_scorer_one_thing(scorer: Scorer, candidates: Candidates, expected: list[int]) -> None:
    assert scorer.score(candidates).tolist() == expected


def test_a_substitute_never_beats_a_named_card_nor_a_sick_one_a_healthy_one() -> None:
    worst_named = {"named": 1, "degraded": 1, "vram": 80, "milliacu": 100, "left": 100, "in_use": 0}
    best_other = {"named": 0, "degraded": 0, "vram": 1, "milliacu": 1, "left": 0, "in_use": 1}
    both = places(**{column: [worst_named[column], best_other[column]] for column in worst_named})
    assert score(both).argmax() == 0
    worst_healthy = {**worst_named, "degraded": 0}
    best_sick = {**best_other, "named": 1, "degraded": 1}
    both = places(**{column: [worst_healthy[column], best_sick[column]] for column in worst_named})
    assert score(both).argmax() == 0


def test_equal_places_are_taken_in_the_order_of_the_fleet() -> None:
    candidates = places(left=[50, 10, 50, 10])
    assert best_first(candidates, score(candidates)).tolist() == [1, 3, 0, 2]


@given(
    vram=st.lists(st.integers(0, MAX_AMOUNT * 1024), min_size=1, max_size=5),
    milliacu=st.integers(0, 1 << 50),
    left=st.integers(0, 100),
)
def test_scores_are_from_0_to_100_for_any_hardware(vram: list[int], milliacu: int, left: int) -> None:
    candidates = places(vram=vram, milliacu=[milliacu + n for n in range(len(vram))], left=[left] * len(vram))
    for _, scorer in SCORERS:
        scores = scorer.score(candidates)
        assert scores.dtype == np.int64
        assert scores.min() >= 0
        assert scores.max() <= 100
