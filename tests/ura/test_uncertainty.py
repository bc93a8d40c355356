"""What a figure is worth is read off the cards that have both, and where nothing can be read off there is no range."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hcs.model.devices import Rate, Source
from hcs.ura.catalogue import CardModel, load_catalogue
from hcs.ura.uncertainty import FEWEST, range_of_exchange, ranges


def card(number: int, measured: int, rated: int) -> CardModel:
    return CardModel(
        "acme",
        f"X{number}",
        rates=(Rate("gemm", measured, "measured"),),
        others=(Rate("gemm", rated, "datasheet"),),
    )


def test_the_ends_leave_a_tenth_of_the_cards_outside():
    cards = [card(n, 10 * n, 100) for n in range(1, 11)]
    found = ranges(cards)["datasheet"]
    assert (found.low, found.high) == (Fraction(2, 10), Fraction(106, 100))
    assert "10 cards" in found.basis


def test_few_cards_are_no_basis():
    assert "datasheet" not in ranges([card(n, 50, 100) for n in range(FEWEST - 1)])
    assert set(ranges(())) == {"measured"}


def test_of_the_catalogue_a_data_sheet_promises_more_than_is_measured():
    found = ranges(load_catalogue().models)["datasheet"]
    assert found.low < Fraction(7, 10) < 1 < found.high


@pytest.mark.parametrize("source", ["benchmark", "derived"])
def test_nothing_is_said_of_a_source_nobody_checked(source: Source):
    known = ranges([card(n, 50, 100) for n in range(9)])
    rate = Rate("gemm", 1, source)
    assert range_of_exchange(None, rate, known) is None
    assert range_of_exchange(rate, Rate("gemm", 1, "measured"), known) is None


@given(st.sampled_from((None, "measured", "datasheet")), st.sampled_from(("measured", "datasheet")))
def test_a_range_holds_the_stated_count(given_source, got_source):
    known = ranges(load_catalogue().models)
    given_rate = None if given_source is None else Rate("gemm", 100, given_source)
    low, high = range_of_exchange(given_rate, Rate("gemm", 100, got_source), known) or (2, 0)
    assert low < 1 < high
