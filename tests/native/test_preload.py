"""Delivered by ``/etc/ld.so.preload`` the library stays, whatever a program or its user does to the environment.

Needs a mount namespace of its own: root, or a kernel that gives users one.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from tests.native.conftest import cuda_probe
from tests.native.toolkit import GI, OUT_OF_MEMORY, Container

from hcs import native

UNSHARE = ["unshare", "--mount", "--map-root-user", "--propagation", "private"]


def _has_namespaces() -> bool:
    try:
        return subprocess.run([*UNSHARE, "mount", "-t", "tmpfs", "none", "/etc"], capture_output=True).returncode == 0
    except OSError:
        return False


pytestmark = pytest.mark.skipif(not _has_namespaces(), reason="no mount namespace for a user here")


@pytest.fixture
def enclosed(container: Container, programs: Path, tmp_path: Path) -> tuple[Container, str, Path]:
    """A container whose /etc holds the preload list and the quota file, as the node mounts them."""
    container.add_card()
    container.limit(2 * GI)
    (tmp_path / "etc/hcs").mkdir(parents=True)
    container.quota_path.rename(tmp_path / "etc/hcs/quota")
    (tmp_path / "etc/ld.so.preload").write_text(f"{native.interceptor_path()}\n")
    (tmp_path / "ledger").write_bytes(b"")
    (tmp_path / "etc/hcs/ledger").touch()
    prepare = (
        f"mount --bind {tmp_path}/ledger {tmp_path}/etc/hcs/ledger && "
        f"mount --rbind {tmp_path}/etc /etc && mount -o remount,bind,ro /etc && "
    )
    return container, prepare, cuda_probe(programs, "dlsym")


def run(container: Container, prepare: str, command: str, lines: str) -> subprocess.CompletedProcess[str]:
    variables = container.environment()
    variables.pop("LD_PRELOAD")
    variables.pop("HCS_QUOTA_FILE")
    return subprocess.run(
        [*UNSHARE, "sh", "-c", prepare + command],
        env=variables,
        input=lines,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


@pytest.mark.parametrize(
    "how",
    [
        pytest.param("{probe}", id="as-it-comes"),
        pytest.param("env -i HCS_ROOT={root} LD_LIBRARY_PATH={driver} {probe}", id="env-i"),
        pytest.param("unset LD_PRELOAD; LD_PRELOAD= {probe}", id="unset"),
        pytest.param("HCS_QUOTA_FILE=/nowhere HCS_QUOTA_FAIL_OPEN=1 {probe}", id="another-file-and-failing-open"),
        pytest.param("sh -lc 'HCS_ROOT={root} LD_LIBRARY_PATH={driver} exec {probe}'", id="login-shell"),
    ],
)
def test_the_quota_holds_whatever_happens_to_the_environment(enclosed: tuple[Container, str, Path], how: str) -> None:
    container, prepare, probe = enclosed
    command = how.format(probe=probe, root=container.root, driver=native.emulated_driver_dir("nvidia"))
    lines = f"init\ndevice 0\nalloc {2 * GI}\nalloc 1\ninfo\n"
    done = run(container, prepare, command, lines)
    assert done.stdout.split() == ["0", "0", "0", str(OUT_OF_MEMORY), "0", "0", str(2 * GI)], done.stderr


def test_the_container_cannot_take_it_away(enclosed: tuple[Container, str, Path]) -> None:
    container, prepare, _ = enclosed
    done = run(container, prepare, "rm /etc/ld.so.preload; echo x > /etc/hcs/quota; touch /etc/hcs/fail-open", "")
    assert done.returncode != 0
    assert done.stderr.count("Read-only file system") == 3


@pytest.mark.parametrize("decision", ["closed", "open"])
def test_a_quota_file_that_the_node_forgot_refuses_unless_the_node_said_otherwise(
    enclosed: tuple[Container, str, Path], tmp_path: Path, decision: str
) -> None:
    container, prepare, probe = enclosed
    (tmp_path / "etc/hcs/quota").unlink()
    if decision == "open":
        (tmp_path / "etc/hcs/fail-open").touch()
    done = run(container, prepare, str(probe), f"init\ndevice 0\nalloc {4 * GI}\n")
    granted = ["0", "0", "0"]
    assert done.stdout.split()[:2] == (["0", str(OUT_OF_MEMORY)] if decision == "closed" else granted[:2])
    assert done.stderr.startswith("hcs interceptor: ")
    assert done.stderr.count("\n") == 1
