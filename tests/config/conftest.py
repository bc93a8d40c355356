"""The servers our manifests are applied to, each started once, when the first test asks for it."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.config.clusters import NO_REAL_SERVER, Cluster, manifests, real, real_binaries, sandbox

# It is our rules that shall hold these people back, not a missing permission.
PERMITTED = [
    {
        "kind": "ClusterRoleBinding",
        "metadata": {"name": f"{user}-may-do-everything"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"kind": "User", "name": name, "apiGroup": "rbac.authorization.k8s.io"}],
    }
    for user, name in (("alice", "alice"), ("stranger", "system:serviceaccount:default:hcs-router"))
]


@pytest.fixture(scope="session", params=["sandbox", pytest.param("real", marks=pytest.mark.real)])
def cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A server that has all of ``config/``."""
    folder = tmp_path_factory.mktemp(request.param)
    with ExitStack() as stack:
        if request.param == "sandbox":
            started = stack.enter_context(sandbox(folder))
        else:
            binaries = real_binaries()
            if binaries is None:
                pytest.skip(NO_REAL_SERVER)
            started = stack.enter_context(real(binaries, folder))
        started.apply([*manifests("namespace.yaml"), *manifests(), *PERMITTED])
        yield started


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep the tests that need a server on one worker, so that each server is started once."""
    for item in items:
        if "cluster" in getattr(item, "fixturenames", ()) and Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.xdist_group("clusters"))
