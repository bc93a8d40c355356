"""The healer against a real API server, on virtual time: what it stores, whom it evicts, and what it does again."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import httpx2
import pytest
from tests.healer.scene import CHECKPOINTS, PROBATION, failed, ward
from tests.router.scene import card, virtual

from hcs.health.budget import EvictionBudget
from hcs.health.quarantine import HEALER
from hcs.model import names


@virtual
async def test_a_failed_card_is_quarantined_and_its_pod_evicted_with_a_place_to_resume(tmp_path: Path) -> None:
    async with ward(tmp_path) as w:
        lost = await w.hold("train-1", "gpu", card(0))
        w.steps["train-1"] = 120
        await w.start_healer()
        await w.settle()
        assert await w.entries("gpu") == {}
        await w.set_cards("gpu", failed(0), card(1))
        await w.until(lambda: w.leaving("train-1"))
        entry = (await w.entries("gpu"))["nvidia-0"]
        assert (entry.reason, entry.message, entry.by, entry.lifted) == ("FellOffTheBus", "it fell off", HEALER, False)
        (note,) = entry.evicted
        assert (note.owner_uid, note.namespace, note.pod, note.pod_uid, note.vendor, note.resume_from) == (
            "job-uid", "default", "train-1", lost.metadata.uid, "nvidia", f"{CHECKPOINTS}/step-120",
        )  # fmt: skip
        await w.settle()
        assert await w.told("train-1") == ["Evicted"]
        assert await w.told("gpu") == ["CardQuarantined"]
        await w.end("train-1")
        await w.settle()
        assert await w.told("gpu") == ["CardQuarantined", "CardDrained"]


@virtual
async def test_storage_that_hangs_delays_the_eviction_and_not_the_quarantine(tmp_path: Path) -> None:
    async with ward(tmp_path) as w:
        await w.hold("slow", "gpu", card(0))
        await w.hold("plain", "gpu", card(0), owner="other", checkpoint=False)
        w.steps["slow"] = 7
        w.storage.clear()
        await w.start_healer()
        await w.settle()
        await w.set_cards("gpu", failed(0), failed(1))
        await w.settle(0.2)
        assert set(await w.entries("gpu")) == {"nvidia-0", "nvidia-1"}
        await w.settle()
        assert not await w.leaving("slow")
        w.storage.set()
        await w.until(lambda: w.leaving("slow"))
        await w.until(lambda: w.leaving("plain"))
        assert (await w.notes("gpu", "nvidia-0"))["slow"] == (f"{CHECKPOINTS}/step-7", "")


@virtual
async def test_the_note_waits_for_a_replacement_that_was_told_and_then_names_it(tmp_path: Path) -> None:
    async with ward(tmp_path) as w:
        await w.hold("train-1", "gpu", card(0))
        w.steps["train-1"] = 10
        await w.start_healer()
        await w.set_cards("gpu", failed(0), card(1))
        await w.until(lambda: w.leaving("train-1"))
        w.steps["train-1"] = 30  # it goes on writing while it is told to stop
        await w.settle(5)
        assert await w.notes("gpu", "nvidia-0") == {"train-1": (f"{CHECKPOINTS}/step-30", "")}
        w.steps["train-1"] = 40  # and until its last moment
        await w.end("train-1")
        await w.settle()
        waiting = await w.wait_for_place("train-2")
        await w.settle(3600)
        assert await w.notes("gpu", "nvidia-0") == {"train-1": (f"{CHECKPOINTS}/step-40", "")}
        await w.delete_pod("train-2")
        assert waiting.metadata.uid
        bound = await w.hold("train-3", "npu", card(0, "ascend"), resume=f"{CHECKPOINTS}/step-40")
        await w.settle()
        assert await w.notes("gpu", "nvidia-0") in ({}, {"train-1": (f"{CHECKPOINTS}/step-40", bound.metadata.uid)})
        await w.settle(120)
        assert await w.notes("gpu", "nvidia-0") == {}


@virtual
async def test_of_two_pods_lost_together_each_has_its_own_replacement(tmp_path: Path) -> None:
    async with ward(tmp_path) as w:
        for name in ("train-1", "train-2"):
            await w.hold(name, "gpu", card(0))
            w.steps[name] = 5
        sibling = await w.hold("train-0", "npu", card(0, "ascend"))
        await w.settle(10)
        await w.start_healer()
        await w.set_cards("gpu", failed(0), card(1))
        for name in ("train-1", "train-2"):
            await w.until(lambda name=name: w.leaving(name))
            await w.end(name)
        first = await w.hold("train-3", "npu", card(1, "ascend"), resume=f"{CHECKPOINTS}/step-5")
        await w.settle()
        await w.start_healer()  # what is closed stands in the notes: a fresh healer does not count train-3 again
        await w.settle(120)
        notes = await w.notes("gpu", "nvidia-0")
        assert sorted(by for _, by in notes.values()) == ["", first.metadata.uid]
        assert sibling.metadata.uid not in [by for _, by in notes.values()]
        await w.hold("train-4", "npu", card(1, "ascend"), resume=f"{CHECKPOINTS}/step-5")
        await w.settle(120)
        assert await w.notes("gpu", "nvidia-0") == {}


@virtual
async def test_a_pod_that_died_of_the_fault_before_it_could_be_evicted_is_noted(tmp_path: Path) -> None:
    async with ward(tmp_path) as w:
        await w.hold("long-ago", "gpu", card(0), owner="older")
        await w.fail_by_itself("long-ago")
        await w.settle(60)
        await w.hold("train-1", "gpu", card(0))
        w.steps["train-1"] = 50
        await w.start_healer()
        await w.settle()
        await w.fail_by_itself("train-1")
        await w.settle(1)
        await w.wait_for_place("train-2")
        await w.set_cards("gpu", failed(0), card(1))
        await w.settle()
        assert await w.notes("gpu", "nvidia-0") == {"train-1": (f"{CHECKPOINTS}/step-50", "")}


@virtual
async def test_a_controller_that_makes_no_replacement_is_not_waited_for(tmp_path: Path) -> None:
    async with ward(tmp_path) as w:
        await w.hold("train-1", "gpu", card(0))
        await w.start_healer()
        await w.settle()
        await w.fail_by_itself("train-1")
        await w.set_cards("gpu", failed(0), card(1))
        await w.settle(600)
        assert (await w.notes("gpu", "nvidia-0"))["train-1"][1] == ""
        await w.settle(400)
        assert (await w.notes("gpu", "nvidia-0"))["train-1"][1] == "nobody"
        await w.delete_pod("train-1")
        await w.settle(120)
        assert await w.notes("gpu", "nvidia-0") == {}


@virtual
async def test_a_replacement_bound_to_the_failed_card_in_the_race_moves_on(tmp_path: Path) -> None:
    async with ward(tmp_path) as w:
        await w.hold("train-1", "gpu", card(0))
        w.steps |= {"train-1": 5, "train-2": 9}
        await w.start_healer()
        await w.set_cards("gpu", failed(0), card(1))
        await w.until(lambda: w.leaving("train-1"))
        await w.end("train-1")
        await w.settle()
        await w.hold("train-2", "gpu", card(0), resume=f"{CHECKPOINTS}/step-5")
        await w.until(lambda: w.leaving("train-2"))
        await w.end("train-2")
        await w.settle()
        open_notes = {pod: place for pod, (place, by) in (await w.notes("gpu", "nvidia-0")).items() if not by}
        assert open_notes == {"train-2": f"{CHECKPOINTS}/step-9"}


@virtual
async def test_a_disruption_budget_holds_an_eviction_back_and_is_asked_again(tmp_path: Path) -> None:
    asked = 0

    def count(request: httpx2.Request) -> str | None:
        nonlocal asked
        asked += request.url.path.endswith("/eviction")
        return None

    async with ward(tmp_path) as w:
        selector = {"matchLabels": {"app": "train"}}
        spec = {"minAvailable": 1, "selector": selector}
        await w.post(
            "/apis/policy/v1/namespaces/default/poddisruptionbudgets",
            {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "b"}, "spec": spec},
        )
        await w.patch_budget("b", 0)
        await w.hold("train-1", "gpu", card(0), labels={"app": "train"})
        await w.start_healer(fault=count)
        await w.set_cards("gpu", failed(0), card(1))
        for number in range(50):  # every change begins a round; not every round asks
            await w.annotate("train-1", {"example.org/n": str(number)})
        await w.settle(20)
        assert not await w.leaving("train-1")
        assert 4 <= asked <= 6
        assert await w.told("train-1") == ["EvictionBlocked"]
        await w.patch_budget("b", 1)
        await w.until(lambda: w.leaving("train-1"))


@virtual
async def test_the_eviction_budget_spreads_a_wave(tmp_path: Path) -> None:
    async with ward(tmp_path) as w:
        for number in range(3):
            await w.hold(f"train-{number}", "gpu", card(number % 2), owner=f"job-{number}")
        await w.start_healer(budget=EvictionBudget(2, 60.0))
        await w.set_cards("gpu", failed(0), failed(1))
        await w.settle(20)
        gone = [await w.leaving(f"train-{number}") for number in range(3)]
        assert sorted(gone) == [False, True, True]
        assert await w.told(f"train-{gone.index(False)}") == ["EvictionDelayed"]
        await w.settle(60)
        assert all([await w.leaving(f"train-{number}") for number in range(3)])


@virtual
async def test_a_pod_on_two_failed_cards_is_evicted_once(tmp_path: Path) -> None:
    asked = 0

    def count(request: httpx2.Request) -> str | None:
        nonlocal asked
        asked += request.url.path.endswith("/eviction")
        return None

    async with ward(tmp_path) as w:
        await w.hold("train-1", "gpu", card(0), card(1))
        await w.start_healer(fault=count)
        await w.set_cards("gpu", failed(0), failed(1))
        await w.settle(20)
        assert asked == 1
        await w.end("train-1")
        bound = await w.hold("train-2", "npu", card(0, "ascend"), resume=CHECKPOINTS)
        await w.settle()
        for device in ("nvidia-0", "nvidia-1"):
            assert await w.notes("gpu", device) == {"train-1": (CHECKPOINTS, bound.metadata.uid)}


@virtual
async def test_a_pod_without_a_controller_is_told_and_left(tmp_path: Path) -> None:
    async with ward(tmp_path) as w:
        await w.hold("alone", "gpu", card(0), owner=None)
        await w.start_healer()
        await w.set_cards("gpu", failed(0), card(1))
        await w.settle(30)
        assert not await w.leaving("alone")
        assert await w.told("alone") == ["NotEvicted"]
        assert (await w.entries("gpu"))["nvidia-0"].evicted == ()


@virtual
async def test_pods_that_are_not_ours_or_on_other_cards_stay(tmp_path: Path) -> None:
    async with ward(tmp_path) as w:
        await w.hold("neighbour", "gpu", card(1))
        await w.hold("other-node", "npu", card(0, "ascend"))
        forged = await w.get_pod("neighbour")
        await w.add_pod(
            "copied",
            scheduler="default-scheduler",
            annotations={names.ALLOCATION: forged.annotations[names.ALLOCATION].replace("nvidia-1", "nvidia-0")},
            spec={"nodeName": "gpu"},
        )
        await w.start_healer()
        await w.set_cards("gpu", failed(0), card(1))
        await w.settle(20)
        assert not any([await w.leaving(name) for name in ("neighbour", "other-node", "copied")])


@virtual
async def test_what_people_wrote_stays_and_carries_the_notes(tmp_path: Path) -> None:
    async with ward(tmp_path) as w:
        person = {"device": "nvidia-0", "reason": "Maintenance", "message": "new fan", "by": "alice", "since": "today"}
        everything = {"device": "*", "reason": "Move", "by": "bob"}
        await w.quarantine("gpu", person, everything)
        await w.hold("train-1", "gpu", card(0))
        w.steps["train-1"] = 3
        await w.start_healer()
        await w.set_cards("gpu", failed(0), card(1))
        await w.until(lambda: w.leaving("train-1"))
        entries = await w.entries("gpu")
        mine = entries["nvidia-0"]
        assert (mine.reason, mine.message, mine.by, mine.since) == ("Maintenance", "new fan", "alice", "today")
        assert [note.resume_from for note in mine.evicted] == [f"{CHECKPOINTS}/step-3"]
        assert (entries["*"].by, len(entries)) == ("bob", 2)
        await w.set_cards("gpu", card(0), card(1))
        await w.settle(PROBATION + 10)
        assert set(await w.entries("gpu")) == {"nvidia-0", "*"}


@virtual
async def test_a_card_that_is_healthy_again_serves_after_its_probation_and_keeps_open_notes(tmp_path: Path) -> None:
    async with ward(tmp_path) as w:
        await w.hold("train-1", "gpu", card(0))
        w.steps["train-1"] = 3
        await w.start_healer()
        await w.set_cards("gpu", failed(0), card(1))
        await w.until(lambda: w.leaving("train-1"))
        await w.end("train-1")
        await w.wait_for_place("train-2")  # there is no other card for it
        await w.set_cards("gpu", card(0), card(1))
        await w.settle(PROBATION - 10)
        assert not (await w.entries("gpu"))["nvidia-0"].lifted
        await w.settle(20)
        assert (await w.entries("gpu"))["nvidia-0"].lifted
        assert "CardReleased" in await w.told("gpu")
        await w.delete_pod("train-2")
        await w.hold("train-3", "gpu", card(0), resume=f"{CHECKPOINTS}/step-3")
        await w.settle()
        assert await w.entries("gpu") == {}
        assert not await w.leaving("train-3")


@virtual
async def test_a_lifted_card_that_fails_again_is_quarantined_again(tmp_path: Path) -> None:
    async with ward(tmp_path) as w:
        await w.hold("train-1", "gpu", card(0))
        await w.start_healer(probation=5.0)
        await w.set_cards("gpu", failed(0), card(1))
        await w.until(lambda: w.leaving("train-1"))
        await w.end("train-1")
        first = (await w.entries("gpu"))["nvidia-0"]
        await w.wait_for_place("train-2")
        await w.set_cards("gpu", card(0), card(1))
        await w.settle(10)
        assert (await w.entries("gpu"))["nvidia-0"].lifted
        await w.set_cards("gpu", failed(0), card(1))
        await w.settle()
        again = (await w.entries("gpu"))["nvidia-0"]
        assert not again.lifted
        assert again.since > first.since
        assert [note.pod for note in again.evicted] == ["train-1"]


@virtual
async def test_a_person_may_end_a_probation(tmp_path: Path) -> None:
    async with ward(tmp_path) as w:
        await w.start_healer()
        await w.set_cards("gpu", failed(0), card(1))
        await w.settle()
        await w.quarantine("gpu")
        await w.settle()
        assert set(await w.entries("gpu")) == {"nvidia-0"}, "a failed card stays out whatever people write"
        await w.set_cards("gpu", card(0), card(1))
        await w.settle()
        await w.quarantine("gpu")
        await w.settle(10)
        assert await w.entries("gpu") == {}


@virtual
async def test_a_card_that_is_no_longer_reported_has_failed(tmp_path: Path) -> None:
    async with ward(tmp_path) as w:
        await w.hold("train-1", "gpu", card(0))
        await w.start_healer()
        await w.set_cards("gpu", card(1))
        await w.settle(60)
        assert await w.entries("gpu") == {}, "an agent whose vendors did not all answer proves nothing"
        await w.set_condition("gpu", "Probed", "True")
        await w.until(lambda: w.leaving("train-1"))
        assert (await w.entries("gpu"))["nvidia-0"].reason == "CardMissing"
        await w.end("train-1")
        await w.settle(60)
        assert set(await w.entries("gpu")) == {"nvidia-0"}
        await w.set_cards("gpu", card(0), card(1))
        await w.settle(PROBATION + 5)
        assert not any(not entry.lifted for entry in (await w.entries("gpu")).values())


@virtual
async def test_a_pod_seen_before_its_card_is_left_alone(tmp_path: Path) -> None:
    async with ward(tmp_path) as w:
        await w.set_condition("gpu", "Probed", "True")
        await w.start_healer()
        await w.hold("early", "gpu", card(7))
        await w.settle(10)
        await w.set_cards("gpu", card(0), card(1), card(7))
        await w.settle(60)
        assert await w.entries("gpu") == {}
        assert not await w.leaving("early")


@pytest.mark.parametrize("moment", range(6))
def test_a_healer_killed_at_any_moment_is_continued_by_the_next(tmp_path: Path, moment: int) -> None:
    """Whatever the last request was, stored or not, the next healer ends at the same place."""

    @virtual
    async def story() -> None:
        written = 0
        died = asyncio.Event()

        def die(request: httpx2.Request) -> str | None:
            nonlocal written
            if request.method in ("PATCH", "POST"):
                written += 1
                if written == 1 + moment // 2:
                    died.set()
                    return "refuse" if moment % 2 else "lose"
            return "refuse" if died.is_set() and request.method != "GET" else None

        async with ward(tmp_path) as w:
            await w.hold("train-1", "gpu", card(0))
            w.steps["train-1"] = 8
            await w.start_healer(fault=die)
            await w.set_cards("gpu", failed(0), card(1))
            await w.until(died.is_set)
            await w.settle(0.1)
            await w.start_healer()
            await w.until(lambda: w.leaving("train-1"))
            assert await w.notes("gpu", "nvidia-0") == {"train-1": (f"{CHECKPOINTS}/step-8", "")}
            await w.end("train-1")
            await w.settle(10)
            assert len(await w.entries("gpu")) == 1

    story()


@virtual
async def test_writes_that_come_too_late_are_made_again_and_nothing_told_is_lost(tmp_path: Path) -> None:
    async with ward(tmp_path) as w:
        await w.hold("train-1", "gpu", card(0))

        def interfere(request: httpx2.Request) -> str | None:
            nonlocal interfered
            if request.method == "PATCH" and "/computenodes/" in request.url.path and interfered < 3:
                interfered += 1
                return "refuse"
            return None

        interfered = 0
        await w.start_healer(fault=interfere)
        await w.set_cards("gpu", failed(0), card(1))
        await w.until(lambda: w.leaving("train-1"))
        await w.settle()
        assert interfered == 3
        assert "CardQuarantined" in await w.told("gpu")


class Overtaking(httpx2.AsyncBaseTransport):
    """Lets somebody else write just before the first write of a quarantine arrives."""

    def __init__(self, inner: httpx2.AsyncBaseTransport, first: Callable[[], Awaitable[None]]) -> None:
        self.inner, self.first, self.answers = inner, first, list[int]()

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        writes = request.method == "PATCH" and "/computenodes/" in request.url.path
        if writes and not self.answers:
            await self.first()
        answer = await self.inner.handle_async_request(request)
        if writes:
            self.answers.append(answer.status_code)
        return answer


@virtual
async def test_a_stale_write_is_refused_and_keeps_what_somebody_else_wrote(tmp_path: Path) -> None:
    async with ward(tmp_path) as w:
        await w.hold("train-1", "gpu", card(0))
        overtaking = Overtaking(
            w.api, lambda: w.quarantine("gpu", {"device": "nvidia-1", "reason": "Maintenance", "by": "alice"})
        )
        await w.start_healer(transport=overtaking)
        await w.set_cards("gpu", failed(0), card(1))
        await w.until(lambda: w.leaving("train-1"))
        assert overtaking.answers[0] == 409
        assert {entry.device: entry.by for entry in (await w.entries("gpu")).values()} == {
            "nvidia-0": HEALER,
            "nvidia-1": "alice",
        }
        assert await w.told("gpu") == ["CardQuarantined"]


@virtual
async def test_what_the_server_refuses_for_one_node_keeps_no_other_waiting(tmp_path: Path) -> None:
    async with ward(tmp_path) as w:
        await w.start_healer(
            fault=lambda r: "refuse" if r.method == "PATCH" and r.url.path.endswith("/computenodes/gpu") else None
        )
        await w.set_cards("gpu", failed(0), card(1))
        await w.set_cards("npu", failed(0, "ascend"), card(1, "ascend"))
        await w.until(lambda: w.entries("npu"))
        assert await w.entries("gpu") == {}


@virtual
async def test_words_the_schema_would_refuse_do_not_keep_a_card_in_service(tmp_path: Path) -> None:
    async with ward(tmp_path) as w:
        await w.start_healer()
        odd = card(0, verdict="Failed", verdict_reason="not camel", verdict_message="x" * 1024)
        await w.set_cards("gpu", odd, card(1))
        await w.settle()
        assert (await w.entries("gpu"))["nvidia-0"].reason == "Failed"


@virtual
async def test_nodes_that_are_gone_are_forgotten(tmp_path: Path) -> None:
    async with ward(tmp_path) as w:
        await w.start_healer()
        await w.set_cards("gpu", failed(0), card(1))
        await w.settle()
        await w.delete_node("gpu")
        await w.settle()
        await w.add_cards("gpu", card(0), card(1))
        await w.settle(10)
        assert await w.entries("gpu") == {}
