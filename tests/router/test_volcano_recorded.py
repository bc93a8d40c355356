"""What a real Volcano said to our extender and what it heard, said again: the same answers, each pod bound once.

``samples/volcano.jsonl`` was recorded between vc-scheduler (source of August 2026, the configuration of
``config/volcano.yaml``), its controllers, a Kubernetes 1.36.2 API server and our router, on two emulated nodes with two
A100 and one 910B2: a pod on its own that may go to either, one that may not, and a gang of two that starts when the
second pod is gone. Each line is a call of the plug-in with our answer, or a Binding that Volcano sent, in their order.
Left out are fields of pods and nodes that say nothing here.
"""

import json
from pathlib import Path
from typing import Any

import httpx2
import msgspec
from tests.router.scene import GIB, Scene, card, scene, virtual

from hcs.model import names

SAMPLE = Path(__file__).with_name("samples") / "volcano.jsonl"
LINES: list[dict[str, Any]] = [json.loads(line) for line in SAMPLE.read_text().splitlines()]
PODS = {
    line["request"]["task"]["Name"]: line["request"]["task"]["Pod"]
    for line in reversed(LINES)
    if "task" in line["request"]
}


async def furnish(s: Scene) -> dict[str, str]:
    """The nodes, and the pods as Volcano saw them first; returns recorded UID → UID here."""
    await s.add_node("gpu-a", card(0), card(1))
    await s.add_node("npu-a", card(0, "ascend", model="Ascend910B2", vram=64 * GIB))
    uids = {}
    for name, pod in PODS.items():
        annotations = pod["metadata"]["annotations"]
        spec = {key: value for key, value in pod["spec"].items() if key != "nodeName"}
        resources = spec["containers"][0]["resources"]["limits"]
        made = await s.add_pod(name, annotations=annotations, resources=resources, spec=spec, scheduler=names.VOLCANO)
        uids[pod["metadata"]["uid"]] = made.metadata.uid
    return uids


async def say(s: Scene, http: httpx2.AsyncClient, line: dict[str, Any], uids: dict[str, str]) -> None:
    """Say one line again, with the UIDs of here, and hear the same."""
    text = json.dumps(line["request"])
    for there, here in uids.items():
        text = text.replace(there, here)
    request = json.loads(text)
    match line["call"]:
        case "bind":
            await s.post(f"/api/v1/namespaces/default/pods/{request['metadata']['name']}/binding", request)
        case "deleted":
            await s.delete_pod(request["name"])
        case verb:
            answer = await http.post(f"/volcano/{verb}", content=msgspec.json.encode(request))
            assert answer.status_code == 200, answer.text
            who = request["task"]["Name"], (request.get("node") or {}).get("Name")
            assert (verb, who, answer.json()) == (verb, who, line["answer"])


@virtual
async def test_a_recorded_volcano_hears_the_same_again_and_every_pod_is_bound_once(tmp_path: Path) -> None:
    async with scene(tmp_path) as s:
        uids = await furnish(s)
        extender = await s.start_extender()
        http = s.http(extender)
        for line in LINES:
            await say(s, http, line, uids)
            if line["call"] == "deleted":
                gone = next(uids[p["metadata"]["uid"]] for name, p in PODS.items() if name == line["request"]["name"])
                await s.until(lambda uid=gone: uid not in extender.view.allocations)  # type: ignore[misc]
        held = await s.allocations()
        assert {name: one.node for name, one in held.items()} == {
            "any-0": "npu-a",
            "pair-0": "gpu-a",
            "pair-1": "gpu-a",
        }
        assert held["pair-0"].devices() | held["pair-1"].devices() == {"nvidia-0", "nvidia-1"}
        await s.until(lambda: len(extender.reservations) == 0)
        bound = [line["request"]["metadata"]["name"] for line in LINES if line["call"] == "bind"]
        assert sorted(bound) == ["any-0", "pair-0", "pair-1", "solo-0"]


def test_the_sample_shows_what_it_is_for() -> None:
    """All verbs of the shipped configuration, a refusal, and a node taken back."""
    calls = [line["call"] for line in LINES]
    assert {"predicate", "prioritize", "allocate", "deallocate", "bind", "deleted"} == set(calls)
    assert {line["answer"]["code"] for line in LINES if line["call"] == "predicate"} == {0, 2}
    assert all(
        names.ALLOCATION not in line["request"]["metadata"]["annotations"] for line in LINES if line["call"] == "bind"
    )
