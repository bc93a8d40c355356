"""The two verbs, called as kube-scheduler calls them, in every order that loses or doubles devices elsewhere."""

import asyncio
from pathlib import Path
from typing import Any

import httpx2
import pytest
from tests.router.scene import GIB, Scene, card, scene, virtual

from hcs.model import names
from hcs.model.allocations import allocation_of, encode_allocation
from hcs.model.devices import EvictedOwner

WHOLE = {names.VRAM: "80Gi"}


def placed(answer: dict[str, Any]) -> str:
    """The one node of a filter answer."""
    (node,) = answer["NodeNames"]
    return str(node)


async def one_card(s: Scene) -> None:
    await s.add_node("n1", card(0))


@virtual
async def test_filter_returns_one_node_and_no_text_that_nobody_reads(tmp_path: Path) -> None:
    async with scene(tmp_path) as s:
        await s.add_node("n1", card(0))
        await s.add_node("n2", card(0))
        http = s.http(await s.start_extender())
        await s.add_pod("p")
        answer = await s.filter(http, "p", "n1", "n2")
        assert placed(answer) == "n1"
        assert answer["FailedNodes"] == {}  # kube-scheduler asks why only where no node is left
        assert answer["FailedAndUnresolvableNodes"] == {}
        assert answer["Error"] == ""


@virtual
async def test_two_equal_pods_filtered_before_either_bind_never_get_the_same_card(tmp_path: Path) -> None:
    async with scene(tmp_path) as s:
        await s.add_node("n1", card(0))
        await s.add_node("n2", card(0))
        http = s.http(await s.start_extender())
        pods = [await s.add_pod(name, resources=WHOLE) for name in ("a", "b", "c")]
        first, second = [placed(await s.filter(http, name, "n1", "n2")) for name in ("a", "b")]
        assert {first, second} == {"n1", "n2"}
        third = await s.filter(http, "c", "n1", "n2")
        assert third["NodeNames"] == []
        assert set(third["FailedAndUnresolvableNodes"]) == {"n1", "n2"}
        assert await s.bind(http, pods[0], first) == ""
        assert await s.bind(http, pods[1], second) == ""
        held = await s.allocations()
        assert {(a.node, *a.devices()) for a in held.values()} == {("n1", "nvidia-0"), ("n2", "nvidia-0")}


@virtual
async def test_the_binding_carries_the_allocation_and_the_reason(tmp_path: Path) -> None:
    async with scene(tmp_path) as s:
        await one_card(s)
        http = s.http(await s.start_extender())
        pod = await s.add_pod("p", annotations={"note": "mine"})
        assert await s.bind(http, pod, placed(await s.filter(http, "p", "n1"))) == ""
        bound = await s.get_pod("p")
        held = allocation_of(bound)
        assert held is not None
        assert held.containers["main"][0].bytes == 16 * GIB
        assert bound.annotations["note"] == "mine"
        assert "n1" in bound.annotations[names.ROUTE_REASON]
        await asyncio.sleep(1)
        assert [reason for reason, _ in await s.events("p")] == ["Placed"]


@virtual
async def test_filtering_the_same_pod_again_replaces_its_promise(tmp_path: Path) -> None:
    async with scene(tmp_path) as s:
        await s.add_node("n1", card(0))
        await s.add_node("n2", card(0))
        extender = await s.start_extender()
        http = s.http(extender)
        await s.add_pod("a", resources=WHOLE)
        await s.add_pod("b", resources=WHOLE)
        assert placed(await s.filter(http, "a", "n1", "n2")) == "n1"
        assert placed(await s.filter(http, "a", "n2")) == "n2"
        assert len(extender.reservations) == 1
        assert placed(await s.filter(http, "b", "n1", "n2")) == "n1"


@virtual
async def test_a_promise_lapses_and_its_card_is_given_to_the_next(tmp_path: Path) -> None:
    async with scene(tmp_path) as s:
        await one_card(s)
        http = s.http(await s.start_extender(reservation_seconds=60))
        late = await s.add_pod("late", resources=WHOLE)
        quick = await s.add_pod("quick", resources=WHOLE)
        assert placed(await s.filter(http, "late", "n1")) == "n1"
        await asyncio.sleep(59)
        assert (await s.filter(http, "quick", "n1"))["NodeNames"] == []
        await asyncio.sleep(2)
        assert placed(await s.filter(http, "quick", "n1")) == "n1"
        assert "cannot take the pod any more" in await s.bind(http, late, "n1")
        assert await s.bind(http, quick, "n1") == ""


@virtual
async def test_a_pod_deleted_between_filter_and_bind_frees_its_promise(tmp_path: Path) -> None:
    async with scene(tmp_path) as s:
        await one_card(s)
        http = s.http(await s.start_extender())
        gone = await s.add_pod("gone", resources=WHOLE)
        assert placed(await s.filter(http, "gone", "n1")) == "n1"
        await s.delete_pod("gone")
        await asyncio.sleep(0.1)
        assert "is gone" in await s.bind(http, gone, "n1")
        await s.add_pod("next", resources=WHOLE)
        assert placed(await s.filter(http, "next", "n1")) == "n1"


@virtual
async def test_a_pod_of_the_same_name_is_another_pod(tmp_path: Path) -> None:
    async with scene(tmp_path) as s:
        await one_card(s)
        http = s.http(await s.start_extender())
        first = await s.add_pod("p")
        await s.filter(http, "p", "n1")
        await s.delete_pod("p")
        await s.add_pod("p")
        assert "is gone" in await s.bind(http, first, "n1")
        assert (await s.get_pod("p")).spec.nodeName is None


@virtual
async def test_a_card_quarantined_between_filter_and_bind_is_replaced_on_the_same_node(tmp_path: Path) -> None:
    async with scene(tmp_path) as s:
        await s.add_node("n1", card(0), card(1))
        http = s.http(await s.start_extender())
        pod = await s.add_pod("p", resources=WHOLE)
        await s.filter(http, "p", "n1")
        await s.quarantine("n1", {"device": "nvidia-0", "reason": "Xid79"})
        await asyncio.sleep(0.1)
        assert await s.bind(http, pod, "n1") == ""
        assert (await s.allocations())["p"].devices() == {"nvidia-1"}


@virtual
async def test_a_stale_bind_with_no_other_card_fails_and_frees(tmp_path: Path) -> None:
    async with scene(tmp_path) as s:
        await one_card(s)
        extender = await s.start_extender()
        http = s.http(extender)
        pod = await s.add_pod("p")
        await s.filter(http, "p", "n1")
        await s.set_cards("n1", card(0, verdict="Failed", verdict_reason="Xid79"))
        await asyncio.sleep(0.1)
        assert "cannot take the pod any more" in await s.bind(http, pod, "n1")
        assert len(extender.reservations) == 0
        assert (await s.get_pod("p")).spec.nodeName is None


@virtual
async def test_a_restarted_router_binds_what_the_one_before_promised(tmp_path: Path) -> None:
    async with scene(tmp_path) as s:
        await s.add_node("n1", card(0), card(1))
        old = s.http(await s.start_extender())
        bound = await s.add_pod("bound", resources=WHOLE)
        await s.bind(old, bound, placed(await s.filter(old, "bound", "n1")))
        promised = await s.add_pod("promised", resources=WHOLE)
        await s.filter(old, "promised", "n1")
        new = s.http(await s.start_extender())
        assert await s.bind(new, promised, "n1") == ""
        held = await s.allocations()
        assert held["bound"].devices() | held["promised"].devices() == {"nvidia-0", "nvidia-1"}
        await s.add_pod("third", resources=WHOLE)
        assert (await s.filter(new, "third", "n1"))["NodeNames"] == []


@virtual
async def test_a_lost_answer_of_the_api_server_is_found_to_be_success(tmp_path: Path) -> None:
    async with scene(tmp_path) as s:
        await one_card(s)
        lossy = _losing(s, "/binding")
        extender = await s.start_extender(lossy)
        http = s.http(extender)
        pod = await s.add_pod("p")
        assert await s.bind(http, pod, placed(await s.filter(http, "p", "n1"))) == ""
        assert (await s.allocations())["p"].node == "n1"
        await asyncio.sleep(10)
        assert len(extender.reservations) == 0


@virtual
async def test_nothing_is_promised_twice_while_the_outcome_of_a_bind_is_unknown(tmp_path: Path) -> None:
    """The Binding was written, the answer was lost, and the API server is down when we look."""
    async with scene(tmp_path) as s:
        await one_card(s)
        down = False

        def fault(request: httpx2.Request) -> str | None:
            nonlocal down
            if request.url.path.endswith("/binding"):
                down = True
                transport.cut()
                return "lose"
            return "refuse" if down else None

        transport = s.faulty(fault)
        extender = await s.start_extender(transport)
        http = s.http(extender)
        pod = await s.add_pod("p", resources=WHOLE)
        await s.add_pod("other", resources=WHOLE)
        assert "did not answer" in await s.bind(http, pod, placed(await s.filter(http, "p", "n1")))
        await asyncio.sleep(600)
        assert (await s.filter(http, "other", "n1"))["NodeNames"] == []
        assert "not known yet" in (await s.filter(http, "p", "n1"))["Error"]
        down = False
        await asyncio.sleep(10)
        assert "bound to n1 already" in (await s.filter(http, "p", "n1"))["Error"]
        assert len(extender.reservations) == 0
        assert (await s.filter(http, "other", "n1"))["NodeNames"] == []


@virtual
async def test_a_binding_that_never_arrived_frees_its_devices_once_somebody_has_looked(tmp_path: Path) -> None:
    async with scene(tmp_path) as s:
        await one_card(s)
        down = False

        def fault(request: httpx2.Request) -> str | None:
            nonlocal down
            down = down or request.url.path.endswith("/binding")
            return "refuse" if down else None

        extender = await s.start_extender(s.faulty(fault))
        http = s.http(extender)
        pod = await s.add_pod("p", resources=WHOLE)
        assert "did not answer" in await s.bind(http, pod, placed(await s.filter(http, "p", "n1")))
        assert "not known yet" in (await s.filter(http, "p", "n1"))["Error"]
        down = False
        await asyncio.sleep(10)
        assert placed(await s.filter(http, "p", "n1")) == "n1"
        down = False
        await s.add_pod("other", resources=WHOLE)
        assert (await s.filter(http, "other", "n1"))["NodeNames"] == []


@virtual
async def test_binding_twice_is_success_both_times(tmp_path: Path) -> None:
    async with scene(tmp_path) as s:
        await one_card(s)
        http = s.http(await s.start_extender())
        pod = await s.add_pod("p")
        await s.filter(http, "p", "n1")
        assert [await s.bind(http, pod, "n1"), await s.bind(http, pod, "n1")] == ["", ""]
        other = s.http(await s.start_extender())
        assert await s.bind(other, pod, "n1") == ""
        assert "already" in await s.bind(other, pod, "n2")


@virtual
async def test_two_binds_at_once_make_one_binding(tmp_path: Path) -> None:
    async with scene(tmp_path) as s:
        await one_card(s)
        http = s.http(await s.start_extender())
        pod = await s.add_pod("p")
        await s.filter(http, "p", "n1")
        errors = await asyncio.gather(s.bind(http, pod, "n1"), s.bind(http, pod, "n1"))
        assert sorted(bool(error) for error in errors) == [False, True]


@virtual
async def test_a_pod_somebody_else_bound_is_not_ours(tmp_path: Path) -> None:
    async with scene(tmp_path) as s:
        await one_card(s)
        http = s.http(await s.start_extender())
        pod = await s.add_pod("p", resources=WHOLE)
        await s.filter(http, "p", "n1")
        await s.post(
            "/api/v1/namespaces/default/pods/p/binding",
            {
                "apiVersion": "v1",
                "kind": "Binding",
                "metadata": {"name": "p"},
                "target": {"apiVersion": "v1", "kind": "Node", "name": "n1"},
            },
        )
        assert "by somebody else" in await s.bind(http, pod, "n1")
        await s.add_pod("next", resources=WHOLE)
        assert placed(await s.filter(http, "next", "n1")) == "n1"


@virtual
async def test_a_forged_allocation_has_no_effect(tmp_path: Path) -> None:
    """Copied from another pod, written on an unbound pod, or on a pod of another scheduler: nothing is taken."""
    async with scene(tmp_path) as s:
        await one_card(s)
        extender = await s.start_extender()
        http = s.http(extender)
        real = await s.add_pod("real", resources=WHOLE)
        await s.bind(http, real, placed(await s.filter(http, "real", "n1")))
        text = encode_allocation((await s.allocations())["real"])
        await s.add_pod("copied", annotations={names.ALLOCATION: text}, spec={"nodeName": "n1"})
        stranger = await s.add_pod("stranger", scheduler="default-scheduler", spec={"nodeName": "n1"})
        own = text.replace(real.metadata.uid, stranger.metadata.uid)
        await s.annotate("stranger", {names.ALLOCATION: own})
        unbound = await s.add_pod("unbound")
        await s.annotate("unbound", {names.ALLOCATION: text.replace(real.metadata.uid, unbound.metadata.uid)})
        await s.delete_pod("real")
        await asyncio.sleep(0.1)
        assert extender.view.allocations == {}
        await s.add_pod("next", resources=WHOLE)
        assert placed(await s.filter(http, "next", "n1")) == "n1"


@virtual
async def test_finished_and_deleted_pods_free_their_devices(tmp_path: Path) -> None:
    async with scene(tmp_path) as s:
        await one_card(s)
        http = s.http(await s.start_extender())
        for name in ("a", "b", "c"):
            pod = await s.add_pod(name, resources=WHOLE)
            assert await s.bind(http, pod, placed(await s.filter(http, name, "n1"))) == ""
            await (s.set_status(name, phase="Succeeded") if name == "a" else s.delete_pod(name))
            await asyncio.sleep(0.1)


@virtual
async def test_images_are_rebound_before_the_binding_and_only_where_they_differ(tmp_path: Path) -> None:
    async with scene(tmp_path) as s:
        await s.add_node("n1", card(0, "ascend"))
        await s.add_profile("cann", vendor="ascend", runtime="pytorch-2.6", image="r.example/cann:1")
        patched: list[str] = []

        def fault(request: httpx2.Request) -> None:
            if request.method in ("PATCH", "POST") and "/pods/" in request.url.path:
                patched.append(f"{request.method} {request.url.path.rpartition('/')[2]}")

        http = s.http(await s.start_extender(s.faulty(fault)))
        pod = await s.add_pod("p", annotations={names.RUNTIME: "pytorch-2.6"})
        assert await s.bind(http, pod, placed(await s.filter(http, "p", "n1"))) == ""
        assert (await s.get_pod("p")).spec.containers[0].image == "r.example/cann:1"
        assert patched == ["PATCH p", "POST binding"]
        same = await s.add_pod(
            "q",
            annotations={names.RUNTIME: "pytorch-2.6"},
            spec={
                "containers": [{"name": "m", "image": "r.example/cann:1", "resources": {"limits": {names.VRAM: "1Gi"}}}]
            },
        )
        assert await s.bind(http, same, placed(await s.filter(http, "q", "n1"))) == ""
        assert patched[2:] == ["POST binding"]


@virtual
async def test_a_runtime_keeps_to_the_vendors_that_offer_it(tmp_path: Path) -> None:
    async with scene(tmp_path) as s:
        await s.add_node("n1", card(0))
        await s.add_node("n2", card(0, "ascend"))
        await s.add_node("mixed", card(0, "cambricon"), card(1, "ascend"))
        await s.add_profile("cann", vendor="ascend", runtime="pytorch-2.6", image="r.example/cann:1")
        http = s.http(await s.start_extender())
        await s.add_pod("p", annotations={names.RUNTIME: "pytorch-2.6"})
        assert placed(await s.filter(http, "p", "n1", "n2")) == "n2"
        pod = await s.get_pod("p")
        assert await s.bind(http, pod, placed(await s.filter(http, "p", "n1", "mixed"))) == ""
        assert (await s.allocations())["p"].devices() == {"ascend-1"}
        await s.add_pod("q", annotations={names.RUNTIME: "jax"})
        refused = (await s.filter(http, "q", "n1", "n2"))["FailedAndUnresolvableNodes"]
        assert "offered are pytorch-2.6" in refused["n1"]
        assert set(refused) == {"n1", "n2"}


@virtual
async def test_a_replacement_resumes_where_its_predecessor_was_evicted(tmp_path: Path) -> None:
    async with scene(tmp_path) as s:
        await s.add_node("n1", card(0), card(1))
        await s.add_node("n2", card(0, "ascend"))
        note = EvictedOwner("job-uid", "default", "train-1", "nvidia", "file:///ckpt/40")
        http = s.http(await s.start_extender())
        await s.quarantine(
            "n1",
            {
                "device": "nvidia-0",
                "reason": "Xid79",
                "since": "2026-03-01T00:00:00Z",
                "evicted": [
                    {
                        "ownerUid": note.owner_uid,
                        "namespace": note.namespace,
                        "pod": note.pod,
                        "vendor": note.vendor,
                        "resumeFrom": note.resume_from,
                    }
                ],
            },
        )
        owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "job-uid", "controller": True}
        fixed = await s.add_pod("train-2", ownerReferences=[owner])
        await asyncio.sleep(0.1)
        refused = await s.filter(http, "train-2", "n2")
        assert "written on nvidia" in refused["FailedAndUnresolvableNodes"]["n2"]
        assert await s.bind(http, fixed, placed(await s.filter(http, "train-2", "n1", "n2"))) == ""
        bound = await s.get_pod("train-2")
        assert (bound.spec.nodeName, bound.annotations[names.RESUME]) == ("n1", "file:///ckpt/40")
        await s.add_pod("train-3", ownerReferences=[owner], annotations={names.PORTABLE: "true"})
        assert placed(await s.filter(http, "train-3", "n2")) == "n2"


@virtual
async def test_refusals_keep_their_words_while_what_is_free_changes(tmp_path: Path) -> None:
    async with scene(tmp_path) as s:
        await s.add_node("n1", card(0), card(1))
        http = s.http(await s.start_extender())
        await s.add_pod("big", resources={names.VRAM: "79Gi"})
        texts = []
        for number in range(4):
            pod = await s.add_pod(f"small-{number}", resources={names.VRAM: "30Gi"})
            assert await s.bind(http, pod, placed(await s.filter(http, pod.metadata.name, "n1"))) == ""
            if number >= 2:
                texts += [(await s.filter(http, "big", "n1"))["FailedAndUnresolvableNodes"]["n1"] for _ in range(2)]
        assert len(texts) == 4
        assert len(set(texts)) == 1


@virtual
async def test_the_event_is_told_again_only_when_its_words_change(tmp_path: Path) -> None:
    async with scene(tmp_path) as s:
        await one_card(s)
        writes: list[str] = []

        def fault(request: httpx2.Request) -> None:
            if "/events" in request.url.path:
                writes.append(request.method)

        http = s.http(await s.start_extender(s.faulty(fault)))
        await s.add_pod("p", resources={names.VRAM: "200Gi"})
        for _ in range(5):
            await s.filter(http, "p", "n1")
            await asyncio.sleep(1)
        assert writes == ["POST"]
        ((reason, message),) = await s.events("p")
        assert reason == "FailedPlacement"
        assert "200Gi" in message
        await s.set_cards("n1", card(0, vram=96 * GIB))
        await asyncio.sleep(0.1)
        await s.filter(http, "p", "n1")
        await asyncio.sleep(1)
        assert writes == ["POST", "POST"]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        pytest.param({"resources": {names.CARDS: "0"}}, "ZeroCards", id="nonsense"),
        pytest.param({"scheduler": "default-scheduler"}, "schedulerName: hcs-scheduler", id="other-scheduler"),
        pytest.param({"annotations": {names.WORKLOAD: "knitting"}}, "UnknownValue", id="unknown-word"),
    ],
)
@virtual
async def test_what_cannot_be_read_is_refused_on_every_node(
    tmp_path: Path, changes: dict[str, Any], words: str
) -> None:
    async with scene(tmp_path) as s:
        await one_card(s)
        http = s.http(await s.start_extender())
        await s.add_pod("p", **changes)
        answer = await s.filter(http, "p", "n1", "n9")
        assert answer["NodeNames"] == []
        assert {name for name, text in answer["FailedAndUnresolvableNodes"].items() if words in text} == {"n1", "n9"}


@virtual
async def test_pods_that_ask_for_nothing_of_ours_pass_through_and_are_bound_plainly(tmp_path: Path) -> None:
    async with scene(tmp_path) as s:
        await one_card(s)
        extender = await s.start_extender()
        http = s.http(extender)
        pod = await s.add_pod("p", resources={"cpu": "1"})
        assert (await s.filter(http, "p", "n1", "n2"))["NodeNames"] == ["n1", "n2"]
        assert len(extender.reservations) == 0
        assert await s.bind(http, pod, "n1") == ""
        bound = await s.get_pod("p")
        assert (bound.spec.nodeName, names.ALLOCATION in bound.annotations) == ("n1", False)


@virtual
async def test_a_node_without_cards_is_refused(tmp_path: Path) -> None:
    async with scene(tmp_path) as s:
        await one_card(s)
        http = s.http(await s.start_extender())
        await s.add_pod("p")
        answer = await s.filter(http, "p", "plain")
        assert "NotManaged" in answer["FailedAndUnresolvableNodes"]["plain"]


@virtual
async def test_after_a_cut_the_router_answers_from_what_it_knows(tmp_path: Path) -> None:
    async with scene(tmp_path) as s:
        await one_card(s)
        down = False
        transport = s.faulty(lambda _: "refuse" if down else None)
        http = s.http(await s.start_extender(transport))
        await s.add_pod("p")
        down = True
        transport.cut()
        await asyncio.sleep(30)
        assert placed(await s.filter(http, "p", "n1")) == "n1"


def _losing(s: Scene, path: str) -> httpx2.AsyncBaseTransport:
    """The first request to this path is carried out, and its answer lost."""
    lost: list[str] = []

    def fault(request: httpx2.Request) -> str | None:
        if request.url.path.endswith(path) and not lost:
            lost.append(path)
            return "lose"
        return None

    return s.faulty(fault)
