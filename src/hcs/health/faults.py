"""What a vendor's fault code means for the card and for the work on it.

Codes are data: NVIDIA's Xid numbers and Ascend's fault codes, with the class that decides the reaction. A code that is
in no table makes the card SubHealthy rather than Failed: unknown is a reason for care, not for evicting people.

Sources: NVIDIA Xid catalogue (meaning and immediate action); Ascend device plugin's fault table (handling levels). The
mapping from action or level to verdict is this project's policy.
"""

from collections.abc import Iterable
from typing import Final

import msgspec

from hcs.model.devices import Verdict


class Fault(msgspec.Struct, frozen=True):
    """A fault's consequence: ``verdict`` for the card, ``reason`` CamelCase, ``message`` one sentence."""

    verdict: Verdict
    reason: str
    message: str


SEVERITY: Final[dict[Verdict, int]] = {"Healthy": 0, "Unknown": 1, "SubHealthy": 2, "Failed": 3}
"""How bad a verdict is; not knowing is worse than health and better than a fault."""

NO_FAULT: Final = Fault("Healthy", "NoFault", "")

OUTLIVES_RESET: Final = frozenset({"ManuallySeparateNpu"})
"""Reasons that no reset and no restart of the machine ends: only a person's word does, as their vendor has it."""


def worst(faults: Iterable[Fault]) -> Fault:
    """The gravest, and among equals the first; :data:`NO_FAULT` where there is none."""
    return max((NO_FAULT, *faults), key=lambda fault: SEVERITY[fault.verdict])


_XID: Final[dict[int, tuple[Verdict, str, str]]] = {
    48: ("Failed", "DoubleBitEcc", "uncorrectable memory error (Xid 48); drain and reset the card"),
    61: ("SubHealthy", "MicrocontrollerBreakpoint", "the card's micro-controller stopped at a breakpoint (Xid 61)"),
    62: ("Failed", "MicrocontrollerHalt", "the card's micro-controller halted (Xid 62); reset the card"),
    63: ("SubHealthy", "RowRemapPending", "a memory row was remapped (Xid 63); it takes effect at the next reset"),
    64: ("Failed", "RowRemapFailed", "a memory row could not be remapped (Xid 64); reset, and replace if it repeats"),
    74: ("SubHealthy", "NvlinkError", "NVLink error (Xid 74); no jobs over several cards until it is mended"),
    79: ("Failed", "FellOffTheBus", "the card fell off the bus (Xid 79); restart the machine"),
    92: ("SubHealthy", "HighSingleBitRate", "high rate of corrected memory errors (Xid 92)"),
    94: ("SubHealthy", "ContainedMemoryError", "contained memory error (Xid 94); the job on it is lost"),
    95: ("Failed", "UncontainedMemoryError", "uncontained memory error (Xid 95); reset the card"),
    119: ("Failed", "GspTimeout", "the card's system processor does not answer (Xid 119); reset the card"),
    120: ("Failed", "GspError", "error of the card's system processor (Xid 120); reset the card"),
    140: ("Failed", "UnrecoveredEcc", "unrecovered memory error (Xid 140); reset the card"),
    143: ("Failed", "InitializationError", "the card could not be initialised (Xid 143); reset the card"),
    144: ("SubHealthy", "NvlinkError", "NVLink error (Xid 144); no jobs over several cards until it is mended"),
    145: ("SubHealthy", "NvlinkError", "NVLink error (Xid 145); no jobs over several cards until it is mended"),
    149: ("SubHealthy", "NvlinkError", "NVLink error (Xid 149); no jobs over several cards until it is mended"),
}
XID_OF_APPLICATIONS: Final = frozenset({13, 31, 43, 68, 69})
"""Faults of the program, not of the card; several programs failing on one card say something about the card."""
_XID_HARMLESS: Final = frozenset({*XID_OF_APPLICATIONS, 45, 154})
"""45 follows other faults; 154 says that the recovery action changed, which is read from the card itself."""

LEVELS: Final[dict[str, tuple[Verdict, str]]] = {
    "NotHandleFault": ("Healthy", "nothing to do"),
    "RestartRequest": ("SubHealthy", "redo the request or the job"),
    "RestartBusiness": ("SubHealthy", "redo the job"),
    "FreeRestartNPU": ("SubHealthy", "reset the chip when it is idle"),
    "RestartNPU": ("Failed", "reset the chip"),
    "PreSeparateNPU": ("SubHealthy", "no new work for the chip"),
    "SeparateNPU": ("Failed", "isolate the chip"),
    "SubHealthFault": ("SubHealthy", "slow or at risk"),
    "ManuallySeparateNPU": ("Failed", "isolated until a person clears it"),
}
"""Ascend's handling levels: our verdict, and what to do."""

ASCEND_LEVELS: Final[dict[int, str]] = {
    0x80E01801: "RestartBusiness",
    0x80E18402: "SeparateNPU",
    0x80E18401: "NotHandleFault",
    0x80E18400: "NotHandleFault",
    0x80E18005: "RestartNPU",
    0x80C98001: "RestartNPU",
    0x8C03A000: "RestartNPU",
    0x8C084E00: "FreeRestartNPU",
    0xA4025021: "NotHandleFault",
    0x81078603: "NotHandleFault",
}
"""The level of each fault code we know. The vendor's own table has some 800."""


def classify(vendor: str, code: int) -> Fault:
    """Say what a fault code means.

    Args:
        vendor: the vendor word, as in :data:`hcs.model.names.VENDOR_WORDS`.
        code: the vendor's own code (Xid; Ascend fault code as a number); 0 means no fault.
    """
    if code == 0 or (vendor == "nvidia" and code in _XID_HARMLESS):
        return NO_FAULT
    if vendor == "nvidia" and code in _XID:
        return Fault(*_XID[code])
    if vendor == "ascend" and code in ASCEND_LEVELS:
        return of_level(ASCEND_LEVELS[code], code)
    shown = f"{code:08X}" if vendor == "ascend" else str(code)
    return Fault("SubHealthy", "UnknownFault", f"{vendor} reports fault {shown}, which no table explains")


def of_level(level: str, code: int) -> Fault:
    """What an Ascend fault of this handling level means."""
    verdict, advice = LEVELS[level]
    if verdict == "Healthy":
        return NO_FAULT
    # The vendor writes NPU; reasons here have one capital a word.
    reason = level.replace("NPU", "Npu")
    return Fault(verdict, reason, f"fault {code:08X}, level {level}: {advice}")
