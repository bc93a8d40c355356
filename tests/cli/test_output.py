"""Tables are plain where nobody looks, drawn on a terminal, and lose nothing either way."""

import contextlib
import io
import re

import pytest

from hcs.cli.output import Column, Table, say_styled, share_of, write_data, write_table

TABLE = Table(
    (Column("NODE"), Column("CARDS", right=True), Column("SOURCE"), Column("NOTE", wide=True, flexible=True)),
    [("a", "2", "measured", "x " * 60), ("long-name", "10", "derived", "")],
)


class Terminal(io.StringIO):
    """A stdout that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def written(stream: io.StringIO, **options: bool) -> str:
    with contextlib.redirect_stdout(stream):
        write_table(TABLE, **options)
    return stream.getvalue()


def test_a_pipe_gets_aligned_plain_text():
    assert written(io.StringIO()).splitlines() == [
        "NODE        CARDS   SOURCE",
        "a               2   measured",
        "long-name      10   derived",
    ]
    assert written(io.StringIO(), headers=False).startswith("a ")
    assert "x x x" in written(io.StringIO(), wide=True)


def test_a_terminal_gets_colour_that_only_repeats_the_words(monkeypatch):
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.delenv("NO_COLOR", raising=False)
    drawn = written(Terminal())
    assert "\x1b[32mmeasured" in drawn
    assert "\x1b[31mderived" in drawn
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[3" not in written(Terminal())


def test_a_terminal_wraps_only_what_may_wrap(monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setenv("TERM", "xterm-256color")
    lines = re.sub(r"\x1b\[[0-9;]*m", "", written(Terminal(), wide=True)).splitlines()
    assert all(len(line) <= 60 for line in lines)
    assert sum(line.startswith("a ") for line in lines) == 1
    assert len(lines) > 3


JOBS = Table(
    (
        Column("ID"),
        Column("NAME", least=8),
        Column("WHERE", least=12),
        Column("ENDS", right=True),
        Column("TRIES", right=True, wide=True),
        Column("REASON", wide=True, flexible=True),
    ),
    [("j0000001", "a-very-long-name-of-a-job", "hangzhou-campus/910B2", "in 5h20m", "1", "so it is " * 9)],
)


@pytest.mark.parametrize("columns", [30, 50, 80, 200])
def test_ids_and_numbers_stay_whole_on_any_terminal(monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("TERM", "xterm-256color")
    stream = Terminal()
    with contextlib.redirect_stdout(stream):
        write_table(JOBS, wide=True)
    lines = re.sub(r"\x1b\[[0-9;]*m", "", stream.getvalue()).splitlines()
    assert max(map(len, lines)) <= columns
    assert lines[0].startswith("ID        NAME")
    for whole in ("j0000001", "in 5h20m", " 1"):
        assert any(whole in line for line in lines[1:])
    assert "".join("".join(lines).split()).endswith("soitis" * 9)
    assert ("a-very-long-name-of-a-job" in stream.getvalue()) == (columns >= 80)


def test_styled_lines_are_plain_in_a_pipe(monkeypatch):
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    for stream, expected in ((io.StringIO(), "hello\n"), (Terminal(), "\x1b[1mhello\x1b[0m\n")):
        with contextlib.redirect_stdout(stream):
            say_styled([("hello", "bold")])
        assert stream.getvalue() == expected


@pytest.mark.parametrize(
    ("part", "whole", "expected"),
    [("40Gi", "80Gi", "40/80Gi"), ("512Mi", "80Gi", "512Mi/80Gi"), ("60", "200", "60/200"), ("0", "80Gi", "0/80Gi")],
)
def test_a_unit_is_said_once(part, whole, expected):
    assert share_of(part, whole) == expected


@pytest.mark.parametrize(
    ("format", "expected", "machine"),
    [
        ("line", '{"a":1}\n', True),
        ("json", '{\n  "a": 1\n}\n', True),
        ("yaml", "a: 1\n", True),
        ("name", "x\ny\n", True),
        ("table", "", False),
        ("wide", "", False),
    ],
)
def test_data_is_written_for_machines_or_left_to_a_table(capsys, format, expected, machine):
    assert write_data({"a": 1}, format, names=["x", "y"]) is machine
    assert capsys.readouterr().out == expected
