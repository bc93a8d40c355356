"""Amounts are read exactly or refused with a sentence that shows how to write them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hcs.model.quantities import (
    GIB,
    MAX_AMOUNT,
    QuantityError,
    format_bytes,
    parse_acu,
    parse_amount,
    parse_bytes,
    parse_count,
    show_acu,
    show_bytes,
)

amounts = st.integers(0, MAX_AMOUNT)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("16Gi", 16 * GIB, id="typical-card"),
        pytest.param("1Ki", 1024, id="smallest-binary"),
        pytest.param("16G", 16 * 10**9, id="decimal-is-not-binary"),
        pytest.param("1.5Gi", 3 * GIB // 2, id="half-a-unit-is-whole-in-bytes"),
        pytest.param("100e3", 100_000, id="exponent"),
        pytest.param("1000e-3", 1, id="negative-exponent-but-whole"),
        pytest.param("1E3", 1000, id="capital-exponent"),
        pytest.param(" 4 ", 4, id="spaces-around"),
        pytest.param("+5", 5, id="sign"),
        pytest.param("5.", 5, id="dot-without-digits"),
        pytest.param(".5Ki", 512, id="digits-after-dot-only"),
        pytest.param("0", 0, id="zero"),
        pytest.param(7, 7, id="a-number-from-a-careless-client"),
        pytest.param("1Pi", MAX_AMOUNT, id="the-limit-itself"),
    ],
)
def test_an_amount_is_read_exactly(text, expected):
    assert parse_amount(text) == expected


@pytest.mark.parametrize(
    ("text", "says"),
    [
        pytest.param("", "cannot read ''", id="nothing"),
        pytest.param("many", "cannot read 'many'", id="a-word"),
        pytest.param("16GB", "unknown unit 'GB'", id="a-unit-kubernetes-does-not-know"),
        pytest.param("100m", "unknown unit 'm'", id="thousandths"),
        pytest.param("1e", "unknown unit 'e'", id="exponent-without-digits"),
        pytest.param("4 Gi", "cannot read", id="space-inside"),
        pytest.param("0x10", "cannot read", id="hexadecimal"),
        pytest.param("１６", "cannot read", id="digits-of-another-script"),
        pytest.param("1.5", "not whole", id="a-fraction"),
        pytest.param("0.3Ki", "not whole", id="a-fraction-of-a-byte"),
        pytest.param("-1", "negative", id="negative"),
        pytest.param(-3, "negative", id="negative-number"),
        pytest.param("2Pi", "limit", id="more-than-any-card"),
        pytest.param("1e999", "limit", id="astronomic"),
        pytest.param("9" * 70, "cannot read '9999999999999999999999999999999999999...'", id="endless-is-shortened"),
        pytest.param("nan", "cannot read", id="not-a-number"),
    ],
)
def test_what_no_one_could_have_meant_is_refused_with_a_hint(text, says):
    with pytest.raises(QuantityError, match="1 or 16Gi") as caught:
        parse_amount(text)
    assert says in str(caught.value)


def test_the_error_speaks_of_what_was_asked():
    with pytest.raises(QuantityError, match="512Mi or 16Gi"):
        parse_bytes("lots")
    with pytest.raises(QuantityError, match="as cards"):
        parse_count("two", what="cards")
    with pytest.raises(QuantityError, match="percent of an A100"):
        parse_acu("half")


def test_acu_are_kept_in_thousandths():
    assert parse_acu("40") == 40_000


@given(amounts)
def test_what_is_written_is_read_back(amount):
    assert parse_bytes(format_bytes(amount)) == amount


@given(amounts)
def test_what_is_shown_never_promises_more(amount):
    assert parse_amount_down(show_bytes(amount)) <= amount
    assert float(show_acu(amount)) * 1000 <= amount + 1e-6 * amount


def parse_amount_down(text: str) -> int:
    """Read ``11.9Gi`` as the whole bytes below it."""
    number = text.rstrip("KMGTPEi")
    return int(float(number) * parse_amount("1" + text[len(number) :]))


@given(st.text(max_size=80))
def test_no_text_makes_reading_fail_in_another_way(text):
    try:
        amount = parse_amount(text)
    except QuantityError:
        return
    assert 0 <= amount <= MAX_AMOUNT
