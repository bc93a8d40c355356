"""The servers our manifests are applied to."""

from collections.abc import Iterator

import pytest
from tests.clusters import Cluster, sandbox
from tests.config.configured import RIGHTS, manifests


@pytest.fixture(
    scope="session",
    params=[
        pytest.param("sandbox", marks=pytest.mark.xdist_group("config")),
        pytest.param("real", marks=pytest.mark.real),
    ],
)
def cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A server that has all of ``config/``; the tests on each stay on one worker, so that it is applied once."""
    if request.param == "real":
        yield furnished(request.getfixturevalue("real_cluster"))
        return
    with sandbox(tmp_path_factory.mktemp("sandbox")) as started:
        yield furnished(started)


def furnished(cluster: Cluster) -> Cluster:
    cluster.apply([*manifests("namespace.yaml"), *manifests(), *manifests(*RIGHTS)])
    return cluster
