"""Figures asked of a real Prometheus: vendors' names and units, ages, exporters that die or repeat themselves."""

import asyncio
import time
from collections.abc import Awaitable, Callable

import pytest
from tests.observed import SECONDS, Exporter, Observed

from hcs.cpn.collect.cards import CardReading
from hcs.cpn.collect.figures import Bounds, Figures, ask
from hcs.cpn.collect.prometheus import Address, Prometheus, QueryError
from hcs.cpn.collect.sources import load_sources

pytestmark = pytest.mark.xdist_group("prometheus")
A100 = "NVIDIA A100-SXM4-80GB"
MIB, GIB = 1 << 20, 1 << 30
SOURCES = load_sources()
BOUNDS = Bounds(every=0.1, stale=180, window=1)


class Site:
    """One cluster's exporters and how it is asked."""

    def __init__(self, observed: Observed, name: str) -> None:
        self.observed, self.name = observed, name
        self.exporters: list[Exporter] = observed.exporters[name]
        self.client = Prometheus(Address(observed.url, labels={"cluster": name}), deadline=20)

    async def ask(self, known_jobs: frozenset[str] = frozenset(), **bounds: float) -> Figures:
        return await ask(self.client, SOURCES, Bounds(**{"window": 1, **bounds}), known_jobs)

    async def shows(
        self, check: Callable[[Figures], None], known_jobs: frozenset[str] = frozenset(), **bounds: float
    ) -> None:
        """Ask until nothing that a check asserts fails: a scrape may come in between, or too late on a busy machine."""
        end = time.monotonic() + SECONDS / 2  # under the limit of a test, so that it is the assertion that is shown
        while True:
            figures = await self.ask(known_jobs, **bounds)
            try:
                return check(figures)
            except AssertionError:
                if time.monotonic() > end:
                    raise
            await asyncio.sleep(0.05)


def told(name: str, story: Callable[[Site], Awaitable[None]], observed: Observed) -> None:
    """Tell a story in real time."""

    async def main() -> None:
        site = Site(observed, name)
        try:
            await story(site)
        finally:
            await site.client.close()

    asyncio.run(main())


def dcgm(exporter: Exporter, uuid: str, *, util: float = 50, used: float = 1000, free: float = 80000) -> None:
    labels = {"UUID": uuid, "gpu": "0", "modelName": A100, "Hostname": "n1"}
    exporter.set("DCGM_FI_DEV_GPU_UTIL", util, **labels)
    exporter.set("DCGM_FI_DEV_FB_USED", used, **labels)
    exporter.set("DCGM_FI_DEV_FB_FREE", free, **labels)
    exporter.set("DCGM_FI_DEV_XID_ERRORS", 0, **labels)


def npu(exporter: Exporter, id: str, *, at: float | None = None, util: float = 30, used: float = 3000) -> None:
    exporter.set("npu_chip_info_utilization", util, at, id=id)
    exporter.set("npu_chip_info_hbm_used_memory", used, at, id=id)
    exporter.set("npu_chip_info_hbm_total_memory", 32255, at, id=id)
    exporter.set("npu_chip_info_health_status", 1, at, id=id)


def devices(figures: Figures) -> set[str]:
    return {card.device for card in figures.cards}


def down(exporter: Exporter) -> str:
    return f"exporter {exporter.instance} (job exporters) is down, so its figures are not used"


@pytest.mark.parametrize(
    ("expression", "reason", "words"),
    [
        pytest.param("up{", "BadQuery", "unexpected end of input", id="400-unclosed-bracket"),
        pytest.param("", "BadQuery", "does not understand the query", id="400-no-query"),
        pytest.param("up * on(job) up", "QueryFailed", "duplicate series", id="422-many-to-many"),
        pytest.param('label_replace(up, "a", "b", "c", "(")', "QueryFailed", "regular expression", id="422-bad-regex"),
        pytest.param("up[1m]", "BadAnswer", "matrix", id="a-range"),
        pytest.param('"text"', "BadAnswer", "string", id="a-text"),
    ],
)
def test_every_way_to_say_no_becomes_a_reason(prometheus: Observed, expression: str, reason: str, words: str) -> None:
    async def story(site: Site) -> None:
        with pytest.raises(QueryError) as caught:
            await site.client.query(expression)
        assert caught.value.refusal.reason == reason
        assert words in caught.value.refusal.message

    told("errors", story, prometheus)


def test_a_wrong_prefix_a_missing_metric_and_what_is_no_number(prometheus: Observed) -> None:
    async def story(site: Site) -> None:
        lost = Prometheus(Address(f"{prometheus.url}/prefix"))
        with pytest.raises(QueryError) as caught:
            await lost.query("up")  # 404 in plain text
        await lost.close()
        assert caught.value.refusal.reason == "NotPrometheus"
        assert (await site.client.query("no_such_metric")).samples == ()  # success, not an error
        for text in ("0/0", "1/0", "-1/0", "vector(9223372036854775794)"):
            (sample,) = (await site.client.query(f"vector(1) * {text}")).samples
            assert sample.value is None
        (two,) = (await site.client.query("1 + 1")).samples
        assert two.value == 2.0
        past = (await site.client.query("vector(time())", at=1_000_000.5)).samples[0]
        assert past.value == 1_000_000.5

    told("errors", story, prometheus)


def test_two_vendors_at_once_each_in_its_own_units(prometheus: Observed) -> None:
    async def story(site: Site) -> None:
        one, other = site.exporters
        dcgm(one, "GPU-a", util=75, used=20480, free=61440)
        npu(other, "0", util=40, used=8192)

        def check(figures: Figures) -> None:
            assert [card.vendor for card in figures.cards] == ["nvidia", "ascend"]
            nvidia, ascend = figures.cards
            amounts = (20 * GIB, 80 * GIB, 0.75, True, nvidia.age, one.instance)
            places = ("n1", "127.0.0.1")
            assert nvidia == CardReading("dcgm-exporter", "nvidia", "n1", "GPU-a", 0, A100, *amounts, places, 30_000)
            assert (ascend.used, ascend.total, ascend.utilization, ascend.healthy) == (8 * GIB, 32255 * MIB, 0.4, True)
            assert ascend.node == "127.0.0.1"
            assert 0 <= nvidia.age < 60_000
            assert figures.missing == figures.doubts == ()
            assert figures.jobs == {"exporters"}

        await site.shows(check)

    told("vendors", story, prometheus)


def test_what_dcgm_cannot_read_is_missing_and_a_xid_is_a_code_and_not_a_count(prometheus: Observed) -> None:
    async def story(site: Site) -> None:
        (one,) = site.exporters
        dcgm(one, "GPU-a", used=9223372036854775794.0)
        dcgm(one, "GPU-b")
        for uuid, code in (("GPU-a", 43.0), ("GPU-b", 79.0)):
            labels = {"UUID": uuid, "gpu": "0", "modelName": A100, "Hostname": "n1"}
            one.set("DCGM_FI_DEV_XID_ERRORS", code, **labels)

        def check(figures: Figures) -> None:
            assert [card.device for card in figures.cards] == ["GPU-a", "GPU-b"]
            a, b = figures.cards
            assert (a.used, a.total) == (None, None)  # the total is used and free together
            assert a.utilization == 0.5
            assert a.healthy is True  # 43 is a fault of a program, though the number is larger than nought
            assert b.healthy is False  # 79: fell off the bus
            assert b.used == 1000 * MIB
            assert figures.doubts == ("DCGM_FI_DEV_FB_USED has values that are no numbers; they count as missing",)

        await site.shows(check)

    told("health", story, prometheus)


def test_a_dead_exporter_leaves_and_is_named(prometheus: Observed) -> None:
    async def story(site: Site) -> None:
        dying, living = site.exporters
        dcgm(dying, "GPU-dies")
        dcgm(living, "GPU-lives")

        def both(figures: Figures) -> None:
            assert devices(figures) == {"GPU-dies", "GPU-lives"}
            assert figures.missing == ()

        def one(figures: Figures) -> None:
            assert devices(figures) == {"GPU-lives"}
            assert figures.missing == (down(dying),)

        def nobody_knows(figures: Figures) -> None:
            assert figures.cards == figures.missing == ()

        def none(figures: Figures) -> None:
            assert figures.cards == ()
            assert set(figures.missing) == {down(dying), down(living)}

        await site.shows(both)
        dying.die()
        await site.shows(one)
        living.die()
        await site.shows(nobody_knows)  # what it was that died
        await site.shows(none, frozenset({"exporters"}))

    told("death", story, prometheus)


def test_samples_with_their_own_times_do_not_outlive_their_exporter(prometheus: Observed) -> None:
    """Prometheus serves them for five minutes more; who asks for the value alone takes a dead card for a live one."""

    async def story(site: Site) -> None:
        dying, old = site.exporters
        now = time.time()
        npu(dying, "0", at=now - 20)
        npu(old, "1", at=now - 100)

        def both(figures: Figures) -> None:
            ages = {card.device: card.age for card in figures.cards}
            assert ages.keys() == {"0", "1"}
            assert 19_000 <= ages["0"] <= 80_000
            assert 99_000 <= ages["1"] <= 160_000

        def young(figures: Figures) -> None:
            assert devices(figures) == {"0"}
            assert "figures of npu_chip_info_utilization are older than 90 s and not used" in figures.missing

        def living(figures: Figures) -> None:
            assert devices(figures) == {"1"}
            assert figures.missing == (down(dying),)

        await site.shows(both)
        await site.shows(young, stale=90)
        dying.die()
        await site.shows(living)
        assert len(prometheus.value('npu_chip_info_utilization{cluster="own-times"}')) == 2  # still served

    told("own-times", story, prometheus)


def test_a_card_that_vanishes_from_a_living_exporter_is_gone(prometheus: Observed) -> None:
    async def story(site: Site) -> None:
        (exporter,) = site.exporters
        dcgm(exporter, "GPU-stays")
        dcgm(exporter, "GPU-goes")

        def both(figures: Figures) -> None:
            assert devices(figures) == {"GPU-goes", "GPU-stays"}

        def one(figures: Figures) -> None:
            assert devices(figures) == {"GPU-stays"}
            assert figures.missing == ()

        await site.shows(both)
        for name in ("GPU_UTIL", "FB_USED", "FB_FREE", "XID_ERRORS"):
            exporter.forget(f"DCGM_FI_DEV_{name}", UUID="GPU-goes", gpu="0", modelName=A100, Hostname="n1")
        await site.shows(one)

    told("vanished", story, prometheus)


def test_an_exporter_that_repeats_itself_is_doubted(prometheus: Observed) -> None:
    """One card's power moves, the other's figures all stand still: a flat line is no proof of life."""

    async def story(site: Site) -> None:
        (one,) = site.exporters
        for number in ("0", "1"):
            card = {"device_id": f"card{number}", "minor_number": number, "Hostname": "n1"}
            one.set("dcu_utilizationrate", 90, **card)
            one.set("dcu_usedmemory_bytes", 8 * GIB, **card)
            one.set("dcu_memorycap_bytes", 64 * GIB, **card)
            one.set("dcu_power_usage", 200, **card)
        moving = {"device_id": "card0", "minor_number": "0", "Hostname": "n1"}
        await prometheus.eventually('dcu_power_usage{cluster="repeats"} offset 1s', 2)
        watts = iter(range(201, 100_000))

        def check(figures: Figures) -> None:
            one.set("dcu_power_usage", next(watts), **moving)
            assert devices(figures) == {"card0", "card1"}
            moves, still = figures.cards
            assert moves.age < 1000 <= still.age
            assert (moves.used, still.used) == (8 * GIB, 8 * GIB)
            (doubt,) = figures.doubts
            assert doubt.startswith("dcu-exporter has said the same of some cards for 1 s; it may be repeating old")

        await site.shows(check)

    told("repeats", story, prometheus)


def test_units_that_cannot_be_right_are_left_out_and_said(prometheus: Observed) -> None:
    async def story(site: Site) -> None:
        (one,) = site.exporters
        one.set("mx_memory_used", 4 * MIB, uuid="M")  # KB
        one.set("mx_memory_total", 64 * MIB, uuid="M")
        one.set("mlu_memory_used", 1024, uuid="C")  # said to be bytes; a card of 48 kB is none
        one.set("mlu_memory_total", 49152, uuid="C")
        one.set("ix_mem_used", 1024, uuid="I")  # nobody says which unit; only MiB makes it a card
        one.set("ix_mem_total", 32768, uuid="I")
        one.set("node_xpu_memused", 1, uuid="K")
        one.set("node_xpu_memtotal", 5, uuid="K")  # no unit does
        one.set("mtgpu_memory_used_bytes", 90 * GIB, uuid="T")
        one.set("mtgpu_memory_total_bytes", 48 * GIB, uuid="T")
        one.set("mtgpu_gpu_utilization", 140, uuid="T")
        one.set("enflame_gcu_health", 1, uuid="E")
        advice = "say its unit in the metrics file (docs/cpn-collecting.md)"

        def check(figures: Figures) -> None:
            found = {card.vendor: (card.used, card.total, card.utilization, card.healthy) for card in figures.cards}
            assert found == {
                "metax": (4 * GIB, 64 * GIB, None, None),
                "cambricon": (None, None, None, None),
                "iluvatar": (GIB, 32 * GIB, None, None),
                "kunlunxin": (None, None, None, None),
                "mthreads": (None, 48 * GIB, None, None),
                "enflame": (None, None, None, None),
            }
            assert figures.doubts == (
                "enflame_gcu_health has the value 1, whose meaning is not known",
                f"mlu_memory_used: counted in B, its total is no card's memory, so it is left out; {advice}",
                "mtgpu_gpu_utilization is not always in 0 to 100; that is left out",
                "mtgpu_memory_used_bytes is above the total on some cards; it is left out",
                f"node_xpu_memused: no unit makes its total the memory of a card; {advice}",
            )

        await site.shows(check)

    told("units", story, prometheus)


def test_hosts_are_busy_by_the_time_they_are_not_idle(prometheus: Observed) -> None:
    """The exporters tell a minute in a second, by giving each sample its own time."""

    async def story(site: Site) -> None:
        working, resting = site.exporters
        now = time.time()
        for ago in range(70, -10, -10):
            for exporter, idle in ((working, 100.0), (resting, 170.0 - ago)):
                exporter.set("node_cpu_seconds_total", 100.0, now - ago, cpu="0", mode="idle")
                exporter.set("node_cpu_seconds_total", idle, now - ago, cpu="1", mode="idle")
                exporter.set("node_cpu_seconds_total", 5.0, now - ago, cpu="1", mode="user")
            there = f'timestamp(node_cpu_seconds_total{{cluster="hosts"}}) >= {now - ago - 0.01:.3f}'
            await prometheus.eventually(there, 6)
        for exporter, free in ((working, 10), (resting, 20)):
            exporter.set("node_memory_MemAvailable_bytes", free * GIB)

        def both(figures: Figures) -> None:
            busy = {host.free: host.busy for host in figures.hosts}
            assert busy.keys() == {10 * GIB, 20 * GIB}
            assert busy[10 * GIB] == 1.0
            assert 0.45 <= (busy[20 * GIB] or 0) <= 0.7

        def one(figures: Figures) -> None:
            assert [host.free for host in figures.hosts] == [20 * GIB]  # though the other's rate is still there

        await site.shows(both)
        working.die()
        await site.shows(one)

    told("hosts", story, prometheus)
