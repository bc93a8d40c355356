"""Ascend's DCMI (``libdcmi.so``). Signatures and structures: ``dcmi_interface_api.h`` of Ascend/mind-cluster.

Not verified on hardware. Power is in tenths of a watt, which was not read in a header but in the callers.
"""

import ctypes
from collections.abc import Iterator, Sequence
from typing import Any, Final

from hcs.vendors.base import VendorError
from hcs.vendors.libraries.loading import call, load, text
from hcs.vendors.parsing.report import Reading, Report, reading

_OK: Final = 0
_MOST_CARDS: Final = 64
_MOST_CODES: Final = 128
_AICORE: Final = 2
_HBM_ECC: Final = 2
_HEALTH: Final = {0: "OK", 1: "Warning", 2: "Alarm", 3: "Critical"}
_TOPOLOGY: Final = {1: "SYS", 2: "PHB", 3: "HCCS", 4: "PXB", 5: "PIX", 6: "SIO", 7: "HCCS_SW"}


class _Chip(ctypes.Structure):
    _fields_ = (
        ("type", ctypes.c_ubyte * 32),
        ("name", ctypes.c_ubyte * 32),
        ("version", ctypes.c_ubyte * 32),
        ("aicore_count", ctypes.c_uint),
        ("npu_name", ctypes.c_ubyte * 32),
    )


class _Hbm(ctypes.Structure):
    _fields_ = (
        ("size", ctypes.c_ulonglong),
        ("frequency", ctypes.c_uint),
        ("usage", ctypes.c_ulonglong),
        ("temperature", ctypes.c_int),
        ("bandwidth_rate", ctypes.c_uint),
    )


class _Place(ctypes.Structure):
    _fields_ = (
        ("device_id", ctypes.c_uint),
        ("vendor_id", ctypes.c_uint),
        ("subvendor_id", ctypes.c_uint),
        ("subdevice_id", ctypes.c_uint),
        ("domain", ctypes.c_int),
        ("bus", ctypes.c_uint),
        ("device", ctypes.c_uint),
        ("function", ctypes.c_uint),
        ("reserve", ctypes.c_ubyte * 32),
    )


class _Ecc(ctypes.Structure):
    _fields_ = tuple(
        (name, ctypes.c_uint)
        for name in (
            *("enable_flag", "single_bit", "double_bit", "total_single_bit", "total_double_bit"),
            *("single_isolated", "double_isolated", "single_next_isolated", "double_next_isolated"),
        )
    )


class DcmiSource:
    """All NPUs."""

    def __init__(self, library: Any) -> None:
        """Take over an initialised library."""
        self._library = library

    @classmethod
    def find(cls, *names: str) -> "DcmiSource | None":
        """The source, or None where the library or its driver is missing."""
        library = load(*names)
        if library is None or call(library, "dcmi_init") != _OK:
            return None
        return cls(library)

    def read(self) -> Sequence[Reading]:
        """Every chip of every card.

        Raises:
            VendorError: the library cannot list the cards.
        """
        return [self._chip(card, chip) for card, chip in self._chips()]

    def topology(self) -> Report | None:
        """Links by kind, between every two chips."""
        chips = list(self._chips())
        links = {}
        for one, (card, chip) in enumerate(chips):
            for other in range(one + 1, len(chips)):
                kind = ctypes.c_int()
                status = call(
                    self._library, "dcmi_get_topo_info_by_device_id", card, chip, *chips[other], ctypes.byref(kind)
                )
                if status == _OK and kind.value in _TOPOLOGY:
                    links[f"NPU{one}-NPU{other}"] = _TOPOLOGY[kind.value]
        return Report(tool="npu-smi", gpus=tuple(f"NPU{index}" for index in range(len(chips))), links=links, numa={})

    def driver(self) -> str | None:
        """The driver's version."""
        buffer = ctypes.create_string_buffer(64)
        return text(buffer) if call(self._library, "dcmi_get_driver_version", buffer, 64) == _OK else None

    def _chips(self) -> Iterator[tuple[int, int]]:
        count, cards = ctypes.c_int(), (ctypes.c_int * _MOST_CARDS)()
        if call(self._library, "dcmi_get_card_list", ctypes.byref(count), cards, _MOST_CARDS) != _OK:
            raise VendorError("DCMI: dcmi_get_card_list failed")
        for card in cards[: count.value]:
            chips = ctypes.c_int()
            if call(self._library, "dcmi_get_device_num_in_card", card, ctypes.byref(chips)) == _OK:
                yield from ((card, chip) for chip in range(chips.value))

    def _chip(self, card: int, chip: int) -> Reading:
        facts: dict[str, Any] = {"npu_id": card, "chip_id": chip, "index": self._physical(card, chip)}
        described, place, hbm, ecc = _Chip(), _Place(), _Hbm(), _Ecc()
        if self._get("dcmi_get_device_chip_info_v2", card, chip, described):
            facts["name"] = text(described.npu_name) or text(described.name)
        if self._get("dcmi_get_device_pcie_info_v2", card, chip, place):
            facts["bus_id"] = f"{place.domain:04x}:{place.bus:02x}:{place.device:02x}.{place.function:x}"
        if self._get("dcmi_get_device_hbm_info", card, chip, hbm) and hbm.size:
            facts |= {"memory_total_mib": hbm.size, "memory_used_mib": hbm.usage}
        load, heat, power, health = ctypes.c_uint(), ctypes.c_int(), ctypes.c_int(), ctypes.c_uint()
        status = call(
            self._library, "dcmi_get_device_utilization_rate", card, chip, ctypes.c_int(_AICORE), ctypes.byref(load)
        )
        if status == _OK and load.value <= 100:
            facts["utilization_pct"] = load.value
        if self._get("dcmi_get_device_temperature", card, chip, heat):
            facts["temperature_c"] = heat.value
        if self._get("dcmi_get_device_power_info", card, chip, power) and power.value > 0:
            facts["power_w"] = power.value / 10
        if self._get("dcmi_get_device_health", card, chip, health):
            facts["health"] = _HEALTH.get(health.value)
        if call(self._library, "dcmi_get_device_ecc_info", card, chip, _HBM_ECC, ctypes.byref(ecc)) == _OK:
            facts |= {"ecc_mode": "Enabled" if ecc.enable_flag else "Disabled", "ecc_errors": ecc.double_bit}
        facts["error_codes"] = self._codes(card, chip)
        return reading("ascend", facts)

    def _physical(self, card: int, chip: int) -> int | None:
        logic, physical = ctypes.c_int(), ctypes.c_uint()
        if call(self._library, "dcmi_get_device_logic_id", ctypes.byref(logic), card, chip) != _OK:
            return None
        status = call(
            self._library, "dcmi_get_device_phyid_from_logicid", ctypes.c_uint(logic.value), ctypes.byref(physical)
        )
        return physical.value if status == _OK else None

    def _codes(self, card: int, chip: int) -> list[str] | None:
        count, codes = ctypes.c_int(), (ctypes.c_uint * _MOST_CODES)()
        function = "dcmi_get_device_errorcode_v2"
        if call(self._library, function, card, chip, ctypes.byref(count), codes, _MOST_CODES) != _OK:
            return None
        return [f"{code:08X}" for code in codes[: max(0, min(count.value, _MOST_CODES))]] or None

    def _get(self, function: str, card: int, chip: int, into: Any) -> bool:
        return call(self._library, function, card, chip, ctypes.byref(into)) == _OK
