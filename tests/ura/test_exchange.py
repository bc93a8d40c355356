"""Exchange is exact, goes both ways, and is only as good as its weaker side."""

from fractions import Fraction
from math import ceil

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hcs.model import names
from hcs.model.devices import WORKLOADS
from hcs.model.requests import Total
from hcs.ura.catalogue import load_catalogue
from hcs.ura.exchange import (
    NoRateError,
    cards_for_acu,
    cards_for_total,
    charges_of_total,
    exchange,
    rate_of,
    rated_for,
    rated_source,
)

CATALOGUE = load_catalogue()
A100, H100, ASCEND = (CATALOGUE.find(name) for name in ("A100-SXM4-80GB", "H100-SXM5", "910B2"))

rated_cards = st.sampled_from([card for card in CATALOGUE.models if len(card.rates) == len(WORKLOADS)])
workloads = st.sampled_from(WORKLOADS)
counts = st.integers(0, 10_000)
amounts = st.integers(0, 10**9)


@pytest.mark.parametrize(
    ("given_", "got", "workload", "ratio", "source"),
    [
        pytest.param(ASCEND, A100, "gemm", "1.21558", "measured", id="an-ascend-multiplies-faster"),
        pytest.param(ASCEND, A100, "pretrain", "0.7896", "benchmark", id="trains-slower"),
        pytest.param(ASCEND, A100, "finetune", "0.4145", "benchmark", id="and-fine-tunes-at-less-than-half"),
        pytest.param(A100, ASCEND, "prefill", Fraction(100_000, 121_558), "derived", id="the-weaker-source-counts"),
        pytest.param(A100, A100, "gemm", "1", "measured", id="itself"),
    ],
)
def test_an_exchange_depends_on_the_work(given_, got, workload, ratio, source):
    rate = exchange(given_, got, workload)
    assert (rate.ratio, rate.source) == (Fraction(ratio), source)


def test_two_ascends_in_a100s():
    assert exchange(ASCEND, A100).count(2) == 3
    assert exchange(ASCEND, A100, "finetune").count(2) == 1
    assert exchange(A100, ASCEND, "finetune").count(2) == 5


@pytest.mark.parametrize(("name", "workload"), [("MLU590", "gemm"), ("910B1", "decode")])
def test_where_no_rate_is_known_none_is_made_up(name, workload):
    card = CATALOGUE.find(name)
    with pytest.raises(NoRateError, match=f"{card.key} does in workload class {workload}"):
        exchange(card, A100, workload)
    with pytest.raises(NoRateError):
        rate_of(card, workload)


@given(rated_cards, rated_cards, workloads)
def test_there_and_back_is_one_exactly(one, other, workload):
    assert exchange(one, other, workload).ratio * exchange(other, one, workload).ratio == 1


@given(rated_cards, rated_cards, rated_cards, workloads)
def test_a_detour_costs_nothing(one, via, other, workload):
    direct = exchange(one, other, workload).ratio
    assert exchange(one, via, workload).ratio * exchange(via, other, workload).ratio == direct


@given(rated_cards, rated_cards, workloads, counts)
def test_converted_cards_do_the_work_and_one_fewer_does_not(one, other, workload, cards):
    rate = exchange(one, other, workload)
    count = rate.count(cards)
    asked = cards * rate.given_rate.milliacu
    assert count * rate.got_rate.milliacu >= asked
    assert count == 0 or (count - 1) * rate.got_rate.milliacu < asked


@given(rated_cards, rated_cards, workloads, counts)
def test_there_and_back_in_counts_never_loses_cards(one, other, workload, cards):
    back = exchange(other, one, workload).count(exchange(one, other, workload).count(cards))
    slack = ceil(exchange(other, one, workload).ratio)
    assert cards <= back <= cards + slack


@given(rated_cards, workloads, amounts, amounts)
def test_more_acu_never_needs_fewer_cards(card, workload, one, other):
    less, more = sorted((one, other))
    assert cards_for_acu(less, card, workload) <= cards_for_acu(more, card, workload)


@pytest.mark.parametrize(
    ("resource", "amount", "name", "cards"),
    [
        pytest.param(names.FP16_TFLOPS, 100, "A100-SXM4-80GB", 1, id="less-than-one"),
        pytest.param(names.FP16_TFLOPS, 312, "A100-SXM4-80GB", 1, id="exactly-one"),
        pytest.param(names.FP16_TFLOPS, 313, "A100-SXM4-80GB", 2, id="a-little-more"),
        pytest.param(names.FP16_TFLOPS, 100, "MLU370-X8", 3, id="per-device-not-per-board"),
        pytest.param(names.FP32_TFLOPS, 39, "A100-SXM4-80GB", 2, id="fp32"),
        pytest.param(names.INT8_TOPS, 128, "MLU270", 1, id="int8-card-without-fp16"),
        pytest.param(names.FP16_TFLOPS, 1, "MLU270", None, id="no-fp16-rating"),
        pytest.param(names.INT8_TOPS, 1, "Gaudi2", None, id="fp8-is-not-int8"),
        pytest.param(names.TOTAL_ACU, 250, "H100-SXM5", 1, id="acu"),
        pytest.param(names.TOTAL_ACU, 250, "A100-SXM4-80GB", 3, id="acu-rounded-up"),
        pytest.param(names.TOTAL_ACU, 1, "MLU590", None, id="acu-of-an-unmeasured-card"),
    ],
)
def test_totals_become_counts(resource, amount, name, cards):
    assert cards_for_total(Total(resource, amount), CATALOGUE.find(name)) == cards


@given(st.sampled_from(CATALOGUE.models), st.sampled_from(names.TOTALS), amounts, amounts)
def test_a_larger_total_never_needs_fewer_cards(card, resource, one, other):
    less, more = (cards_for_total(Total(resource, amount), card) for amount in sorted((one, other)))
    assert (less is None) == (more is None)
    assert less is None or less <= more


def test_the_rated_figure_is_the_one_people_know():
    assert rated_for(names.FP16_TFLOPS, H100) == 989_000
    assert rated_for(names.TOTAL_ACU, H100) is None


def test_an_estimate_is_no_datasheet():
    assert rated_source(H100) == "datasheet"
    assert rated_source(CATALOGUE.find("910B3")) == "derived"


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
    card = CATALOGUE.reference
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
