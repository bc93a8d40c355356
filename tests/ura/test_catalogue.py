"""A card is found under any of its names, and a name that leads to no single card says which it may have meant."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hcs.model.devices import Link
from hcs.model.quantities import GIB
from hcs.ura.catalogue import AmbiguousCardError, UnknownCardError, as_device, load_catalogue

CATALOGUE = load_catalogue()


@pytest.mark.parametrize(
    ("name", "vendor", "key"),
    [
        pytest.param("A100-SXM4-80GB", None, "nvidia/A100-SXM4-80GB", id="model"),
        pytest.param("NVIDIA A100-SXM4-80GB", None, "nvidia/A100-SXM4-80GB", id="as-the-tool-prints-it"),
        pytest.param("nvidia a100-sxm4-80gb", None, "nvidia/A100-SXM4-80GB", id="without-regard-to-case"),
        pytest.param("910B2", None, "ascend/Ascend910B2", id="alias"),
        pytest.param("Ascend 910B2", None, "ascend/Ascend910B2", id="without-spaces"),
        pytest.param("Huawei 910B2", None, "ascend/Ascend910B2", id="behind-the-makers-name"),
        pytest.param("910B4-1", None, "ascend/Ascend910B4-1", id="a-longer-name-of-the-same-beginning"),
        pytest.param("MTT S4000", None, "mthreads/MTT S4000", id="space-inside"),
        pytest.param("Moore Threads MTT S4000", None, "mthreads/MTT S4000", id="vendor-of-two-words"),
        pytest.param("K100", "hygon", "hygon/K100", id="vendor-decides"),
        pytest.param("K100", "kunlunxin", "kunlunxin/K100", id="vendor-decides-otherwise"),
        pytest.param("kunlunxin/K100", None, "kunlunxin/K100", id="vendor-before-a-slash"),
        pytest.param("K100_AI", None, "hygon/K100_AI", id="no-confusion-with-its-little-sister"),
        pytest.param("A10", None, "nvidia/A10", id="no-confusion-with-a100"),
    ],
)
def test_a_card_is_found_under_any_of_its_names(name, vendor, key):
    assert CATALOGUE.find(name, vendor).key == key


@pytest.mark.parametrize(
    ("name", "says"),
    [
        pytest.param("K100", "hygon/K100 or kunlunxin/K100", id="two-vendors"),
        pytest.param("310P3", "Atlas 300I Pro", id="two-boards-of-one-chip"),
        pytest.param("H100", "nvidia/H100-PCIe, nvidia/H100-SXM5 or nvidia/H100-NVL", id="a-family"),
        pytest.param("910B", "ascend/Ascend910B2", id="a-family-by-its-aliases"),
    ],
)
def test_an_ambiguous_name_lists_what_it_can_be(name, says):
    with pytest.raises(AmbiguousCardError) as caught:
        CATALOGUE.find(name)
    assert says in str(caught.value)
    assert all(CATALOGUE.find(key).key == key for key in caught.value.names)


@pytest.mark.parametrize(
    ("name", "vendor", "says"),
    [
        pytest.param("A100-SXM-80GB", None, "did you mean nvidia/A100-SXM4-80GB", id="typo"),
        pytest.param("910B22", None, "ascend/Ascend910B2", id="typo-in-an-alias"),
        pytest.param("banana", None, "lists all cards", id="nothing-like-it"),
        pytest.param("H100", "hygon", "no card 'H100' of vendor hygon", id="of-another-vendor"),
        pytest.param("T4", "ascend", "nvidia/T4 exists", id="exists-elsewhere"),
        pytest.param("x" * 5000, None, "...", id="endless-is-shortened"),
        pytest.param("", None, "no card ''", id="nothing"),
    ],
)
def test_an_unknown_name_helps(name, vendor, says):
    with pytest.raises(UnknownCardError) as caught:
        CATALOGUE.find(name, vendor)
    assert says in str(caught.value)
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize(
    ("name", "mib", "key"),
    [
        ("Ascend910", 65_452, "ascend/Ascend910C"),
        ("Ascend910", 32_768, "ascend/Ascend910A"),
        ("310P3", 21_534, "ascend/Ascend310P (Atlas 300I Pro)"),
        ("310P3", 44_278, "ascend/Ascend310P (Atlas 300I Duo)"),
    ],
)
def test_the_memory_a_driver_reports_decides_between_models_that_share_a_name(name, mib, key):
    assert CATALOGUE.find(name, "ascend", vram=mib << 20).key == key


def test_memory_that_fits_neither_leaves_the_name_ambiguous():
    with pytest.raises(AmbiguousCardError):
        CATALOGUE.find("Ascend910", vram=8 * GIB)


@pytest.mark.parametrize("card", CATALOGUE.models, ids=lambda card: card.key)
def test_every_model_is_found_by_its_key_and_by_vendor_and_model(card):
    assert CATALOGUE.find(card.key) is card
    assert CATALOGUE.find(card.model, card.vendor) is card
    assert CATALOGUE.get(card.vendor, card.model) is card


@given(st.sampled_from(CATALOGUE.models), st.data())
def test_case_and_spaces_do_not_matter(card, data):
    letters = [data.draw(st.sampled_from([c.lower(), c.upper(), f" {c}"])) for c in card.model]
    assert CATALOGUE.find("".join(letters), card.vendor).vendor == card.vendor


@given(st.text(max_size=40))
def test_any_text_finds_a_card_or_says_why_not(text):
    try:
        card = CATALOGUE.find(text)
    except (UnknownCardError, AmbiguousCardError):
        return
    assert card in CATALOGUE.models


def test_selection_narrows_by_vendor_and_by_model():
    assert CATALOGUE.select() == CATALOGUE.models
    assert {card.vendor for card in CATALOGUE.select(("hygon", "ascend"))} == {"hygon", "ascend"}
    assert [card.key for card in CATALOGUE.select(("hygon",), ("K100",))] == ["hygon/K100"]
    with pytest.raises(UnknownCardError):
        CATALOGUE.select(("hygon",), ("T4",))


def test_a_device_carries_what_the_catalogue_knows_and_what_the_driver_says():
    card = CATALOGUE.find("T4")
    device = as_device(card, "GPU-1", 3, vram=15_360 << 20, links=(Link("GPU-2", "PHB"),), emulated=True)
    assert (device.id, device.index, device.vram, device.rates) == ("GPU-1", 3, 15_360 << 20, card.rates)
    assert (device.vendor, device.model, device.fp16_mtflops) == ("nvidia", "T4", 65_000)
    assert device.emulated
    assert as_device(card, "GPU-1", 3).vram == 16 * GIB


def test_memory_nobody_knows_is_not_made_up():
    with pytest.raises(ValueError, match="pass vram as its driver reports it"):
        as_device(CATALOGUE.find("metax/N100"), "x", 0)


def test_a_catalogue_is_a_value():
    assert msgspec.structs.replace(CATALOGUE) == CATALOGUE
