"""Amounts are read as people write them, and what mixes things up is refused with an example."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hcs.cli.amounts import AcuAmount, AmountError, CardsAmount, RatedAmount, read_amount
from hcs.model import names


def rated(resource: str, thousandths: int, label: str) -> RatedAmount:
    return RatedAmount(resource, Fraction(thousandths), label)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("2 x 910B2", CardsAmount("910B2", 2), id="cards"),
        pytest.param("2x910B2", CardsAmount("910B2", 2), id="cards-without-spaces"),
        pytest.param("2 × 910B2", CardsAmount("910B2", 2), id="cards-with-a-real-times-sign"),
        pytest.param("8 A100-SXM4-80GB", CardsAmount("A100-SXM4-80GB", 8), id="cards-without-a-times"),
        pytest.param("910B2", CardsAmount("910B2", None), id="a-card-that-begins-with-digits"),
        pytest.param("MTT S4000", CardsAmount("MTT S4000", None), id="a-card-with-a-space"),
        pytest.param("2 MTT  S4000", CardsAmount("MTT S4000", 2), id="spaces-are-folded"),
        pytest.param("250 ACU", AcuAmount(Fraction(250_000)), id="acu"),
        pytest.param("2.5acu", AcuAmount(Fraction(2500)), id="part-of-an-acu"),
        pytest.param("100 TFLOPS FP16", rated(names.FP16_TFLOPS, 100_000, "FP16 TFLOPS"), id="tflops"),
        pytest.param("100 fp16 tflops", rated(names.FP16_TFLOPS, 100_000, "FP16 TFLOPS"), id="precision-first"),
        pytest.param("100TFLOPS", rated(names.FP16_TFLOPS, 100_000, "FP16 TFLOPS"), id="fp16-unless-said"),
        pytest.param("19.5 TFLOPS FP32", rated(names.FP32_TFLOPS, 19_500, "FP32 TFLOPS"), id="fp32"),
        pytest.param("200 TOPS", rated(names.INT8_TOPS, 200_000, "INT8 TOPS"), id="tops-are-int8"),
        pytest.param("2 PFLOPS", rated(names.FP16_TFLOPS, 2_000_000, "FP16 TFLOPS"), id="peta"),
        pytest.param("1 POPS INT8", rated(names.INT8_TOPS, 1_000_000, "INT8 TOPS"), id="peta-integer"),
    ],
)
def test_an_amount_is_read(text, expected):
    assert read_amount(text) == expected


@pytest.mark.parametrize(
    ("text", "says"),
    [
        pytest.param("", "empty", id="nothing"),
        pytest.param("12", "no unit", id="a-bare-number"),
        pytest.param("0 x T4", "nothing", id="no-cards"),
        pytest.param("0 ACU", "nothing", id="no-acu"),
        pytest.param("10 TOPS FP16", "INT8 with TOPS", id="precision-and-unit-disagree"),
        pytest.param("10 TFLOPS INT8", "INT8 with TOPS", id="the-other-way-round"),
        pytest.param("10 FP16 TFLOPS FP32", "two precisions", id="two-precisions"),
        pytest.param("999999999999999 PFLOPS", "more compute than there is", id="absurd"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_an_example(text, says):
    with pytest.raises(AmountError, match=says):
        read_amount(text)


@given(st.integers(1, 10**6), st.sampled_from(["ACU", "TFLOPS FP16", "TOPS INT8"]), st.sampled_from(["", " ", "  "]))
def test_spaces_do_not_matter(number, unit, space):
    assert read_amount(f"{number}{space}{unit}") == read_amount(f"{number} {unit}".lower())


@given(st.text(max_size=60))
def test_any_text_is_an_amount_or_says_why_not(text):
    try:
        read_amount(text)
    except AmountError as error:
        said = str(error)
    else:
        said = "read"
    assert said
