"""What the collectors rely on, held against the sandbox's API server and a real one over the network.

Only a real server checks what our account may do, stores versions that are compacted away, and answers unknown kinds in
plain text.
"""

import asyncio
import contextlib
import ssl
import uuid
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx2
import msgspec
import pytest
import yaml
from lightkube import AsyncClient, KubeConfig
from tests.clusters import CONFIG, Cluster, eventually, sandbox
from tests.cpn.collect.sites import OURS, QUEUE, job
from tests.observed import Observed
from tests.waiting import until

from hcs.cpn.collect.cluster import LiveCluster, Timing
from hcs.cpn.collect.connection import Site as SiteOf
from hcs.cpn.collect.connection import connect_site
from hcs.cpn.collect.figures import Bounds
from hcs.cpn.views import PoolView
from hcs.kube.transport import Transport
from hcs.model import names
from hcs.model.allocations import VERSION, Allocation, Grant, encode_allocation
from hcs.store.clusters import ClusterConfig

GIB = 1 << 30
TIMING = Timing(beat=0.2, deadline=20, reconnect=0.2, metrics=Bounds(every=0.2))
MERGE = {"Content-Type": "application/merge-patch+json"}


@pytest.fixture(scope="module", params=["sandbox", pytest.param("real", marks=pytest.mark.real)])
def api(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Each server, without our definitions at the beginning: making and deleting them takes a real one seconds."""
    if request.param == "sandbox":
        with sandbox(tmp_path_factory.mktemp("sandbox")) as cluster:
            yield cluster
        return
    with undefined(request.getfixturevalue("real_cluster")) as cluster:
        yield cluster


@contextlib.contextmanager
def undefined(cluster: Cluster) -> Iterator[Cluster]:
    """The shared server without our definitions, before and afterwards; deleting one takes a moment."""
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/computenodes.ai.compute"
    cluster.withdraw()
    eventually(lambda: cluster.admin.get(path).status_code == 404)
    try:
        yield cluster
    finally:
        cluster.withdraw()
        eventually(lambda: cluster.admin.get(path).status_code == 404)


class Site:
    """One server, what a test makes there under a name of its own, and a cluster that watches it."""

    def __init__(self, api: Cluster, kubeconfig: Path, **more: Any) -> None:
        self.api, self.mark = api, f"m{uuid.uuid4().hex[:8]}"
        self.made: list[str] = []
        connect = more.pop("connect", connect_site)
        config = ClusterConfig("east", kubeconfig=str(kubeconfig), **more)
        self.cluster = LiveCluster(config, queue=QUEUE, timing=TIMING, connect=connect)

    def create(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        reply = self.api.admin.post(path, json=body)
        assert reply.status_code == 201, reply.text
        made: dict[str, Any] = reply.json()
        if not path.endswith("/binding"):
            self.made.append(f"{path}/{made['metadata']['name']}")
        return made

    def merge(self, path: str, body: dict[str, Any]) -> None:
        reply = self.api.admin.patch(path, json=body, headers=MERGE)
        assert reply.status_code == 200, reply.text

    def define(self) -> None:
        """Make the kind of HCS's nodes known."""
        self.api.apply([yaml.safe_load((CONFIG / "crds" / "computenodes.yaml").read_text())])
        probe = {"apiVersion": "ai.compute/v1alpha1", "kind": "ComputeNode", "metadata": {"name": "probe"}}
        path = "/apis/ai.compute/v1alpha1/computenodes"
        eventually(lambda: self.api.admin.post(path, json=probe, params={"dryRun": "All"}).status_code == 201)

    def node(self, name: str, **status: Any) -> str:
        name = f"{name}-{self.mark}"
        self.create("/api/v1/nodes", {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "status": status})
        return name

    def cards(self, node: str, *ids: str) -> None:
        path = "/apis/ai.compute/v1alpha1/computenodes"
        if f"{path}/{node}" not in self.made:
            body = {"apiVersion": "ai.compute/v1alpha1", "kind": "ComputeNode", "metadata": {"name": node}}
            self.create(path, body)
        devices = [
            {"id": id, "index": number, "vendor": "nvidia", "model": self.mark, "vram": 80 * GIB, "verdict": "Healthy"}
            for number, id in enumerate(ids)
        ]
        self.merge(f"{path}/{node}/status", {"status": {"devices": devices}})

    def bound_pod(self, name: str, node: str, *devices: str, **metadata: Any) -> None:
        body = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": f"{name}-{self.mark}", **metadata},
            "spec": {
                "schedulerName": names.SCHEDULER,
                "terminationGracePeriodSeconds": 0,
                "containers": [{"name": "main", "image": "example.invalid/t:1"}],
            },
        }
        pod = self.create("/api/v1/namespaces/default/pods", body)["metadata"]
        grants = tuple(Grant(device, GIB, 0) for device in devices)
        allocation = Allocation(VERSION, pod["uid"], node, "nvidia", self.mark, {"main": grants})
        self.create(
            f"/api/v1/namespaces/default/pods/{pod['name']}/binding",
            {
                "apiVersion": "v1",
                "kind": "Binding",
                "metadata": {"name": pod["name"], "annotations": {names.ALLOCATION: encode_allocation(allocation)}},
                "target": {"apiVersion": "v1", "kind": "Node", "name": node},
            },
        )

    def pool(self, kind: str = "") -> PoolView:
        kind = kind or self.mark
        found = next((one for one in self.cluster.view().pools if one.kind == kind), PoolView(kind, 0))
        return msgspec.structs.replace(found, cpu=None, cpu_asked=0)

    def remove(self, path: str) -> None:
        self.made.remove(path)
        reply = self.api.admin.request(
            "DELETE", path, json={"gracePeriodSeconds": 0, "propagationPolicy": "Background"}
        )
        assert reply.status_code in (200, 202), reply.text

    def close(self) -> None:
        for path in reversed(self.made):
            with contextlib.suppress(httpx2.HTTPError):
                self.api.admin.request("DELETE", path, json={"gracePeriodSeconds": 0})


@contextlib.asynccontextmanager
async def watched(api: Cluster, folder: Path, user: str = "admin", **more: Any) -> AsyncIterator[Site]:
    site = Site(api, api.kubeconfig(user, folder), **more)
    running = asyncio.create_task(site.cluster.run())
    try:
        yield site
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        site.close()


def test_cards_holders_and_jobs_of_others_are_seen_as_they_change(api: Cluster, tmp_path: Path) -> None:
    async def story() -> None:
        async with watched(api, tmp_path) as s:
            await until(lambda: s.cluster.view().reachable)  # though ComputeNodes are not even defined
            plain = s.node("plain", capacity={"nvidia.com/gpu": "4"}, allocatable={"nvidia.com/gpu": "3"})
            await until(lambda: s.pool("nvidia.com/gpu").usable == 3)
            s.remove(f"/api/v1/nodes/{plain}")
            await until(lambda: s.pool("nvidia.com/gpu").usable == 0)
            s.define()
            node = s.node("n1")
            s.cards(node, "a", "b", "c")
            await until(lambda: s.pool() == PoolView(s.mark, 3, memory=80 * GIB))
            s.bound_pod("theirs", node, "a")
            s.bound_pod("ours", node, "b", labels=OURS)
            await until(lambda: s.pool() == PoolView(s.mark, 3, 1, memory=80 * GIB, ours=1))
            before = s.cluster.view().foreign_jobs
            jobs = "/apis/batch/v1/namespaces/default/jobs"
            s.create(jobs, job(f"ours-{s.mark}", labels=OURS))
            s.create(jobs, job(f"theirs-{s.mark}"))
            await until(lambda: s.cluster.view().foreign_jobs == before + 1)
            assert f"theirs-{s.mark}" in [one.name for one in s.cluster.foreign]
            s.remove(f"{jobs}/theirs-{s.mark}")
            await until(lambda: s.cluster.view().foreign_jobs == before)
            s.merge(
                f"/apis/ai.compute/v1alpha1/computenodes/{node}",
                {"spec": {"quarantine": [{"device": "a", "reason": "Xid79"}]}},
            )
            await until(lambda: s.pool() == PoolView(s.mark, 2, 0, memory=80 * GIB, ours=1))

    asyncio.run(story())


def test_a_version_that_is_forgotten_leads_to_a_new_list(api: Cluster, tmp_path: Path) -> None:
    """The way to the server is cut, and meanwhile everything the copies knew is compacted away."""

    async def story() -> None:
        way = Gate(api.authority)

        def connect(site: SiteOf) -> AsyncClient:
            config = KubeConfig.from_file(site.kubeconfig).get()
            return AsyncClient(config=config, transport=way, trust_env=False)

        async with watched(api, tmp_path, connect=connect) as s:
            s.define()
            node = s.node("n1")
            s.cards(node, "a")
            await until(lambda: s.cluster.view().reachable and s.pool().usable == 1)
            way.shut()
            lost = f"cluster east at {api.url} cannot be used: no connection: the cable is pulled"
            await until(lambda: s.cluster.view().message == lost)
            assert not s.cluster.view().reachable
            assert s.pool().usable == 1
            s.cards(node, "a", "b")
            for number in range(5):
                s.merge(f"/api/v1/nodes/{node}", {"metadata": {"annotations": {"x": str(number)}}})
            api.compact()
            way.open()
            await until(lambda: s.cluster.view().reachable and s.pool().usable == 2)

    asyncio.run(story())


@pytest.mark.parametrize("api", [pytest.param("real", marks=pytest.mark.real)], indirect=True)
def test_our_account_may_do_what_it_must_once_it_is_granted(api: Cluster, tmp_path: Path) -> None:
    # The server is shared with tests that apply all we ship.
    api.admin.delete("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/hcs-cpn")

    async def story() -> None:
        async with watched(api, tmp_path, "cpn") as s:
            await until(lambda: "403" in s.cluster.view().message)
            assert "see config/cpn/cluster.yaml" in s.cluster.view().message
            labelled = {"kind": "Namespace", "apiVersion": "v1", "metadata": {"name": names.NAMESPACE}}
            s.api.apply([labelled, *yaml.safe_load_all((CONFIG / "cpn/cluster.yaml").read_text())])
            await until(lambda: s.cluster.view().reachable)
            s.define()
            node = s.node("n1")
            s.cards(node, "a")
            s.bound_pod("theirs", node, "a")
            await until(lambda: s.pool() == PoolView(s.mark, 1, 1, memory=80 * GIB))
            await until(lambda: not any("403" in sentence for sentence in s.cluster.view().missing))

    asyncio.run(story())


@pytest.mark.xdist_group("prometheus")
def test_a_cluster_and_its_prometheus_make_one_view(prometheus: Observed, tmp_path: Path) -> None:
    async def story(api: Cluster) -> None:
        labels = {"cluster": "sandbox"}
        cards, hosts = prometheus.exporters["sandbox"]
        async with watched(api, tmp_path, prometheus=prometheus.url, prometheus_labels=labels) as s:
            s.define()
            s.cards(s.node("n1"), "GPU-a", "GPU-b")
            for card, busy in (("GPU-a", 20), ("GPU-b", 60)):
                cards.set("DCGM_FI_DEV_GPU_UTIL", busy, UUID=card, gpu="0")
                cards.set("DCGM_FI_DEV_FB_USED", 1024 * busy, UUID=card, gpu="0")
            hosts.set("node_memory_MemAvailable_bytes", 3 * GIB)

            def figures() -> list[float | None]:
                pool, view = s.pool(), s.cluster.view()
                readings = (pool.busy, pool.used, view.host_free)
                return [None if reading is None else round(reading.value, 6) for reading in readings]

            await until(lambda: figures() == [0.4, 40 * GIB, 3 * GIB])
            missing = (
                "the CPU use of hosts is not known: no node_cpu_seconds_total; let its Prometheus scrape node-exporter "
                "(port 9100)",
            )
            await until(lambda: s.cluster.view().missing == missing)
            cards.die()
            down = f"exporter {cards.instance} (job exporters) is down, so its figures are not used"
            unknown = f"utilisation and memory in use of {s.mark} are not known"
            await until(lambda: s.pool().used is None and down in s.cluster.view().missing)
            assert any(sentence.startswith(unknown) for sentence in s.cluster.view().missing)
            assert s.cluster.view().reachable

    with sandbox(tmp_path) as api:
        asyncio.run(story(api))


class Gate(httpx2.AsyncBaseTransport):
    """A way to a server that is shut and opened again; what was under way is lost then, as when a cable is pulled."""

    def __init__(self, authority: Path) -> None:
        context = ssl.create_default_context(cafile=str(authority))
        self._inner = Transport(verify=context)
        self._shut = asyncio.Event()

    def shut(self) -> None:
        self._shut.set()

    def open(self) -> None:
        self._shut = asyncio.Event()

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        if self._shut.is_set():
            raise httpx2.ConnectError("the cable is pulled", request=request)
        answer = await self._inner.handle_async_request(request)
        return httpx2.Response(answer.status_code, headers=answer.headers, stream=Passing(answer, self._shut))

    async def aclose(self) -> None:
        await self._inner.aclose()


class Passing(httpx2.AsyncByteStream):
    """An answer that ends with an error when the way is shut."""

    def __init__(self, answer: httpx2.Response, shut: asyncio.Event) -> None:
        self._answer, self._shut = answer, shut

    async def __aiter__(self) -> AsyncIterator[bytes]:
        pieces = self._answer.aiter_raw()
        shut = asyncio.create_task(self._shut.wait())
        try:
            while True:
                piece = asyncio.ensure_future(anext(pieces, None))
                try:
                    await asyncio.wait([piece, shut], return_when=asyncio.FIRST_COMPLETED)
                finally:
                    if not piece.done():
                        piece.cancel()
                        await asyncio.gather(piece, return_exceptions=True)
                if shut.done():
                    raise httpx2.ReadError("the cable is pulled")
                if (found := piece.result()) is None:
                    return
                yield found
        finally:
            shut.cancel()
            await asyncio.gather(shut, return_exceptions=True)

    async def aclose(self) -> None:
        await self._answer.aclose()
