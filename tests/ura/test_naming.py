"""Names are compared as people mean them."""

import pytest

from hcs.ura.naming import begins, either, fold, shown, vendor_word


@pytest.mark.parametrize(
    ("name", "start", "expected"),
    [
        pytest.param("h100-pcie", "h100", True, id="at-a-dash"),
        pytest.param("910b2", "910b", True, id="number-after-a-letter"),
        pytest.param("a100-pcie", "a10", False, id="never-inside-a-number"),
        pytest.param("l40s", "l40", False, id="never-inside-a-word"),
        pytest.param("h100", "h100", False, id="itself-is-no-family"),
        pytest.param("mi300x", "h100", False, id="something-else"),
    ],
)
def test_a_family_name_never_cuts_a_number_or_a_word(name, start, expected):
    assert begins(name, start) is expected


@pytest.mark.parametrize(
    ("text", "word"),
    [("NVIDIA", "nvidia"), ("Huawei", "ascend"), ("Moore Threads", "mthreads"), ("T-Head", "thead"), ("acme", "acme")],
)
def test_a_vendor_has_one_word(text, word):
    assert vendor_word(text) == word


def test_sentences_name_alternatives_and_quote_what_was_written():
    assert (either(("a",)), either(("a", "b")), either(("a", "b", "c"))) == ("a", "a or b", "a, b or c")
    assert fold(" MTT S4000 ") == "mtts4000"
    assert shown("x" * 100) == repr("x" * 57 + "...")
