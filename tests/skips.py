"""A pytest plugin: a skipped test needs permission, for skipped is not passed.

Where ``HCS_ALLOWED_SKIPS`` names a file, each of its lines is the beginning of a reason that is allowed. Any other skip
is named at the end and fails the run, with and without xdist.
"""

import os
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Name each skip without permission."""
    for line in _unexpected(terminalreporter):
        terminalreporter.write_line(f"skipped without permission: {line}", red=True)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail a run that would have passed."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if reporter is not None and session.exitstatus == 0 and any(True for _ in _unexpected(reporter)):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """A file that is skipped as a whole is an error: xdist would not tell of it at all."""
    report = yield
    if report.skipped and (reason := _refused(report)):
        report.outcome, report.longrepr = "failed", f"skipped without permission: {reason}"
    return report


def _unexpected(reporter: pytest.TerminalReporter) -> Iterator[str]:
    for report in reporter.stats.get("skipped", []):
        if reason := _refused(report):
            yield f"{report.nodeid}: {reason}"


def _refused(report: pytest.TestReport | pytest.CollectReport) -> str:
    """The reason of a skip that is not allowed; empty for one that is."""
    path = os.environ.get("HCS_ALLOWED_SKIPS")
    if path is None:
        return ""
    reason = str(report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr)
    reason = reason.removeprefix("Skipped: ") or "for no reason"
    allowed = [line for line in Path(path).read_text().splitlines() if line and not line.startswith("#")]
    return "" if reason.startswith(tuple(allowed)) else reason
