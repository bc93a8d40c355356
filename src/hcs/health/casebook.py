"""What has happened to each card: faults that come as events, remembered for as long as they matter. Pure.

A reading shows a card as it is; an event (an Xid, a PCIe error, an Ascend fault) is over when it is told. Here fatal
ones stay until somebody says that the card was repaired, and mild ones count within a window. Windows and thresholds
are policy: three failures of different programs in an hour, thirty corrected PCIe errors in a minute; Ascend's
escalations are the vendor's defaults (the device plugin's ``faultCustomization.json``).
"""

from collections import deque
from typing import Final

import msgspec

from hcs.health.faults import (
    ASCEND_LEVELS,
    NO_FAULT,
    OUTLIVES_RESET,
    XID_OF_APPLICATIONS,
    Fault,
    classify,
    of_level,
    worst,
)

HOUR: Final = 3600.0
DAY: Final = 24 * HOUR
PROGRAMS: Final = 3
"""Programs that must fail on a card within an hour."""
CORRECTED: Final = 30
"""Corrected PCIe errors within a minute."""
CORRECTED_SECONDS: Final = 60.0
NONFATAL_SECONDS: Final = 600.0
"""How long an uncorrected, non-fatal PCIe error keeps a card sub-healthy."""
MILD_SECONDS: Final = HOUR
"""How long a mild fault without an end of its own counts."""
LINK_FLAP: Final = 0x81078603
LINK_FLAPS: Final = 5
LINK_DOWN_SECONDS: Final = 20.0
RESETS: Final = {0x80E18005: 3}
"""Codes of level RestartNPU that need other than two occurrences in a day to isolate the chip."""
_MOST: Final = 256


class Case(msgspec.Struct):
    """One card's history."""

    fatal: Fault | None = None
    mild: dict[str, tuple[float, Fault]] = {}
    programs: deque[tuple[float, str]] = msgspec.field(default_factory=lambda: deque(maxlen=_MOST))
    corrected: deque[float] = msgspec.field(default_factory=lambda: deque(maxlen=_MOST))
    codes: deque[tuple[float, int]] = msgspec.field(default_factory=lambda: deque(maxlen=_MOST))
    raised: dict[int, float] = {}


class Casebook:
    """All cards' histories, by device id. Times are seconds of one clock."""

    def __init__(self) -> None:
        self._cases: dict[str, Case] = {}

    def xid(self, device: str, code: int, program: str, now: float) -> None:
        """An Xid: ``program`` tells one program from another, by its process id or name."""
        case = self._case(device)
        if code in XID_OF_APPLICATIONS:
            case.programs.append((now, program))
            return
        self._keep(case, classify("nvidia", code), now)

    def pcie(self, device: str, severity: str, now: float, detail: str = "") -> None:
        """A PCIe error report: ``severity`` is ``corrected``, ``nonfatal`` or ``fatal``."""
        case = self._case(device)
        behind = f": {detail}" if detail else ""
        if severity == "fatal":
            self._keep(case, Fault("Failed", "PcieFatal", f"fatal PCIe error{behind}; reset the card"), now)
        elif severity == "nonfatal":
            fault = Fault("SubHealthy", "PcieUncorrected", f"uncorrected PCIe error{behind}")
            case.mild[fault.reason] = (now + NONFATAL_SECONDS, fault)
        else:
            case.corrected.append(now)

    def ascend(self, device: str, code: int, now: float, *, recovered: bool = False) -> None:
        """An Ascend fault, raised or recovered."""
        case = self._case(device)
        if recovered:
            case.raised.pop(code, None)
            return
        case.raised.setdefault(code, now)
        case.codes.append((now, code))
        times = sum(1 for when, other in case.codes if other == code and now - when < DAY)
        level = ASCEND_LEVELS.get(code)
        if (level == "RestartNPU" and times >= RESETS.get(code, 2)) or (code == LINK_FLAP and times >= LINK_FLAPS):
            self._keep(case, of_level("ManuallySeparateNPU", code), now)
        elif classify("ascend", code).verdict == "Failed":
            self._keep(case, classify("ascend", code), now)

    def fatal(self) -> dict[str, Fault]:
        """The cards with a fault that stays until they are repaired, and the fault."""
        return {device: case.fatal for device, case in self._cases.items() if case.fatal is not None}

    def restore(self, device: str, fault: Fault) -> None:
        """Take up a fatal fault that was written down earlier."""
        self._case(device).fatal = fault

    def repaired(self, device: str) -> None:
        """The card was repaired, as a person says: its history is over."""
        self._cases.pop(device, None)

    def reset(self, device: str) -> None:
        """The card was reset. What is left to a person stays, and so does the count of what may yet come to that."""
        case = self._cases.get(device)
        if case is None:
            return
        kept = case.fatal if case.fatal is not None and case.fatal.reason in OUTLIVES_RESET else None
        self._cases[device] = Case(fatal=kept, codes=case.codes)

    def current(self, device: str, now: float) -> Fault:
        """What the card's history says now; :data:`~hcs.health.faults.NO_FAULT` where it says nothing."""
        case = self._cases.get(device)
        if case is None:
            return NO_FAULT
        if case.fatal is not None:
            return case.fatal
        case.mild = {reason: kept for reason, kept in case.mild.items() if now < kept[0]}
        return worst((*(fault for _, fault in case.mild.values()), *_counted(case, now), *_standing(case, now)))

    def _keep(self, case: Case, fault: Fault, now: float) -> None:
        if fault.verdict == "Failed" and (case.fatal is None or fault.reason in OUTLIVES_RESET):
            case.fatal = fault
        elif fault.verdict == "SubHealthy":
            case.mild[fault.reason] = (now + MILD_SECONDS, fault)

    def _case(self, device: str) -> Case:
        return self._cases.setdefault(device, Case())


def _counted(case: Case, now: float) -> list[Fault]:
    found = []
    programs = {program for when, program in case.programs if now - when < HOUR}
    if len(programs) >= PROGRAMS:
        found.append(Fault("SubHealthy", "ProgramsFail", f"{len(programs)} programs failed on the card within an hour"))
    corrected = sum(1 for when in case.corrected if now - when < CORRECTED_SECONDS)
    if corrected >= CORRECTED:
        found.append(Fault("SubHealthy", "PcieCorrected", f"{corrected} corrected PCIe errors within a minute"))
    return found


def _standing(case: Case, now: float) -> list[Fault]:
    """Ascend faults that were raised and have not recovered."""
    found = []
    for code, since in case.raised.items():
        if code == LINK_FLAP:
            lasting = now - since > LINK_DOWN_SECONDS
            found.append(of_level("PreSeparateNPU", code) if lasting else NO_FAULT)
        else:
            found.append(classify("ascend", code))
    return found
