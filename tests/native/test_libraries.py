"""The libraries as files: where they lie, what they need, what they show to other programs."""

from __future__ import annotations

import ctypes
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.native.toolkit import REPOSITORY

from hcs import native

CHECK = REPOSITORY / "native/check_symbol_versions.py"


def check(path: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, CHECK, path], capture_output=True, text=True, check=False)


@pytest.mark.parametrize("library", [native.interceptor_path, native.audit_path])
def test_the_interceptor_loads_on_the_oldest_glibc_that_vendors_still_ship(library: Callable[[], Path]) -> None:
    done = check(library())
    assert done.returncode == 0, done.stderr
    assert re.search(r"newest symbol version GLIBC_2\.(\d+)", done.stdout)
    assert "libcuda" not in done.stdout


def test_the_check_sees_a_library_that_needs_a_newer_glibc(tmp_path: Path) -> None:
    """A library that binds to a version 99 of ours, renamed in its string table to one of glibc's."""
    (tmp_path / "map").write_text("GLIBC_2.99 { global: newer; };\n")
    (tmp_path / "newer.c").write_text("int newer(void) { return 1; }\n")
    (tmp_path / "user.c").write_text("extern int newer(void); int user(void) { return newer(); }\n")
    for command in (
        ["cc", "-shared", "-fPIC", "newer.c", "-o", "libnewer.so", "-Wl,--version-script=map"],
        ["cc", "-shared", "-fPIC", "user.c", "-o", "libuser.so", "-L.", "-lnewer"],
    ):
        subprocess.run(command, cwd=tmp_path, check=True)
    done = check(tmp_path / "libuser.so")
    assert done.returncode == 1
    assert "GLIBC_2.99" in done.stdout


def test_nothing_but_the_hooked_names_is_exported() -> None:
    """Every HOOK line, the loader's four functions, and no name of ours."""
    folder = REPOSITORY / "native/interceptor"
    shared = re.findall(r"^DRIVER_HOOK\((\w+)\)", (folder / "driver_symbols.def").read_text(), re.MULTILINE)
    preloaded = (folder / "symbols.def").read_text().partition("#else")[2]
    hooks = set(re.findall(r"^HOOK\(\w+, (\w+)\)", preloaded, re.MULTILINE))
    hooks |= {letters + name for name in shared for letters in ("cu", "mu")}
    exported = set(re.findall(r"(\w+);", (REPOSITORY / "native/interceptor/exports.map").read_text()))
    assert exported == hooks | {"dlsym", "dlvsym", "dlopen", "dlmopen"}
    library = ctypes.CDLL(str(native.interceptor_path()))
    assert all(hasattr(library, name) for name in exported)
    assert not hasattr(library, "hcs_charge")


def test_a_missing_library_says_what_to_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(native, "LIBRARY_DIR", tmp_path)
    with pytest.raises(native.NativeLibraryError, match="make native"):
        native.interceptor_path()
    with pytest.raises(native.NativeLibraryError, match="make native"):
        native.emulated_driver_dir("ascend")


def test_a_vendor_without_an_emulated_driver_is_named() -> None:
    with pytest.raises(native.NativeLibraryError, match="no emulated driver for 'intel'"):
        native.emulated_driver_dir("intel")
