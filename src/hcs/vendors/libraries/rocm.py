"""ROCm SMI (``librocm_smi64.so``) for AMD's cards and Hygon's. Signatures: ``rocm_smi.h``. Not verified on hardware."""

import ctypes
from collections.abc import Sequence
from typing import Any, Final

from hcs.vendors.base import VendorError
from hcs.vendors.libraries.loading import call, load, text
from hcs.vendors.parsing.report import Reading, Report, reading

_OK: Final = 0
_VRAM: Final = 0
_TEMPERATURE_EDGE, _TEMPERATURE_JUNCTION = 0, 1
_CURRENT: Final = 0
_LINKS: Final = {1: "PCIE", 2: "XGMI"}


class RocmSource:
    """All devices of one library."""

    def __init__(self, vendor: str, library: Any) -> None:
        """Take over an initialised library."""
        self._vendor, self._library = vendor, library

    @classmethod
    def find(cls, vendor: str, *names: str) -> "RocmSource | None":
        """The source, or None where the library or its driver is missing."""
        library = load(*names)
        if library is None or call(library, "rsmi_init", ctypes.c_uint64(0)) != _OK:
            return None
        return cls(vendor, library)

    def read(self) -> Sequence[Reading]:
        """Every device.

        Raises:
            VendorError: the library cannot count them.
        """
        return [self._device(index) for index in range(self._count())]

    def topology(self) -> Report | None:
        """Links by kind, between every two devices."""
        count = self._count()
        links = {}
        for one in range(count):
            for other in range(one + 1, count):
                hops, kind = ctypes.c_uint64(), ctypes.c_int()
                status = call(
                    self._library, "rsmi_topo_get_link_type", one, other, ctypes.byref(hops), ctypes.byref(kind)
                )
                if status == _OK and kind.value in _LINKS:
                    links[f"GPU{one}-GPU{other}"] = _LINKS[kind.value]
        return Report(tool="rocm-smi", gpus=tuple(f"GPU{index}" for index in range(count)), links=links, numa={})

    def driver(self) -> str | None:
        """The kernel driver's version."""
        buffer = ctypes.create_string_buffer(64)
        return text(buffer) if call(self._library, "rsmi_version_str_get", 0, buffer, 64) == _OK else None

    def _count(self) -> int:
        count = ctypes.c_uint32()
        if call(self._library, "rsmi_num_monitor_devices", ctypes.byref(count)) != _OK:
            raise VendorError("rocm_smi: rsmi_num_monitor_devices failed")
        return count.value

    def _device(self, index: int) -> Reading:
        bdf = self._uint64("rsmi_dev_pci_id_get", index)
        unique = self._uint64("rsmi_dev_unique_id_get", index)
        name = ctypes.create_string_buffer(128)
        named = call(self._library, "rsmi_dev_name_get", index, name, ctypes.c_size_t(128)) == _OK
        total = self._uint64("rsmi_dev_memory_total_get", index, ctypes.c_int(_VRAM))
        used = self._uint64("rsmi_dev_memory_usage_get", index, ctypes.c_int(_VRAM))
        busy = ctypes.c_uint32()
        loaded = call(self._library, "rsmi_dev_busy_percent_get", index, ctypes.byref(busy)) == _OK
        power = self._uint64("rsmi_dev_power_ave_get", index, ctypes.c_uint32(0))
        cap = self._uint64("rsmi_dev_power_cap_get", index, ctypes.c_uint32(0))
        facts = {
            "index": index,
            "name": text(name) if named else None,
            "uuid": f"0x{unique:x}" if unique else None,
            "bus_id": _bus(bdf) if bdf is not None else None,
            "memory_total_mib": total / 2**20 if total else None,
            "memory_used_mib": used / 2**20 if total and used is not None else None,
            "utilization_pct": busy.value if loaded and busy.value <= 100 else None,
            "temperature_c": self._temperature(index),
            "power_w": power / 1e6 if power is not None else None,
            "power_cap_w": cap / 1e6 if cap else None,
            "pcie_replay": self._uint64("rsmi_dev_pci_replay_counter_get", index),
        }
        return reading(self._vendor, facts)

    def _uint64(self, function: str, index: int, *more: Any) -> int | None:
        value = ctypes.c_uint64()
        status = call(self._library, function, index, *more, ctypes.byref(value))
        return value.value if status == _OK else None

    def _temperature(self, index: int) -> float | None:
        for sensor in (_TEMPERATURE_EDGE, _TEMPERATURE_JUNCTION):
            value = ctypes.c_int64()
            status = call(
                self._library, "rsmi_dev_temp_metric_get", index, ctypes.c_uint32(sensor), _CURRENT, ctypes.byref(value)
            )
            if status == _OK:
                return value.value / 1000
        return None


def _bus(number: int) -> str:
    """The library's number: domain above 32 bits, then bus, device, function."""
    return f"{number >> 32:04x}:{number >> 8 & 0xFF:02x}:{number >> 3 & 0x1F:02x}.{number & 7}"
