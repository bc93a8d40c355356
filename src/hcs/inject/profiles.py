"""What a container needs on each vendor's cards, as data: variables, device nodes, mounts, library directories.

A profile is the ``spec`` of a RuntimeProfile object. The package brings one for each vendor; a site adds to them with
objects of its own, entry by entry, so a new vendor, or a new path, needs no new program. A profile with a ``runtime``
adds to the vendor's own and names the image for that runtime.

Values are patterns over the cards a container got, always in ascending order of the driver's physical number:

* ``{indexes}``: those physical numbers, ``2,5``. What a vendor's *container runtime* reads.
* ``{ids}``: the devices' ids (the vendor's UUIDs), for runtimes that read those.
* ``{ordinals}``: numbers inside the container, ``0,1``. What a *framework* reads: in there, the cards are counted anew.
* ``{index}``, ``{id}`` in paths and CDI names: repeated for each card.
"""

import string
from collections.abc import Iterable, Mapping
from functools import reduce
from typing import Any, Final, Literal

import msgspec

from hcs.model.devices import Device


class ProfileError(ValueError):
    """A profile that cannot be used; the message says which, what is wrong and what would be right."""


class HostPath(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, forbid_unknown_fields=True):
    """A path of the host that appears at the same place in the container.

    Where it is missing on the host, ``optional`` ones are left out; for others the container is refused.
    """

    path: str
    optional: bool = False


class Profile(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, forbid_unknown_fields=True):
    """What one vendor's cards need, or what one runtime needs on them.

    ``selection`` are the variables that choose devices; they are taken out of containers that run on another vendor's
    cards. ``clear`` are variables that would undo the selection; they are taken out here. ``collective`` is for
    containers with several cards. ``quota`` says what holds a share to its memory: our ``interceptor``; an ``instance``
    that the vendor's own driver or runtime holds, where a card can be split so; or ``none``, and shares of this
    vendor's cards are refused. ``libraries`` are directories put before the image's ``LD_LIBRARY_PATH``.
    """

    vendor: str
    runtime: str = ""
    image: str = ""
    selection: dict[str, str] = {}
    clear: tuple[str, ...] = ()
    environment: dict[str, str] = {}
    collective: dict[str, str] = {}
    devices: tuple[HostPath, ...] = ()
    mounts: tuple[HostPath, ...] = ()
    libraries: tuple[str, ...] = ()
    cdi: str = ""
    quota: Literal["", "interceptor", "instance", "none"] = ""


class Profiles(msgspec.Struct, frozen=True):
    """All profiles in force, in order: a later one for the same vendor and runtime adds to the earlier and wins."""

    entries: tuple[Profile, ...]

    def get(self, vendor: str, runtime: str = "") -> Profile | None:
        """Everything written for exactly this vendor and runtime."""
        found = [profile for profile in self.entries if (profile.vendor, profile.runtime) == (vendor, runtime)]
        return reduce(_merge, found) if found else None

    def effective(self, vendor: str, runtime: str = "") -> Profile | None:
        """What is injected: the vendor's profile with the runtime's on top, clearing the other vendors' selections."""
        profile = self.get(vendor)
        if profile is None:
            return None
        extra = self.get(vendor, runtime) if runtime else None
        if extra is not None:
            profile = _merge(profile, extra)
        clear = {*profile.clear, *self.selectors()} - profile.selection.keys()
        return msgspec.structs.replace(profile, clear=tuple(sorted(clear)))

    def image(self, vendor: str, runtime: str = "") -> str:
        """The image a pod with this runtime is rebound to on this vendor's cards; empty where none is known."""
        profile = self.get(vendor, runtime)
        return profile.image if profile else ""

    def selectors(self) -> tuple[str, ...]:
        """Every variable by which some vendor's software chooses devices, sorted."""
        return tuple(sorted({name for profile in self.entries for name in profile.selection}))

    def overlaid(self, entries: Iterable[Profile]) -> "Profiles":
        """These, with a site's own on top."""
        return Profiles((*self.entries, *entries))


def read_profile(spec: Mapping[str, Any], name: str) -> Profile:
    """Read the ``spec`` of a RuntimeProfile.

    Args:
        spec: plain data, as decoded from YAML or JSON.
        name: what to call it in messages.

    Raises:
        ProfileError: an unknown field or type, an unknown placeholder, a relative path, flags that do not go together.
    """
    try:
        profile = msgspec.convert(spec, Profile)
    except msgspec.ValidationError as error:
        raise ProfileError(f"profile {name}: {error}") from error
    for variable, value in (*profile.selection.items(), *profile.environment.items(), *profile.collective.items()):
        _check_pattern(name, variable, value, _LISTS)
    for path in (*(p.path for p in profile.devices), *(p.path for p in profile.mounts), *profile.libraries):
        if not path.startswith("/") or ".." in path.split("/"):
            raise ProfileError(f"profile {name}: {path!r} is not an absolute path")
        _check_pattern(name, path, path, _NONE if path in profile.libraries else _EACH)
    for mount in profile.mounts:
        if mount.path.startswith("/dev/"):
            raise ProfileError(
                f"profile {name}: {mount.path} is mounted, but a mount does not allow a device; list it under devices"
            )
    if profile.cdi:
        _check_pattern(name, "cdi", profile.cdi, _EACH)
    _check_hccl(name, {**profile.environment, **profile.collective})
    return profile


_LISTS: Final = frozenset({"indexes", "ids", "ordinals"})
_EACH: Final = frozenset({"index", "id"})
_NONE: Final[frozenset[str]] = frozenset()


def fill(pattern: str, devices: Iterable[Device]) -> str:
    """A variable's value for these devices, which stand in ascending order of index."""
    ordered = tuple(devices)
    return pattern.format(
        indexes=",".join(str(device.index) for device in ordered),
        ids=",".join(device.id for device in ordered),
        ordinals=",".join(str(ordinal) for ordinal in range(len(ordered))),
    )


def fill_each(pattern: str, devices: Iterable[Device]) -> tuple[str, ...]:
    """A path or name for each device; only one where the pattern names no device."""
    filled = (pattern.format(index=device.index, id=device.id) for device in devices)
    return tuple(dict.fromkeys(filled))


def _check_pattern(profile: str, where: str, pattern: str, known: frozenset[str]) -> None:
    try:
        parts = [part for part in string.Formatter().parse(pattern) if part[1] is not None]
    except ValueError as error:
        raise ProfileError(f"profile {profile}, {where}: {pattern!r} is not a pattern: {error}") from error
    for _, field, layout, conversion in parts:
        if field not in known or layout or conversion:
            raise ProfileError(
                f"profile {profile}, {where}: no placeholder {{{field}}}; known ones here are "
                + ", ".join(f"{{{word}}}" for word in sorted(known))
            )


def _check_hccl(profile: str, environment: Mapping[str, str]) -> None:
    """Both links at once are not supported, and newer releases refuse one variable without the other (CANN manual)."""
    pcie, roce = (environment.get(f"HCCL_INTRA_{link}_ENABLE") for link in ("PCIE", "ROCE"))
    if (pcie is None) != (roce is None) or (pcie, roce) == ("1", "1"):
        raise ProfileError(
            f"profile {profile}: HCCL_INTRA_PCIE_ENABLE={pcie} with HCCL_INTRA_ROCE_ENABLE={roce} is not supported; "
            "write both, and at most one of them 1"
        )


def _merge(base: Profile, extra: Profile) -> Profile:
    return Profile(
        vendor=base.vendor,
        runtime=extra.runtime,
        image=extra.image or base.image,
        selection={n: v for n, v in {**base.selection, **extra.selection}.items() if n not in extra.clear},
        clear=tuple(dict.fromkeys((*base.clear, *extra.clear))),
        environment={**base.environment, **extra.environment},
        collective={**base.collective, **extra.collective},
        devices=tuple({host.path: host for host in (*base.devices, *extra.devices)}.values()),
        mounts=tuple({host.path: host for host in (*base.mounts, *extra.mounts)}.values()),
        libraries=tuple(dict.fromkeys((*extra.libraries, *base.libraries))),
        cdi=extra.cdi or base.cdi,
        quota=extra.quota or base.quota,
    )
