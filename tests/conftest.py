"""Settings for all tests: hypothesis profiles, one real API server, and skips that must be accounted for."""

import os
from collections.abc import Iterator

import hypothesis
import pytest
from tests.clusters import NO_REAL_SERVER, Cluster, real, real_binaries
from tests.skips import pytest_make_collect_report, pytest_sessionfinish, pytest_terminal_summary  # noqa: F401 - hooks

# Time decides no test: a busy machine must not fail one. The same examples every time, so that a red run is the
# change's own doing; the nightly run looks for new ones.
SLOW = [hypothesis.HealthCheck.too_slow]
hypothesis.settings.register_profile(
    "default", max_examples=25, deadline=None, derandomize=True, database=None, suppress_health_check=SLOW
)
hypothesis.settings.register_profile("nightly", max_examples=500, deadline=None, suppress_health_check=SLOW)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))


@pytest.fixture(scope="session")
def real_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A real API server, one for all tests of a run."""
    binaries = real_binaries()
    if binaries is None:
        pytest.skip(NO_REAL_SERVER)
    with real(binaries, tmp_path_factory.mktemp("real")) as cluster:
        yield cluster


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep the tests on the one real API server on one worker; before xdist looks for groups."""
    for item in items:
        if item.get_closest_marker("real") is not None and item.get_closest_marker("xdist_group") is None:
            item.add_marker(pytest.mark.xdist_group("real"))
