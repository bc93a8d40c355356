"""Where a variable cannot be taken away, it says what does no harm, or the container does not start."""

import pytest

from hcs.inject.adjustments import Adjustment, Variable
from hcs.inject.builtin import builtin_profiles
from hcs.inject.withdrawal import withdrawn
from hcs.model.refusals import RefusedError


@pytest.mark.parametrize(
    ("name", "value"),
    [
        pytest.param("NVIDIA_VISIBLE_DEVICES", "", id="a-container-runtime's-none"),
        pytest.param("ASCEND_VISIBLE_DEVICES", "", id="another's"),
        pytest.param("CUDA_VISIBLE_DEVICES", "0,1", id="a-framework's-all"),
        pytest.param("HIP_VISIBLE_DEVICES", "0,1", id="read-by-two-vendors"),
    ],
)
def test_the_value_chooses_none_of_the_host_or_all_of_the_container(name: str, value: str) -> None:
    adjustment = Adjustment(env=(Variable(name, None), Variable("KEPT", "1")), annotations={"a": "b"})
    got = withdrawn(adjustment, builtin_profiles(), 2)
    assert got.variables() == {name: value, "KEPT": "1"}
    assert got.annotations == {"a": "b"}


def test_without_cards_a_framework_is_shown_none() -> None:
    got = withdrawn(Adjustment(env=(Variable("CUDA_VISIBLE_DEVICES", None),)), builtin_profiles(), 0)
    assert got.variables() == {"CUDA_VISIBLE_DEVICES": ""}


def test_a_variable_of_unknown_meaning_is_a_refusal() -> None:
    with pytest.raises(RefusedError, match=r"sets ASCEND_VNPU_SPECS, .* take it out of the pod or the image"):
        withdrawn(Adjustment(env=(Variable("ASCEND_VNPU_SPECS", None),)), builtin_profiles(), 1)


def test_where_nothing_goes_nothing_changes() -> None:
    adjustment = Adjustment(env=(Variable("A", "1"),))
    assert withdrawn(adjustment, builtin_profiles(), 1) is adjustment
