"""What no card in the world could answer is refused with a sentence; what some card could is let through."""

import pytest

from hcs.model import names
from hcs.model.quantities import GIB
from hcs.model.requests import ComputeRequest, ContainerRequest, Total
from hcs.ura.catalogue import load_catalogue
from hcs.ura.validation import canonical_models, check_request

CATALOGUE = load_catalogue()


def request(
    cards: int = 1,
    vram: int = 0,
    acu: int = 0,
    total: tuple[str, int] | None = None,
    vendors: tuple[str, ...] = (),
    models: tuple[str, ...] = (),
    workload: str = "gemm",
) -> ComputeRequest:
    container = ContainerRequest("main", cards, vram * GIB, acu * 1000, Total(*total) if total else None)
    return ComputeRequest((container,), vendors=vendors, models=models, workload=workload)


@pytest.mark.parametrize(
    "asking",
    [
        pytest.param(request(vram=16), id="a-share"),
        pytest.param(request(vram=256), id="the-whole-of-the-largest-card"),
        pytest.param(request(vram=64, vendors=("ascend",)), id="vendor"),
        pytest.param(request(vram=16, models=("910B2",)), id="model-by-alias"),
        pytest.param(request(vram=8, vendors=("kunlunxin",), models=("K100",)), id="vendor-decides-the-model"),
        pytest.param(request(vram=8, models=("nvidia/T4",)), id="model-behind-its-vendor"),
        pytest.param(request(acu=600), id="acu-of-the-fastest"),
        pytest.param(request(acu=240, workload="pretrain", models=("A100-SXM4-80GB", "B200")), id="some-model-does"),
        pytest.param(request(total=(names.FP16_TFLOPS, 100_000)), id="a-large-total"),
        pytest.param(request(total=(names.INT8_TOPS, 100), models=("MLU270",)), id="int8-of-an-integer-card"),
        pytest.param(request(vram=500, models=("metax/N100",)), id="memory-nobody-published-is-left-to-the-node"),
    ],
)
def test_what_some_card_could_answer_is_let_through(asking):
    assert check_request(asking, CATALOGUE) == []


@pytest.mark.parametrize(
    ("asking", "reason", "says"),
    [
        pytest.param(request(models=("A100-SXM-80GB",)), "UnknownModel", "did you mean nvidia/A100", id="typo"),
        pytest.param(request(models=("banana",)), "UnknownModel", "'banana'", id="nothing-like-it"),
        pytest.param(request(models=("K100",)), "AmbiguousModel", "hygon/K100 or kunlunxin/K100", id="two-vendors"),
        pytest.param(
            request(models=("hygon/K100",)),
            "AmbiguousModel",
            "ai.compute/vendors: hygon",
            id="whose",
        ),
        pytest.param(request(models=("H100",)), "AmbiguousModel", "nvidia/H100-SXM5", id="a-family"),
        pytest.param(
            request(vendors=("nvidia",), models=("910B2",)), "ContradictoryVendor", "made by ascend", id="contradiction"
        ),
        pytest.param(
            request(vendors=("ascend", "hygon"), models=("H100",)),
            "ContradictoryVendor",
            "not by ascend or hygon",
            id="a-family-of-another-vendor",
        ),
        pytest.param(
            request(vendors=("nvidia",), models=("K100",)), "ContradictoryVendor", "hygon and kunlunxin", id="neither"
        ),
        pytest.param(request(vendors=("acme",)), "NoSuchCard", "no card of acme", id="vendor-without-cards"),
        pytest.param(request(vram=300), "VramBeyondAnyCard", "amd/MI325X, has 256Gi", id="more-than-any-card"),
        pytest.param(
            request(vram=128, vendors=("ascend",)), "VramBeyondAnyCard", "64Gi", id="a-board-is-not-one-device"
        ),
        pytest.param(request(vram=17, models=("T4",)), "VramBeyondAnyCard", "nvidia/T4, has 16Gi", id="of-that-model"),
        pytest.param(request(acu=700), "AcuBeyondAnyCard", "nvidia/B200, does 629", id="faster-than-any-card"),
        pytest.param(
            request(acu=50, models=("910B2",), workload="finetune"), "AcuBeyondAnyCard", "41.4", id="of-that-class"
        ),
        pytest.param(request(acu=10, models=("MLU590",)), "NoKnownRate", "ask by ai.compute/vram", id="unmeasured"),
        pytest.param(
            request(total=(names.FP16_TFLOPS, 100), models=("MLU270",)),
            "NoKnownRate",
            "ask by ai.compute/cards",
            id="a-total-with-no-rating",
        ),
        pytest.param(
            request(total=(names.TOTAL_ACU, 1 << 50)), "TooManyCards", "even of nvidia/B200", id="an-absurd-total"
        ),
    ],
)
def test_what_no_card_could_answer_is_refused(asking, reason, says):
    (refusal,) = check_request(asking, CATALOGUE)
    assert (refusal.reason, says in refusal.message) == (reason, True), refusal


def test_every_mistake_is_told():
    asking = request(vram=300, acu=700)
    assert [refusal.reason for refusal in check_request(asking, CATALOGUE)] == ["AcuBeyondAnyCard", "VramBeyondAnyCard"]


def test_models_are_written_as_devices_name_them():
    asking = request(models=("910b2", "NVIDIA A100 80GB PCIe", "Ascend910B2"))
    assert canonical_models(asking, CATALOGUE) == ("Ascend910B2", "A100-PCIe-80GB")
    assert canonical_models(request(vendors=("hygon",), models=("k100",)), CATALOGUE) == ("K100",)
    assert canonical_models(request(), CATALOGUE) == ()
