"""One event, one line, whatever is in it."""

import io
import logging
import sys
from collections.abc import Iterator

import msgspec
import pytest

from hcs.process import logs


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    root.handlers[:] = []
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


def written(monkeypatch: pytest.MonkeyPatch, level: str, *, terminal: bool = False) -> io.StringIO:
    stream = io.StringIO()
    monkeypatch.setattr(stream, "isatty", lambda: terminal, raising=False)
    monkeypatch.setattr(sys, "stderr", stream)
    logs.configure(level)
    return stream


def test_in_a_pod_each_event_is_one_json_line(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = written(monkeypatch, "info")
    logging.getLogger("hcs.test").info("pod refused: message=%s", "two\nlines")
    logging.getLogger("hcs.test").debug("not shown")
    [line] = stream.getvalue().splitlines()
    event = msgspec.json.decode(line)
    assert event.pop("time").endswith("Z")
    assert event == {"level": "info", "logger": "hcs.test", "message": "pod refused: message=two\nlines"}


def test_an_exception_stays_on_the_line_of_its_event(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = written(monkeypatch, "info")
    try:
        raise RuntimeError("gone")
    except RuntimeError:
        logging.getLogger("hcs.test").exception("watch failed")
    [line] = stream.getvalue().splitlines()
    assert "RuntimeError: gone" in msgspec.json.decode(line)["error"]


def test_on_a_terminal_it_is_plain_text(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = written(monkeypatch, "debug", terminal=True)
    logging.getLogger("hcs.test").debug("shown")
    assert stream.getvalue().rstrip().endswith("DEBUG   hcs.test: shown")


def test_libraries_that_log_every_request_are_quieted(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = written(monkeypatch, "info")
    logging.getLogger("httpx2").info("HTTP Request: GET")
    assert stream.getvalue() == ""
