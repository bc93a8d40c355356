"""Looking into the directory where a pod keeps its checkpoints, from outside the pod.

The URL of an object store (``s3://…``) is listed through fsspec, with this program's own credentials. A path, also as
``file://…``, is followed through the pod's volume mounts: a hostPath that this process can see is listed. Other kinds
of URL are not followed: whoever may create a pod would send us wherever we can reach. Storage may hang, so a look is
taken in a thread that nobody waits for longer than they want.
"""

import asyncio
import contextlib
import datetime
import posixpath
import threading
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final, TypeVar
from urllib.parse import unquote, urlsplit

from hcs.health.checkpoints import newest_complete
from hcs.model import names
from hcs.model.pods import Container, Pod

T = TypeVar("T")

LIST_SECONDS: Final = 5.0
"""Storage that does not answer in this time is not waited for: moving the pod matters more."""
LISTED: Final = frozenset({"s3", "s3a", "gs", "gcs", "az", "abfs", "abfss", "adl", "oss", "hdfs", "webhdfs", "memory"})
"""URLs that are listed; ``memory`` is a store of this process alone."""
_TIMES: Final = ("mtime", "LastModified", "last_modified", "updated", "modified", "created")
"""Where the file systems of fsspec say when an entry was written."""


async def written_at(pod: Pod, *, patience: float = LIST_SECONDS) -> datetime.datetime | None:
    """When a pod's newest complete checkpoint was written; None where it keeps none, or nobody can say. Never raises.

    Args:
        pod: the pod.
        patience: seconds to wait for the storage.
    """
    place = pod.annotations.get(names.CHECKPOINT, "")
    if not place:
        return None
    try:
        async with asyncio.timeout(patience):
            found = await in_thread(lambda: dict(entries(pod, place)))
    except Exception:  # a storage's library may raise anything
        return None
    newest = newest_complete(found)
    return found[newest] if newest else None


def entries(pod: Pod, place: str) -> Iterable[tuple[str, datetime.datetime | None]]:
    """What is in the directory: names, and when each was written as far as that is known."""
    scheme, separator, rest = place.partition("://")
    if separator and scheme in LISTED:
        import fsspec

        filesystem, path = fsspec.core.url_to_fs(place)
        found: list[Mapping[str, Any]] = filesystem.ls(path, detail=True)
        return [(posixpath.basename(str(entry["name"]).rstrip("/")), _moment(entry)) for entry in found]
    if separator and (scheme != "file" or not rest.startswith("/")):
        return []
    for container in pod.spec.containers:
        directory = host_directory(pod, container, unquote(urlsplit(place).path) if separator else place)
        if directory is not None and directory.is_dir():
            return [(entry.name, _moment({"mtime": entry.stat().st_mtime})) for entry in directory.iterdir()]
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


async def in_thread(work: Callable[[], T]) -> T:
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


def _moment(entry: Mapping[str, Any]) -> datetime.datetime | None:
    """When an entry was written: seconds since 1970, a time, or its text."""
    for key in _TIMES:
        value = entry.get(key)
        if isinstance(value, datetime.datetime):
            return value if value.tzinfo else value.replace(tzinfo=datetime.UTC)
        if isinstance(value, int | float) and value > 0:
            return datetime.datetime.fromtimestamp(value, datetime.UTC)
        if isinstance(value, str) and value:
            try:
                found = datetime.datetime.fromisoformat(value.replace("Z", "+00:00"))
            except ValueError:
                continue
            return found if found.tzinfo else found.replace(tzinfo=datetime.UTC)
    return None
