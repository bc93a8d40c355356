"""The servers our manifests are applied to, each started once, when the first test asks for it."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from tests.config.clusters import NO_REAL_SERVER, Cluster, manifests, real, real_binaries, sandbox


@pytest.fixture(scope="session")
def clusters(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Cluster]]:
    started: dict[str, Cluster] = {}
    with ExitStack() as stack:

        def start(kind: str) -> Cluster:
            if kind not in started:
                binaries = real_binaries()
                if kind == "real" and binaries is None:
                    pytest.skip(NO_REAL_SERVER)
                folder = tmp_path_factory.mktemp(kind)
                starting = real(binaries, folder) if kind == "real" and binaries else sandbox(folder)
                started[kind] = stack.enter_context(starting)
                started[kind].apply(manifests("namespace.yaml"))
                started[kind].apply(manifests())
                # So that it is our rules which hold a person back, not a missing permission.
                started[kind].apply(
                    [
                        {
                            "kind": "ClusterRoleBinding",
                            "metadata": {"name": f"{user}-may-do-everything"},
                            "roleRef": {
                                "apiGroup": "rbac.authorization.k8s.io",
                                "kind": "ClusterRole",
                                "name": "cluster-admin",
                            },
                            "subjects": [{"kind": "User", "name": name, "apiGroup": "rbac.authorization.k8s.io"}],
                        }
                        for user, name in (
                            ("alice", "alice"),
                            ("stranger", "system:serviceaccount:default:hcs-router"),
                        )
                    ]
                )
            return started[kind]

        yield start


@pytest.fixture(params=["sandbox", pytest.param("real", marks=pytest.mark.real)])
def cluster(request: pytest.FixtureRequest, clusters: Callable[[str], Cluster]) -> Cluster:
    """A server that has all of ``config/``."""
    return clusters(request.param)
