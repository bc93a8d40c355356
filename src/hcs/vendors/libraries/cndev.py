"""Cambricon's CNDEV (``libcndev.so``). Signatures and structures: ``cndev.h`` of Cambricon/mlu-exporter.

Only calls whose structures have been stable over the library's fifth and sixth version are made; each structure begins
with the version its caller was written for. Not verified on hardware.
"""

import ctypes
from collections.abc import Sequence
from typing import Any, Final

from hcs.vendors.base import VendorError
from hcs.vendors.libraries.loading import call, load
from hcs.vendors.parsing.report import Reading, Report, reading

_OK: Final = 0
_VERSION: Final = 5


class _Count(ctypes.Structure):
    _fields_ = (("version", ctypes.c_int), ("number", ctypes.c_uint))


class _Uuid(ctypes.Structure):
    _fields_ = (("version", ctypes.c_int), ("uuid", ctypes.c_ubyte * 37), ("ncs_uuid", ctypes.c_uint64))


class _Versions(ctypes.Structure):
    _fields_ = (
        ("version", ctypes.c_int),
        *((name, ctypes.c_uint) for name in ("mcu_major", "mcu_minor", "mcu_build", "major", "minor", "build")),
    )


class CndevSource:
    """All MLUs."""

    def __init__(self, library: Any) -> None:
        """Take over an initialised library."""
        self.library = library

    @classmethod
    def find(cls, *names: str) -> "CndevSource | None":
        """The source, or None where the library or its driver is missing."""
        library = load(*names)
        if library is None or call(library, "cndevInit", 0) != _OK:
            return None
        return cls(library)

    def read(self) -> Sequence[Reading]:
        """Every device; figures whose structures differ between releases are left to ``cnmon``.

        Raises:
            VendorError: the library cannot count them.
        """
        return [self._device(index) for index in range(self._count())]

    def topology(self) -> Report | None:
        """Not asked."""
        return None

    def driver(self) -> str | None:
        """The driver's version, as the first device says."""
        versions = _Versions(version=_VERSION)
        if call(self.library, "cndevGetVersionInfo", ctypes.byref(versions), 0) != _OK:
            return None
        return f"{versions.major}.{versions.minor}.{versions.build}"

    def _count(self) -> int:
        count = _Count(version=_VERSION)
        if call(self.library, "cndevGetDeviceCount", ctypes.byref(count)) != _OK:
            raise VendorError("CNDEV: cndevGetDeviceCount failed")
        return int(count.number)

    def _device(self, index: int) -> Reading:
        handle = ctypes.c_int()
        if call(self.library, "cndevGetDeviceHandleByIndex", index, ctypes.byref(handle)) != _OK:
            return reading("cambricon", {"index": index})
        uuid = _Uuid(version=_VERSION)
        known = call(self.library, "cndevGetUUID", ctypes.byref(uuid), handle) == _OK
        identifier = bytes(uuid.uuid).split(b"\0", 1)[0].decode("ascii", "replace") if known else None
        return reading("cambricon", {"index": index, "name": self._name(handle), "uuid": identifier or None})

    def _name(self, handle: ctypes.c_int) -> str | None:
        try:
            function = self.library.cndevGetCardNameStringByDevId
        except AttributeError:
            return None
        function.restype = ctypes.c_char_p
        name = function(handle)
        return name.decode("utf-8", "replace") if name else None
