"""The machine room of :mod:`tests.cli.room` behind a real API server, once for all tests."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.cli.room import Hcs, furnish

from hcs.cli.cluster import Cluster, read_cluster
from hcs.sandbox.apiserver.server import Settings, running


@pytest.fixture(scope="session")
def room(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The kubeconfig of a room that nobody changes."""
    folder = tmp_path_factory.mktemp("room")
    with running(Settings(data=folder / "data")) as server:
        kubeconfig = folder / "kubeconfig"
        kubeconfig.write_text(server.kubeconfig("admin-token"))
        asyncio.run(furnish(str(kubeconfig)))
        yield kubeconfig


@pytest.fixture(scope="session")
def cluster(room: Path) -> Cluster:
    """The room, read once."""
    return read_cluster(str(room), None)


@pytest.fixture
def on_room(room: Path) -> Hcs:
    """Commands on the room."""
    return Hcs(room)


@pytest.fixture
def write(tmp_path: Path) -> Any:
    """Write a manifest to a file; its path."""

    def written(*documents: Any) -> str:
        path = tmp_path / "manifest.yaml"
        path.write_text(yaml.safe_dump_all(documents))
        return str(path)

    return written
