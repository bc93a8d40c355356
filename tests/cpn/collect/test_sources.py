"""The tables of exporters: what comes with the package, and what a site's own file changes."""

import re
from pathlib import Path

import msgspec
import pytest
from tests.router.scene import ROOT

from hcs.agent.figures import GAUGES
from hcs.cpn.collect.registry import Settings
from hcs.cpn.collect.sources import load_sources
from hcs.model.refusals import RefusedError

DOCUMENTED = {
    "dcgm-exporter": ("DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_FB_USED", "MiB"),
    "npu-exporter": ("npu_chip_info_utilization", "npu_chip_info_hbm_used_memory", "MiB"),
    "mlu-exporter": ("mlu_utilization", "mlu_memory_used", "B"),
    "dcu-exporter": ("dcu_utilizationrate", "dcu_usedmemory_bytes", "B"),
    "mthreads-exporter": ("mtgpu_gpu_utilization", "mtgpu_memory_used_bytes", "B"),
    "mx-exporter": ("mx_gpu_usage", "mx_memory_used", "KiB"),
    "ix-exporter": ("ix_gpu_utilization", "ix_mem_used", "by-total"),
    "xpu-exporter": ("node_xpu_utilization", "node_xpu_memused", "by-total"),
    "gcu-exporter": ("enflame_gcu_usage", "enflame_gcu_memory_used_bytes", "B"),
    "hcs-agent": ("hcs_card_utilization_percent", "hcs_card_memory_used_bytes", "B"),
}


def test_every_vendor_has_its_own_names_and_unit() -> None:
    told = {
        source.name: (source.utilization.metrics[0], source.used.metrics[0], source.used.unit)
        for source in load_sources()
        if source.utilization is not None and source.used is not None
    }
    assert told == DOCUMENTED


def test_the_example_of_the_documentation_is_a_metrics_file(tmp_path: Path) -> None:
    text = (ROOT / "docs" / "cpn-collecting.md").read_text()
    (example,) = re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)
    path = tmp_path / "metrics.yaml"
    path.write_text(example)
    assert len(load_sources(path)) == len(load_sources())  # one added, one switched off
    for source in load_sources():
        assert source.host or f"| `{source.name}` |" in text


def test_our_own_agent_is_asked_for_what_it_tells() -> None:
    told = {name: factor for name, _, factor, _ in GAUGES}
    (agent,) = [source for source in load_sources() if source.name == "hcs-agent"]
    assert agent.utilization is not None
    assert agent.used is not None
    assert told[agent.utilization.metrics[0]] == 1
    assert agent.utilization.full == 100
    assert told[agent.used.metrics[0]] == 2**20  # from MiB, so it is bytes
    assert agent.used.unit == "B"


def test_no_metric_belongs_to_two_exporters() -> None:
    names = [name for source in load_sources() for name in source.metrics()]
    assert len(names) == len(set(names))


def test_a_site_changes_adds_and_switches_off(tmp_path: Path) -> None:
    path = tmp_path / "metrics.yaml"
    path.write_text(
        """
mlu-exporter: {used: {metrics: [site_mlu_used], unit: MiB}}
ix-exporter: null
our-exporter: {vendor: amd, identity: [card], utilization: {metrics: [our_busy], full: 1}}
"""
    )
    before = {source.name: source for source in load_sources()}
    after = {source.name: source for source in Settings(metrics_file=str(path)).arguments()["sources"]}
    assert "ix-exporter" not in after
    assert after["mlu-exporter"].used != before["mlu-exporter"].used
    assert after["mlu-exporter"].total == before["mlu-exporter"].total
    assert after["our-exporter"].utilization is not None
    assert after["our-exporter"].node == ("node", "kubernetes_node", "instance")
    assert {name: source for name, source in after.items() if name in before and name != "mlu-exporter"} == {
        name: source for name, source in before.items() if name not in ("mlu-exporter", "ix-exporter")
    }


@pytest.mark.parametrize(
    ("text", "words"),
    [
        pytest.param("- a", "must be a mapping", id="a-list"),
        pytest.param("a: {", "expected", id="no-yaml"),
        pytest.param("mlu-exporter: 5", "must be a mapping of fields, or null", id="a-number"),
        pytest.param("mlu-exporter: {use: {}}", "unknown field `use`", id="unknown-field"),
        pytest.param("mlu-exporter: {used: {metrics: [a], unit: PB}}", "Invalid enum value 'PB'", id="unknown-unit"),
        pytest.param("mlu-exporter: {used: {metrics: ['a b']}}", "'a b' is no name of a metric", id="no-metric"),
        pytest.param("mlu-exporter: {identity: []}", "identity names no label", id="no-identity"),
        pytest.param("x: {vendor: acme, identity: [a], pulse: [a]}", "vendor 'acme' is none of nvidia", id="vendor"),
        pytest.param("x: {vendor: amd, identity: [a]}", "it names no metric", id="nothing"),
        pytest.param("ix-exporter: {total: null}", "by-total needs a total", id="nothing-to-tell-by"),
        pytest.param("mlu-exporter: {utilization: {metrics: [a], full: 0}}", "full must be above 0", id="full"),
    ],
)
def test_what_is_wrong_with_a_sites_file_is_said(text: str, words: str, tmp_path: Path) -> None:
    path = tmp_path / "metrics.yaml"
    path.write_text(text)
    with pytest.raises(RefusedError) as caught:
        load_sources(path)
    (refusal,) = caught.value.refusals
    assert refusal.reason == "BadMetricsFile"
    assert refusal.message.startswith(f"metrics file {path}: ")
    assert words in refusal.message


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(RefusedError, match="No such file"):
        Settings(metrics_file=str(tmp_path / "none")).arguments()


def test_timing_may_be_set_in_words_of_the_file() -> None:
    settings = msgspec.convert({"timing": {"beat": 1, "metrics": {"every": 60, "stale": 300}}}, Settings, strict=False)
    timing = settings.arguments()["timing"]
    assert (timing.beat, timing.metrics.every, timing.metrics.window) == (1, 60, 600)


@pytest.mark.parametrize("beat", [0, -1, float("nan"), float("inf")])
def test_nothing_may_be_asked_without_a_pause(beat: float) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({"timing": {"beat": beat}}, Settings)
