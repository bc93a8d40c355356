"""What the quarantine list says, given where the cards stand."""

from hcs.health.cards import CardState
from hcs.health.quarantine import HEALER, wanted_entries
from hcs.model.devices import Device, EvictedOwner, Quarantine

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
