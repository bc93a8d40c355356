"""The extender over HTTP: what kube-scheduler must not read as an answer is no 200."""

import asyncio
from pathlib import Path

import httpx2
import msgspec
from prometheus_client.parser import text_string_to_metric_families
from tests.router.scene import card, scene, virtual

from hcs.model import names
from hcs.placement.snapshot import Snapshot
from hcs.router.app import make_app
from hcs.router.decisions import Chosen, decide
from hcs.router.extender import Extender, Replayable
from hcs.sandbox.scheduler.inprocess import InProcessTransport


def plain(extender: Extender) -> httpx2.AsyncClient:
    """Straight to the application."""
    return httpx2.AsyncClient(transport=InProcessTransport(make_app(extender)), base_url="http://router")


@virtual
async def test_before_the_cluster_is_read_it_is_alive_but_not_ready(tmp_path: Path) -> None:
    async with scene(tmp_path) as s:
        extender = s.make_extender()
        http = plain(extender)
        body = msgspec.json.encode({"Pod": {}, "NodeNames": ["n1"]})
        bind = msgspec.json.encode({"PodName": "p", "PodNamespace": "d", "PodUID": "u", "Node": "n1"})
        assert (await http.get("/healthz")).status_code == 200
        assert (await http.get("/readyz")).status_code == 503
        assert (await http.post("/filter", content=body)).status_code == 503
        assert (await http.post("/bind", content=bind)).status_code == 503
        s.spawn(extender.run())
        await extender.view.wait_synced()
        assert (await http.get("/readyz")).status_code == 200
        assert (await http.post("/filter", content=body)).status_code == 200


@virtual
async def test_requests_that_are_none_are_refused(tmp_path: Path) -> None:
    async with scene(tmp_path) as s:
        http = plain(await s.start_extender())
        assert (await http.post("/filter", content=b"no json")).status_code == 400
        assert (await http.post("/bind", content=b'{"PodName": "p"}')).status_code == 400
        for name in ("", "../../nodes/n1", "a\0", "A", "x" * 300):
            body = {"PodName": name, "PodNamespace": "default", "PodUID": "u", "Node": "n1"}
            assert (await http.post("/bind", content=msgspec.json.encode(body))).status_code == 400, name
        assert (await http.get("/filter")).status_code == 405


@virtual
async def test_an_api_server_that_is_down_is_an_error_of_bind(tmp_path: Path) -> None:
    def fault(request: httpx2.Request) -> str | None:
        return "refuse" if request.url.path.endswith("/pods/unseen") else None

    async with scene(tmp_path) as s:
        await s.add_node("n1", card(0))
        http = plain(await s.start_extender(s.faulty(fault)))
        bind = {"PodName": "unseen", "PodNamespace": "default", "PodUID": "u", "Node": "n1"}
        answer = await http.post("/bind", content=msgspec.json.encode(bind))
        assert answer.status_code == 200
        assert "did not answer" in answer.json()["Error"]


@virtual
async def test_what_it_did_is_counted(tmp_path: Path) -> None:
    async with scene(tmp_path) as s:
        await s.add_node("n1", card(0))
        http = plain(await s.start_extender())
        pod = await s.add_pod("p")
        await s.add_pod("big", resources={names.VRAM: "200Gi"})
        await s.filter(http, "p", "n1")
        await s.filter(http, "big", "n1")
        await s.bind(http, pod, "n1")
        await asyncio.sleep(1)
        found = {
            (sample.name, sample.labels.get("result", "")): sample.value
            for family in text_string_to_metric_families((await http.get("/metrics")).text)
            for sample in family.samples
        }
        assert found["hcs_router_filter_seconds_count", ""] == 2
        assert found["hcs_router_filter_total", "chosen"] == 1
        assert found["hcs_router_filter_total", "refused"] == 1
        assert found["hcs_router_bind_total", "bound"] == 1
        assert found["hcs_router_reservations", ""] == 0
        assert found["hcs_router_waiting_pods", ""] == 1


@virtual
async def test_the_next_decision_can_be_repeated_from_the_snapshot(tmp_path: Path) -> None:
    async with scene(tmp_path) as s:
        await s.add_node("n1", card(0), card(1))
        await s.add_node("n2", card(0, "ascend"))
        http = plain(await s.start_extender())
        for name in ("bound", "promised"):
            pod = await s.add_pod(name, resources={names.VRAM: "60Gi"}, annotations={names.VENDORS: "nvidia"})
            await s.filter(http, name, "n1", "n2")
            if name == "bound":
                await s.bind(http, pod, "n1")
        await asyncio.sleep(0.1)
        taken = msgspec.json.decode((await http.get("/debug/snapshot")).content, type=Replayable)
        assert (len(taken.allocations), len(taken.reservations)) == (1, 1)
        await s.add_pod("next")
        repeated = decide(
            await s.get_pod("next"),
            ["n1", "n2"],
            Snapshot.build(taken.nodes, taken.allocations),
            taken=taken.reservations,
            offers=taken.offers,
        )
        answer = await s.filter(http, "next", "n1", "n2")
        assert isinstance(repeated, Chosen)
        assert answer["NodeNames"] == [repeated.node]


@virtual
async def test_the_snapshot_names_the_pods_that_wait_without_their_variables(tmp_path: Path) -> None:
    async with scene(tmp_path) as s:
        await s.add_node("n1", card(0))
        http = plain(await s.start_extender())
        await s.add_pod("greedy", resources={names.VRAM: "900Gi"})
        await s.filter(http, "greedy", "n1")
        (waiting,) = msgspec.json.decode((await http.get("/debug/snapshot")).content, type=Replayable).waiting
        assert waiting.metadata.name == "greedy"
        assert [(c.env, c.command, c.args) for c in waiting.spec.containers] == [(None, None, None)]
