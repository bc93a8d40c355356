"""The volumes of a pod: where each of them is on this machine.

Known are those the sandbox's pods use: emptyDir, hostPath, configMap, downwardAPI, image, and projected ones as a real
API server gives to every pod for its service account. A volume is made once for a pod and is there for all its
containers, also when they start again. Files are written once: what changes later is not followed, and a token is not
renewed.
"""

import posixpath
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from hcs.model import pods
from hcs.sandbox.images import ImageMissingError, ImageStore
from hcs.sandbox.kubelet.environment import ConfigurationError, field_value

ConfigMaps = Callable[[str, str], Awaitable[Mapping[str, str] | None]]
"""Reads the data of a config map by namespace and name; None when there is none."""

Tokens = Callable[[pods.Pod, Mapping[str, Any]], Awaitable[str]]
"""Asks for a service-account token for a pod, as its ``serviceAccountToken`` source says."""

_KINDS: Final = ("emptyDir", "hostPath", "configMap", "downwardAPI", "image", "projected")
_PATH_TYPES: Final = ("", "DirectoryOrCreate", "Directory", "FileOrCreate", "File")


class Volume(msgspec.Struct, frozen=True):
    """One volume, made; ``kind`` is the name of its source in the API."""

    kind: str
    path: Path

    @property
    def shared(self) -> bool:
        """Whether what a container writes there is meant to be seen by others."""
        return self.kind in ("emptyDir", "hostPath")


async def make_volumes(
    pod: pods.Pod,
    directory: Path,
    *,
    images: ImageStore,
    config_maps: ConfigMaps,
    host_ip: str,
    tokens: Tokens | None = None,
) -> dict[str, Volume]:
    """Make the volumes of a pod below ``directory``.

    Raises:
        ConfigurationError: a volume that cannot be made, or of a kind the emulated kubelet does not know.
        ImageMissingError: the tree of an image volume is not among the sandbox's images.
    """
    made: dict[str, Volume] = {}
    for volume in pod.spec.volumes or ():
        name = str(volume.get("name", ""))
        kind = next((kind for kind in _KINDS if isinstance(volume.get(kind), dict)), None)
        if kind is None:
            raise ConfigurationError(
                f"volume {name}: the emulated kubelet knows {', '.join(_KINDS)}, not {sorted(set(volume) - {'name'})}"
            )
        source: dict[str, Any] = volume[kind]
        place = directory / name
        if kind == "hostPath":
            place = _host_path(name, source)
        elif kind == "image":
            place = images.find(str(source.get("reference", ""))).tree
        elif kind == "emptyDir":
            place.mkdir(parents=True, exist_ok=True)
        else:
            parts = source.get("sources") or () if kind == "projected" else ({kind: source},)
            for part in parts:
                _write_all(place, await _files(name, pod, part, config_maps, host_ip, tokens))
        made[name] = Volume(kind, place)
    return made


async def _files(
    volume: str,
    pod: pods.Pod,
    part: Mapping[str, Any],
    config_maps: ConfigMaps,
    host_ip: str,
    tokens: Tokens | None,
) -> dict[str, str]:
    """The files of one source of a volume, by name."""
    if isinstance(source := part.get("configMap"), dict):
        data = await config_maps(pod.metadata.namespace or "default", str(source.get("name", "")))
        if data is None and not source.get("optional"):
            raise ConfigurationError(f"volume {volume}: there is no config map {source.get('name')!r}")
        return _selected(data or {}, source.get("items"))
    if isinstance(source := part.get("downwardAPI"), dict):
        return _downward(pod, source, host_ip)
    if isinstance(source := part.get("serviceAccountToken"), dict) and tokens is not None:
        return {str(source["path"]): await tokens(pod, source)}
    raise ConfigurationError(f"volume {volume}: the emulated kubelet does not know a source of {sorted(part)}")


def _host_path(name: str, source: Mapping[str, Any]) -> Path:
    path, wanted = Path(str(source.get("path", ""))), str(source.get("type") or "")
    if wanted not in _PATH_TYPES:
        raise ConfigurationError(f"volume {name}: the emulated kubelet does not know the hostPath type {wanted!r}")
    if not path.is_absolute() or ".." in path.parts:
        raise ConfigurationError(f"volume {name}: hostPath {str(path)!r} must be absolute and without '..'")
    if wanted == "DirectoryOrCreate":
        path.mkdir(parents=True, exist_ok=True)
    elif wanted == "FileOrCreate":
        path.touch(exist_ok=True)
    elif wanted == "Directory" and not path.is_dir():
        raise ConfigurationError(f"volume {name}: hostPath type check failed: {path} is not a directory")
    elif wanted == "File" and not path.is_file():
        raise ConfigurationError(f"volume {name}: hostPath type check failed: {path} is not a file")
    elif not path.exists():
        raise ConfigurationError(f"volume {name}: hostPath {path} does not exist")
    return path


def _selected(data: Mapping[str, str], items: Any) -> dict[str, str]:
    if not items:
        return dict(data)
    return {str(item["path"]): data[item["key"]] for item in items if item.get("key") in data}


def _downward(pod: pods.Pod, source: Mapping[str, Any], host_ip: str) -> dict[str, str]:
    files: dict[str, str] = {}
    for item in source.get("items") or ():
        if not isinstance(item.get("fieldRef"), dict):
            raise ConfigurationError("the emulated kubelet fills downwardAPI volumes from fieldRef only")
        files[str(item["path"])] = field_value(pod, str(item["fieldRef"].get("fieldPath", "")), host_ip=host_ip)
    return files


def _write_all(directory: Path, files: Mapping[str, str]) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        clean = posixpath.normpath(name)
        if clean.startswith(("/", "..")):
            raise ConfigurationError(f"a volume's file cannot be named {name!r}")
        path = directory / clean
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)


__all__ = ["ConfigMaps", "ImageMissingError", "Tokens", "Volume", "make_volumes"]
