"""The tables that come with the package hold together, and the rates computed from them are the published ones."""

from fractions import Fraction

import pytest

from hcs.model import names
from hcs.model.devices import SOURCES, WORKLOADS
from hcs.model.quantities import GIB
from hcs.ura.catalogue import load_catalogue
from hcs.ura.tables import measurements, rows

CATALOGUE = load_catalogue()


def test_the_catalogue_is_read_once():
    assert load_catalogue() is CATALOGUE


def test_every_vendor_word_has_cards_and_the_others_keep_their_own():
    assert set(names.VENDOR_WORDS) < set(CATALOGUE.vendors)
    assert set(CATALOGUE.vendors) - set(names.VENDOR_WORDS) == {"biren", "thead", "google", "aws"}


def test_vendor_and_model_are_a_key():
    keys = [card.key for card in CATALOGUE.models]
    assert len(keys) == len(set(keys)) >= 94


def test_every_row_says_where_it_comes_from():
    assert all(row["source"] for table in ("ratings", "measurements") for row in rows(table))


def test_every_measured_card_is_a_model_or_a_stated_family():
    families = {m.card for m in measurements()} - {card.key for card in CATALOGUE.models}
    assert all("sub-model not stated" in family for family in families)


@pytest.mark.parametrize("card", CATALOGUE.models, ids=lambda card: card.key)
def test_a_card_has_at_most_one_rate_a_class_each_with_a_source_and_a_reason(card):
    workloads = [rate.workload for rate in card.rates]
    assert workloads == [workload for workload in WORKLOADS if workload in workloads]
    assert all(rate.source in SOURCES and rate.note and rate.milliacu > 0 for rate in card.rates)
    assert card.vram is None or card.vram > GIB


@pytest.mark.parametrize(
    ("name", "acu"),
    [
        ("B200", 629),
        ("H100-SXM5", 293.7),
        ("H200-SXM", 293.4),
        ("H20", 54.9),
        ("L40S", 102),
        ("L20", 43.7),
        ("RTX-4090", 65),
        ("V100-SXM2-16GB", 37.6),
        ("T4", 16.2),
        ("P100-PCIe-16GB", 3.2),
        ("910B2", 121.5),
        ("910A", 42.5),
        ("C500", 87.4),
        ("K100_AI", 34),
        ("MTT S4000", 29.6),
        ("MR-V100", 29.3),
        ("BI-V150", 78.1 / 2),
    ],
)
def test_measured_matrix_multiplication_is_set_against_the_a100_of_the_same_suite(name, acu):
    rate = CATALOGUE.find(name).rate()
    assert rate.source == "measured"
    assert rate.milliacu / 1000 == pytest.approx(acu, abs=0.1)


@pytest.mark.parametrize(
    ("name", "workload", "milliacu", "source"),
    [
        pytest.param("A100-SXM4-80GB", "decode", 100_000, "measured", id="the-reference-is-100-everywhere"),
        pytest.param("910B2", "pretrain", 78_960, "benchmark", id="sub-model-not-stated"),
        pytest.param("910B2", "finetune", 41_450, "benchmark", id="time-over-the-reference-is-turned-round"),
        pytest.param("910B2", "prefill", 121_558, "derived", id="unmeasured-class-is-derived-from-gemm"),
        pytest.param("H100-SXM5", "decode", 164_296, "derived", id="decode-follows-the-memory"),
        pytest.param("910B2", "decode", 121_558, "derived", id="decode-where-no-bandwidth-is-published"),
        pytest.param("H100-SXM5", "pretrain", 232_136, "measured", id="one-training-suite"),
        pytest.param("BI-V100", "pretrain", 21_689, "measured", id="bert-against-the-a100-of-its-suite"),
        pytest.param("hygon/K100", "gemm", 12_715, "benchmark", id="another-program-than-the-reference"),
        pytest.param("MI300X", "gemm", 246_460, "benchmark", id="bf16-rated-like-fp16"),
        pytest.param("Gaudi3", "gemm", 147_115, "datasheet", id="bf16-rated-unlike-fp16-does-not-stand-in"),
        pytest.param("Gaudi2", "gemm", 138_461, "derived", id="bf16-rating-alone"),
        pytest.param("910B3", "gemm", 100_320, "derived", id="an-estimate-is-no-datasheet"),
        pytest.param("V100-SXM2-32GB", "gemm", 40_064, "datasheet", id="rated"),
    ],
)
def test_each_rate_has_its_provenance(name, workload, milliacu, source):
    rate = CATALOGUE.find(name).rate(workload)
    assert (rate.milliacu, rate.source) == (milliacu, source)


@pytest.mark.parametrize("name", ["MLU590", "P800", "BW1000", "910B4-1"])
def test_where_nobody_stands_behind_a_figure_there_is_none(name):
    assert CATALOGUE.find(name).rates == ()


def test_a_bandwidth_alone_is_a_decode_rate():
    assert [rate.workload for rate in CATALOGUE.find("MTT S5000").rates] == ["decode"]


def test_conflicts_stay_visible_and_every_figure_is_dated():
    card = CATALOGUE.find("H100-SXM5")
    assert [(r.milliacu, r.source) for r in card.others if r.workload == "gemm"] == [
        (292_957, "benchmark"),
        (316_987, "datasheet"),
    ]
    assert all(
        r.as_of for model in CATALOGUE.models for r in (*model.rates, *model.others) if model != CATALOGUE.reference
    )


def test_a_card_with_no_matrix_multiplication_figure_can_still_have_a_measured_class():
    assert [rate.workload for rate in CATALOGUE.find("910B1").rates] == ["pretrain", "finetune"]


@pytest.mark.parametrize(
    ("name", "gib", "fp16"),
    [
        ("MLU370-X8", 24, 48_000),
        ("BI-V150", 32, 96_000),
        ("MR-V100 DUO", 32, 96_000),
        ("Ascend310P (Atlas 300I Duo)", 48, 70_000),
        ("910C", 64, 400_000),
        ("MI250X", 64, 191_500),
        ("MI250", 64, 181_000),
    ],
)
def test_the_figures_of_a_board_with_two_devices_are_divided(name, gib, fp16):
    if name == "910C":
        name = "Ascend910C"
    card = CATALOGUE.find(name)
    assert (card.devices_per_board, card.vram, card.fp16_mtflops) == (2, gib * GIB, fp16)


def test_a_rated_acu_is_fp16_over_3_12_rounded_down():
    rated = [
        (card, rate)
        for card in CATALOGUE.models
        if card.fp16_mtflops and (rate := card.rate()) and rate.source == "datasheet"
    ]
    assert len(rated) > 20
    for card, rate in rated:
        assert rate.milliacu == Fraction(card.fp16_mtflops) / Fraction("3.12") // 1
