"""The CDI files of this node: ours, written and cleaned up, and the names that anybody's define.

One file a vendor, replaced in one step and only when it changes, gone when its cards are. Runtimes notice by
themselves.
"""

import logging
import os
import stat
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import yaml

from hcs.agent.admissions import write_file
from hcs.inject.cdi import resolvable, specification
from hcs.inject.injection import NodeFacts, NodeFiles, candidate_paths, card_files
from hcs.inject.profiles import HostPath, Profile, Profiles
from hcs.model import names
from hcs.model.devices import Device
from hcs.model.refusals import RefusedError

log = logging.getLogger(__name__)

DIRECTORY: Final = Path("/var/run/cdi")
_PREFIX: Final = f"{names.DOMAIN}-"
_SUFFIXES: Final = (".json", ".yaml", ".yml")

_Lists = tuple[tuple[HostPath, ...], tuple[HostPath, ...]]


class CdiSpecs:
    """Our files in one directory, and everybody's names."""

    def __init__(
        self,
        directory: Path,
        *,
        others: Sequence[Path] = (),
        exists: Callable[[str], bool] = os.path.exists,
        is_node: Callable[[str], bool] | None = None,
    ) -> None:
        """Prepare; nothing is read.

        Args:
            directory: where ours are written.
            others: more directories in which the runtime looks.
            exists: whether the host has a path.
            is_node: whether a path of the host is a device node.
        """
        self._directory, self._others, self._exists = directory, tuple(others), exists
        self._is_node = is_node or _is_node
        self._names: frozenset[str] = frozenset()
        self._written_for: dict[str, _Lists] = {}
        self._read: dict[Path, tuple[tuple[int, int], frozenset[str]]] = {}

    def names(self, profile: Profile) -> frozenset[str]:
        """The names that resolve; ours only as far as they say what this profile needs. From memory."""
        if self._written_for.get(profile.vendor) == (profile.devices, profile.mounts):
            return self._names
        ours = f"{names.DOMAIN}/{profile.vendor}="
        return frozenset(name for name in self._names if not name.startswith(ours))

    def bring(self, devices: Sequence[Device], files: Mapping[str, NodeFiles], profiles: Profiles) -> None:
        """Write what the cards are now, remove what is no more, and read what resolves. Waits for the disk.

        Args:
            devices: the node's cards.
            files: what each needs beyond its profile, by id.
            profiles: the profiles in force.

        Raises:
            OSError: a file cannot be written or read.
        """
        self._directory.mkdir(parents=True, exist_ok=True)
        wanted: dict[Path, bytes] = {}
        written_for: dict[str, _Lists] = {}
        for vendor in sorted({device.vendor for device in devices}):
            profile = profiles.effective(vendor)
            if profile is None:
                continue
            mine = tuple(device for device in devices if device.vendor == vendor)
            content = specification(vendor, self._cards(profile, mine, files), self._is_node)
            if content is not None:
                wanted[self._directory / f"{_PREFIX}{vendor}.json"] = msgspec.json.format(
                    msgspec.json.encode(content), indent=1
                )
                written_for[vendor] = (profile.devices, profile.mounts)
        for path in self._directory.glob(f"{_PREFIX}*.json"):
            if path not in wanted:
                path.unlink(missing_ok=True)
                log.info("CDI file removed: file=%s", path.name)
        for path, text in wanted.items():
            if not path.exists() or path.read_bytes() != text:
                write_file(path, text, 0o644)
                log.info("CDI file written: file=%s", path.name)
        self._names = self._resolvable()
        self._written_for = written_for

    def _cards(
        self, profile: Profile, devices: tuple[Device, ...], files: Mapping[str, NodeFiles]
    ) -> Iterable[tuple[Device, Any]]:
        present = frozenset(path for path in candidate_paths(profile, devices) if self._exists(path))
        node = NodeFacts(name="", devices=devices, state="", interceptor="", present=present, files=files)
        for device in devices:
            try:
                yield device, card_files(profile, device, node)
            except RefusedError as error:
                log.info("card has no CDI name: device=%s %s", device.id, error)

    def _resolvable(self) -> frozenset[str]:
        found: set[str] = set()
        seen: dict[Path, tuple[tuple[int, int], frozenset[str]]] = {}
        for folder in (*self._others, self._directory):
            for path in sorted(folder.glob("*")) if folder.is_dir() else ():
                if path.suffix not in _SUFFIXES:
                    continue
                state = path.stat()
                stamp = (state.st_mtime_ns, state.st_size)
                known = self._read.get(path)
                seen[path] = known if known is not None and known[0] == stamp else (stamp, _read(path))
                found |= seen[path][1]
        self._read = seen
        return frozenset(found)


def _read(path: Path) -> frozenset[str]:
    try:
        return resolvable(yaml.safe_load(path.read_text(encoding="utf-8")))  # JSON is YAML
    except (OSError, ValueError, yaml.YAMLError) as error:
        log.warning("CDI file not readable: file=%s error=%s", path, error)
        return frozenset()


def _is_node(path: str) -> bool:
    try:
        mode = os.stat(path).st_mode
    except OSError:
        return False
    return stat.S_ISCHR(mode) or stat.S_ISBLK(mode)
