"""Pods that want to be asked: offered what stands in, let through when answered or when what they named is free."""

import asyncio
from pathlib import Path
from typing import Any

import httpx2
from tests.router.scene import Scene, card, scene, virtual

from hcs.model import names
from hcs.model.devices import Rate
from hcs.model.offers import Offer, offer_on

WHOLE = {names.VRAM: "60Gi", names.CARDS: "1"}
GATED = {"schedulingGates": [{"name": names.ASK_GATE}]}
ASK = {
    names.MODELS: "A100-SXM4-80GB",
    names.SUBSTITUTION: "ask",
    names.SHARING: "exclusive",
    names.WORKLOAD: "finetune",
}
HALF = (Rate("gemm", 100_000, "measured"), Rate("finetune", 50_000, "benchmark"))
FULL = (Rate("gemm", 100_000, "measured"), Rate("finetune", 100_000, "measured"))


async def mixed(s: Scene, *, free: int = 0, stand_ins: int = 4) -> None:
    """A node of A100s, all but ``free`` taken by others outside, and one of Ascend cards at half their speed."""
    foreign = [card(index, foreign=index >= free, rates=FULL) for index in range(2)]
    await s.add_node("nv", *foreign)
    await s.add_node("npu", *(card(index, "ascend", rates=HALF) for index in range(stand_ins)))


async def asking(s: Scene, name: str = "p", **changes: Any) -> None:
    await s.add_pod(name, resources=WHOLE, annotations=ASK, spec=GATED, **changes)


async def offered(s: Scene, name: str = "p", *, seconds: float = 20) -> Offer:
    """Wait for an offer that stands on a pod."""
    found: list[Offer] = []

    async def has_offer() -> bool:
        offer = offer_on(await s.get_pod(name))
        found[:] = [offer] if offer is not None else []
        return offer is not None

    await s.until(has_offer, seconds=seconds)
    return found[0]


async def answer(s: Scene, text: str, name: str = "p") -> None:
    await s.annotate(name, {names.SUBSTITUTION_ANSWER: text})


@virtual
async def test_two_slower_cards_are_offered_for_one_and_given_when_accepted(tmp_path: Path) -> None:
    async with scene(tmp_path) as s:
        await mixed(s)
        await s.start_driver(s.http(await s.start_extender()))
        await asking(s)
        offer = await offered(s)
        assert (offer.cards, offer.model, offer.wanted_cards, offer.wanted) == (2, "910B3", 1, "A100-SXM4-80GB")
        assert (offer.workload, offer.source) == ("finetune", "benchmark")
        assert ("SubstitutionOffered", f"{offer.reason}; accept with: hcs accept p -n default") in await s.events("p")
        await asyncio.sleep(30)
        assert (await s.get_pod("p")).spec.nodeName is None
        assert s.count("filter", "p") == 0
        await answer(s, f"accept {offer.id}")
        pod = await s.bound("p", seconds=5)
        held = (await s.allocations())["p"]
        assert (held.node, len(held.devices())) == ("npu", 2)
        assert held.exchange is not None
        assert (
            "910B3 accepted in place of A100-SXM4-80GB; 1 A100-SXM4-80GB = 2.00" in pod.annotations[names.ROUTE_REASON]
        )
        assert pod.spec.schedulingGates is None
        assert offer_on(pod) == Offer(**{**{f: getattr(offer, f) for f in Offer.__struct_fields__}, "accepted": True})


@virtual
async def test_nothing_is_offered_where_its_spikes_are_not(tmp_path: Path) -> None:
    """An accepted offer would open the gate of a pod that no node can take."""
    async with scene(tmp_path) as s:
        await mixed(s)
        await s.start_driver(s.http(await s.start_extender()))
        await s.add_pod("p", resources={**WHOLE, "snn.ai.compute/ksps": "10"}, annotations=ASK, spec=GATED)
        await asyncio.sleep(20)
        assert offer_on(await s.get_pod("p")) is None
        spikes = {"snn.ai.compute/ksps": "10"}
        await s.node_patch("npu", {"status": {"allocatable": spikes, "capacity": spikes}}, subresource="status")
        await offered(s)


@virtual
async def test_what_it_named_becomes_free_and_opens_the_gate_without_asking(tmp_path: Path) -> None:
    async with scene(tmp_path) as s:
        await mixed(s)
        await s.start_driver(s.http(await s.start_extender()))
        await asking(s)
        await offered(s)
        await s.set_cards("nv", card(0, rates=FULL), card(1, foreign=True, rates=FULL))
        pod = await s.bound("p", seconds=5)
        assert (await s.allocations())["p"].exchange is None
        assert names.SUBSTITUTION_OFFER not in pod.annotations


@virtual
async def test_an_open_offer_keeps_nothing_from_others(tmp_path: Path) -> None:
    """Others take the offered cards; the acceptance comes too late for those, and is said so."""
    async with scene(tmp_path) as s:
        await mixed(s, stand_ins=2)
        await s.start_driver(s.http(await s.start_extender()))
        await asking(s)
        offer = await offered(s)
        for number in range(2):
            await s.add_pod(f"other{number}", resources={names.VRAM: "64Gi"}, annotations={names.VENDORS: "ascend"})
            await s.bound(f"other{number}", seconds=5)
        await answer(s, f"accept {offer.id}")
        await asyncio.sleep(10)
        pod = await s.get_pod("p")
        assert (pod.spec.nodeName, offer_on(pod)) == (None, None)
        assert "OfferGone" in dict(await s.events("p")) or "OfferWithdrawn" in dict(await s.events("p"))
        await s.delete_pod("other0")
        await s.delete_pod("other1")
        again = await offered(s)
        await answer(s, f"accept {again.id}")
        await s.bound("p", seconds=5)


@virtual
async def test_an_offer_expires_is_renewed_and_the_old_one_cannot_be_accepted(tmp_path: Path) -> None:
    async with scene(tmp_path) as s:
        await mixed(s)
        await s.start_driver(s.http(await s.start_extender(offer_seconds=100)))
        await asking(s)
        first = await offered(s)
        await asyncio.sleep(110)
        second = await offered(s)
        assert (first.terms, first.id != second.id) == (second.terms, True)
        await answer(s, f"accept {first.id}")
        await asyncio.sleep(5)
        assert (await s.get_pod("p")).spec.nodeName is None
        assert "AnswerNotUsed" in dict(await s.events("p"))
        await answer(s, f"accept {(await offered(s)).id}")
        await s.bound("p", seconds=5)


@virtual
async def test_declined_terms_are_not_offered_again_others_are(tmp_path: Path) -> None:
    async with scene(tmp_path) as s:
        await mixed(s)
        await s.add_node("mlu", *(card(i, "cambricon", vram=80 << 30, rates=HALF) for i in range(4)))
        await s.start_driver(s.http(await s.start_extender()))
        await asking(s)
        first = await offered(s)
        await answer(s, f"decline {first.id}")
        await asyncio.sleep(5)
        second = await offered(s)
        assert {first.model, second.model} == {"910B3", "MLU370-X8"}
        await answer(s, f"decline {first.id} {second.id}")
        await asyncio.sleep(700)
        assert offer_on(await s.get_pod("p")) is None


@virtual
async def test_nonsense_as_an_answer_is_told_and_changes_nothing(tmp_path: Path) -> None:
    async with scene(tmp_path) as s:
        await mixed(s)
        await s.start_driver(s.http(await s.start_extender()))
        await asking(s)
        offer = await offered(s)
        await answer(s, "yes please")
        await asyncio.sleep(5)
        assert offer_on(await s.get_pod("p")) == offer
        assert "MalformedAnswer" in dict(await s.events("p"))


@virtual
async def test_gates_of_others_stay_shut(tmp_path: Path) -> None:
    """A pod that another controller still holds is let go by us and not placed."""
    async with scene(tmp_path) as s:
        await mixed(s, free=1)
        await s.start_driver(s.http(await s.start_extender()))
        gates = [{"name": "kueue.x-k8s.io/topology"}, {"name": names.ASK_GATE}]
        await s.add_pod("p", resources=WHOLE, annotations=ASK, spec={"schedulingGates": gates})
        await asyncio.sleep(10)
        pod = await s.get_pod("p")
        assert [gate.name for gate in pod.spec.schedulingGates or ()] == ["kueue.x-k8s.io/topology"]
        assert pod.spec.nodeName is None


@virtual
async def test_a_pod_refused_behind_its_gate_after_all_is_offered_something_too(tmp_path: Path) -> None:
    """The gate was opened for a card that others took before kube-scheduler came: it cannot be shut again."""
    async with scene(tmp_path) as s:
        await mixed(s)
        await s.start_driver(s.http(await s.start_extender()))
        await s.add_pod("p", resources=WHOLE, annotations=ASK)
        await s.waiting("p")
        offer = await offered(s)
        await answer(s, f"accept {offer.id}")
        await s.bound("p", seconds=20)


@virtual
async def test_only_what_was_accepted_is_given(tmp_path: Path) -> None:
    """Accepted were Ascend cards; they fall ill before the bind, and the free Cambricon ones are not taken instead."""
    async with scene(tmp_path) as s:
        await mixed(s)
        extender = await s.start_extender()
        http = s.http(extender)
        await asking(s)
        offer = await offered(s)
        assert offer.vendor == "ascend"
        await answer(s, f"accept {offer.id}")
        await asyncio.sleep(1)
        await s.quarantine("npu", {"device": "*", "reason": "Drill"})
        await s.add_node("mlu", *(card(i, "cambricon", vram=80 << 30, rates=HALF) for i in range(4)))
        await asyncio.sleep(1)
        assert (await s.filter(http, "p", "nv", "npu", "mlu"))["NodeNames"] == []
        await s.quarantine("npu")
        await asyncio.sleep(1)
        assert (await s.filter(http, "p", "nv", "npu", "mlu"))["NodeNames"] == ["npu"]


@virtual
async def test_a_restarted_router_keeps_the_offer_and_takes_the_answer(tmp_path: Path) -> None:
    async with scene(tmp_path) as s:
        await mixed(s)
        http = s.http(await s.start_extender())
        await s.start_driver(http)
        await asking(s)
        offer = await offered(s)
        s._tasks[0].cancel()
        await answer(s, f"accept {offer.id}")
        await asyncio.sleep(5)
        http._transport = s.http(await s.start_extender())._transport
        await s.bound("p", seconds=5)


@virtual
async def test_a_patch_that_fails_is_tried_again(tmp_path: Path) -> None:
    async with scene(tmp_path) as s:
        await mixed(s)
        failures: list[str] = []

        def fault(request: httpx2.Request) -> str | None:
            if request.method == "PATCH" and len(failures) < 3:
                failures.append("once more")
                return "refuse" if len(failures) % 2 else "lose"
            return None

        await s.start_driver(s.http(await s.start_extender(s.faulty(fault))))
        await asking(s)
        offer = await offered(s)
        await answer(s, f"accept {offer.id}")
        await s.bound("p", seconds=10)
