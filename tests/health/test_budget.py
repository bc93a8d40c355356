"""Evictions are limited, and only for a while."""

from hypothesis import given
from hypothesis import strategies as st

from hcs.health.budget import EvictionBudget


@given(st.integers(1, 5), st.lists(st.floats(0, 10), max_size=40))
def test_never_more_than_the_limit_in_any_window(limit: int, pauses: list[float]) -> None:
    budget, now, spent = EvictionBudget(limit, 30.0), 0.0, []
    for pause in pauses:
        now += pause
        if budget.allows(now):
            budget, spent = budget.spend(now), [*spent, now]
        else:
            assert budget.next_free(now) > 0
        assert sum(1 for time in spent if now - time < 30.0) <= limit


def test_it_fills_again() -> None:
    budget = EvictionBudget(1, 30.0).spend(0.0)
    assert not budget.allows(29.0)
    assert budget.next_free(29.0) == 1.0
    assert budget.allows(30.0)
