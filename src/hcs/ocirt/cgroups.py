"""Where the relay runs: the control group that the bundle names, so that what a node counts for it is in one place.

The guest's own CPU and memory are the hypervisor's business; no limit is written here.
"""

import contextlib
import os
from pathlib import Path
from typing import Final

ROOT: Final = Path("/sys/fs/cgroup")


def directories(cgroups_path: str, root: Path = ROOT) -> list[Path]:
    """The directories of a ``cgroupsPath``: one on a unified hierarchy, one for each controller otherwise.

    A path of systemd's form, ``slice:prefix:name``, is the scope it names.

    >>> systemd_path("system-demo.slice:cri:abc")
    'system.slice/system-demo.slice/cri-abc.scope'
    """
    if not cgroups_path:
        return []
    inner = (systemd_path(cgroups_path) if cgroups_path.count(":") == 2 else cgroups_path).strip("/")
    if not inner or ".." in inner.split("/"):
        return []
    if (root / "cgroup.controllers").exists():
        return [root / inner]
    try:
        hierarchies = sorted({path.resolve() for path in root.iterdir() if (path / "cgroup.procs").exists()})
    except OSError:
        return []
    return [hierarchy / inner for hierarchy in hierarchies]


def systemd_path(text: str) -> str:
    """The directory of systemd's ``slice:prefix:name``."""
    slice_, prefix, name = text.split(":")
    parts = (slice_ or "system.slice").removesuffix(".slice").split("-")
    nested = ["-".join(parts[: count + 1]) + ".slice" for count in range(len(parts))]
    unit = name if name.endswith(".slice") else f"{prefix}-{name}.scope" if prefix else f"{name}.scope"
    return "/".join([*nested, unit])


def enter(cgroups_path: str, pid: int) -> list[str]:
    """Put a process into its control group.

    Returns:
        What did not work, one line each; nothing is done where no group is named.
    """
    problems = []
    for directory in directories(cgroups_path):
        try:
            directory.mkdir(parents=True, exist_ok=True)
            _prepare_cpuset(directory)
            (directory / "cgroup.procs").write_text(str(pid))
        except OSError as error:
            problems.append(f"{directory}: {error.strerror}")
    return problems


def leave(cgroups_path: str) -> None:
    """Remove the group's directories where nobody is left in them."""
    for directory in directories(cgroups_path):
        with contextlib.suppress(OSError):
            directory.rmdir()


def _prepare_cpuset(directory: Path) -> None:
    """A cpuset of version 1 takes nobody before it has CPUs and memory nodes: those of the group above."""
    if not (directory / "cpuset.cpus").exists() or (directory / "cgroup.controllers").exists():
        return
    if directory.parent != ROOT and (directory.parent / "cpuset.cpus").exists():
        _prepare_cpuset(directory.parent)
    for name in ("cpuset.cpus", "cpuset.mems"):
        with contextlib.suppress(OSError):
            if not (directory / name).read_text().strip():
                (directory / name).write_text((directory.parent / name).read_text())


def network_of_its_own() -> None:
    """Give this process an empty network: a guest's is not the host's, and hooks are told whose it is by a process.

    Raises:
        OSError: not permitted.
    """
    import ctypes

    if ctypes.CDLL(None, use_errno=True).unshare(0x40000000) != 0:  # CLONE_NEWNET
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
