"""Where a pod that loses its card should resume: the newest complete checkpoint, as its container sees it.

A checkpoint directory named by the URL of an object store (``s3://…``) is listed through fsspec, with the healer's own
credentials. A path, also as ``file://…``, is followed through the pod's volume mounts: a hostPath that this process can
see is listed. For anything else the directory itself is the answer, and the program picks the newest entry, which it
can see and we cannot. Other kinds of URL are not followed: whoever may create a pod would send the healer wherever it
can reach.
"""

import asyncio
import contextlib
import logging
import posixpath
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final, TypeVar
from urllib.parse import unquote, urlsplit

from hcs.health.checkpoints import newest_complete
from hcs.model import names
from hcs.model.pods import Container, Pod

log = logging.getLogger(__name__)
T = TypeVar("T")

LIST_SECONDS: Final = 5.0
"""Storage that does not answer in this time is not waited for: moving the pod matters more."""
LISTED: Final = frozenset({"s3", "s3a", "gs", "gcs", "az", "abfs", "abfss", "adl", "oss", "hdfs", "webhdfs", "memory"})
"""URLs that are listed; ``memory`` is a store of this process alone."""


async def resume_point(pod: Pod, before: str = "", *, patience: float = LIST_SECONDS) -> str:
    """Find the place to resume from. Never raises.

    Args:
        pod: the pod that loses its card.
        before: what the last call for this pod returned.
        patience: seconds to wait for the storage.

    Returns:
        A path or URL; empty when the pod keeps no checkpoints. Storage that cannot be listed, or not now, gives
        ``before``, or else the checkpoint directory.
    """
    place = pod.annotations.get(names.CHECKPOINT, "")
    if not place:
        return ""
    try:
        entries = await asyncio.wait_for(_in_thread(lambda: list(_entries(pod, place))), patience)
    except Exception as error:  # a storage's library may raise anything
        log.warning("checkpoints not listed: pod=%s place=%s error=%r", pod.key, place, error)
        return before or place
    newest = newest_complete(entries)
    return f"{place.rstrip('/')}/{newest}" if newest else place


def _entries(pod: Pod, place: str) -> Iterable[str]:
    scheme, separator, rest = place.partition("://")
    if separator and scheme in LISTED:
        import fsspec

        filesystem, path = fsspec.core.url_to_fs(place)
        return [posixpath.basename(str(entry).rstrip("/")) for entry in filesystem.ls(path, detail=False)]
    if separator and (scheme != "file" or not rest.startswith("/")):
        return []
    for container in pod.spec.containers:
        directory = host_directory(pod, container, unquote(urlsplit(place).path) if separator else place)
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
    mount = max(mounts, key=lambda found: len(found.mountPath.rstrip("/")))
    for volume in pod.spec.volumes or ():
        if volume.get("name") == mount.name and isinstance(volume.get("hostPath"), dict):
            inside = posixpath.relpath(path, mount.mountPath)
            return Path(str(volume["hostPath"].get("path", ""))) / (mount.subPath or "") / inside
    return None


async def _in_thread(work: Callable[[], T]) -> T:
    """Run ``work`` in a thread that nobody waits for: storage that hangs must not keep the program from ending."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def settle(result: T | None, error: BaseException | None) -> None:
        if future.done():
            return
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(result)  # type: ignore[arg-type]

    def run() -> None:
        result, failure = None, None
        try:
            result = work()
        except Exception as error:
            failure = error
        with contextlib.suppress(RuntimeError):  # the loop may be gone by now
            loop.call_soon_threadsafe(settle, result, failure)

    threading.Thread(target=run, name="checkpoints", daemon=True).start()
    return await future
