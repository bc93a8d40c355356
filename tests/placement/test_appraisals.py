"""Which kinds a pod names, what stands in for them, and which rate the exchange is taken from."""

import pytest
from tests.placement.fleets import card, node, rates, share, whole

from hcs.model.devices import NodeInventory, Rate
from hcs.model.refusals import Refusal
from hcs.model.requests import ComputeRequest
from hcs.placement.appraisals import ReferenceRates, appraise, is_named
from hcs.placement.fleet import build_fleet


@pytest.mark.parametrize(
    ("written", "named"),
    [
        pytest.param("910B2", True, id="as-devices-carry-it"),
        pytest.param("910b2", True, id="in-small-letters"),
        pytest.param("Ascend 910B2", True, id="with-its-vendor"),
        pytest.param("ascend/910B2", True, id="with-a-slash"),
        pytest.param("Ascend910B2", True, id="in-one-word"),
        pytest.param("nvidia/910B2", False, id="of-another-vendor"),
        pytest.param("910B", False, id="a-part-of-it"),
        pytest.param("ascend", False, id="only-the-vendor"),
    ],
)
def test_models_are_known_by_the_names_people_use(written: str, named: bool) -> None:
    assert is_named(ComputeRequest((share(1),), models=(written,)), card("910b", 0)) == named


def test_vendors_and_models_both_bind() -> None:
    request = ComputeRequest((share(1),), vendors=("nvidia",), models=("910B2", "T4"))
    assert [is_named(request, card(kind, 0)) for kind in ("t4", "910b", "a100")] == [True, False, False]


def wanted(request: ComputeRequest, *nodes: NodeInventory, references: ReferenceRates | None = None) -> object:
    """Model and rate that substitutes are measured by; None where there is none."""
    (appraisal,) = appraise(build_fleet(nodes), request, references)
    found = appraisal.wanted
    return None if found is None else (found.model, found.rate.milliacu, found.rate.source)


AUTO = ComputeRequest((whole(),), models=("H100-SXM5", "A100-SXM4-80GB"), sharing="exclusive", substitution="auto")


def test_the_first_model_with_a_known_rate_is_what_a_substitute_stands_in_for() -> None:
    assert wanted(AUTO, node("a", "a100", "910b")) == ("A100-SXM4-80GB", 100_000, "measured")
    assert wanted(AUTO, node("a", "a100", "910b"), references={"H100-SXM5": rates(gemm=240)}) == (
        "H100-SXM5",
        240_000,
        "measured",
    )
    assert wanted(AUTO, node("a", "910b")) is None


def test_the_fleets_own_rate_comes_first_and_the_best_of_its_cards_counts() -> None:
    two = NodeInventory("a", (card("a100", 0, rates=rates(gemm=96)), card("a100", 1, "a", rates=rates(gemm=98))))
    references = {"A100-SXM4-80GB": rates("datasheet", gemm=100)}
    assert wanted(AUTO, two, references=references) == ("A100-SXM4-80GB", 98_000, "measured")


def test_a_derived_rate_of_the_fleet_gives_way_to_the_catalogues() -> None:
    derived = NodeInventory("a", (card("a100", 0, rates=(Rate("gemm", 90_000, "derived"),)),))
    references = {"A100-SXM4-80GB": rates("datasheet", gemm=100)}
    assert wanted(AUTO, derived, references=references) == ("A100-SXM4-80GB", 100_000, "datasheet")
    assert wanted(AUTO, derived) == ("A100-SXM4-80GB", 90_000, "derived")


def test_a_vendor_alone_is_worth_its_slowest_card_that_would_have_served() -> None:
    def request(vram: int) -> ComputeRequest:
        return ComputeRequest((whole(1, vram),), vendors=("nvidia",), sharing="exclusive", substitution="auto")

    fleet = node("a", "t4", "a100", "910b")
    assert wanted(request(8), fleet) == ("T4", 20_000, "datasheet")
    assert wanted(request(40), fleet) == ("A100-SXM4-80GB", 100_000, "measured")
    assert wanted(request(8), node("a", "910b")) is None


def test_nothing_to_exchange_by_is_told_with_what_to_do() -> None:
    (appraisal,) = appraise(build_fleet([node("a", "910b")]), AUTO)
    (refusal,) = appraisal.demands
    assert isinstance(refusal, Refusal)
    assert refusal.reason == "NoRate"
    assert "H100-SXM5 or A100-SXM4-80GB" in refusal.message
    assert not appraisal.serves.any()
