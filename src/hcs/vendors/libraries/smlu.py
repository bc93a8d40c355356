"""Parts of an MLU that Cambricon's driver holds, by CNDEV: profiles, and instances made of them.

A profile is a percentage of the cores and an amount of memory; an instance of it has a device node, and whoever opens
that is held to both. Instances bear names: ours say for which pod they are, so that what exists can be compared with
what is wanted, whenever and however often, and nothing is taken back twice.

Signatures, structures and what each field means: ``cndev.h``, and how cambricon-k8s-device-plugin
(``device-plugin/pkg/cndev/bindings.go``, ``pkg/dsmlu/dsmlu.go``) calls them: version 6, the handle of an instance is
its number shifted by eight bits, with the card's. Tested against an emulated library; not verified on hardware.
"""

import ctypes
from typing import Any, Final

import msgspec

from hcs.vendors.base import VendorError
from hcs.vendors.libraries.loading import call, text

_OK: Final = 0
_INSUFFICIENT_SPACE: Final = 9
_NOT_FOUND: Final = 14
_VERSION: Final = 6
_ENABLED: Final = 1
_NAME_BYTES: Final = 100
_ROOM: Final = 128
_MOST: Final = 0  # of the two figures of a quota: what is allowed, what is used


class _Mode(ctypes.Structure):
    _fields_ = (("version", ctypes.c_int), ("mode", ctypes.c_int))


class _Set(ctypes.Structure):
    _fields_ = (("version", ctypes.c_int), ("quota", ctypes.c_uint32), ("memory", ctypes.c_uint64))


class _Instance(ctypes.Structure):
    _fields_ = (
        ("version", ctypes.c_int),
        ("profile", ctypes.c_int),
        ("number", ctypes.c_int),
        ("uuid", ctypes.c_uint8 * 37),
        *((name, ctypes.c_int) for name in ("domain", "bus", "device", "function")),
        *((name, ctypes.c_char * _NAME_BYTES) for name in ("profile_name", "name", "node")),
        ("quota", ctypes.c_uint32 * 2),
        ("memory", ctypes.c_uint64 * 2),
        ("reserved", ctypes.c_uint32 * 128),
    )


class _Profiles(ctypes.Structure):
    _fields_ = (("version", ctypes.c_int), ("count", ctypes.c_int), ("numbers", ctypes.c_int * 128))


class _Profile(ctypes.Structure):
    _fields_ = (
        ("version", ctypes.c_int),
        ("number", ctypes.c_int),
        ("name", ctypes.c_char * _NAME_BYTES),
        ("total", ctypes.c_uint32),
        ("remain", ctypes.c_uint32),
        ("quota", ctypes.c_uint32 * 2),
        ("memory", ctypes.c_uint64 * 2),
    )


class Smlu(msgspec.Struct, frozen=True):
    """An instance: ``percent`` of the cores, ``memory`` in bytes, and its device node."""

    name: str
    number: int
    profile: int
    percent: int
    memory: int
    node: str


class SmluLibrary:
    """The instances of all MLUs of a machine. Calls may block."""

    def __init__(self, library: Any) -> None:
        """Take over an initialised CNDEV."""
        self._library = library

    def enabled(self, card: int) -> bool:
        """Whether sMLU is switched on for a card (``cnmon`` does that); False too where the library is too old."""
        mode = _Mode(version=_VERSION)
        handle = self._handle(card)
        if handle is None:
            return False
        return call(self._library, "cndevGetSMLUMode", ctypes.byref(mode), handle) == _OK and mode.mode == _ENABLED

    def instances(self, card: int) -> list[Smlu]:
        """All instances on a card, whoever made them.

        Raises:
            VendorError: the library cannot list them.
        """
        room = _ROOM
        while True:
            found, count = (_Instance * room)(), ctypes.c_int(room)
            for entry in found:
                entry.version = _VERSION
            status = call(self._library, "cndevGetAllSMluInstanceInfo", ctypes.byref(count), found, self._card(card))
            if status == _INSUFFICIENT_SPACE and count.value > room:
                room = count.value
                continue
            self._check(status, "cndevGetAllSMluInstanceInfo")
            return [_smlu(entry) for entry in found[: count.value]]

    def make(self, card: int, name: str, percent: int, memory: int) -> Smlu:
        """A new instance.

        Raises:
            VendorError: the driver refuses, as where memory or cores are not free.
        """
        profile = self._profile(card, percent, memory)
        handle = ctypes.c_int()
        arguments = (ctypes.byref(handle), ctypes.c_uint(profile), self._card(card), name.encode())
        self._check(
            call(self._library, "cndevCreateSMluInstanceByProfileId", *arguments), "cndevCreateSMluInstanceByProfileId"
        )
        for instance in self.instances(card):
            if instance.name == name:
                return instance
        raise VendorError(f"CNDEV: the instance {name} was made and is not listed")

    def destroy(self, card: int, instance: Smlu) -> None:
        """Take an instance back, and its profile where it has no other; one that is gone already is no error.

        Raises:
            VendorError: the driver refuses, as while the instance is in use.
        """
        handle = ctypes.c_int(instance.number << 8 | card)
        status = call(self._library, "cndevDestroySMluInstanceByHandle", handle)
        if status != _NOT_FOUND:
            self._check(status, "cndevDestroySMluInstanceByHandle")
        unused = self._read_profile(card, instance.profile)
        if unused is not None and unused.remain == unused.total:
            number = ctypes.c_int(instance.profile)
            self._check(
                call(self._library, "cndevDestroySMluProfileInfo", number, self._card(card)),
                "cndevDestroySMluProfileInfo",
            )

    def _profile(self, card: int, percent: int, memory: int) -> int:
        """A profile of exactly these figures that has room for an instance, made where there is none."""
        profiles = _Profiles(version=_VERSION)
        status = call(self._library, "cndevGetSMluProfileIdInfo", ctypes.byref(profiles), self._card(card))
        self._check(status, "cndevGetSMluProfileIdInfo")
        for number in profiles.numbers[: profiles.count]:
            known = self._read_profile(card, number)
            if known is None or not known.remain:
                continue
            if (known.quota[_MOST], known.memory[_MOST]) == (percent, memory):
                return int(number)
        wanted, made = _Set(version=_VERSION, quota=percent, memory=memory), ctypes.c_int()
        arguments = (ctypes.byref(wanted), ctypes.byref(made), self._card(card))
        self._check(call(self._library, "cndevCreateSMluProfileInfo", *arguments), "cndevCreateSMluProfileInfo")
        return int(made.value)

    def _read_profile(self, card: int, number: int) -> _Profile | None:
        profile = _Profile(version=_VERSION)
        arguments = (ctypes.byref(profile), ctypes.c_int(number), self._card(card))
        return profile if call(self._library, "cndevGetSMluProfileInfo", *arguments) == _OK else None

    def _handle(self, card: int) -> ctypes.c_int | None:
        handle = ctypes.c_int()
        found = call(self._library, "cndevGetDeviceHandleByIndex", card, ctypes.byref(handle)) == _OK
        return handle if found else None

    def _card(self, card: int) -> ctypes.c_int:
        handle = self._handle(card)
        if handle is None:
            raise VendorError(f"CNDEV: MLU {card} has no handle")
        return handle

    def _check(self, status: int | None, function: str) -> None:
        if status == _OK:
            return
        if status is None:
            raise VendorError(f"CNDEV: this library has no {function}; a newer driver has")
        try:
            describe = self._library.cndevGetErrorString
        except AttributeError:
            raise VendorError(f"CNDEV: {function} failed with {status}") from None
        describe.restype = ctypes.c_char_p
        said = describe(ctypes.c_int(status))
        raise VendorError(f"CNDEV: {function}: {said.decode('utf-8', 'replace') if said else status}")


def _smlu(entry: _Instance) -> Smlu:
    return Smlu(
        name=text(entry.name) or "",
        number=entry.number,
        profile=entry.profile,
        percent=entry.quota[_MOST],
        memory=entry.memory[_MOST],
        node=text(entry.node) or "",
    )
