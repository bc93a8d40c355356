"""``hcs cpn blobs`` where it cannot begin: a sentence, a code, and no traceback."""

import fcntl
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from hcs.cli.errors import USAGE
from hcs.cli.main import build


def begun(*arguments: str) -> Any:
    return CliRunner().invoke(build(), ["cpn", "blobs", *arguments], prog_name="hcs")


def a_file_in_its_place(folder: Path) -> None:
    (folder / "blobs").write_text("no folder")


def no_more_than_a_name(folder: Path) -> None:
    """Everything is as it should be there."""


@pytest.mark.parametrize(
    ("prepare", "more", "words"),
    [
        pytest.param(a_file_in_its_place, [], "File exists", id="directory"),
        pytest.param(no_more_than_a_name, ["--source", "ftp://x"], "BadSource: 'ftp://x' is no http", id="source"),
        pytest.param(no_more_than_a_name, ["--limit", "5x"], "write it like 512Mi or 16Gi", id="limit"),
        pytest.param(no_more_than_a_name, ["--host", "0.0.0.0"], "TokenRequired", id="open-to-all"),
    ],
)
def test_what_is_wrong_is_said(tmp_path: Path, prepare: Callable[[Path], None], more: list[str], words: str) -> None:
    prepare(tmp_path)
    result = begun("--directory", str(tmp_path), "--port", "0", *more)
    assert result.exit_code == USAGE, result.output
    assert words in result.stderr


def test_a_port_that_is_taken_is_said(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        result = begun("--directory", str(tmp_path), "--port", str(taken.getsockname()[1]))
    assert result.exit_code == USAGE, result.output
    assert "Address already in use" in result.stderr


def test_a_directory_has_one_store(tmp_path: Path) -> None:
    """Two would write the same parts, and neither would know what the other keeps."""
    with (tmp_path / "lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        result = begun("--directory", str(tmp_path), "--source", "ftp://never-serves")
    assert result.exit_code == USAGE, result.output
    assert f"StoreInUse: another store keeps its bytes in {tmp_path}" in result.stderr
