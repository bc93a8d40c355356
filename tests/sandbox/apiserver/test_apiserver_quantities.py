"""Quantities as the API server spells them; the pairs were seen on a real 1.36."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hcs.sandbox.apiserver import quantities


@pytest.mark.parametrize(
    ("written", "stored"),
    [
        ("1.5Gi", "1536Mi"), ("0.5", "500m"), ("1024Mi", "1Gi"), ("100e3", "100e3"), ("16G", "16G"), ("1000k", "1M"),
        ("1024", "1024"), ("1Ki", "1Ki"), ("0", "0"), ("2e-1", "200e-3"), ("0.5Gi", "512Mi"), ("1500m", "1500m"),
        ("2.9296875Ki", "3k"), ("1.5Ki", "1536"), ("2.9296875Mi", "3000Ki"),
    ],
)  # fmt: skip
def test_the_canonical_spelling(written: str, stored: str) -> None:
    assert quantities.canonical(written) == stored


@pytest.mark.parametrize("text", ["", "Gi", "1GiB", "0x10", "1 Gi", "1e", "--1", True, "1e999"])
def test_what_is_no_quantity(text: object) -> None:
    with pytest.raises(quantities.QuantityError, match="must match the regular expression"):
        quantities.parse(text)


@pytest.mark.parametrize(
    ("amount", "countable"), [("1", True), ("500m", False), ("1Ei", False), ("9223372036854775", True)]
)
def test_what_can_be_counted(amount: str, countable: bool) -> None:
    assert quantities.is_countable(amount) is countable


def test_parts_of_a_thousandth_are_rounded_up() -> None:
    assert quantities.canonical("100u", thousandths=True) == "1m"


@given(
    amount=st.fractions(min_value=-(2**60), max_value=2**60, max_denominator=1000),
    family=st.sampled_from(["binary", "decimal", "exponent"]),
)
def test_spelling_is_stable(amount: Fraction, family: str) -> None:
    spelled = quantities.spell(amount, family)
    assert quantities.canonical(spelled) == spelled
    assert abs(quantities.value(spelled) - amount) < Fraction(1, 10**9)
