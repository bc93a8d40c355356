"""A site's own rates: over the catalogue's, on the cards of the fleet as well, and under what was measured."""

from pathlib import Path

from tests.router.scene import card, scene, virtual

from hcs.kube.resources import ExchangeRate
from hcs.model import names
from hcs.model.devices import NodeInventory, Rate
from hcs.model.pods import ObjectMeta
from hcs.router.references import overlaid, read_site_rates, reference_rates, with_site_rates


def site(vendor: str, model: str, *rates: Rate) -> dict[str, object]:
    return {
        "vendor": vendor,
        "model": model,
        "rates": [{"workload": r.workload, "milliacu": r.milliacu, "source": r.source} for r in rates],
    }


def test_a_sites_rate_stands_in_the_place_of_the_catalogues() -> None:
    ours = read_site_rates([site("nvidia", "L4", Rate("decode", 12_345, "benchmark"))])
    assert Rate("decode", 12_345, "benchmark") in overlaid(reference_rates(), ours)["L4"]
    assert reference_rates()["L4"] != overlaid(reference_rates(), ours)["L4"]


def test_a_model_the_catalogue_lacks_is_known_by_the_sites_word() -> None:
    assert overlaid({}, read_site_rates([site("nvidia", "X9", Rate("gemm", 1000, "measured"))]))["x9"]


def test_cards_of_the_fleet_get_the_sites_rates_except_over_measured_ones() -> None:
    stated = read_site_rates(
        [site("ascend", "910b3", Rate("gemm", 1000, "datasheet"), Rate("decode", 70, "benchmark"))]
    )
    (device,) = with_site_rates(NodeInventory("n", (card(0, "ascend"),)), stated).devices
    assert device.rates == (Rate("gemm", 100_320, "measured"), Rate("decode", 70, "benchmark"))


def test_what_cannot_be_read_states_nothing() -> None:
    assert read_site_rates([{"vendor": "nvidia", "model": "L4", "rates": [{"workload": "gemm"}]}]) == {}
    assert read_site_rates([site("nvidia", "L4", Rate("sleep", 5, "measured"))]) == {("nvidia", "l4"): ()}


@virtual
async def test_a_stated_rate_takes_effect_at_once(tmp_path: Path) -> None:
    """Nobody knows what the card does in decode, until somebody says so."""
    async with scene(tmp_path) as s:
        await s.add_node("n1", card(0, "ascend"))
        await s.start_driver(s.http(await s.start_extender()))
        await s.add_pod("p", resources={names.VRAM: "8Gi", names.ACU: "10"}, annotations={names.WORKLOAD: "decode"})
        assert "NoRate" in await s.waiting("p")
        spec = site("ascend", "910B3", Rate("decode", 50_000, "benchmark"))
        rate = ExchangeRate(
            apiVersion="ai.compute/v1alpha1", kind="ExchangeRate", metadata=ObjectMeta(name="r"), spec=spec
        )
        await s.client.create(rate)
        await s.bound("p", seconds=5)
        (grant,) = (await s.allocations())["p"].containers["main"]
        assert grant.milliacu == 20_064
