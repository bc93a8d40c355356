"""Settings for all tests: hypothesis profiles, and skips that must be accounted for."""

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

import hypothesis
import pytest
from tests.clusters import NO_REAL_SERVER, Cluster, real, real_binaries

hypothesis.settings.register_profile("default", max_examples=25, deadline=None)
hypothesis.settings.register_profile("nightly", max_examples=500, deadline=None)
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
    """Keep the tests that need real Kubernetes on one worker; before xdist looks for groups."""
    for item in items:
        if item.get_closest_marker("real") is not None:
            item.add_marker(pytest.mark.xdist_group("real"))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Name each skip that the allow-list does not know; only where ``HCS_ALLOWED_SKIPS`` names such a list."""
    for line in _unexpected(terminalreporter):
        terminalreporter.write_line(f"skipped without permission: {line}", red=True)


def pytest_sessionfinish(session: pytest.Session) -> None:
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if reporter is not None and session.exitstatus == 0 and any(True for _ in _unexpected(reporter)):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def _unexpected(reporter: pytest.TerminalReporter) -> Iterable[str]:
    path = os.environ.get("HCS_ALLOWED_SKIPS")
    if path is None:
        return
    allowed = [line for line in Path(path).read_text().splitlines() if line and not line.startswith("#")]
    for report in reporter.stats.get("skipped", []):
        reason = str(report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr)
        reason = reason.removeprefix("Skipped: ")
        if not any(reason.startswith(beginning) for beginning in allowed):
            yield f"{report.nodeid}: {reason}"
