"""The program: the interceptor is installed once per version, and the process serves and ends cleanly."""

from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner

from hcs import native
from hcs.agent.command import install_interceptor
from hcs.cli.main import build
from hcs.vendors import emulated


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


def test_one_look_needs_no_cluster(tmp_path: Path) -> None:
    emulated.create_card(
        tmp_path / "a.card", vendor="nvidia", model="L40S", uuid="GPU-a", index=0, total_bytes=48 << 30
    )
    emulated.create_card(
        tmp_path / "b.card", vendor="ascend", model="Ascend910B2", uuid="NPU-b", index=0, total_bytes=64 << 30
    )
    arguments = ["agent", "once", "--node", "n1", "--emulated-cards", str(tmp_path)]
    result = CliRunner().invoke(build(), [*arguments, "--json"], prog_name="hcs")
    assert result.exit_code == 0
    found = msgspec.json.decode(result.stdout)
    assert (found["node"], found["silent"]) == ("n1", {})
    assert [(d["vendor"], d["model"], d["verdict"], d["emulated"]) for d in found["devices"]] == [
        ("ascend", "Ascend910B2", "Healthy", True),
        ("nvidia", "L40S", "Healthy", True),
    ]
    shown = CliRunner().invoke(build(), arguments, prog_name="hcs").stdout
    assert "GPU-a  nvidia L40S (emulated)  48Gi  102 ACU (measured)  Healthy" in shown


def test_a_vendor_that_does_not_answer_is_told(tmp_path: Path) -> None:
    arguments = ["agent", "once", "--json", "--emulated-cards", str(tmp_path / "missing")]
    result = CliRunner().invoke(build(), arguments, prog_name="hcs")
    assert result.exit_code == 1
    assert "cannot list emulated cards" in msgspec.json.decode(result.stdout)["silent"]["emulated"]
    assert "emulated does not answer" in result.stderr
