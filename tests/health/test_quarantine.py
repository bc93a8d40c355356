"""What the quarantine list says, given where the cards stand."""

import msgspec
import pytest

from hcs.health.cards import CardState
from hcs.health.quarantine import HEALER, wanted_entries
from hcs.model.devices import Device, EvictedOwner, NodeInventory, Quarantine

CARD = Device(
    id="a", index=0, vendor="nvidia", model="X", vram=1, verdict="Failed", verdict_reason="FellOffTheBus",
    verdict_message="gone",
)  # fmt: skip
OURS = Quarantine("a", "FellOffTheBus", "gone", HEALER, "t0")
PERSON = Quarantine("b", "Maintenance", "new fan", "alice", "t0")


def test_a_failed_card_is_listed_with_its_reason() -> None:
    assert wanted_entries((), (CARD,), {"a": CardState("Quarantined")}, {}, "t0") == (OURS,)


def test_what_people_wrote_stays_and_is_not_doubled() -> None:
    person = Quarantine("a", "Maintenance", "", "alice", "t0")
    assert wanted_entries((person,), (CARD,), {"a": CardState("Quarantined")}, {}, "t1") == (person,)
    assert wanted_entries((PERSON,), (CARD,), {"a": CardState("Serving")}, {}, "t1") == (PERSON,)


def test_the_entry_keeps_its_time_and_goes_when_the_card_serves_again() -> None:
    assert wanted_entries((PERSON, OURS), (CARD,), {"a": CardState("Recovering")}, {}, "t9") == (PERSON, OURS)
    assert wanted_entries((PERSON, OURS), (CARD,), {"a": CardState("Serving")}, {}, "t9") == (PERSON,)


def test_a_card_the_agent_no_longer_reports_stays_out() -> None:
    assert wanted_entries((OURS,), (), {}, {}, "t9") == (OURS,)


def test_owners_are_told_where_to_resume() -> None:
    owner = EvictedOwner("u", "default", "p", "nvidia", "checkpoints/step-1")
    (entry,) = wanted_entries((OURS,), (CARD,), {"a": CardState("Drained")}, {"a": (owner,)}, "t9")
    assert entry.evicted == (owner,)


def test_people_keep_their_words_in_an_entry_that_carries_our_notes() -> None:
    person = Quarantine("a", "Maintenance", "", "alice", "t0")
    owner = EvictedOwner("u", "default", "p")
    (entry,) = wanted_entries((person,), (CARD,), {"a": CardState("Quarantined")}, {"a": (owner,)}, "t1")
    assert entry == Quarantine("a", "Maintenance", "", "alice", "t0", (owner,))


@pytest.mark.parametrize(
    ("owed", "stays"),
    [
        pytest.param((), False, id="nobody-was-evicted"),
        pytest.param((EvictedOwner("u", "default", "p", replaced_by="q"),), False, id="all-have-been-replaced"),
        pytest.param((EvictedOwner("u", "default", "p"),), True, id="somebody-still-waits"),
    ],
)
def test_an_entry_is_lifted_and_not_removed_while_somebody_waits(owed: tuple[EvictedOwner, ...], stays: bool) -> None:
    entries = wanted_entries((OURS,), (CARD,), {"a": CardState("Serving")}, {"a": owed}, "t9")
    assert [(entry.lifted, entry.evicted) for entry in entries] == ([(True, owed)] if stays else [])
    node = NodeInventory("n", quarantine=entries)
    assert node.quarantined("a") is None


def test_a_lifted_card_that_fails_again_begins_a_new_quarantine() -> None:
    owner = EvictedOwner("u", "default", "p")
    lifted = msgspec.structs.replace(OURS, lifted=True, evicted=(owner,))
    (entry,) = wanted_entries((lifted,), (CARD,), {"a": CardState("Quarantined")}, {"a": (owner,)}, "t9")
    assert (entry.lifted, entry.since, entry.evicted) == (False, "t9", (owner,))


@pytest.mark.parametrize("reason", ["", "not camel", "lower", "X" * 65])
def test_nothing_is_asked_for_that_the_schema_refuses(reason: str) -> None:
    odd = msgspec.structs.replace(CARD, verdict_reason=reason, verdict_message="x" * 5000)
    (entry,) = wanted_entries((), (odd,), {"a": CardState("Quarantined")}, {}, "t0")
    assert entry.reason == "Failed"
    assert len(entry.message) == 1024
