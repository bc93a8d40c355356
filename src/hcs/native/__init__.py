"""Where the C libraries lie: the interceptor, and the emulated vendor drivers.

The build puts them into ``lib`` beside this file, in a source tree as in an installed wheel. Nothing here loads them;
they are for other processes.
"""

from __future__ import annotations

from pathlib import Path

LIBRARY_DIR = Path(__file__).parent / "lib"

# The library each emulated driver directory must hold, by vendor word.
_DRIVERS = {
    "nvidia": "libcuda.so.1",
    "ascend": "libascendcl.so",
    "cambricon": "libcndrv.so",
    "hygon": "libamdhip64.so",
    "mthreads": "libmusa.so",
}


class NativeLibraryError(FileNotFoundError):
    """A C library is not there; the message says what to run."""


def interceptor_path() -> Path:
    """The interceptor, for ``LD_PRELOAD`` or ``/etc/ld.so.preload``.

    Raises NativeLibraryError where it has not been built.
    """
    return _existing(LIBRARY_DIR / "libhcs_interceptor.so")


def audit_path() -> Path:
    """The interceptor for HIP, for ``LD_AUDIT``.

    Raises NativeLibraryError where it has not been built.
    """
    return _existing(LIBRARY_DIR / "libhcs_audit.so")


def emulated_driver_dir(vendor: str) -> Path:
    """The directory to put on ``LD_LIBRARY_PATH`` so that programs find the vendor's emulated driver by its soname.

    Raises NativeLibraryError for a vendor without an emulated driver, and where it has not been built.
    """
    driver = _DRIVERS.get(vendor)
    if driver is None:
        raise NativeLibraryError(f"there is no emulated driver for {vendor!r}, only for {', '.join(sorted(_DRIVERS))}")
    return _existing(LIBRARY_DIR / "emulated" / vendor / driver).parent


def _existing(path: Path) -> Path:
    if not path.is_file():
        raise NativeLibraryError(f"{path} has not been built; run `make native` in the source tree")
    return path
