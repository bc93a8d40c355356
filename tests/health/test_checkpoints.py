"""Which checkpoint is the newest complete one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hcs.health.checkpoints import newest_complete, step_of


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        pytest.param([], None, id="none"),
        pytest.param(["step-000120.json", "step-000080.json"], "step-000120.json", id="highest-step"),
        pytest.param(["step-9", "step-10"], "step-10", id="by-number-not-by-letter"),
        pytest.param(["step-000120.json", "step-000160.json.partial"], "step-000120.json", id="half-written"),
        pytest.param(["step-5.tmp", "latest", "notes.txt"], None, id="nothing-complete"),
    ],
)
def test_the_newest_complete_checkpoint(names: list[str], expected: str | None) -> None:
    assert newest_complete(names) == expected


@given(st.lists(st.integers(0, 10**12), min_size=1))
def test_no_complete_checkpoint_is_newer(steps: list[int]) -> None:
    names = [f"step-{step}.json" for step in steps] + [f"step-{max(steps) + 1}.json.partial"]
    newest = newest_complete(names)
    assert newest is not None
    assert step_of(newest) == max(steps)
