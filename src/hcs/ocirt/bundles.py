"""A bundle: the parts of OCI's ``config.json`` that a guest can have, and the files of its rootfs.

A path in the rootfs is followed link by link inside the rootfs, as the container would see it; one that leaves it is
refused. What is verified by its hash is copied meanwhile, so that the file that starts is the file that was verified.
"""

import os
import stat
from pathlib import Path
from typing import Any, Final

import msgspec

from hcs.model.refusals import Refusal, RefusedError
from hcs.rtos.annotations import Annotations
from hcs.rtos.configuration import Config
from hcs.rtos.resources import Resources, read_resources

MAX_CONFIG: Final = 16 << 20
_MAX_LINKS: Final = 40


class Bundle(msgspec.Struct, frozen=True):
    """One bundle, read."""

    path: Path
    rootfs: Path
    version: str
    annotations: dict[str, str]
    resources: Resources
    terminal: bool
    size: tuple[int, int] | None
    cgroups_path: str
    own_network: bool
    hooks: dict[str, list[dict[str, Any]]]


def read_bundle(path: Path) -> Bundle:
    """Read ``config.json``.

    Raises:
        RefusedError: it is missing, no JSON, or has a value of a wrong type.
    """
    try:
        with open(path / "config.json", "rb") as file:
            raw = file.read(MAX_CONFIG)
    except OSError as error:
        raise RefusedError(Refusal("NoBundle", f"{path}/config.json: {error.strerror}")) from error
    try:
        config = msgspec.json.decode(raw)
    except (msgspec.DecodeError, RecursionError) as error:
        raise RefusedError(Refusal("MalformedBundle", f"{path}/config.json is not JSON: {error}")) from error
    linux, process, root = (_object(_object({"": config}, ""), key) for key in ("linux", "process", "root"))
    annotations = _object(config, "annotations")
    if not all(isinstance(value, str) for value in annotations.values()):
        raise RefusedError(Refusal("MalformedBundle", "annotations: every value must be a text"))
    size = process.get("consoleSize")
    network = [n for n in linux.get("namespaces") or () if isinstance(n, dict) and n.get("type") == "network"]
    return Bundle(
        path=path,
        rootfs=Path(os.path.realpath(path / str(root.get("path") or "rootfs"))),
        version=str(config.get("ociVersion", "")),
        annotations=annotations,
        resources=read_resources(_object(linux, "resources")),
        terminal=process.get("terminal") is True,
        size=(int(size["height"]), int(size["width"])) if isinstance(size, dict) and len(size) == 2 else None,
        cgroups_path=str(linux.get("cgroupsPath") or ""),
        own_network=any(not namespace.get("path") for namespace in network),
        hooks={key: value for key, value in _object(config, "hooks").items() if isinstance(value, list)},
    )


def firmware_of(bundle: Bundle, annotations: Annotations, config: Config) -> Path:
    """The firmware file: the annotation's, the configuration's, ``firmware.elf``, or the first ``*.elf``.

    Raises:
        RefusedError: there is none, or it lies outside the rootfs.
    """
    named = annotations.firmware_path or config.firmware_path
    if named:
        return inside(bundle.rootfs, named)
    names = ["firmware.elf"]
    try:
        names += sorted(name for name in os.listdir(bundle.rootfs) if name.endswith(".elf"))
    except OSError as error:
        raise RefusedError(Refusal("NoRootfs", f"{bundle.rootfs}: {error.strerror}")) from error
    for name in names:
        if os.path.lexists(bundle.rootfs / name):
            return inside(bundle.rootfs, name)
    raise RefusedError(
        Refusal(
            "NoFirmware",
            "the rootfs has no firmware.elf and no other *.elf; name it with annotation "
            "org.openeuler.micrun.container.firmware_path",
        )
    )


def kernel_of(bundle: Bundle, annotations: Annotations, *, needed: bool) -> Path | None:
    """The pedestal's file, on Xen the kernel image: the annotation's, or ``image.bin``.

    Raises:
        RefusedError: it is needed or named and not there, or lies outside the rootfs.
    """
    if annotations.conf is None and not needed:
        return None
    return inside(bundle.rootfs, annotations.conf or "image.bin")


def inside(rootfs: Path, path: str) -> Path:
    """Follow a path inside a rootfs to the regular file it means; absolute links begin at the rootfs.

    Raises:
        RefusedError: ``PathOutsideRootfs``, or ``NoFile``.
    """
    waiting = [part for part in reversed(path.split("/")) if part not in ("", ".")]
    here: list[str] = []
    links = 0
    while waiting:
        part = waiting.pop()
        if part == "..":
            if not here:
                raise RefusedError(
                    Refusal("PathOutsideRootfs", f"{path!r:.80} leads out of the rootfs; name a file inside it")
                )
            here.pop()
            continue
        step = rootfs.joinpath(*here, part)
        try:
            mode = os.lstat(step).st_mode
        except (OSError, ValueError) as error:
            raise RefusedError(Refusal("NoFile", f"the rootfs has no {path!r:.80}: {error}")) from error
        if not stat.S_ISLNK(mode):
            here.append(part)
            continue
        links += 1
        if links > _MAX_LINKS:
            raise RefusedError(Refusal("NoFile", f"{path!r:.80} has too many links one behind the other"))
        target = os.readlink(step)
        if target.startswith("/"):
            here = []
        waiting += [part for part in reversed(target.split("/")) if part not in ("", ".")]
    found = rootfs.joinpath(*here)
    if not stat.S_ISREG(os.lstat(found).st_mode):
        raise RefusedError(Refusal("NoFile", f"{path!r:.80} is no regular file"))
    return found


def verified_copy(source: Path, expected: str, target: Path) -> Path:
    """Copy a file while its SHA-256 is worked out; what comes back was verified, whatever happens to the source.

    Raises:
        RefusedError: ``HashMismatch``; nothing is left then.
    """
    import hashlib  # here, because it costs every command time, and one needs it

    digest = hashlib.sha256()
    with open(source, "rb") as reader, open(target, "wb") as writer:
        while piece := reader.read(1 << 20):
            digest.update(piece)
            writer.write(piece)
        os.fchmod(writer.fileno(), 0o500)
    if digest.hexdigest() != expected:
        target.unlink()
        raise RefusedError(
            Refusal(
                "HashMismatch",
                f"the firmware's SHA-256 is {digest.hexdigest()}; annotation "
                f"org.openeuler.micrun.container.firmware_hash says {expected}",
            )
        )
    return target


def _object(raw: Any, key: str) -> dict[str, Any]:
    value = raw.get(key)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise RefusedError(Refusal("MalformedBundle", f"config.json: {key or 'the whole'} is not an object"))
    return value
