"""Sandbox images: each is a directory tree with an ``image.json``, found under its own name.

``registry.example/runtime/nvidia-pytorch:2.6`` lies in ``registry.example/runtime/nvidia-pytorch/2.6``. There are two
sorts: a *runtime* of one vendor holds base files, a few programs of this machine and the vendor's environment; a *code
layer* holds a program and nothing else. The same code layer goes to every vendor, byte for byte. All of them say that
they are emulated: no vendor's software is in them.
"""

import hashlib
import os
import posixpath
import re
import shutil
import sys
import sysconfig
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

import msgspec

REGISTRY: Final = "registry.example"
PENDING: Final = f"{REGISTRY}/hcs/pending:1"
"""The placeholder in pods whose image is chosen when the vendor is known. There is no such image: a pod that still
has it when it starts says so instead of running something."""
PLAIN: Final = f"{REGISTRY}/base/plain:1"
CODE: Final = f"{REGISTRY}/code/examples:1"

TOOLS: Final = (
    *(
        "sh",
        "bash",
        "cat",
        "cp",
        "date",
        "echo",
        "env",
        "expr",
        "false",
        "head",
        "id",
        "kill",
        "ln",
        "ls",
        "mkdir",
        "mv",
    ),
    *("nproc", "ps", "pwd", "readlink", "rm", "seq", "sleep", "sort", "tail", "tee", "test", "touch", "tr", "true"),
    *("uname", "wc", "grep", "sed", "setsid", "timeout"),
)
_NAME: Final = re.compile(r"[a-z0-9][a-zA-Z0-9._/:@-]{0,254}")


class ImageMissingError(LookupError):
    """No such image in the sandbox; the message lists those there are."""


class Image(msgspec.Struct, frozen=True):
    """An image: its tree and what it says about how to run it."""

    name: str
    tree: Path
    entrypoint: tuple[str, ...] = ()
    env: dict[str, str] = {}
    working_dir: str = "/"
    vendor: str = ""


class _Config(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    entrypoint: tuple[str, ...] = ()
    env: dict[str, str] = {}
    working_dir: str = "/"
    vendor: str = ""
    emulated: bool = True


class VendorBase(msgspec.Struct, frozen=True):
    """What the vendor's own base images bring: variables, and directories of the tool kit."""

    env: dict[str, str] = {}
    directories: tuple[str, ...] = ()


VENDOR_BASES: Final[Mapping[str, VendorBase]] = {
    # NVIDIA's CUDA base images carry these two: every container of them would see all cards.
    "nvidia": VendorBase(
        {
            "NVIDIA_VISIBLE_DEVICES": "all",
            "NVIDIA_DRIVER_CAPABILITIES": "compute,utility",
            "LD_LIBRARY_PATH": "/usr/local/nvidia/lib:/usr/local/nvidia/lib64",
        },
        ("usr/local/cuda",),
    ),
    # The CANN tool kit's set_env.sh sets these.
    "ascend": VendorBase(
        {
            "ASCEND_TOOLKIT_HOME": "/usr/local/Ascend/ascend-toolkit/latest",
            "LD_LIBRARY_PATH": "/usr/local/Ascend/ascend-toolkit/latest/lib64",
        },
        ("usr/local/Ascend/ascend-toolkit/latest/lib64",),
    ),
    "cambricon": VendorBase(
        {"NEUWARE_HOME": "/usr/local/neuware", "LD_LIBRARY_PATH": "/usr/local/neuware/lib64"},
        ("usr/local/neuware/lib64",),
    ),
    "hygon": VendorBase({"LD_LIBRARY_PATH": "/opt/dtk/lib:/opt/hyhal/lib"}, ("opt/dtk/lib",)),
    "mthreads": VendorBase(
        {"MUSA_HOME": "/usr/local/musa", "LD_LIBRARY_PATH": "/usr/local/musa/lib"}, ("usr/local/musa/lib",)
    ),
}
"""Source: the vendors' published base images and environment scripts. Vendors not listed have a plain base."""


def image_path(name: str) -> str:
    """Where an image lies below the images' directory.

    >>> image_path("registry.example/runtime/nvidia-pytorch:2.6")
    'registry.example/runtime/nvidia-pytorch/2.6'

    Raises:
        ImageMissingError: not the name of an image.
    """
    bare, at, digest = name.partition("@")
    repository, colon, tag = bare.rpartition(":")
    if not colon or "/" in tag:
        repository, tag = bare, "latest"
    version = digest.replace(":", "-") if at else tag
    path = f"{repository}/{version}"
    if not _NAME.fullmatch(name) or posixpath.normpath(path) != path or path.startswith((".", "/")) or "/." in path:
        raise ImageMissingError(f"{name!r} is not the name of an image")
    return path


class ImageStore:
    """All images of a sandbox, under one directory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def find(self, name: str) -> Image:
        """An image by its name.

        Raises:
            ImageMissingError: it is not there.
        """
        tree = self.directory / image_path(name)
        try:
            config = msgspec.json.decode((tree / "image.json").read_bytes(), type=_Config)
        except (OSError, msgspec.DecodeError) as error:
            there = ", ".join(self.names()) or "none"
            raise ImageMissingError(f"the sandbox has no image {name!r}; it has {there}") from error
        return Image(name, tree, config.entrypoint, config.env, config.working_dir, config.vendor)

    def names(self) -> list[str]:
        """The names of all images."""
        found = []
        for folder, inner, files in os.walk(self.directory):
            if "image.json" in files:
                inner.clear()  # an image's own tree holds no further images
                path = Path(folder).relative_to(self.directory)
                found.append(f"{path.parent.as_posix()}:{path.name}")
            else:
                inner[:] = [name for name in inner if not name.startswith(".")]
        return sorted(found)

    def add_runtime(self, name: str, vendor: str) -> Image:
        """Build a runtime image for a vendor; an empty ``vendor`` gives a plain one."""
        base = VENDOR_BASES.get(vendor, VendorBase())
        tree = self._fresh(name)
        for directory in ("etc", "usr/bin", "usr/lib", "usr/local/bin", "usr/local/lib", "opt", *base.directories):
            (tree / directory).mkdir(parents=True, exist_ok=True)
        for link, target in (("bin", "usr/bin"), ("lib", "usr/lib"), ("sbin", "usr/bin")):
            (tree / link).symlink_to(target)
        text = f"emulated image {name}\nvendor: {vendor or 'none'}\nNo software of any vendor is in this image.\n"
        (tree / "etc" / "hcs-release").write_text(text)
        (tree / "etc" / "os-release").write_text(f'NAME="HCS sandbox (emulated)"\nID=hcs\nPRETTY_NAME="{name}"\n')
        for tool in TOOLS:
            if program := shutil.which(tool):
                (tree / "usr" / "bin" / tool).symlink_to(program)
        _add_python(tree)
        path = {"PATH": "/usr/local/bin:/usr/bin:/bin"}
        return self._finish(name, tree, _Config(("sh",), {**path, **base.env}, "/", vendor))

    def add_code(self, name: str, files: Iterable[Path]) -> Image:
        """Build a code layer from these files; they are copied as they are."""
        tree = self._fresh(name)
        for file in files:
            shutil.copyfile(file, tree / file.name)
        return self._finish(name, tree, _Config())

    def _fresh(self, name: str) -> Path:
        tree = self.directory / image_path(name)
        partial = tree.with_name(f".{tree.name}.{os.getpid()}")
        if partial.exists():
            shutil.rmtree(partial)
        partial.mkdir(parents=True)
        return partial

    def _finish(self, name: str, partial: Path, config: _Config) -> Image:
        """Put a finished tree in its place: a reader sees the whole image or none."""
        (partial / "image.json").write_bytes(msgspec.json.format(msgspec.json.encode(config)))
        tree = self.directory / image_path(name)
        if tree.exists():
            shutil.rmtree(tree)
        partial.rename(tree)
        return self.find(name)


def build_images(directory: Path, *, runtimes: Mapping[str, str], code: Iterable[Path]) -> ImageStore:
    """Lay out all images of a sandbox.

    Args:
        directory: where they go.
        runtimes: vendor by image name, as the runtime profiles name them.
        code: the files of the code layer.
    """
    store = ImageStore(directory)
    store.add_runtime(PLAIN, "")
    for name, vendor in runtimes.items():
        store.add_runtime(name, vendor)
    store.add_code(CODE, code)
    return store


def content_hash(file: Path) -> str:
    """The SHA-256 of a file, in hexadecimal."""
    return hashlib.sha256(file.read_bytes()).hexdigest()


def _add_python(tree: Path) -> None:
    """Give the image this machine's Python, with the packages it has, as a virtual environment of the image's own."""
    interpreter = Path(getattr(sys, "_base_executable", None) or sys.executable)
    binaries, version = tree / "usr" / "bin", f"python{sys.version_info.major}.{sys.version_info.minor}"
    for name in ("python3", "python"):
        (binaries / name).symlink_to(interpreter)
    packages = tree / "usr" / "lib" / version / "site-packages"
    packages.parent.mkdir(parents=True)
    packages.symlink_to(sysconfig.get_path("purelib"))
    (tree / "pyvenv.cfg").write_text(f"home = {interpreter.parent}\ninclude-system-site-packages = false\n")
    (tree / "usr" / "pyvenv.cfg").symlink_to("../pyvenv.cfg")
