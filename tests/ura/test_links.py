"""The words of the vendors' tools, put in order."""

import pytest

from hcs.model.devices import Link
from hcs.model.locality import LINK_KINDS
from hcs.ura.links import UNKNOWN, bandwidth, read_word


@pytest.mark.parametrize(
    "words",
    [
        pytest.param(["SYS", "NODE", "PHB", "PXB", "PIX", "NV1", "NV2", "NV12", "NV18"], id="nvidia-smi"),
        pytest.param(["SYS", "PHB", "PXB", "PIX", "HCCS", "SIO"], id="npu-smi"),
        pytest.param(["PCIE", "XGMI"], id="rocm-smi"),
        pytest.param(["SYS", "NODE", "PHB", "PXB", "PIX", "MT1", "MT2"], id="mthreads-gmi"),
        pytest.param(["who-knows", "SYS"], id="a-word-nobody-knows-is-the-slowest"),
    ],
)
def test_words_stand_in_the_order_of_their_tools(words: list[str]) -> None:
    widths = [read_word(word).mbps for word in words]
    assert widths == sorted(set(widths))


@pytest.mark.parametrize(
    ("word", "family", "p2p"),
    [
        ("NV4", "nvlink", True),
        ("nv4", "nvlink", True),
        ("NV0", "", None),
        ("MT2", "mtlink", True),
        ("MT0", "", None),
        ("MLK", "mlulink", True),
        ("HCCS_SW", "hccs", True),
        ("GCU-LARE", "lare", True),
        ("PIX", "pcie", True),
        ("PHB", "host", None),
        ("CNS", "host", False),
        ("NS", "host", False),
        ("X", "", None),
    ],
)
def test_a_word_says_its_family_and_whether_memory_is_reachable(word: str, family: str, p2p: bool | None) -> None:
    assert (read_word(word).family, read_word(word).p2p) == (family, p2p)


def test_what_was_measured_wins() -> None:
    assert bandwidth(Link("x", "SYS", 400_000)) == 400_000
    assert bandwidth(Link("x", "SYS", 0)) == 0
    assert bandwidth(Link("x", "NV2")) == 80_000
    assert bandwidth(Link("x", "?")) == UNKNOWN.mbps


def test_every_kind_people_may_name_has_a_word() -> None:
    families = {read_word(kind.upper()).family for kind in LINK_KINDS if kind not in ("p2p", "pcie")}
    assert families == set(LINK_KINDS) - {"p2p", "pcie"}
    assert read_word("PIX").family == "pcie"
