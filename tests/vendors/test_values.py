"""One cell becomes a value in our units, or nothing."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hcs.vendors.parsing import values
from hcs.vendors.parsing.documents import read_json, read_xml
from hcs.vendors.parsing.text import clean, decode


@pytest.mark.parametrize(
    ("read", "text", "expected"),
    [
        (values.watts, "69.85 W", 69.85),
        (values.watts, "281W", 281),
        (values.watts, "45000 mW", 45),
        (values.watts, "45", None),
        (values.watts, "ERR!", None),
        (values.watts, "-5 W", None),
        (values.power_cap, "0.0W", None),
        (values.power_cap, "560.0W", 560.0),
        (values.celsius, "34.0°C", 34.0),
        (values.celsius, "35 ℃", 35),
        (values.celsius, "39.0c", 39.0),
        (values.celsius, "300 C", None),
        (values.celsius, "95 F", None),
        (values.percent, "104 %", None),
        (values.percent, "14.51%", 14.51),
        (values.mebibytes, "80 GiB", 81920),
        (values.mebibytes, "34342961152 B", 32752),
        (values.mebibytes, "512Mib", 512),
        (values.mebibytes, "512 MB", None),
        (values.mebibytes, "103079215104 MiB", None),
        (values.total_memory, "0 MiB", None),
        (values.integer, "12,345", None),
        (values.integer, "٣", None),
        (values.integer, "0x10", None),
        (values.word, "[Requested functionality has been deprecated]", None),
        (values.word, "[Unknown Error]", None),
        (values.word, "On-die, EDC", "On-die, EDC"),
        (values.state, "Not Available", "Not Available"),
        (values.state, "-", None),
        (values.name, "NVIDIA GeForce ...", None),
        (values.name, "MLUXXX-XX", None),
        (values.identifier, "GPU-00000000-0000-0000-0000-000000000000", None),
        (values.identifier, "0000000000000", None),
        (values.identifier, "TPXxxxx", None),
        (values.identifier, "00000000-0000-0000-0000-020a00008086", "00000000-0000-0000-0000-020a00008086"),
        (values.bus_id, "0000:xx:00.0", None),
        (values.bus_id, "00000000:00:00.0", None),
        (values.bus_id, "00:01:00.0", "00:01:00.0"),
        (values.pcie_generation, "Gen5", 5),
        (values.pcie_generation, "9", None),
        (values.generation_of_speed, "16.0GT/s", 4),
        (values.generation_of_speed, "17.0GT/s", None),
        (values.pcie_width, "X8", 8),
        (values.pcie_width, "16x", 16),
        (values.pcie_width, "13x", None),
        (values.version, "v5.10.13", "5.10.13"),
        (values.version, "unknown", None),
        (values.flag, "Not Active", False),
        (values.flag, "maybe", None),
    ],
)
def test_a_cell_is_read_or_left_alone(read: Callable[[str], Any], text: str, expected: Any) -> None:
    assert read(text) == expected
    assert type(read(text)) is type(expected)


@given(st.text(max_size=40))
def test_no_cell_breaks_a_reader(text: str) -> None:
    for read in (values.watts, values.celsius, values.percent, values.mebibytes, values.bus_id, values.identifier):
        read(text)


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        pytest.param("Total : 8155", "Total : ", id="half-a-figure"),
        pytest.param("Total : 8155 MiB", "Total : 8155 MiB", id="a-whole-one"),
        pytest.param("a, 12 %, NVIDIA A10", "a, 12 %, ", id="half-a-name"),
        pytest.param("| 0 | OK |", "| 0 | OK |", id="a-whole-row"),
        pytest.param("first\nsecond : 1\n", "first\nsecond : 1\n", id="ends-with-a-line"),
        pytest.param("\x1b[4mGPU0\x1b[0m\r\n", "GPU0\n", id="escapes"),
    ],
)
def test_of_a_line_that_breaks_off_what_is_whole_stays(text: str, kept: str) -> None:
    assert clean(text) == kept


def test_any_bytes_are_text() -> None:
    assert decode("é".encode("utf-16")) == "é"
    assert decode(b"\xef\xbb\xbfa\xff") == "a\ufffd"


def test_json_is_read_as_far_as_it_goes() -> None:
    assert read_json('noise {"a": "1", "b": {"c": 22') == {"a": "1", "b": {}}
    assert read_json('{"a": [1, "x", {"b": nu') == {"a": ["1", "x", {}]}
    assert read_json('{"a": "\\u00e9\\n"} tail {') == {"a": "é\n"}
    assert read_json("nothing") is None
    assert read_json("[" * 5000) is not None, "depth is bounded"


def test_xml_counts_what_is_closed() -> None:
    root = read_xml("<!DOCTYPE x [<!ENTITY a 'b'>]><g><a>1</a><b>22<c/></g><d>3")
    assert dict(root.walk()) == {("g", "a"): "1", ("g", "b", "c"): ""}
