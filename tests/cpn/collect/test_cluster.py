"""What a cluster's view says while its API changes, fails and comes back."""

import asyncio
from pathlib import Path
from typing import Any

import msgspec
from tests.cpn.collect.sites import OURS, QUEUE, Refusing, Silent, job, live, moment
from tests.router.scene import GIB, Scene, card, scene, virtual

from hcs.cpn.collect.cluster import LiveCluster
from hcs.cpn.views import PoolView
from hcs.model import names
from hcs.model.allocations import VERSION, Allocation, Grant, encode_allocation
from hcs.sandbox.jobs.controller import JobController
from hcs.store.clusters import ClusterConfig
from hcs.wide.entries import LABEL_PULL, LABEL_QUEUE

A100, H910 = "A100-SXM4-80GB", "910B3"
JOBS = "/apis/batch/v1/namespaces/default/jobs"


Words = dict[str, str]


async def ready(s: Scene, cluster: LiveCluster) -> None:
    await s.until(lambda: cluster.view().reachable)


def pool(cluster: LiveCluster, kind: str = A100) -> PoolView:
    """A pool without the CPU beside it."""
    found = next((one for one in cluster.view().pools if one.kind == kind), PoolView(kind, 0))
    return msgspec.structs.replace(found, cpu=None, cpu_asked=0)


def cpu(cluster: LiveCluster, kind: str = A100) -> tuple[int | None, int]:
    """Millicores of a card of the pool, and what others ask of that."""
    return next(((one.cpu, one.cpu_asked) for one in cluster.view().pools if one.kind == kind), (None, 0))


async def hold(s: Scene, name: str, node: str, *devices: str, labels: dict[str, str] | None = None) -> None:
    """A pod bound by the router to some devices."""
    await s.add_pod(name, labels=labels or {})
    await bind(s, name, node, *devices)


async def bind(s: Scene, name: str, node: str, *devices: str) -> None:
    grants = tuple(Grant(device, GIB, 0) for device in devices)
    uid = (await s.get_pod(name)).metadata.uid
    allocation = Allocation(VERSION, uid, node, vendor="nvidia", model=A100, containers={"main": grants})
    await s.post(
        f"/api/v1/namespaces/default/pods/{name}/binding",
        {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": name, "annotations": {names.ALLOCATION: encode_allocation(allocation)}},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        },
    )


async def plain_node(
    s: Scene, name: str, capacity: dict[str, str], free: dict[str, str], labels: dict[str, str]
) -> None:
    """A node without HCS."""
    status = {"capacity": {"cpu": "8", "pods": "110", **capacity}, "allocatable": {"cpu": "8", "pods": "110", **free}}
    body = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}, "status": status}
    await s.post("/api/v1/nodes", body)


async def plugin_pod(
    s: Scene, name: str, node: str, limits: dict[str, str], labels: dict[str, str] | None = None
) -> None:
    """A pod with cards of a vendor's plugin."""
    spec = {"nodeName": node}
    await s.add_pod(name, resources=limits, scheduler="default-scheduler", spec=spec, labels=labels or {})


@virtual
async def test_jobs_that_only_pull_images_are_ours_and_nodes_are_known_by_their_cards(tmp_path: Path) -> None:
    async with scene(tmp_path) as s:
        await s.add_node("n1", card(0))
        await s.add_node("n2", card(0), card(1))
        await s.add_node("n3", card(0, verdict="Failed"))
        await s.add_node("n4", card(0, "ascend"))
        await s.post(JOBS, job("pull", labels={LABEL_PULL: QUEUE}))
        await s.post(JOBS, job("pull-of-another-queue", labels={LABEL_PULL: "q-other"}))
        cluster = live(s)
        await ready(s, cluster)
        assert cluster.nodes_with(A100) == ("n2", "n1")
        assert [one.name for one in cluster.foreign] == ["pull-of-another-queue"]


@virtual
async def test_cards_are_counted_by_model_and_only_those_that_can_take_work_are_usable(tmp_path: Path) -> None:
    async with scene(tmp_path) as s:
        await s.add_node("n1", card(0), card(1, verdict="Failed"), card(2, verdict="SubHealthy"), card(3))
        await s.add_node("n2", card(0, "ascend"), card(1, "ascend", vram=32 * GIB))
        await s.quarantine("n1", {"device": "nvidia-3", "reason": "Xid79"})
        cluster = live(s)
        await ready(s, cluster)
        assert pool(cluster, H910) == PoolView(H910, 2, memory=32 * GIB)
        assert pool(cluster) == PoolView(A100, 2, memory=80 * GIB)
        await s.quarantine("n1")
        await s.until(lambda: pool(cluster).usable == 3)
        await s.node_patch("n1", {"spec": {"unschedulable": True}})
        await s.until(lambda: pool(cluster).usable == 0)


@virtual
async def test_a_card_of_others_is_taken_once_and_a_shared_one_is_ours(tmp_path: Path) -> None:
    async with scene(tmp_path) as s:
        await s.add_node("n1", *(card(n) for n in range(5)))
        cluster = live(s)
        await hold(s, "theirs", "n1", "nvidia-0", "nvidia-1")
        await hold(s, "theirs-too", "n1", "nvidia-1")
        await hold(s, "shared", "n1", "nvidia-2")
        await hold(s, "ours", "n1", "nvidia-2", "nvidia-3", labels=OURS)
        await hold(s, "another-queue", "n1", "nvidia-0", labels={LABEL_QUEUE: "q2"})
        await s.until(lambda: (pool(cluster).taken, pool(cluster).ours) == (2, 2))
        await s.delete_pod("ours")
        await s.until(lambda: (pool(cluster).taken, pool(cluster).ours) == (3, 0))
        await s.set_status("theirs", phase="Succeeded")
        await s.until(lambda: pool(cluster).taken == 3)  # nvidia-0 and nvidia-1 have other holders
        for name in ("theirs-too", "another-queue", "shared"):
            await s.delete_pod(name)
        await s.until(lambda: pool(cluster).taken == 0)


@virtual
async def test_the_cpu_beside_the_cards_is_what_nodes_offer_and_what_pods_of_others_ask_of_it(tmp_path: Path) -> None:
    async with scene(tmp_path) as s:
        await s.add_node("n1", card(0), card(1), cpu="32")
        await s.add_node("n2", card(0), card(1, "ascend"), cpu="64")
        await s.add_node("n3", cpu="500")
        cluster = live(s)
        await ready(s, cluster)
        assert cpu(cluster) == (64_000 // 3, 0)  # 16, 16 and 32 CPUs
        assert cpu(cluster, H910) == (32_000, 0)
        told = cluster.view()
        for name, node, labels in (("theirs", "n1", {}), ("ours", "n2", OURS), ("elsewhere", "n3", {})):
            await plugin_pod(s, name, node, {"cpu": "6"}, labels)
        await s.until(lambda: cpu(cluster) != (64_000 // 3, 0))
        assert cpu(cluster) == (64_000 // 3, 2_000)
        assert cpu(cluster, H910) == (32_000, 0)
        assert told.pools[1].cpu_asked == 0
        await s.set_status("theirs", phase="Succeeded")
        await s.until(lambda: cpu(cluster) == (64_000 // 3, 0))
        await s.node_patch("n1", {"spec": {"unschedulable": True}})
        await s.until(lambda: cpu(cluster) == (32_000, 0))


@virtual
async def test_pods_of_a_job_of_others_count_with_what_they_ask_of_the_cpu(tmp_path: Path) -> None:
    async with scene(tmp_path) as s:
        await s.add_node("n1", card(0), cpu="8")
        s.spawn(JobController(s.client, now=s.today).run())
        cluster = live(s)
        await ready(s, cluster)
        theirs = job("theirs")
        theirs["spec"]["template"]["spec"] |= {"nodeName": "n1"}
        theirs["spec"]["template"]["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "2500m"}}
        await s.post(JOBS, theirs)
        await s.until(lambda: cpu(cluster) == (8000, 2500))


@virtual
async def test_a_card_that_failed_under_a_pod_of_others_is_gone_from_both_sides(tmp_path: Path) -> None:
    async with scene(tmp_path) as s:
        await s.add_node("n1", card(0), card(1))
        cluster = live(s)
        await hold(s, "theirs", "n1", "nvidia-0")
        await s.until(lambda: pool(cluster) == PoolView(A100, 2, 1, memory=80 * GIB))
        await s.quarantine("n1", {"device": "nvidia-0", "reason": "Xid79"})
        await s.until(lambda: pool(cluster) == PoolView(A100, 1, 0, memory=80 * GIB))


@virtual
async def test_a_card_held_outside_hcs_is_taken(tmp_path: Path) -> None:
    async with scene(tmp_path) as s:
        await s.add_node("n1", card(0, foreign=True), card(1))
        cluster = live(s)
        await ready(s, cluster)
        assert pool(cluster) == PoolView(A100, 2, 1, memory=80 * GIB)


@virtual
async def test_a_forged_allocation_takes_nothing(tmp_path: Path) -> None:
    async with scene(tmp_path) as s:
        await s.add_node("n1", card(0))
        cluster = live(s)
        await ready(s, cluster)
        await hold(s, "real", "n1", "nvidia-0")
        await s.until(lambda: pool(cluster).taken == 1)
        text = (await s.get_pod("real")).annotations[names.ALLOCATION]
        await s.delete_pod("real")
        await s.add_pod("forged", annotations={names.ALLOCATION: text}, spec={"nodeName": "n1"})
        await s.until(lambda: pool(cluster).taken == 0)
        assert (await s.get_pod("forged")).spec.nodeName == "n1"


@virtual
async def test_a_pod_whose_template_was_not_labelled_is_ours_by_its_job(tmp_path: Path) -> None:
    async with scene(tmp_path) as s:
        await s.add_node("n1", card(0))
        made = await s.post(JOBS, job("ours", labels=OURS))
        cluster = live(s)
        await ready(s, cluster)
        owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "ours", "uid": made["metadata"]["uid"]}
        pod = await s.add_pod("p", ownerReferences=[{**owner, "controller": True}])
        assert pod.controller is not None
        await bind(s, "p", "n1", "nvidia-0")
        await s.until(lambda: pool(cluster).ours == 1)
        assert pool(cluster).taken == 0


@virtual
async def test_sites_without_hcs_are_read_from_nodes_and_plugins(tmp_path: Path) -> None:
    """No ComputeNode is even defined there; the cards have the same names as elsewhere."""
    s = Scene(tmp_path)
    try:
        labels = {"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB", "nvidia.com/gpu.memory": "81920"}
        await plain_node(s, "n1", {"nvidia.com/gpu": "8"}, {"nvidia.com/gpu": "7"}, labels)
        await plain_node(s, "n2", {"huawei.com/Ascend910": "8"}, {"huawei.com/Ascend910": "8"}, {})
        await plain_node(s, "cpu", {}, {}, {})
        await plugin_pod(s, "theirs", "n1", {"nvidia.com/gpu": "2"})
        await plugin_pod(s, "ours", "n1", {"nvidia.com/gpu": "1"}, OURS)
        await plugin_pod(s, "npu", "n2", {"huawei.com/Ascend910": "4", "huawei.com/Ascend910-memory": "9999"})
        cluster = live(s)
        await ready(s, cluster)
        view = cluster.view()
        assert view.pools == (
            PoolView(A100, 7, 2, memory=80 * GIB, ours=1, cpu=8000 // 7),
            PoolView("huawei.com/Ascend910", 8, 4, cpu=1000),
        )
        assert view.doubts == ("n2 announces cards without a label that says which; they are named by their resource",)
        await s.define()
        await s.add_cards("n1", card(0), card(1))
        await s.until(lambda: pool(cluster).usable == 2)  # the agent knows better than the plugin
    finally:
        await s.close()


@virtual
async def test_shares_that_a_plugin_announces_are_not_taken_for_cards(tmp_path: Path) -> None:
    s = Scene(tmp_path)
    try:
        labels = {"nvidia.com/gpu.product": "Tesla-V100-SXM2-16GB-SHARED", "nvidia.com/gpu.replicas": "4"}
        await plain_node(s, "n1", {"nvidia.com/gpu": "32"}, {"nvidia.com/gpu": "32"}, labels)
        await plugin_pod(s, "five-shares", "n1", {"nvidia.com/gpu": "5"})
        cluster = live(s)
        await ready(s, cluster)
        assert cluster.view().pools == (PoolView("V100-SXM2-16GB", 8, 2, cpu=1000),)
    finally:
        await s.close()


@virtual
async def test_jobs_of_others_are_found_and_counted_while_they_run(tmp_path: Path) -> None:
    async with scene(tmp_path) as s:
        await s.post(JOBS, job("ours", labels=OURS))
        await s.post(JOBS, job("theirs"))
        await s.post(JOBS, job("another-queue", labels={LABEL_QUEUE: "q2"}))
        await s.post(JOBS, job("held", suspend=True))
        cluster = live(s)
        await ready(s, cluster)
        assert [one.name for one in cluster.foreign] == ["another-queue", "theirs"]
        assert cluster.view().foreign_jobs == 2
        await s.merge(f"{JOBS}/held", {"spec": {"suspend": False}})
        await s.until(lambda: cluster.view().foreign_jobs == 3)
        done = [{"type": "Complete", "status": "True"}]
        await s.merge(f"{JOBS}/theirs/status", {"status": {"conditions": done}})
        await s.until(lambda: cluster.view().foreign_jobs == 2)
        assert LABEL_QUEUE in OURS
        assert OURS[LABEL_QUEUE] == QUEUE


@virtual
async def test_a_cluster_that_is_cut_off_says_so_and_comes_back_by_itself(tmp_path: Path) -> None:
    async with scene(tmp_path) as s:
        await s.add_node("n1", card(0))
        down = False
        transport = s.faulty(lambda _: "refuse" if down else None)
        cluster = live(s, transport=transport)
        before = cluster.view()
        assert not before.reachable
        assert before.message == "cluster east cannot be used: it has not been asked yet"
        await ready(s, cluster)
        down, lost = True, moment(s)
        transport.cut()
        await s.until(lambda: not cluster.view().reachable)
        view = cluster.view()
        assert "no connection" in view.message
        assert lost - 5_000 <= view.seen <= lost
        assert view.pools == (PoolView(A100, 1, memory=80 * GIB, cpu=64_000),)  # as it was
        await s.add_node("n2", card(0))
        down = False
        await ready(s, cluster)
        assert pool(cluster).usable == 2
        assert cluster.view().message == ""
        assert cluster.view().seen > view.seen


@virtual
async def test_a_connection_that_is_dead_without_a_word_is_noticed(tmp_path: Path) -> None:
    """Nothing is refused and nothing arrives: watches stay silent, only the heartbeat can tell."""
    async with scene(tmp_path) as s:
        await s.add_node("n1", card(0))
        silent = Silent(s.api)
        cluster = live(s, transport=silent)
        await ready(s, cluster)
        silent.lose()
        await s.add_node("n2", card(0))
        await s.until(lambda: not cluster.view().reachable)
        assert cluster.view().message == "cluster east at http://kubernetes cannot be used: no answer in time"
        silent.deaf = False
        await s.until(lambda: cluster.view().reachable and pool(cluster).usable == 2)


@virtual
async def test_an_expired_version_leads_to_a_new_list(tmp_path: Path) -> None:
    async with scene(tmp_path, history=10) as s:
        await s.add_node("n1", card(0))
        cluster = live(s)
        await ready(s, cluster)
        for number in range(30):
            await s.node_patch("n1", {"metadata": {"annotations": {"x": str(number)}}})
        s.api.cut()
        await s.set_cards("n1", card(0), card(1))
        await s.until(lambda: pool(cluster).usable == 2)
        assert cluster.view().reachable


@virtual
async def test_what_may_not_be_read_is_said_and_the_rest_counts(tmp_path: Path) -> None:
    async with scene(tmp_path) as s:
        await s.add_node("n1", card(0))
        cluster = live(s, transport=Refusing(s.api, "/api/v1/pods", 403))
        await ready(s, cluster)
        assert pool(cluster).usable == 1
        gap = cluster.view().missing[0]
        assert gap.startswith("pods cannot be read, so cards that others hold count as free: the API answered 403")


@virtual
async def test_a_token_that_is_not_accepted_any_more_is_read_anew(tmp_path: Path) -> None:
    async with scene(tmp_path) as s:
        await s.add_node("n1", card(0))
        refused = True

        def connect(_: Any) -> Any:
            return s.connect(Refusing(s.api, "/", 401) if refused else s.api)

        made = []

        def noted(site: Any) -> Any:
            made.append(connect(site))
            return made[-1]

        cluster = live(s, connect=noted)
        await s.until(lambda: len(made) == 5)
        assert "401" in cluster.view().message
        refused = False
        await ready(s, cluster)
        assert cluster.client is made[-1]
        closed = [client._client._client.is_closed for client in made]  # no public way to ask
        assert closed == [True] * (len(made) - 3) + [False] * 3  # the newest may still be in somebody's hands


@virtual
async def test_a_kubeconfig_that_was_written_anew_is_read_when_the_old_one_fails(tmp_path: Path) -> None:
    """A certificate that ran out is no 401: the connection just breaks."""
    (tmp_path / "api").mkdir()
    async with scene(tmp_path / "api") as s:
        await s.add_node("n1", card(0))
        path = tmp_path / "kubeconfig"
        path.write_text("old")
        expired = True
        old = s.faulty(lambda _: "refuse" if expired else None)
        made = []

        def connect(_: Any) -> Any:
            made.append(path.read_text())
            return s.connect(s.api if made[-1] == "renewed" else old)

        cluster = live(s, ClusterConfig("east", kubeconfig=str(path)), connect=connect)
        await asyncio.sleep(60)
        assert made == ["old"]
        assert "no connection" in cluster.view().message
        path.write_text("renewed")
        await ready(s, cluster)
        assert made == ["old", "renewed"]


@virtual
async def test_changes_are_told_once_and_only_if_a_decision_could_depend_on_them(tmp_path: Path) -> None:
    async with scene(tmp_path) as s:
        await s.add_node("n1", card(0))
        told: list[str] = []
        cluster = live(s, on_change=told.append)
        await ready(s, cluster)
        await asyncio.sleep(1)
        told.clear()
        for number in range(5):
            await s.node_patch("n1", {"metadata": {"annotations": {"x": str(number)}}})
        await asyncio.sleep(60)
        assert told == []
        began = s.loop.time()
        await hold(s, "theirs", "n1", "nvidia-0")
        await s.until(lambda: told)
        assert told == ["east"]
        assert s.loop.time() - began <= 1
