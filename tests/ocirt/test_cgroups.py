"""Where a relay belongs among the control groups."""

from pathlib import Path

import pytest

from hcs.ocirt.cgroups import directories, systemd_path


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("system.slice:cri:abc", "system.slice/cri-abc.scope"),
        (":cri:abc", "system.slice/cri-abc.scope"),
        (
            "kubepods-burstable-pod1.slice:cri:c",
            "kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1.slice/cri-c.scope",
        ),
        ("a.slice::b.slice", "a.slice/b.slice"),
    ],
)
def test_systemds_form_names_a_scope(text: str, path: str) -> None:
    assert systemd_path(text) == path


def test_one_directory_on_a_unified_hierarchy_and_one_for_each_controller_otherwise(tmp_path: Path) -> None:
    for controller in ("cpu", "memory"):
        (tmp_path / controller).mkdir()
        (tmp_path / controller / "cgroup.procs").touch()
    assert directories("/pod/c", tmp_path) == [tmp_path / "cpu/pod/c", tmp_path / "memory/pod/c"]
    (tmp_path / "cgroup.controllers").touch()
    assert directories("/pod/c", tmp_path) == [tmp_path / "pod/c"]
    assert directories("", tmp_path) == directories("/../x", tmp_path) == []
