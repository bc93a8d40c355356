"""What is known of the clusters, as metrics; and the documented table is the code's."""

import re
from pathlib import Path

from prometheus_client import CollectorRegistry, generate_latest
from tests.cpn.collect.test_view import Room, room
from tests.router.scene import ROOT, virtual

from hcs.cpn.collect.meters import ClusterMeters


def documented() -> dict[str, tuple[str, tuple[str, ...]]]:
    rows = {}
    for line in (ROOT / "docs" / "metrics.md").read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith(("| `hcs_cpn_cluster_", "| `hcs_cpn_metric_rounds")):
            rows[cells[0].strip("`")] = (cells[1], tuple(re.findall(r"`([^`]+)`", cells[2])))
    return rows


def meters(r: Room) -> ClusterMeters:
    return ClusterMeters(lambda: {"east": r.cluster})


@virtual
async def test_what_is_documented_is_what_is_told(tmp_path: Path) -> None:
    async with room(tmp_path) as r:
        told = {
            family.name + ("_total" if family.type == "counter" else ""): (family.type, tuple(family._labelnames))  # type: ignore[attr-defined]
            for family in meters(r).collect()
        }
        assert told == documented()


@virtual
async def test_the_figures_are_those_of_the_view(tmp_path: Path) -> None:
    async with room(tmp_path) as r:
        r.metrics.card("nvidia-0", 50, 1024, age=3)
        await r.asked()
        registry = CollectorRegistry()
        registry.register(meters(r))
        text = generate_latest(registry).decode()
        assert 'hcs_cpn_cluster_reachable{cluster="east"} 1.0' in text
        assert 'hcs_cpn_cluster_cards{cluster="east",model="A100-SXM4-80GB",state="usable"} 2.0' in text
        assert 'hcs_cpn_metric_rounds_total{cluster="east",result="Answered"} 2.0' in text
        missing = len(r.cluster.view().missing)
        assert missing
        assert f'hcs_cpn_cluster_missing_metrics{{cluster="east"}} {missing}.0' in text
        (age,) = re.findall(r'metrics_age_seconds\{cluster="east"\} ([0-9.]+)', text)
        assert float(age) >= 3
