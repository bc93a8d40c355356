"""A container's resources as OCI writes them, as far as a guest can have them.

Read once from ``linux.resources`` of a ``config.json``, or from what ``update --resources`` brings. Absent and given
are kept apart, because an update changes only what it names. What no guest can be given is ignored and named once.
"""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from hcs.model.refusals import Refusal, RefusedError

_CPU: Final = ("shares", "quota", "period", "cpus")
_MEMORY: Final = ("limit", "reservation")


class Resources(msgspec.Struct, frozen=True, omit_defaults=True):
    """``cpu`` and ``memory`` of OCI's ``linux.resources``; None where a field is absent.

    ``shares``, ``quota`` and ``period`` (microseconds) and ``cpus`` are OCI's ``cpu`` object; ``limit`` and
    ``reservation`` are bytes of its ``memory`` object; ``hugepages`` are bytes of all ``hugepageLimits`` together,
    which count for the sandbox only. ``ignored`` names what else was asked.
    """

    shares: int | None = None
    quota: int | None = None
    period: int | None = None
    cpus: str | None = None
    limit: int | None = None
    reservation: int | None = None
    hugepages: int | None = None
    ignored: tuple[str, ...] = ()


def read_resources(raw: Mapping[str, Any]) -> Resources:
    """Read ``linux.resources``.

    Args:
        raw: the object, decoded from JSON.

    Raises:
        RefusedError: ``MalformedValue``, where something has the wrong type.
    """
    cpu, memory = _section(raw, "cpu"), _section(raw, "memory")
    ignored = [f"cpu.{key}" for key, value in cpu.items() if key not in _CPU and value is not None]
    ignored += [f"memory.{key}" for key, value in memory.items() if key not in _MEMORY and value is not None]
    ignored += [key for key, value in raw.items() if key not in ("cpu", "memory") and value not in (None, {}, [])]
    cpus = cpu.get("cpus")
    if cpus is not None and not isinstance(cpus, str):
        raise RefusedError(malformed("cpu.cpus", cpus, "a text like 0-2,4"))
    return Resources(
        shares=_whole(cpu, "cpu", "shares"),
        quota=_whole(cpu, "cpu", "quota"),
        period=_whole(cpu, "cpu", "period"),
        cpus=cpus,
        limit=_whole(memory, "memory", "limit"),
        reservation=_whole(memory, "memory", "reservation"),
        hugepages=_hugepages(raw),
        ignored=tuple(sorted(ignored)),
    )


def merged(before: Resources, change: Resources) -> Resources:
    """What holds after an update: fields that the change names are new, all others stay."""
    return Resources(
        shares=before.shares if change.shares is None else change.shares,
        quota=before.quota if change.quota is None else change.quota,
        period=before.period if change.period is None else change.period,
        cpus=before.cpus if change.cpus is None else change.cpus,
        limit=before.limit if change.limit is None else change.limit,
        reservation=before.reservation if change.reservation is None else change.reservation,
        hugepages=before.hugepages if change.hugepages is None else change.hugepages,
        ignored=tuple(sorted({*before.ignored, *change.ignored})),
    )


def malformed(where: str, seen: Any, expected: str) -> Refusal:
    """The refusal of a value that has the wrong type or form."""
    shown = repr(seen)
    return Refusal("MalformedValue", f"{where}: expected {expected}, got {shown[:57]}{'...' * (len(shown) > 57)}")


def _section(raw: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    section = raw.get(name)
    if section is None:
        return {}
    if not isinstance(section, Mapping):
        raise RefusedError(malformed(name, section, "an object"))
    return section


def _whole(section: Mapping[str, Any], name: str, key: str) -> int | None:
    value = section.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or value != value or value in (_INF, -_INF):
        raise RefusedError(malformed(f"{name}.{key}", value, "a whole number"))
    if value != int(value):
        raise RefusedError(malformed(f"{name}.{key}", value, "a whole number"))
    return int(value)


def _hugepages(raw: Mapping[str, Any]) -> int | None:
    pages = raw.get("hugepageLimits")
    if pages is None:
        return None
    if not isinstance(pages, list) or not all(isinstance(page, Mapping) for page in pages):
        raise RefusedError(malformed("hugepageLimits", pages, "a list of objects"))
    return sum(_whole(page, "hugepageLimits", "limit") or 0 for page in pages)


_INF: Final = float("inf")
