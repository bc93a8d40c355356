"""A container's private file tree, made of links: what stands in for a mount namespace.

The image's top-level entries are links into the image, directories a program may write to are real. A mount, volume or
device is a link at its path. To place one below a linked directory, that directory first becomes a real one with a link
for each of its entries, as an overlay file system copies up; so the image and the volumes themselves are never written
to by us. The price of having no root: a read-only volume is read-only by its file modes alone.
"""

import os
import posixpath
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from hcs.sandbox.kubelet.environment import ConfigurationError

WRITABLE: Final = ("dev", "home", "mnt", "root", "run", "srv", "tmp", "var", "var/tmp", "workspace")
HOST: Final = ("proc", "sys")
DEVICES: Final = ("null", "zero", "full", "random", "urandom", "shm", "fd", "stdin", "stdout", "stderr")


def normal(path: str) -> str:
    """An absolute path of the container, without ``..`` and double slashes.

    >>> normal("a/../../b/")
    '/b'
    """
    return posixpath.normpath("/" + path.lstrip("/"))


class Tree:
    """One container's tree."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._writable: set[str] = set()

    @classmethod
    def build(cls, root: Path, image: Path) -> "Tree":
        """Make the tree of a container of this image; whatever is there already goes."""
        if root.exists():
            shutil.rmtree(root)
        root.mkdir(parents=True)
        for entry in image.iterdir():
            if entry.name in WRITABLE or entry.name in HOST or entry.name == "image.json":
                continue
            target = os.readlink(entry) if entry.is_symlink() else None
            inside = target is not None and not target.startswith("/")
            (root / entry.name).symlink_to(target if inside and target else entry)
        tree = cls(root)
        for name in WRITABLE:
            (root / name).mkdir(parents=True, exist_ok=True)
            if (image / name).is_dir():
                _link_entries(image / name, root / name)
        for name in HOST:
            (root / name).symlink_to(f"/{name}")
        for name in DEVICES:
            if Path("/dev", name).exists() and not (root / "dev" / name).is_symlink():
                (root / "dev" / name).symlink_to(f"/dev/{name}")
        return tree

    def host_path(self, path: str) -> Path:
        """Where a path of the container is on this machine."""
        return Path(str(self.root) + normal(path))

    def exists(self, path: str) -> bool:
        """Whether the container has this path."""
        return self.host_path(path).exists()

    def directory(self, path: str) -> Path:
        """A real directory at this path, made as far as needed."""
        here, seen = self.root, ""
        for part in [part for part in normal(path).split("/") if part]:
            here, seen = here / part, f"{seen}/{part}"
            if here.is_symlink():
                if seen in self._writable:
                    raise ConfigurationError(
                        f"{path} lies in the writable volume mounted at {seen}; without root the emulated kubelet "
                        "cannot mount one volume inside another that is writable"
                    )
                target = os.readlink(here)
                if not target.startswith("/"):  # a link of the image into itself, like /bin to /usr/bin
                    resolved = posixpath.normpath(posixpath.join(posixpath.dirname(seen), target))
                    here, seen = self.directory(resolved), resolved
                    continue
                source = here.resolve()
                if not source.is_dir():
                    raise ConfigurationError(f"{path}: {seen} is a file, a directory is needed")
                here.unlink()
                here.mkdir()
                _link_entries(source, here)
            elif not here.exists():
                here.mkdir()
            elif not here.is_dir():
                raise ConfigurationError(f"{path}: {seen} is a file, a directory is needed")
        return here

    def working_directory(self, path: str) -> Path:
        """The directory at this path, made if the container has none."""
        found = self.host_path(path)
        return found if found.is_dir() else self.directory(path)

    def place(self, path: str, source: Path, *, writable: bool = False, mirrored: bool = False) -> None:
        """Let ``source`` of this machine appear at ``path``; it replaces what is there.

        Args:
            path: of the container.
            source: on this machine.
            writable: whether the container writes there, for others to see.
            mirrored: whether a directory is shown link by link, so that new files in it do not reach ``source``.

        Raises:
            ConfigurationError: ``source`` does not exist, or ``path`` lies inside a writable volume.
        """
        path = normal(path)
        if path == "/":
            raise ConfigurationError("nothing can be mounted at /")
        if not source.exists():
            raise ConfigurationError(f"{source}, to appear at {path}, does not exist on the node")
        target = self.directory(posixpath.dirname(path)) / posixpath.basename(path)
        if target.is_symlink() or target.is_file():
            target.unlink()
        elif target.is_dir():
            shutil.rmtree(target)
        self._writable.discard(path)
        if mirrored and source.is_dir():
            mirror(source, target)
        else:
            target.symlink_to(source.absolute())
            if writable:
                self._writable.add(path)


def mirror(source: Path, target: Path) -> None:
    """Show a directory at ``target``: real directories, a link for each file. New files there do not reach it."""
    target.mkdir()
    for entry in source.iterdir():
        if entry.is_dir() and not entry.is_symlink():
            mirror(entry, target / entry.name)
        else:
            (target / entry.name).symlink_to(entry)


def by_depth(paths: Iterable[str]) -> list[str]:
    """Outer paths first, so that an inner mount lands in the outer one."""
    return sorted(paths, key=lambda path: (normal(path).count("/"), path))


def _link_entries(source: Path, target: Path) -> None:
    for entry in source.iterdir():
        if not (target / entry.name).exists() and not (target / entry.name).is_symlink():
            (target / entry.name).symlink_to(entry)
