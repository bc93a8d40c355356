"""Who uses what, as metrics; and the documented table is the code's."""

import re
from pathlib import Path

from prometheus_client import generate_latest
from tests.router.scene import ROOT, card, scene, virtual

from hcs.model import names


def documented() -> dict[str, tuple[str, frozenset[str]]]:
    """Metric → type and labels, of the router's table."""
    rows = {}
    for line in (ROOT / "docs" / "metrics.md").read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("| `hcs_router_"):
            rows[cells[0].strip("`")] = (cells[1], frozenset(re.findall(r"`([^`]+)`", cells[2])))
    return rows


@virtual
async def test_what_is_documented_is_what_is_told(tmp_path: Path) -> None:
    async with scene(tmp_path) as s:
        meters = s.make_extender().meters
        told = {}
        for family in meters.registry._collector_to_names:
            for metric in family.describe():
                suffix = "_total" if metric.type == "counter" else ""
                labels = frozenset(getattr(family, "_labelnames", None) or getattr(metric, "_labelnames", ()))
                told[metric.name + suffix] = (metric.type, labels)
        assert told == documented()


@virtual
async def test_usage_is_summed_by_pod_and_namespace(tmp_path: Path) -> None:
    async with scene(tmp_path) as s:
        await s.add_node("n1", card(0), card(1), card(2))
        extender = await s.start_extender()
        await s.start_driver(s.http(extender))
        await s.add_pod("share", resources={names.VRAM: "16Gi", names.ACU: "20"})
        await s.add_pod("small", resources={names.VRAM: "8Gi"})
        await s.add_pod("two", resources={names.CARDS: "2", names.VRAM: "40Gi"})
        for name in ("share", "small", "two"):
            await s.bound(name)
        await s.until(lambda: len(extender.view.allocations) == 3)
        text = generate_latest(extender.meters.registry).decode()
        labels = '{model="A100-SXM4-80GB",namespace="default",node="n1",pod="share",vendor="nvidia"}'

        def value(metric: str) -> float:
            (found,) = [line for line in text.splitlines() if line.startswith(metric + " ")]
            return float(found.rpartition(" ")[2])

        assert value(f"hcs_router_pod_vram_bytes{labels}") == 16 << 30
        assert value(f"hcs_router_pod_acu{labels}") == 20
        assert value('hcs_router_namespace_vram_bytes{namespace="default"}') == (16 + 8 + 160) << 30
        assert value('hcs_router_namespace_acu{namespace="default"}') == 220
        assert value('hcs_router_namespace_cards{kind="shared",namespace="default"}') == 2
        assert value('hcs_router_namespace_cards{kind="whole",namespace="default"}') == 2
        await s.delete_pod("share")
        await s.until(lambda: len(extender.view.allocations) == 2)
        assert 'pod="share"' not in generate_latest(extender.meters.registry).decode()
