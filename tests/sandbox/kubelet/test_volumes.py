"""Volumes: what can be made, and what is refused with a sentence."""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.sandbox.kubelet.scene import pod_with

from hcs.sandbox.images import ImageMissingError, ImageStore
from hcs.sandbox.kubelet.environment import ConfigurationError
from hcs.sandbox.kubelet.volumes import Volume, make_volumes


def made(volume: dict[str, Any], directory: Path, images: ImageStore) -> Volume:
    async def config_maps(namespace: str, name: str) -> Mapping[str, str] | None:
        return {"a": "1", "b": "2"} if name == "settings" else None

    pod = pod_with({}, volumes=[{"name": "v", **volume}])
    makes = make_volumes(pod, directory, images=images, config_maps=config_maps, host_ip="127.0.0.1")
    return asyncio.run(makes)["v"]


@pytest.mark.parametrize(
    ("volume", "problem"),
    [
        pytest.param({"persistentVolumeClaim": {"claimName": "x"}}, "persistentVolumeClaim", id="unknown-kind"),
        pytest.param({"hostPath": {"path": "relative"}}, "absolute", id="relative"),
        pytest.param({"hostPath": {"path": "/tmp/../etc"}}, "absolute and without", id="dots"),
        pytest.param({"hostPath": {"path": "/no/such"}}, "does not exist", id="missing"),
        pytest.param({"hostPath": {"path": "/no/such", "type": "Directory"}}, "not a directory", id="no-directory"),
        pytest.param({"hostPath": {"path": "/tmp", "type": "File"}}, "not a file", id="no-file"),
        pytest.param({"hostPath": {"path": "/tmp", "type": "Socket"}}, "Socket", id="unknown-type"),
        pytest.param({"configMap": {"name": "gone"}}, "gone", id="no-config-map"),
        pytest.param(
            {"downwardAPI": {"items": [{"path": "../x", "fieldRef": {"fieldPath": "metadata.name"}}]}},
            "cannot be named",
            id="leads-out",
        ),
        pytest.param(
            {"downwardAPI": {"items": [{"path": "x", "resourceFieldRef": {"resource": "limits.cpu"}}]}},
            "fieldRef only",
            id="resources",
        ),
    ],
)
def test_what_cannot_be_made_is_said(volume: dict[str, Any], problem: str, tmp_path: Path, images: ImageStore) -> None:
    with pytest.raises(ConfigurationError, match=problem):
        made(volume, tmp_path, images)


def test_a_missing_image_volume_is_an_image_problem(tmp_path: Path, images: ImageStore) -> None:
    with pytest.raises(ImageMissingError, match="nowhere"):
        made({"image": {"reference": "registry.example/nowhere:1"}}, tmp_path, images)


def test_config_maps_are_files_chosen_by_items(tmp_path: Path, images: ImageStore) -> None:
    whole = made({"configMap": {"name": "settings"}}, tmp_path / "1", images)
    assert {file.name: file.read_text() for file in whole.path.iterdir()} == {"a": "1", "b": "2"}
    items = [{"key": "b", "path": "sub/beta"}]
    chosen = made({"configMap": {"name": "settings", "items": items}}, tmp_path / "2", images)
    assert (chosen.path / "sub" / "beta").read_text() == "2"
    assert not whole.shared


def test_an_optional_config_map_may_be_missing(tmp_path: Path, images: ImageStore) -> None:
    volume = made({"configMap": {"name": "gone", "optional": True}}, tmp_path, images)
    assert list(volume.path.iterdir()) == []


def test_host_paths_are_made_where_asked(tmp_path: Path, images: ImageStore) -> None:
    made({"hostPath": {"path": str(tmp_path / "d"), "type": "DirectoryOrCreate"}}, tmp_path, images)
    made({"hostPath": {"path": str(tmp_path / "f"), "type": "FileOrCreate"}}, tmp_path, images)
    assert (tmp_path / "d").is_dir()
    assert (tmp_path / "f").is_file()


def test_a_service_account_volume_holds_what_its_sources_say(tmp_path: Path, images: ImageStore) -> None:
    async def config_maps(namespace: str, name: str) -> Mapping[str, str] | None:
        return {"ca.crt": "an authority", "more": "unasked"} if name == "kube-root-ca.crt" else None

    async def tokens(pod: Any, source: Mapping[str, Any]) -> str:
        return f"{pod.metadata.name} for {source['expirationSeconds']} s"

    sources = [
        {"serviceAccountToken": {"path": "token", "expirationSeconds": 3607}},
        {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
        {"downwardAPI": {"items": [{"path": "namespace", "fieldRef": {"fieldPath": "metadata.namespace"}}]}},
    ]
    pod = pod_with({}, volumes=[{"name": "access", "projected": {"sources": sources}}])
    given = {"images": images, "config_maps": config_maps, "host_ip": "127.0.0.1"}
    volume = asyncio.run(make_volumes(pod, tmp_path, tokens=tokens, **given))["access"]
    files = {file.name: file.read_text() for file in volume.path.iterdir()}
    assert files == {"token": "web for 3607 s", "ca.crt": "an authority", "namespace": "default"}
    with pytest.raises(ConfigurationError, match="source of"):
        asyncio.run(make_volumes(pod, tmp_path / "again", **given))
