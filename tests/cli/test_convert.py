"""``hcs convert`` answers in cards, says how well it knows, and helps where it cannot."""

import json

import pytest
import yaml
from typer.testing import CliRunner

from hcs.cli.main import build

RUNNER = CliRunner()


def convert(*arguments: str):
    return RUNNER.invoke(build(), ["convert", *arguments], prog_name="hcs")


def answers(*arguments: str) -> dict:
    result = convert(*arguments, "--json")
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)


@pytest.mark.parametrize(
    ("workload", "exact", "count", "source"),
    [
        pytest.param("gemm", 2.4312, 3, "measured", id="matrix-multiplication"),
        pytest.param("pretrain", 1.5792, 2, "benchmark", id="pre-training"),
        pytest.param("finetune", 0.829, 1, "benchmark", id="fine-tuning"),
        pytest.param("decode", 2.4312, 3, "derived", id="unmeasured"),
    ],
)
def test_two_ascends_in_a100s(workload, exact, count, source):
    (answer,) = answers("2 x 910B2", "--to", "A100-SXM4-80GB", "--workload", workload)["answers"]
    assert (answer["exact"], answer["count"], answer["source"]) == (exact, count, source)
    assert (answer["vendor"], answer["model"], answer["rate"], answer["unit"]) == (
        "nvidia",
        "A100-SXM4-80GB",
        100.0,
        "ACU",
    )


def test_the_table_says_what_was_asked_on_the_other_stream():
    result = convert("2 x 910B2", "--to", "A100-SXM4-80GB")
    assert result.stdout.splitlines() == [
        "VENDOR   MODEL            VRAM   ACU   SOURCE     EXACT       RANGE   COUNT",
        "nvidia   A100-SXM4-80GB   80Gi   100   measured    2.43   2.16-2.74       3",
    ]
    assert result.stderr.startswith("2 x ascend/Ascend910B2 = 243.1 ACU in gemm (measured: ")


def test_a_derived_rate_carries_a_warning():
    result = convert("2 x 910B2", "--to", "A100-SXM4-80GB", "--workload", "decode")
    assert "warning: this figure is derived, not measured in this class" in result.stderr
    assert "warning" not in convert("2 x 910B2", "--to", "A100-SXM4-80GB").stderr


def test_tflops_are_counted_by_the_rated_figure_per_device():
    data = answers("100 TFLOPS FP16", "--vendor", "cambricon")
    by_model = {answer["model"]: answer for answer in data["answers"]}
    assert (by_model["MLU370-X8"]["rate"], by_model["MLU370-X8"]["count"]) == (48.0, 3)
    assert by_model["MLU370-X8"]["unit"] == "FP16 TFLOPS"
    assert "cambricon/MLU590" in data["unknown"]
    assert "per device" in convert("100 TFLOPS FP16", "--vendor", "cambricon").stderr


def test_an_estimated_rating_is_labelled():
    (answer,) = answers("400 TFLOPS", "--to", "910B3")["answers"]
    assert (answer["source"], answer["count"]) == ("derived", 2)
    assert "derived, from an estimated rating" in convert("400 TFLOPS", "--to", "910B3").stderr


def test_acu_into_a_family_of_cards():
    models = {answer["model"]: answer["count"] for answer in answers("250 ACU", "--to", "H100")["answers"]}
    assert models == {"H100-PCIe": 2, "H100-SXM5": 1, "H100-NVL": 1}


def test_there_and_back():
    there = answers("3 x H20", "--to", "910B2")["answers"][0]
    back = answers(f"{there['count']} x 910B2", "--to", "H20")["answers"][0]
    assert back["count"] >= 3
    assert answers("100 ACU", "--to", "A100-SXM4-80GB")["answers"][0]["exact"] == 1


def test_a_card_alone_shows_its_own_rates():
    result = convert("A100-SXM4-80GB")
    assert [line.split()[:3] for line in result.stdout.splitlines()[1:]] == [
        [workload, "100", "measured"] for workload in ("gemm", "pretrain", "finetune", "prefill", "decode")
    ]
    data = answers("910B2")
    assert [(rate["workload"], rate["source"]) for rate in data["rates"]][:3] == [
        ("gemm", "measured"),
        ("pretrain", "benchmark"),
        ("finetune", "benchmark"),
    ]
    assert data["source"]


def test_every_format():
    line = convert("250 ACU", "--to", "H100-SXM5", "--json").stdout
    assert line.count("\n") == 1
    pretty = convert("250 ACU", "--to", "H100-SXM5", "-o", "json").stdout
    assert json.loads(pretty) == json.loads(line)
    assert pretty.count("\n") > 5
    assert yaml.safe_load(convert("250 ACU", "--to", "H100-SXM5", "-o", "yaml").stdout) == json.loads(line)
    assert convert("250 ACU", "--to", "H100-SXM5", "-o", "name").stdout == "nvidia/H100-SXM5\n"
    assert "against 258.74 TFLOPS" in convert("250 ACU", "--to", "H100-SXM5", "-o", "wide").stdout
    assert convert("250 ACU", "--to", "H100-SXM5", "--no-headers").stdout.startswith("nvidia")


def test_vendors_are_known_by_any_of_their_names():
    assert {a["vendor"] for a in answers("250 ACU", "--vendor", "Huawei", "--vendor", "moore threads")["answers"]} == {
        "ascend",
        "mthreads",
    }


@pytest.mark.parametrize(
    ("arguments", "code", "what", "why", "next_"),
    [
        pytest.param(
            ("2 x K100",), 2, "'K100' can be hygon/K100 or kunlunxin/K100", "in full", "hygon/K100", id="two-vendors"
        ),
        pytest.param(("250 ACU", "--to", "K100"), 2, "hygon/K100 or kunlunxin", "in full", "K100", id="target-of-two"),
        pytest.param(("2 x A100",), 2, "'A100' is a family", "name one", "nvidia/A100", id="a-family-is-no-card"),
        pytest.param(("A100-SXM-80GB",), 2, "no card", "did you mean nvidia/A100-SXM4-80GB", "A100-SXM4", id="typo"),
        pytest.param(("banana",), 2, "no card 'banana'", "lists all cards", "hcs convert '100 ACU'", id="no-card"),
        pytest.param(("12",), 2, "'12' has no unit", "write it like", "--help", id="no-unit"),
        pytest.param(("1 ACU", "--vendor", "acme"), 2, "no vendor 'acme'", "known vendors", "--vendor", id="vendor"),
        pytest.param(("T4", "--json", "-o", "yaml"), 2, "contradict", "one format", "keep one", id="two-formats"),
        pytest.param(("MLU590",), 1, "no rate of cambricon/MLU590", "nobody", "ai.compute/vram", id="no-rate"),
        pytest.param(("2 x MLU590", "--to", "T4"), 1, "cannot convert", "MLU590", "--workload", id="given-unrated"),
        pytest.param(("1 ACU", "--to", "MLU590"), 1, "cannot express", "cambricon/MLU590", "--workload", id="unrated"),
        pytest.param(
            ("1 TOPS", "--to", "T4", "--vendor", "ascend"), 1, "cannot express", "of that vendor", "", id="nothing-left"
        ),
    ],
)
def test_what_cannot_be_answered_ends_in_three_lines(arguments, code, what, why, next_):
    result = convert(*arguments)
    assert (result.exit_code, result.stdout) == (code, "")
    first, second, third = result.stderr.splitlines()
    assert first.startswith("error: ")
    assert second.startswith("  why:  ")
    assert third.startswith("  try:  ")
    assert what in first
    assert why in second
    assert next_ in third


def test_the_amount_may_be_an_option():
    argument = answers("A100-SXM4-80GB", "--to", "910B3", "--workload", "decode")
    assert answers("--from", "A100-SXM4-80GB", "--to", "910B3", "--workload", "decode") == argument
    (answer,) = argument["answers"]
    assert (answer["count"], answer["source"], answer["low"], answer["asOf"]) == (1, "derived", None, "2026-11")
    for wrong in ((), ("A10-24", "--from", "A10-24")):
        assert convert(*wrong).exit_code == 2


@pytest.mark.parametrize(
    ("asked", "to", "low", "high"),
    [
        pytest.param("100 ACU", "L40S", 0.9245, 1.0426, id="an-exact-amount-in-a-measured-card"),
        pytest.param("2 x 910B2", "910B2", 2.0, 2.0, id="a-card-is-worth-itself"),
        pytest.param("100 ACU", "910B3", None, None, id="nobody-knows-what-is-derived"),
    ],
)
def test_a_count_says_how_far_it_may_be_off(asked, to, low, high):
    (answer,) = answers(asked, "--to", to)["answers"]
    assert (answer["low"], answer["high"]) == (low, high)


def test_a_card_shows_all_that_was_found_about_it():
    lines = convert("H100-SXM5").stdout.splitlines()
    assert [line.split()[:2] for line in lines[1:4]] == [["gemm", "293.7"], ["also", "292.9"], ["also", "316.9"]]
    assert "measured, 2026-11" in lines[1]
