"""Settings for all tests: hypothesis profiles, and skips that must be accounted for."""

import os
from collections.abc import Iterable
from pathlib import Path

import hypothesis
import pytest

hypothesis.settings.register_profile("default", max_examples=25, deadline=None)
hypothesis.settings.register_profile("nightly", max_examples=500, deadline=None)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))


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
