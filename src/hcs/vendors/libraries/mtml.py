"""Moore Threads' MTML (``libmtml.so``). Signatures: ``mtml.h`` as mthreads-ml-py wraps it. Not verified on hardware."""

import ctypes
from collections.abc import Sequence
from typing import Any, Final

from hcs.vendors.base import VendorError
from hcs.vendors.libraries.loading import call, load, text
from hcs.vendors.parsing.report import Reading, Report, reading

_OK: Final = 0


class MtmlSource:
    """All cards."""

    def __init__(self, library: Any, root: ctypes.c_void_p) -> None:
        """Take over an initialised library and its handle."""
        self._library, self._root = library, root

    @classmethod
    def find(cls, *names: str) -> "MtmlSource | None":
        """The source, or None where the library or its driver is missing."""
        library = load(*names)
        root = ctypes.c_void_p()
        if library is None or call(library, "mtmlLibraryInit", ctypes.byref(root)) != _OK:
            return None
        return cls(library, root)

    def read(self) -> Sequence[Reading]:
        """Every card.

        Raises:
            VendorError: the library cannot count them.
        """
        count = ctypes.c_uint()
        if call(self._library, "mtmlLibraryCountDevice", self._root, ctypes.byref(count)) != _OK:
            raise VendorError("MTML: mtmlLibraryCountDevice failed")
        return [self._device(index) for index in range(count.value)]

    def topology(self) -> Report | None:
        """Not asked: the levels' names were not read."""
        return None

    def driver(self) -> str | None:
        """Not asked."""
        return None

    def _device(self, index: int) -> Reading:
        facts: dict[str, Any] = {"index": index}
        device = ctypes.c_void_p()
        if call(self._library, "mtmlLibraryInitDeviceByIndex", self._root, index, ctypes.byref(device)) != _OK:
            return reading("mthreads", facts)
        facts["name"] = self._string("mtmlDeviceGetName", device)
        facts["uuid"] = self._string("mtmlDeviceGetUUID", device)
        power = self._number("mtmlDeviceGetPowerUsage", device, ctypes.c_uint())
        facts["power_w"] = power / 1000 if power is not None else None
        with_gpu = self._part("mtmlDeviceInitGpu", device)
        if with_gpu is not None:
            facts["utilization_pct"] = self._number("mtmlGpuGetUtilization", with_gpu, ctypes.c_uint())
            facts["temperature_c"] = self._number("mtmlGpuGetTemperature", with_gpu, ctypes.c_uint())
            call(self._library, "mtmlDeviceFreeGpu", with_gpu)
        memory = self._part("mtmlDeviceInitMemory", device)
        if memory is not None:
            total = self._number("mtmlMemoryGetTotal", memory, ctypes.c_ulonglong())
            used = self._number("mtmlMemoryGetUsed", memory, ctypes.c_ulonglong())
            facts["memory_total_mib"] = total / 2**20 if total else None
            facts["memory_used_mib"] = used / 2**20 if total and used is not None else None
            call(self._library, "mtmlDeviceFreeMemory", memory)
        return reading("mthreads", facts)

    def _string(self, function: str, device: ctypes.c_void_p) -> str | None:
        buffer = ctypes.create_string_buffer(96)
        return text(buffer) if call(self._library, function, device, buffer, ctypes.c_uint(96)) == _OK else None

    def _number(self, function: str, handle: ctypes.c_void_p, into: Any) -> int | None:
        return int(into.value) if call(self._library, function, handle, ctypes.byref(into)) == _OK else None

    def _part(self, function: str, device: ctypes.c_void_p) -> ctypes.c_void_p | None:
        part = ctypes.c_void_p()
        return part if call(self._library, function, device, ctypes.byref(part)) == _OK else None
