"""From admission to a place: what the injector writes is what the router, quotas and Kueue go by."""

import asyncio
from pathlib import Path
from typing import Any

import httpx2
import msgspec
import pytest
from tests.router.scene import Scene, card, pod_manifest, scene, virtual

from hcs.injector.mutation import mutate
from hcs.injector.settings import Settings
from hcs.kube.resources import Job
from hcs.model import names
from hcs.model.refusals import RefusedError
from hcs.sandbox.jobs.controller import JobController
from hcs.ura.catalogue import load_catalogue

CATALOGUE = load_catalogue()
KUEUE = "kueue.x-k8s.io/admission"


def admitted(name: str = "p", **changes: Any) -> dict[str, Any]:
    """A pod as admission leaves it."""
    changes.setdefault("scheduler", "default-scheduler")
    both = Settings(schedulers=(names.SCHEDULER, names.VOLCANO))
    return mutate(pod_manifest(name, **changes), CATALOGUE, both)


def gates(pod: dict[str, Any]) -> list[str]:
    return [gate["name"] for gate in pod["spec"].get("schedulingGates") or ()]


MEMBER = {names.GANG: "g", names.GANG_SIZE: "2"}
ASKS = {names.SUBSTITUTION: "ask", names.MODELS: "A100-SXM4-80GB"}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        pytest.param({}, [], id="a-plain-pod"),
        pytest.param({"annotations": ASKS}, [names.ASK_GATE], id="asks"),
        pytest.param({"annotations": {names.SUBSTITUTION: "ask"}}, [], id="asks-and-names-nothing"),
        pytest.param({"annotations": {**ASKS, names.SUBSTITUTION: "auto"}}, [], id="any-substitute"),
        pytest.param({"annotations": MEMBER}, [names.GANG_GATE], id="our-gang"),
        pytest.param(
            {"labels": {"scheduling.x-k8s.io/pod-group": "g"}}, [names.GANG_GATE], id="a-group-of-scheduler-plugins"
        ),
        pytest.param(
            {"annotations": {"scheduling.k8s.io/group-name": "g"}}, [names.GANG_GATE], id="a-group-of-volcano"
        ),
        pytest.param(
            {"annotations": {"scheduling.k8s.io/group-name": "g"}, "scheduler": names.VOLCANO}, [], id="volcanos-own"
        ),
        pytest.param(
            {"annotations": ASKS, "spec": {"schedulingGates": [{"name": KUEUE}]}},
            [KUEUE, names.ASK_GATE],
            id="gates-of-others-stay",
        ),
    ],
)
def test_only_those_who_must_wait_are_gated(changes: dict[str, Any], expected: list[str]) -> None:
    once = admitted(**changes)
    assert gates(once) == expected
    assert mutate(once, CATALOGUE, Settings(schedulers=(names.SCHEDULER, names.VOLCANO))) == once


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        pytest.param({"annotations": {**ASKS, **MEMBER}}, "GangCannotAsk", id="a-gang-asks"),
        pytest.param({"annotations": ASKS, "scheduler": names.VOLCANO}, "VolcanoCannotAsk", id="volcano-asks"),
        pytest.param(
            {"annotations": {**ASKS, names.SUBSTITUTION_ANSWER: "accept 0123456789ab-1"}},
            "AnswerWithoutOffer",
            id="accepted-in-advance",
        ),
        pytest.param({"annotations": {names.SUBSTITUTION_OFFER: "{}"}}, "ReservedAnnotation", id="offered-by-itself"),
    ],
)
def test_what_cannot_be_waited_for_is_refused(changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(RefusedError) as refused:
        admitted(**changes)
    assert reason in {one.reason for one in refused.value.refusals}


async def create(s: Scene, body: dict[str, Any]) -> httpx2.Response:
    async with httpx2.AsyncClient(transport=s.api, base_url="https://kubernetes") as http:
        return await http.post(
            "/api/v1/namespaces/default/pods",
            content=msgspec.json.encode(body),
            headers={"Authorization": "Bearer admin-token"},
        )


@virtual
async def test_a_quota_on_the_totals_counts_what_is_really_asked(tmp_path: Path) -> None:
    """Four cards of 40Gi are 160Gi, whatever is written per card; what was given instead changes no charge."""
    async with scene(tmp_path) as s:
        await s.add_node("n1", *(card(index) for index in range(8)))
        await s.start_driver(s.http(await s.start_extender()))
        hard = {"requests.ai.compute/total-vram": "200Gi", "requests.ai.compute/total-cards": "5"}
        quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q"}, "spec": {"hard": hard}}
        await s.post("/api/v1/namespaces/default/resourcequotas", quota)
        four = {names.VRAM: "40Gi", names.CARDS: "4"}
        assert (await create(s, admitted("four", resources=four))).status_code == 201
        await s.bound("four")
        over = await create(s, admitted("over", resources={names.VRAM: "41Gi"}))
        assert over.status_code == 403
        assert "ai.compute/total-vram" in over.text
        assert (await create(s, admitted("one", resources={names.VRAM: "40Gi"}))).status_code == 201
        await s.bound("one")
        assert "total-cards" in (await create(s, admitted("more", resources={names.VRAM: "1Gi"}))).text


@virtual
async def test_a_job_that_kueue_kept_suspended_is_routed_when_it_is_let_go(tmp_path: Path) -> None:
    async with scene(tmp_path) as s:
        await s.add_node("n1", card(0), card(1))
        await s.start_driver(s.http(await s.start_extender()))
        s.spawn(JobController(s.client, now=s.today).run())
        template = admitted(spec={"restartPolicy": "Never"})
        job = {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"name": "train"},
            "spec": {
                "suspend": True,
                "parallelism": 2,
                "completions": 2,
                "template": {
                    "metadata": {"annotations": template["metadata"]["annotations"]},
                    "spec": template["spec"],
                },
            },
        }
        await s.post("/apis/batch/v1/namespaces/default/jobs", job)
        await asyncio.sleep(60)
        assert await s.pods() == {}
        assert s.calls == []
        await s.client.patch(Job, "train", {"spec": {"suspend": False}}, namespace="default")

        async def both() -> bool:
            return len(await s.allocations()) == 2

        await s.until(both, seconds=20)


@virtual
async def test_a_pod_that_kueue_gates_starts_when_both_have_let_it_go(tmp_path: Path) -> None:
    async with scene(tmp_path) as s:
        await s.add_node("n1", card(0), card(1))
        await s.start_driver(s.http(await s.start_extender()))
        for number in range(2):
            body = admitted(f"g-{number}", annotations=MEMBER, spec={"schedulingGates": [{"name": KUEUE}]})
            assert (await create(s, body)).status_code == 201
        await asyncio.sleep(30)
        assert await s.allocations() == {}
        for number in range(2):
            opened = {"spec": {"schedulingGates": [{"$patch": "delete", "name": KUEUE}]}}
            await s.strategic(f"g-{number}", opened)
        for number in range(2):
            await s.bound(f"g-{number}", seconds=120)
