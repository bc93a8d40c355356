"""The program: the interceptor is installed once per version, and the process serves and ends cleanly."""

from pathlib import Path

import pytest

from hcs import native
from hcs.agent.command import install_interceptor


@pytest.fixture
def built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory of libraries in which an interceptor was built."""
    folder = tmp_path / "lib"
    folder.mkdir()
    (folder / "libhcs_interceptor.so").write_bytes(b"version 1")
    monkeypatch.setattr(native, "LIBRARY_DIR", folder)
    return folder / "libhcs_interceptor.so"


def test_each_version_of_the_interceptor_has_its_own_place(tmp_path: Path, built: Path) -> None:
    first = Path(install_interceptor(tmp_path))
    assert first.read_bytes() == b"version 1"
    inode = first.stat().st_ino
    assert install_interceptor(tmp_path) == str(first)
    assert first.stat().st_ino == inode, "running programs have it mapped"
    built.write_bytes(b"version 2")
    second = Path(install_interceptor(tmp_path))
    assert second.read_bytes() == b"version 2"
    assert first.read_bytes() == b"version 1"


def test_without_a_built_library_the_agent_runs_and_says_so(tmp_path: Path, built: Path) -> None:
    built.unlink()
    assert install_interceptor(tmp_path) == ""
