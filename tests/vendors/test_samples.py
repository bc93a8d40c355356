"""What real tools printed, against what a person reads in it. The samples are not part of the project."""

import itertools
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.samples import SAMPLES

from hcs.vendors.parsing.report import FIELDS
from hcs.vendors.parsing.tools import parse

PROBES = SAMPLES.parents[1] / "fixtures" / "probes"
EXPECTATIONS = Path(__file__).parent / "expectations"
VENDORS = {
    "cnmon": "cambricon",
    "efsmi": "enflame",
    "hl-smi": "intel",
    "hy-smi": "hygon",
    "ixsmi": "iluvatar",
    "kernel-log": "nvidia",
    "mthreads-gmi": "mthreads",
    "mx-smi": "metax",
    "npu-smi": "ascend",
    "nvidia-smi": "nvidia",
    "rocm-smi": "amd",
    "xpu-smi-intel": "intel",
    "xpu-smi-kunlunxin": "kunlunxin",
}
CASES = [
    pytest.param(path.stem, name, expected, id=f"{path.stem}/{name}")
    for path in sorted(EXPECTATIONS.glob("*.yaml"))
    for name, expected in yaml.safe_load(path.read_text()).items()
]
present = pytest.mark.skipif(not PROBES.is_dir(), reason=f"no recorded samples in {PROBES}; set HCS_SHARED")


def expected_devices(tool: str, expected: dict[str, Any]) -> list[dict[str, Any]]:
    everywhere = {**dict.fromkeys(FIELDS), "vendor": VENDORS[tool], **expected.get("each", {})}
    columns = expected.get("columns", [])
    return [{**everywhere, **dict(zip(columns, row, strict=True))} for row in expected["rows"]]


@present
@pytest.mark.parametrize(("tool", "name", "expected"), CASES)
def test_a_sample_says_what_a_person_reads_in_it(tool: str, name: str, expected: dict[str, Any]) -> None:
    found = parse(tool, (PROBES / tool / name).read_bytes(), expected.get("command", "")).to_object()
    shown = [{field: device[field] for field in FIELDS} for device in found["devices"]]
    assert shown == expected_devices(tool, expected)
    more = expected.get("more", {})
    assert all({key: device.get(key) for key in more} == more for device in found["devices"])
    report = {"version": None, "driver": None, "gpus": None, "links": None, "numa": None, "errors": []}
    report |= expected.get("report", {})
    if "mesh" in expected:
        pairs = itertools.combinations(report["gpus"], 2)
        links = {f"{one}-{other}": expected["mesh"] for one, other in pairs}
        some = expected.get("some_links", {})
        assert {key: word for key, word in found["links"].items() if key in links or key in some} == links | some
        assert "some_links" in expected or found["links"] == links
        report["links"] = found["links"]
    assert {key: found.get(key) for key in report} == report


@present
def test_every_sample_has_its_expectation() -> None:
    there = {str(path.relative_to(PROBES)) for path in PROBES.rglob("*") if path.is_file() and path.name != "README.md"}
    assert there == {str(Path(str(case.values[0])) / str(case.values[1])) for case in CASES}
    assert len(CASES) == 63


@present
def test_a_headerless_answer_to_the_usual_question_needs_no_command() -> None:
    sample = (PROBES / "ixsmi/query-gpu/2x-MR_gpustack.csv").read_bytes()
    assert [device["memory_used_mib"] for device in parse("ixsmi", sample).devices] == [116, 27996]
