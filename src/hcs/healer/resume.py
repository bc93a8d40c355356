"""Where a pod that loses its card should resume: the newest complete checkpoint, as its container sees it.

A checkpoint directory named by URL (``s3://…``) is listed through fsspec. A path is followed through the pod's volume
mounts: a hostPath that this process can see is listed; for any other volume the directory itself is the answer, and the
program picks the newest entry, which it can see and we cannot.
"""

import asyncio
import logging
import posixpath
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from hcs.health.checkpoints import newest_complete
from hcs.model import names
from hcs.model.pods import Container, Pod

log = logging.getLogger(__name__)
LIST_SECONDS: Final = 5.0
"""Storage that does not answer in this time is not waited for: moving the pod matters more."""


async def resume_point(pod: Pod) -> str:
    """The path or URL to resume from; empty when the pod keeps no checkpoints. Never raises."""
    place = pod.annotations.get(names.CHECKPOINT, "")
    if not place:
        return ""
    try:
        entries = await asyncio.wait_for(asyncio.to_thread(_entries, pod, place), LIST_SECONDS)
    except (TimeoutError, OSError, ImportError, ValueError) as error:
        log.warning("checkpoints not listed: pod=%s place=%s error=%r", pod.key, place, error)
        return place
    newest = newest_complete(entries)
    return f"{place.rstrip('/')}/{newest}" if newest else place


def _entries(pod: Pod, place: str) -> Iterable[str]:
    if "://" in place:
        import fsspec

        filesystem, path = fsspec.core.url_to_fs(place)
        return [posixpath.basename(str(entry).rstrip("/")) for entry in filesystem.ls(path, detail=False)]
    for container in pod.spec.containers:
        directory = host_directory(pod, container, place)
        if directory is not None and directory.is_dir():
            return [entry.name for entry in directory.iterdir()]
    return []


def host_directory(pod: Pod, container: Container, place: str) -> Path | None:
    """The host directory behind a path of the container, or None when it is on no hostPath volume."""
    path = posixpath.normpath(posixpath.join(container.workingDir or "/", place))
    mounts = [
        mount
        for mount in container.volumeMounts or ()
        if path == mount.mountPath.rstrip("/") or path.startswith(mount.mountPath.rstrip("/") + "/")
    ]
    if not mounts:
        return None
    mount = max(mounts, key=lambda found: len(found.mountPath))
    for volume in pod.spec.volumes or ():
        if volume.get("name") == mount.name and isinstance(volume.get("hostPath"), dict):
            inside = posixpath.relpath(path, mount.mountPath)
            return Path(str(volume["hostPath"].get("path", ""))) / (mount.subPath or "") / inside
    return None
