"""A total costs the same share of an A100 in quota, whichever card answers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hcs.model import names
from hcs.model.requests import Total
from hcs.ura.charges import charges_of_total
from hcs.ura.tables import load_catalogue


@pytest.mark.parametrize(
    ("resource", "amount", "acu"),
    [
        pytest.param(names.FP16_TFLOPS, 312, 100, id="one-a100-fp16"),
        pytest.param(names.FP16_TFLOPS, 100, 33, id="rounded-up"),
        pytest.param(names.FP16_TFLOPS, 1, 1, id="never-free"),
        pytest.param(names.FP32_TFLOPS, 39, 200, id="fp32-of-two-a100"),
        pytest.param(names.INT8_TOPS, 624, 100, id="one-a100-int8"),
        pytest.param(names.TOTAL_ACU, 250, 250, id="acu-charge-themselves"),
    ],
)
def test_a_total_is_charged_in_acu(resource, amount, acu):
    assert charges_of_total(Total(resource, amount)) == acu


def test_the_figures_are_those_of_the_reference_card():
    card = load_catalogue().reference
    for resource, rated in (
        (names.FP16_TFLOPS, card.fp16_mtflops),
        (names.FP32_TFLOPS, card.fp32_mtflops),
        (names.INT8_TOPS, card.int8_mtops),
    ):
        assert charges_of_total(Total(resource, rated)) == 100_000


@given(st.sampled_from(names.TOTALS), st.integers(0, 10**9), st.integers(0, 10**9))
def test_splitting_a_total_over_pods_never_makes_it_cheaper(resource, one, other):
    together = charges_of_total(Total(resource, one + other))
    assert together <= charges_of_total(Total(resource, one)) + charges_of_total(Total(resource, other))
