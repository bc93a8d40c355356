"""Rates are computed from a rating, a measurement and a comparison; a wrong table is told at once."""

from fractions import Fraction

import pytest

from hcs.ura.rates import Comparison, Measurement, RateBook, Rating

A100 = Rating("nvidia", "A100-SXM4-80GB", 1, Fraction(312), Fraction(312), "datasheet")
CARD = Rating("acme", "X1", 1, Fraction(100), Fraction(100), "datasheet", memory_gbps=Fraction(2039, 2))
DUO = Rating("acme", "X2", 2, Fraction(200), Fraction(200), "press")
SLOW = Rating("acme", "X3", 1, Fraction(50), Fraction(400), "datasheet")


def measured(card: Rating, value: str, *, suite: str = "mm", metric: str = "gemm_fp16") -> Measurement:
    return Measurement(card.key, metric, Fraction(value), "TFLOPS", suite, "", "somebody")


def comparison(**changes: object) -> Comparison:
    fields = {
        "workload": "gemm",
        "metric": "gemm_fp16",
        "suite": "mm",
        "kind": "rate",
        "reference": A100.key,
        "reference_suite": "mm",
        "cards": (),
        "source": "measured",
        "note": "",
    }
    return Comparison(**{**fields, **changes})


def rates(card: Rating, measurements=(), comparisons=()):
    book = RateBook((A100, CARD, DUO, SLOW), measurements, comparisons)
    return {rate.workload: (rate.milliacu, rate.source) for rate in book.rates(card)}


def test_a_rating_alone_is_a_datasheet_rate_and_derives_the_rest():
    assert rates(CARD) == {
        "gemm": (32_051, "datasheet"),
        "pretrain": (32_051, "derived"),
        "finetune": (32_051, "derived"),
        "prefill": (32_051, "derived"),
        "decode": (50_000, "derived"),
    }


def test_a_pair_of_one_suite_beats_the_rating():
    found = rates(CARD, (measured(A100, "250"), measured(CARD, "60")), (comparison(),))
    assert found["gemm"] == (24_000, "measured")
    assert found["prefill"] == (24_000, "derived")
    assert found["decode"] == (50_000, "derived")


def test_a_measurement_of_another_suite_is_not_paired():
    found = rates(CARD, (measured(A100, "250"), measured(CARD, "60", suite="other")), (comparison(),))
    assert found["gemm"] == (32_051, "datasheet")


def test_the_better_source_wins_whatever_the_order():
    figures = (measured(A100, "250"), measured(CARD, "60"), measured(CARD, "90", suite="other"))
    lines = (comparison(), comparison(suite="other", source="benchmark"))
    assert rates(CARD, figures, lines) == rates(CARD, figures, lines[::-1])
    assert rates(CARD, figures, lines)["gemm"] == (24_000, "measured")


def test_a_board_figure_is_divided_between_its_devices():
    assert rates(DUO)["gemm"] == (32_051, "datasheet")
    assert rates(DUO, (measured(A100, "250"), measured(DUO, "150")), (comparison(),))["gemm"] == (30_000, "measured")


def test_a_family_figure_goes_to_its_members():
    family = Rating("acme", "X (sub-model not stated)", 1, None, None, "press")
    line = comparison(cards=(CARD.key, SLOW.key), source="benchmark")
    figures = (measured(A100, "250"), measured(family, "100"))
    assert rates(CARD, figures, (line,))["gemm"] == (40_000, "benchmark")
    assert rates(SLOW, figures, (line,))["gemm"] == (40_000, "benchmark")
    assert rates(DUO, figures, (line,))["gemm"] == (32_051, "datasheet")


def test_times_over_the_reference_are_averaged_and_turned_round():
    figures = (measured(CARD, "2", metric="time_a"), measured(CARD, "3", metric="time_b"))
    line = comparison(workload="finetune", metric="time_*", kind="time-over-reference", source="benchmark")
    assert rates(CARD, figures, (line,))["finetune"] == (40_000, "benchmark")


def test_bf16_stands_in_only_where_both_are_rated_alike():
    figures = tuple(measured(card, "250", metric="mamf_bf16") for card in (A100, CARD, SLOW))
    line = comparison(metric="mamf_bf16", source="benchmark")
    assert rates(CARD, figures, (line,))["gemm"] == (100_000, "benchmark")
    assert rates(SLOW, figures, (line,))["gemm"] == (16_025, "datasheet")


def test_a_comparison_without_its_reference_is_an_error_in_the_table():
    with pytest.raises(ValueError, match="mend the comparison table"):
        RateBook((A100, CARD), (measured(CARD, "60"),), (comparison(),))
