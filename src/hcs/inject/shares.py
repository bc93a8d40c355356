"""How a share of a card is held to its memory: the quota file, the ledger and the preloaded interceptor.

Read-only in the container: ``/etc/ld.so.preload``, which the dynamic loader of glibc obeys for every program whatever
its environment says; the library it names; and the directory of the quota file. The directory, because a mounted file
would not follow the rename that replaces it. Writable: the ledger in it, mounted over, in which all processes of the
container count together. On the host they lie at paths that stay the same as long as the pod exists.

Source of the paths: ``docs/quota-file.md``.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from hcs.inject.adjustments import HostFile, Mount
from hcs.inject.quota_file import QuotaCard, QuotaFile, QuotaFileError, render
from hcs.model.allocations import Grant
from hcs.model.devices import Device
from hcs.model.refusals import Refusal, RefusedError

PRELOAD: Final = "/etc/ld.so.preload"
INTERCEPTOR: Final = "/usr/local/lib/hcs/libhcs_interceptor.so"
DIRECTORY: Final = "/etc/hcs"
QUOTA: Final = f"{DIRECTORY}/quota"
LEDGER: Final = f"{DIRECTORY}/ledger"

_FIXED: Final = ("bind", "ro", "nosuid", "nodev", "rprivate")
_WRITABLE: Final = ("bind", "rw", "nosuid", "nodev", "noexec", "rprivate")


def container_folder(state: str, pod_uid: str, container: str) -> str:
    """The directory on the host that holds one container's files, under the agent's ``state`` directory."""
    return f"{state}/containers/{pod_uid}/{container}"


def share_files(
    pod_uid: str,
    container: str,
    granted: Iterable[tuple[Device, Grant]],
    state: str,
    context_bytes: Mapping[str, int],
) -> tuple[HostFile, ...]:
    """The files of one container with shares: quota, ledger, preload list.

    Anybody in the container may write the ledger, whatever user it runs as; nobody may write the others.

    Raises:
        RefusedError: the grants cannot stand in a quota file, like a quota of 0 bytes.
    """
    folder = container_folder(state, pod_uid, container)
    return (
        HostFile(f"{folder}/quota", _quota(granted, context_bytes), 0o444),
        HostFile(f"{folder}/ledger", "", 0o666, keep=True),
        HostFile(f"{folder}/ld.so.preload", f"{INTERCEPTOR}\n", 0o444),
    )


def share_mounts(files: tuple[HostFile, ...], interceptor: str) -> tuple[Mount, ...]:
    """Where those files, and the library at ``interceptor`` on the host, appear in the container."""
    quota, ledger, preload = (file.path for file in files)
    return (
        Mount(interceptor, INTERCEPTOR, _FIXED),
        Mount(preload, PRELOAD, _FIXED),
        Mount(quota.rpartition("/")[0], DIRECTORY, _FIXED),
        Mount(ledger, LEDGER, _WRITABLE),
    )


def _quota(granted: Iterable[tuple[Device, Grant]], context_bytes: Mapping[str, int]) -> str:
    cards = tuple(
        QuotaCard(
            vendor=device.vendor,
            uuid=device.id,
            quota_bytes=grant.bytes,
            context_bytes=context_bytes.get(device.id, 0),
            bus_id=device.bus_id,
            physical_id=device.index if device.vendor == "ascend" else None,  # CUDA names cards by UUID
        )
        for device, grant in granted
    )
    try:
        return render(QuotaFile(cards=cards, ledger=LEDGER.rpartition("/")[2]))
    except QuotaFileError as error:
        raise RefusedError(Refusal("QuotaNotWritable", f"no quota file can say what was allocated: {error}")) from error
