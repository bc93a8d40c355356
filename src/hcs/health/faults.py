"""What a vendor's fault code means for the card and for the work on it.

Codes are data: NVIDIA's Xid numbers and Ascend's fault codes, with the class that decides the reaction. A code that is
in no table makes the card SubHealthy rather than Failed: unknown is a reason for care, not for evicting people.

Sources: NVIDIA Xid catalogue (meaning and immediate action); Ascend device plugin's fault table (handling levels). The
mapping from action to verdict is this project's policy.
"""

from typing import Final

import msgspec

from hcs.model.devices import Verdict


class Fault(msgspec.Struct, frozen=True):
    """A fault's consequence: ``verdict`` for the card, ``reason`` CamelCase, ``message`` one sentence."""

    verdict: Verdict
    reason: str
    message: str


_XID: Final[dict[int, tuple[Verdict, str, str]]] = {
    48: ("Failed", "DoubleBitEcc", "uncorrectable memory error (Xid 48); drain and reset the card"),
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
_XID_OF_APPLICATIONS: Final = frozenset({13, 31, 43, 45, 68, 69})
"""Faults of the program, not of the card; counting them per card is the agent's later task."""

_ASCEND: Final[dict[int, tuple[Verdict, str, str]]] = {
    0x80E18402: ("Failed", "SeparateNpu", "fault 80E18402, level SeparateNPU: isolate the chip"),
    0x80E18005: ("Failed", "RestartNpu", "fault 80E18005, level RestartNPU: reset the chip"),
    0x80C98001: ("Failed", "RestartNpu", "AI core fault 80C98001, level RestartNPU: reset the chip"),
    0x8C03A000: ("Failed", "RestartNpu", "fault 8C03A000, level RestartNPU: reset the chip"),
    0x8C084E00: ("SubHealthy", "FreeRestartNpu", "fault 8C084E00, level FreeRestartNPU: reset the chip when idle"),
    0x80E01801: ("SubHealthy", "RestartBusiness", "memory fault 80E01801, level RestartBusiness: redo the job"),
}
_ASCEND_HARMLESS: Final = frozenset({0x80E18401, 0x80E18400, 0xA4025021, 0x81078603})

_TABLES: Final = {"nvidia": (_XID, _XID_OF_APPLICATIONS), "ascend": (_ASCEND, _ASCEND_HARMLESS)}


def classify(vendor: str, code: int) -> Fault:
    """Say what a fault code means.

    Args:
        vendor: the vendor word, as in :data:`hcs.model.names.VENDOR_WORDS`.
        code: the vendor's own code (Xid; Ascend fault code as a number); 0 means no fault.
    """
    table, harmless = _TABLES.get(vendor, ({}, frozenset()))
    if code == 0 or code in harmless:
        return Fault("Healthy", "NoFault", "")
    if code in table:
        return Fault(*table[code])
    shown = f"{code:08X}" if vendor == "ascend" else str(code)
    return Fault("SubHealthy", "UnknownFault", f"{vendor} reports fault {shown}, which no table explains")
