"""What events mean over time."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hcs.health.casebook import CORRECTED, DAY, HOUR, Casebook
from hcs.health.faults import ASCEND_LEVELS, LEVELS, SEVERITY, classify


def reason(book: Casebook, now: float, device: str = "card") -> str:
    return book.current(device, now).reason


def test_programs_that_fail_say_something_of_the_card_only_when_there_are_several() -> None:
    book = Casebook()
    for _ in range(10):
        book.xid("card", 31, "4711", 0.0)
    assert reason(book, 1.0) == "NoFault", "one program that fails often is a bad program"
    book.xid("card", 13, "4712", 10.0)
    book.xid("other", 13, "4713", 10.0)
    assert reason(book, 11.0) == "NoFault"
    book.xid("card", 43, "4714", 20.0)
    assert (reason(book, 21.0), reason(book, 21.0, "other")) == ("ProgramsFail", "NoFault")
    assert reason(book, HOUR + 5.0) == "NoFault", "the first of them is more than an hour ago"


def test_a_fatal_event_stays_until_the_card_is_repaired() -> None:
    book = Casebook()
    book.xid("card", 95, "1", 0.0)
    book.xid("card", 79, "1", 1.0)
    assert reason(book, 100 * DAY) == "UncontainedMemoryError", "the first is what happened"
    book.repaired("card")
    assert reason(book, 100 * DAY) == "NoFault"


def test_a_chip_that_is_reset_again_and_again_is_left_to_a_person() -> None:
    """The vendor's default: three times in a day for this code. A reset ends the fault, and not the count."""
    book = Casebook()
    for hour in range(3):
        book.ascend("card", 0x80E18005, hour * HOUR)
        assert reason(book, hour * HOUR) == ("ManuallySeparateNpu" if hour == 2 else "RestartNpu")
        book.reset("card")
        assert reason(book, hour * HOUR) == ("ManuallySeparateNpu" if hour == 2 else "NoFault")
    book.repaired("card")
    assert reason(book, 3 * HOUR) == "NoFault"
    book.ascend("card", 0x80E18005, 4 * HOUR)
    assert reason(book, 4 * HOUR) == "RestartNpu", "a person's word ends the count as well"


def test_a_reset_of_a_card_without_history_is_nothing() -> None:
    book = Casebook()
    book.reset("card")
    assert reason(book, 0.0) == "NoFault"
    assert book.fatal() == {}


def test_a_mild_event_passes() -> None:
    book = Casebook()
    book.xid("card", 74, "1", 0.0)
    assert (reason(book, HOUR - 1), reason(book, HOUR)) == ("NvlinkError", "NoFault")


@pytest.mark.parametrize(
    ("severity", "count", "expected"),
    [
        pytest.param("corrected", CORRECTED - 1, "NoFault", id="a-few-corrected"),
        pytest.param("corrected", CORRECTED, "PcieCorrected", id="many-corrected"),
        pytest.param("nonfatal", 1, "PcieUncorrected", id="uncorrected"),
        pytest.param("fatal", 1, "PcieFatal", id="fatal"),
    ],
)
def test_pcie_errors_weigh_by_severity(severity: str, count: int, expected: str) -> None:
    book = Casebook()
    for _ in range(count):
        book.pcie("card", severity, 0.0)
    assert reason(book, 59.0) == expected


def test_an_ascend_fault_lasts_until_it_recovers() -> None:
    book = Casebook()
    book.ascend("npu", 0x80E01801, 0.0)
    assert reason(book, DAY, "npu") == "RestartBusiness"
    book.ascend("npu", 0x80E01801, DAY, recovered=True)
    assert reason(book, DAY, "npu") == "NoFault"


def test_a_port_that_flaps_is_nothing_one_that_stays_down_is_something() -> None:
    book = Casebook()
    for flap in range(4):
        book.ascend("npu", 0x81078603, 100.0 * flap)
        assert reason(book, 100.0 * flap + 20, "npu") == "NoFault"
        assert reason(book, 100.0 * flap + 21, "npu") == "PreSeparateNpu"
        book.ascend("npu", 0x81078603, 100.0 * flap + 30, recovered=True)
    book.ascend("npu", 0x81078603, 500.0)
    assert reason(book, 501.0, "npu") == "ManuallySeparateNpu", "five times in a day"


def test_levels_and_their_codes_agree() -> None:
    assert set(ASCEND_LEVELS.values()) <= set(LEVELS)
    assert classify("ascend", 0x8C084E00).reason == "FreeRestartNpu"


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["xid", "pcie", "ascend"]),
            st.sampled_from([13, 31, 45, 48, 63, 74, 79, 94, 119, 154, 999]),
            st.sampled_from(["corrected", "nonfatal", "fatal"]),
            st.floats(0, 2 * DAY),
        ),
        max_size=60,
    )
)
def test_no_order_of_events_makes_a_failed_card_well(events: list[tuple[str, int, str, float]]) -> None:
    book, gravest = Casebook(), 0
    for kind, code, severity, now in sorted(events, key=lambda event: event[3]):
        if kind == "xid":
            book.xid("card", code, str(code), now)
        elif kind == "pcie":
            book.pcie("card", severity, now)
        else:
            book.ascend("card", 0x80E01801 if code % 2 else 0x81078603, now)
        current = SEVERITY[book.current("card", now).verdict]
        assert gravest < SEVERITY["Failed"] or current == SEVERITY["Failed"]
        gravest = max(gravest, current)
