"""One real Prometheus for all tests of the collectors."""

import shutil
from collections.abc import Iterator

import pytest
from tests.observed import NO_PROMETHEUS, Observed, observed

CLUSTERS = {
    "errors": 1,
    "vendors": 2,
    "units": 1,
    "death": 2,
    "own-times": 2,
    "vanished": 1,
    "repeats": 1,
    "hosts": 2,
    "health": 1,
    "sandbox": 2,
    "real": 2,
}
"""How many exporters each test has for itself."""


@pytest.fixture(scope="session")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Observed]:
    """The running server and its exporters."""
    if shutil.which("prometheus") is None:
        pytest.skip(NO_PROMETHEUS)
    with observed(tmp_path_factory.mktemp("prometheus"), CLUSTERS) as made:
        yield made
