"""What is asked for before a real control plane is started, and how it is closed to everybody else."""

from pathlib import Path

import pytest

from hcs.process.certificates import Authority
from hcs.sandbox.controlplane import (
    PROGRAMS,
    ControlPlane,
    MissingProgramsError,
    Ports,
    check_programs,
    scheduler_configuration,
    version,
)


def folder_with(place: Path, *programs: str) -> Path:
    for name in programs:
        (place / name).write_text("#!/bin/sh\necho Kubernetes v0.0.0\n")
        (place / name).chmod(0o755)
    return place


def test_a_folder_that_lacks_programs_is_refused_by_name(tmp_path: Path) -> None:
    folder_with(tmp_path, "etcd", "kube-apiserver")
    with pytest.raises(MissingProgramsError, match="lacks kube-controller-manager, kube-scheduler"):
        check_programs(tmp_path)


def test_a_program_that_cannot_be_run_is_missing(tmp_path: Path) -> None:
    folder_with(tmp_path, *PROGRAMS)
    (tmp_path / "etcd").chmod(0o644)
    with pytest.raises(MissingProgramsError, match="lacks etcd"):
        version(tmp_path)
    (tmp_path / "etcd").chmod(0o755)
    assert version(tmp_path) == "Kubernetes v0.0.0"
    (tmp_path / "kube-apiserver").write_text("#!/bin/sh\nexit 3\n")
    with pytest.raises(MissingProgramsError, match="does not run here"):
        version(tmp_path)


def test_nobody_but_the_api_server_speaks_to_the_store_and_the_store_ends_last(tmp_path: Path) -> None:
    plane = ControlPlane(folder_with(tmp_path, *PROGRAMS), tmp_path, Authority.create("test"), Ports(1, 2, 3, 4, 5))
    etcd, apiserver = plane.etcd(), plane.apiserver()
    scheduler = plane.scheduler(tmp_path / "user.yaml", tmp_path / "scheduler.yaml")
    assert {"--client-cert-auth=true", "--peer-client-cert-auth=true"} <= set(etcd.arguments)
    assert {"--authorization-mode=RBAC", "--bind-address=127.0.0.1"} <= set(apiserver.arguments)
    assert etcd.depth > apiserver.depth > scheduler.depth
    assert all("http://" not in argument for program in (etcd, apiserver, scheduler) for argument in program.arguments)


def test_the_shipped_scheduler_configuration_only_gains_a_kubeconfig(tmp_path: Path) -> None:
    shipped = {"profiles": [{"schedulerName": "hcs-scheduler"}], "leaderElection": {"leaderElect": True}}
    ours = scheduler_configuration(shipped, tmp_path / "router.yaml")
    assert ours.pop("clientConnection") == {"kubeconfig": str(tmp_path / "router.yaml")}
    assert ours == shipped
