"""What metrics add to a cluster's view: figures by pool, that grow older, and sentences where some are missing."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.cpn.collect.answering import Metrics, refusal
from tests.cpn.collect.sites import live
from tests.router.scene import GIB, Scene, card, scene, virtual

from hcs.cpn.collect.cluster import LiveCluster, Timing
from hcs.cpn.collect.figures import Bounds
from hcs.cpn.views import PoolView, Reading
from hcs.store.clusters import ClusterConfig

A100 = "A100-SXM4-80GB"


class Room:
    def __init__(self, s: Scene, **settings: Any) -> None:
        self.s, self.metrics, self.told = s, Metrics(), list[str]()
        self.cluster: LiveCluster = live(
            s,
            ClusterConfig("east", prometheus="http://prometheus"),
            prometheus=self.metrics.make,
            on_change=self.told.append,
            timing=Timing(metrics=Bounds(every=15, stale=120)),
            **settings,
        )

    def pool(self, kind: str = A100) -> PoolView:
        return next((one for one in self.cluster.view().pools if one.kind == kind), PoolView(kind, 0))

    async def asked(self) -> None:
        """Until a round that begins from now on is over."""
        before = self.cluster.rounds.total()
        await self.s.until(lambda: self.cluster.rounds.total() >= before + 2 and self.cluster.view().reachable)


@contextlib.asynccontextmanager
async def room(folder: Path) -> AsyncIterator[Room]:
    async with scene(folder) as s:
        await s.add_node("n1", card(0), card(1))
        yield Room(s)


@virtual
async def test_figures_are_put_to_the_pool_of_their_card(tmp_path: Path) -> None:
    async with room(tmp_path) as r:
        await r.s.add_node("n2", card(0, "ascend"))
        r.metrics.card("nvidia-0", 50, 1024, age=3)
        r.metrics.card("nvidia-1", 100, 3072, age=7)
        r.metrics.host("n1", 0.25, 7 * GIB)
        await r.asked()
        view = r.cluster.view()
        ascend, nvidia = view.pools
        assert nvidia.busy is not None
        assert nvidia.used is not None
        assert (nvidia.busy.value, nvidia.used.value) == (0.75, 2 * GIB)
        assert 7_000 <= nvidia.busy.age <= 23_000  # as old as the oldest in it, and some since it was asked
        assert (ascend.busy, ascend.used) == (None, None)
        assert view.cpu_busy is not None
        assert view.host_free is not None
        assert (view.cpu_busy.value, view.host_free.value) == (0.25, 7 * GIB)
        assert nvidia.cpu_busy is not None
        assert (nvidia.cpu_busy.value, nvidia.cpu_busy.age) == (0.25, view.cpu_busy.age)
        assert ascend.cpu_busy is None  # its host is another
        assert view.missing == (
            "utilisation and memory in use of 910B3 are not known: no hcs_card_utilization_percent or "
            "npu_chip_info_utilization and no hcs_card_memory_used_bytes or npu_chip_info_hbm_used_memory; let its "
            "Prometheus scrape npu-exporter (port 8082) or hcs-agent",
        )


@virtual
async def test_a_cluster_out_of_reach_is_logged_once_and_what_is_missing_there_too(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with scene(tmp_path) as s:
        caplog.set_level("INFO", "hcs.cpn.collect.notices")
        down = True
        r = Room(s, transport=s.faulty(lambda _: "refuse" if down else None))
        r.metrics.broken = refusal(503, "unavailable", "starting")
        await asyncio.sleep(60)
        lost = (
            "cluster unreachable: cluster=east message=cluster east at http://kubernetes cannot be used: no connection"
        )
        assert caplog.text.count(lost) == 1
        assert caplog.text.count("what=Prometheus at http://prometheus is starting, stopping or overloaded") == 1
        assert "reachable: cluster=east\n" not in caplog.text
        down = False
        await s.until(lambda: r.cluster.view().reachable)
        await asyncio.sleep(60)
        assert caplog.text.count("cluster reachable: cluster=east\n") == 1


@virtual
async def test_a_figure_grows_older_until_it_says_nothing(tmp_path: Path) -> None:
    async with room(tmp_path) as r:
        r.metrics.card("nvidia-0", 50, 1024, age=3)
        await r.asked()
        first = r.pool().busy
        assert first is not None
        r.metrics.broken = None  # it hangs from now on
        await r.s.until(lambda: r.cluster.rounds["PrometheusTimeout"] == 1)
        later = r.pool().busy
        assert later is not None
        assert later.value == 0.5
        assert later.age > first.age
        assert r.cluster.view().reachable  # the API is another matter
        assert r.cluster.view().missing[0] == "Prometheus at http://prometheus gave no answer within 5 s"
        await r.s.until(lambda: r.pool().busy is None, seconds=300)
        assert r.s.loop.time() >= 120
        r.metrics.broken = ""
        await r.s.until(lambda: r.pool().busy is not None)
        assert r.cluster.view().missing[0].startswith("free host memory is not known")


@virtual
async def test_how_old_readings_of_single_cards_are_is_known_while_nobody_answers(tmp_path: Path) -> None:
    """Who asks whether a reading is from before a job began must not take the last tenant's memory for the job's."""
    async with room(tmp_path) as r:
        assert r.cluster.asked_ago == 0
        r.metrics.card("nvidia-0", 50, 1024, age=3)
        await r.asked()
        r.metrics.broken = None
        await asyncio.sleep(60)
        (reading,) = r.cluster.cards
        assert reading.age == 3000
        assert 60_000 <= r.cluster.asked_ago <= 76_000


@virtual
async def test_no_figure_is_older_than_what_is_too_old(tmp_path: Path) -> None:
    """However it came to be so old: before it was asked for, or since."""
    async with room(tmp_path) as r:
        r.metrics.card("nvidia-0", 50, 1024, age=100)
        await r.asked()
        assert r.pool().busy is not None
        r.metrics.broken = None
        for _ in range(60):
            await asyncio.sleep(1)
            assert (busy := r.pool().busy) is None or busy.age <= 120_000
        assert r.pool().busy is None


@virtual
async def test_a_node_is_found_by_any_of_its_names(tmp_path: Path) -> None:
    """Of what labels call it the first that the cluster knows counts, in any case, with or without its domain."""
    async with room(tmp_path) as r:
        for names in (
            {"Hostname": "dcgm-exporter-x7k2p", "node": "n1"},
            {"Hostname": "N1"},
            {"Hostname": "n1.site.example"},
        ):
            r.metrics.series.clear()
            r.metrics.say("DCGM_FI_DEV_GPU_UTIL", 50, UUID="by-number", gpu="1", **names)
            await r.asked()
            (reading,) = r.cluster.cards
            assert (reading.node, reading.device) == ("n1", "nvidia-1"), names


@virtual
async def test_a_card_that_two_targets_tell_of_counts_once_though_its_node_is_not_known(tmp_path: Path) -> None:
    async with room(tmp_path) as r:
        await r.s.add_node("n2", card(0, "ascend"))
        for instance, age in (("10.244.0.7:8082", 3), ("10.244.0.9:8082", 90)):
            labels = {"vdie_id": "6B0A1C2D-20A01234-7F8E9D0C", "id": "0", "instance": instance}
            r.metrics.say("npu_chip_info_utilization", age, age, **labels)
        await r.asked()
        assert [reading.utilization for reading in r.cluster.cards] == [0.03]


@virtual
async def test_an_exporter_that_is_scraped_by_the_address_of_its_pod_is_on_that_pods_node(tmp_path: Path) -> None:
    async with room(tmp_path) as r:
        await r.s.post(
            "/api/v1/namespaces/default/pods",
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": "exporter", "namespace": "default"},
                "spec": {"nodeName": "n1", "containers": [{"name": "c", "image": "example.invalid/e:1"}]},
            },
        )
        addresses = [{"ip": "10.244.0.7"}, {"ip": "fd00::7"}]
        await r.s.set_status("exporter", phase="Running", podIP="10.244.0.7", podIPs=addresses)
        for address in ("10.244.0.7:9400", "[fd00::7]:9400"):
            r.metrics.series.clear()
            r.metrics.say("DCGM_FI_DEV_GPU_UTIL", 50, UUID="by-number", gpu="1", instance=address)
            await r.asked()
            (reading,) = r.cluster.cards
            assert (reading.node, reading.device) == ("n1", "nvidia-1"), address


@virtual
async def test_what_is_missing_is_logged_once_and_when_it_is_back(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with room(tmp_path) as r:
        caplog.set_level("INFO", "hcs.cpn.collect.notices")
        for uuid in ("nvidia-0", "nvidia-1"):
            r.metrics.card(uuid, 50, 1024)
        r.metrics.host("n1", 0.25, 7 * GIB)
        await r.asked()
        assert caplog.text.count("metrics complete: cluster=east") == 1
        removed = {key: r.metrics.series.pop(key) for key in list(r.metrics.series) if "nvidia-1" in key}
        await r.asked()
        await r.asked()
        lost = f"metrics missing: cluster=east what=utilisation is known of 1 of 2 {A100} only; "
        assert caplog.text.count(lost) == 1
        r.metrics.broken = refusal(503, "unavailable", "starting")
        await r.asked()
        await r.asked()
        assert caplog.text.count("is starting, stopping or overloaded") == 1
        r.metrics.broken = ""
        r.metrics.series.update(removed)
        await r.asked()
        assert caplog.text.count(lost.replace("missing", "back")) == 1
        assert r.cluster.view().missing == ()


@virtual
async def test_metrics_that_change_are_told_and_age_alone_is_not(tmp_path: Path) -> None:
    async with room(tmp_path) as r:
        r.metrics.card("nvidia-0", 50, 1024)
        await r.asked()
        r.told.clear()
        await r.asked()
        assert r.told == []
        r.metrics.card("nvidia-0", 60, 1024)
        await r.asked()
        assert r.told == ["east"]


@virtual
async def test_cards_are_found_by_number_by_model_or_by_being_the_only_kind(tmp_path: Path) -> None:
    async with scene(tmp_path) as s:
        await s.add_node("n1", card(0), card(1, model="H100-SXM5"))
        await s.add_node("n2", card(0, "ascend"))
        r = Room(s)
        r.metrics.say("DCGM_FI_DEV_GPU_UTIL", 10, UUID="by-number", gpu="1", Hostname="n1")
        r.metrics.say("DCGM_FI_DEV_GPU_UTIL", 20, UUID="by-model", modelName="NVIDIA A100-SXM4-80GB", Hostname="n9")
        r.metrics.say("DCGM_FI_DEV_GPU_UTIL", 30, UUID="lost", modelName="Tesla T4", Hostname="n9")
        r.metrics.say("npu_chip_info_utilization", 40, id="7")
        await r.asked()
        busy = {pool.kind: pool.busy.value for pool in r.cluster.view().pools if pool.busy is not None}
        assert busy == {"H100-SXM5": 0.1, A100: 0.2, "910B3": 0.4}
        assert r.cluster.view().doubts == ("dcgm-exporter tells of nvidia cards that are none of this cluster's",)


@virtual
async def test_of_two_exporters_about_one_card_the_fresher_counts(tmp_path: Path) -> None:
    async with room(tmp_path) as r:
        r.metrics.card("nvidia-0", 50, 1024, age=30)
        r.metrics.say("hcs_card_utilization_percent", 80, 2, device="nvidia-0", vendor="nvidia", node="n1")
        await r.asked()
        (reading,) = r.cluster.cards
        assert (reading.utilization, reading.used) == (0.8, 1024 << 20)
        assert reading.age == 30_000  # as old as what was taken from the older one


@virtual
async def test_memory_that_the_card_does_not_have_is_not_believed(tmp_path: Path) -> None:
    async with room(tmp_path) as r:
        r.metrics.say("DCGM_FI_DEV_FB_USED", 200_000, UUID="nvidia-0", Hostname="n1")
        await r.asked()
        assert r.pool().used is None
        assert r.cluster.view().doubts == (
            f"dcgm-exporter tells of memory that {A100} does not have; it is left out, its unit may be another than "
            "the metrics file says",
        )


@virtual
async def test_parts_of_a_card_add_up_and_series_of_several_pods_do_not(tmp_path: Path) -> None:
    async with room(tmp_path) as r:
        for part, used in (("1", 1024), ("2", 2048)):
            r.metrics.say("DCGM_FI_DEV_FB_USED", used, UUID="nvidia-0", GPU_I_ID=part, Hostname="n1")
        for pod in ("a", "b"):
            r.metrics.say("DCGM_FI_DEV_FB_USED", 512, UUID="nvidia-1", pod=pod, Hostname="n1")
        await r.asked()
        assert {one.device: one.used for one in r.cluster.cards} == {"nvidia-0": 3 * GIB, "nvidia-1": GIB // 2}


@virtual
async def test_sick_cards_of_a_site_without_hcs_are_not_usable_and_not_counted_twice(tmp_path: Path) -> None:
    """The plugin has taken one of the two unhealthy cards off already."""
    s = Scene(tmp_path)
    try:
        resources = {"huawei.com/Ascend910": "8", "cpu": "8", "pods": "110"}
        node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}}
        status = {
            "capacity": resources,
            "allocatable": {**resources, "huawei.com/Ascend910": "7"},
            "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}],
        }
        await s.post("/api/v1/nodes", {**node, "status": status})
        r = Room(s)
        for number, health in enumerate((1, 1, 1, 0, 1, 1, 0, 1)):
            r.metrics.say("npu_chip_info_health_status", health, id=str(number))
        await r.asked()
        assert r.pool("huawei.com/Ascend910").usable == 6
        assert "ascend cards of node n1 are unhealthy by their metrics" in r.cluster.view().doubts
    finally:
        await s.close()


@virtual
async def test_only_hosts_with_cards_count(tmp_path: Path) -> None:
    async with room(tmp_path) as r:
        r.metrics.host("n1", 0.9, 7 * GIB)
        r.metrics.say("node_memory_MemAvailable_bytes", 900 * GIB, node="login")
        await r.asked()
        free = r.cluster.view().host_free
        assert free is not None
        assert free == Reading(7 * GIB, free.age)


@virtual
async def test_an_address_that_is_none_is_said_and_the_api_counts(tmp_path: Path) -> None:
    async with scene(tmp_path) as s:
        await s.add_node("n1", card(0))
        cluster = live(s, ClusterConfig("east", prometheus="prometheus:9090"))
        await s.until(lambda: cluster.view().reachable)
        assert cluster.view().missing == (
            "cannot use 'prometheus:9090' as a Prometheus; write it like http://10.0.0.1:9090/prefix",
        )
