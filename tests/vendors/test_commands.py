"""Tools that hang, die or print nonsense hold nobody up, and leave nothing behind."""

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest
from tests.waiting import until

from hcs.vendors import commands
from hcs.vendors.base import VendorError, VendorHungError


def script(folder: Path, text: str) -> str:
    path = folder / "some-smi"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return False
    return state.rpartition(")")[2].split()[0] not in "ZX"


def test_what_a_tool_prints_is_given_whatever_its_exit_code(tmp_path: Path) -> None:
    assert commands.run([script(tmp_path, "echo a table; echo talk >&2; exit 3")]) == b"a table\n"


def test_tools_speak_english_and_get_no_input(tmp_path: Path) -> None:
    assert commands.run([script(tmp_path, 'echo "$LC_ALL"; cat')]) == b"C\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param("echo no driver >&2; exit 9", r"some-smi exited with 9: no driver", id="fails"),
        pytest.param("exit 1", r"some-smi exited with 1 and printed nothing", id="fails-silently"),
        pytest.param("kill -SEGV $$", r"some-smi died of signal 11", id="dies"),
    ],
)
def test_a_tool_that_fails_is_an_error_with_its_words(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(VendorError, match=message):
        commands.run([script(tmp_path, text)])


def test_a_tool_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(VendorError, match="cannot be started: No such file"):
        commands.run([str(tmp_path / "none")])


@pytest.mark.parametrize(
    "ending",
    [
        pytest.param("wait", id="the-tool-waits-for-its-child"),
        pytest.param("exit 0", id="the-child-keeps-the-output-open"),
        pytest.param("trap '' TERM INT; while :; do sleep 60; done", id="the-tool-ignores-signals"),
    ],
)
def test_a_tool_that_hangs_is_killed_with_all_its_children(tmp_path: Path, ending: str) -> None:
    children = tmp_path / "children"
    text = f"sleep 600 & echo $$ $! > {children}; {ending}"
    with pytest.raises(VendorHungError, match=r"some-smi has not ended within 0.3 s; it was killed"):
        commands.run([script(tmp_path, text)], limit=0.3)
    pids = [int(pid) for pid in children.read_text().split()]
    assert len(pids) == 2
    asyncio.run(until(lambda: not any(alive(pid) for pid in pids)))


def test_a_tool_that_never_stops_printing_is_stopped(tmp_path: Path) -> None:
    with pytest.raises(VendorHungError):
        commands.run([sys.executable, "-c", "while True: print('x' * 65536)"])


def test_no_pipe_is_left_open(tmp_path: Path) -> None:
    """In a process of its own, where nobody else opens and closes files."""
    told = subprocess.run(
        [sys.executable, "-c", COUNTING, script(tmp_path, "echo fine")], capture_output=True, text=True, check=True
    )
    before, after = told.stdout.split()
    assert before == after


COUNTING = """
import os, sys
from hcs.vendors import commands
commands.run([sys.argv[1]])
print(len(os.listdir("/proc/self/fd")))
for _ in range(5):
    commands.run([sys.argv[1]])
print(len(os.listdir("/proc/self/fd")))
"""
