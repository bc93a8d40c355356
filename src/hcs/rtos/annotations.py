"""The annotations of RTOS guests, ``org.openeuler.micrun.*``: one table of keys, types and bounds.

A value that cannot be read is refused with its key: a guest that starts with a default nobody asked for is found much
later. Keys that are not in the table belong to other programs, and are ignored.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from hcs.model.refusals import Refusal, RefusedError
from hcs.rtos.words import INT32_MAX, read_bool, read_duration, read_hash, read_inner_path, read_whole

PREFIX: Final = "org.openeuler.micrun."
CONTAINER_TYPE: Final = ("io.kubernetes.cri.container-type", "io.kubernetes.cri-o.ContainerType")
SANDBOX_ID: Final = ("io.kubernetes.cri.sandbox-id", "io.kubernetes.cri-o.SandboxID")
MAX_VALUE: Final = 4096


class Annotations(msgspec.Struct, frozen=True, rename="camel"):
    """What the annotations say; None where one is absent. Memory is MiB, times are milliseconds."""

    os: str | None = None
    firmware_path: str | None = None
    firmware_hash: str | None = None
    min_memory_mb: int | None = None
    max_vcpu_num: int | None = None
    auto_close: bool | None = None
    auto_close_timeout: int | None = None
    auto_disconnect_timeout: int | None = None
    pedestal: str | None = None
    conf: str | None = None
    compatibility: str | None = None
    net_placeholder: str | None = None
    debug: bool | None = None
    experimental: bool | None = None
    disable_new_netns: bool | None = None
    pipe_size: int | None = None
    exclusive_dom0_cpu: bool | None = None
    vcpu_pcpu_binding: bool | None = None
    enable_vcpus_pinning: bool | None = None
    static_resource: bool | None = None
    hugepage_enable: bool | None = None
    max_container_cpus: int | None = None
    max_container_memory: int | None = None
    pause: str | None = None
    bundle_path: str | None = None
    container_type: str | None = None
    config_path: str | None = None

    @property
    def close_after(self) -> int | None:
        """Milliseconds after which a guest is stopped once its stdin side left; None for never.

        A timeout beats ``auto_close``, and 0 is never.
        """
        given = self.auto_disconnect_timeout if self.auto_close_timeout is None else self.auto_close_timeout
        if given is not None:
            return given or None
        return None if self.auto_close is False else 30_000


class _Kind(msgspec.Struct, frozen=True):
    expected: str
    read: Callable[[str], Any]


def _at_least(least: int) -> Callable[[str], int | None]:
    def read(text: str) -> int | None:
        number = read_whole(text)
        return number if number is not None and least <= number <= INT32_MAX else None

    return read


_TEXT: Final = _Kind("a text", lambda text: text)
_BOOL: Final = _Kind("true or false", read_bool)
_PATH: Final = _Kind("a path inside the rootfs", read_inner_path)
_HASH: Final = _Kind("64 hex digits, with or without sha256: before them", read_hash)
_COUNT: Final = _Kind("a whole number, 1 or more", _at_least(1))
_AMOUNT: Final = _Kind("a whole number, 0 or more", _at_least(0))
_TIME: Final = _Kind("seconds, or a duration like 30s or 1m30s", read_duration)

KEYS: Final[dict[str, _Kind]] = {
    "container.os": _TEXT,
    "container.firmware_path": _PATH,
    "container.firmware_hash": _HASH,
    "container.min_memory_mb": _AMOUNT,
    "container.max_vcpu_num": _COUNT,
    "container.auto_close": _BOOL,
    "container.auto_close_timeout": _TIME,
    "container.auto_disconnect_timeout": _TIME,
    "ped.pedestal": _TEXT,
    "ped.conf": _PATH,
    "ped.compatibility": _TEXT,
    "ped.net_placeholder": _TEXT,
    "runtime.debug": _BOOL,
    "runtime.experimental": _BOOL,
    "runtime.disable_new_netns": _BOOL,
    "runtime.pipe_size": _AMOUNT,
    "runtime.exclusive_dom0_cpu": _BOOL,
    "runtime.vcpu_pcpu_binding": _BOOL,
    "runtime.enable_vcpus_pinning": _BOOL,
    "runtime.static_resource": _BOOL,
    "runtime.hugepage_enable": _BOOL,
    "runtime.max_container_cpus": _COUNT,
    "runtime.max_container_memory": _AMOUNT,
    "runtime.pause": _TEXT,
    "pkg.oci.bundle_path": _TEXT,
    "pkg.oci.container_type": _TEXT,
    "config_path": _TEXT,
}
"""Every key after the prefix, and how its value is read."""
_SHORT: Final = {key.rpartition(".")[2]: key for key in KEYS}
_FIELD: Final = {PREFIX + key: (key.rpartition(".")[2], kind) for key, kind in KEYS.items()}


def read_annotations(raw: Mapping[str, str]) -> Annotations:
    """Read a container's annotations; those of other programs are skipped.

    Raises:
        RefusedError: ``MalformedAnnotation``, or ``PathOutsideRootfs`` for a path that leaves the rootfs.
    """
    found: dict[str, Any] = {}
    for key, text in raw.items():
        entry = _FIELD.get(key)
        if entry is None:
            continue
        field, kind = entry
        value = kind.read(text) if isinstance(text, str) and len(text) <= MAX_VALUE else None
        if value is None and kind is _PATH and isinstance(text, str) and ".." in text.split("/"):
            raise RefusedError(
                Refusal(
                    "PathOutsideRootfs",
                    f"annotation {key}: {text[:60]!r} leaves the container's rootfs; name the file as it stands inside",
                )
            )
        if value is None:
            raise RefusedError(
                Refusal("MalformedAnnotation", f"annotation {key}: expected {kind.expected}, got {text!r:.60}")
            )
        found[field] = value
    return Annotations(**found) if found else _NOTHING


def full_key(key: str) -> str:
    """A key with its prefix and group, which people may leave out where nothing else is meant.

    >>> full_key("max_vcpu_num"), full_key("runtime.debug")
    ('org.openeuler.micrun.container.max_vcpu_num', 'org.openeuler.micrun.runtime.debug')
    """
    if key.startswith((PREFIX, "io.kubernetes.")) or "/" in key:
        return key
    return PREFIX + (key if key in KEYS else _SHORT.get(key, key))


def unknown_keys(raw: Mapping[str, str]) -> list[str]:
    """Annotations with our prefix that do not exist: typing mistakes, or newer than we are."""
    return sorted(key for key in raw if key.startswith(PREFIX) and key not in _FIELD)


def names_guests(raw: Mapping[str, str]) -> bool:
    """Whether the annotations are those of RTOS guests."""
    return any(key.startswith(PREFIX) for key in raw)


def is_infra(raw: Mapping[str, str]) -> bool:
    """Whether the container is its sandbox's pause container: no guest, and it counts nothing."""
    return any(raw.get(key) == "sandbox" for key in CONTAINER_TYPE)


def sandbox_of(raw: Mapping[str, str], container: str) -> str:
    """The sandbox a container is in; outside Kubernetes each container is its own."""
    return next((raw[key] for key in SANDBOX_ID if raw.get(key)), container)


_NOTHING: Final = Annotations()
