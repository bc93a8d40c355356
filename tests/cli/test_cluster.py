"""A cluster that does not answer is told in three lines, each way it can fail in its own words."""

import socket

import pytest

from hcs.cli.cluster import read_cluster
from hcs.cli.errors import CommandError
from hcs.sandbox.apiserver.server import Settings, kubeconfig, running


def test_no_kubeconfig(tmp_path):
    with pytest.raises(CommandError) as caught:
        read_cluster(str(tmp_path / "missing"), None)
    assert str(caught.value).startswith("error: no cluster to ask\n  why:  no usable kubeconfig")


def test_no_such_context(room):
    with pytest.raises(CommandError, match="no cluster to ask") as caught:
        read_cluster(str(room), "nowhere")
    assert "'nowhere'" in caught.value.why


def test_nobody_listens(tmp_path, room):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        path = tmp_path / "kubeconfig"
        authority = room.parent / "data" / "ca.crt"
        path.write_text(kubeconfig(f"https://127.0.0.1:{taken.getsockname()[1]}", authority, "t"))
        with pytest.raises(CommandError, match="cannot be reached") as caught:
            read_cluster(str(path), None)
    assert "https://127.0.0.1:" in caught.value.why


def test_a_cluster_without_hcs_and_one_without_permission(tmp_path):
    with running(Settings(data=tmp_path / "data")) as server:
        path = tmp_path / "kubeconfig"
        path.write_text(server.kubeconfig("admin-token"))
        with pytest.raises(CommandError, match="HCS is not installed") as missing:
            read_cluster(str(path), None)
        path.write_text(server.kubeconfig("wrong-token"))
        with pytest.raises(CommandError, match="not allowed to look"):
            read_cluster(str(path), None)
    assert "config/crds" in missing.value.try_
