"""A skip that nobody allowed turns the run red, on however many workers it runs."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
ALLOWED = "import pytest\n@pytest.mark.skip('no moon tonight')\ndef test_it(): ...\n"
FORBIDDEN = "import pytest\ndef test_it(): pytest.skip('felt like it')\n"
FILE = "import pytest\npytest.skip('not today', allow_module_level=True)\n"
PASSES = "def test_it(): ...\n"


def outcome(folder: Path, workers: int, **files: str) -> tuple[int, str]:
    """Exit status and output of a run over some files; ``no moon`` is an allowed reason."""
    (folder / "allowed").write_text("# why\n\nno moon\n")
    for name, content in files.items():
        (folder / f"test_{name}.py").write_text(content)
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PYTEST_")}
    environment |= {
        "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path]),
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        "HCS_ALLOWED_SKIPS": str(folder / "allowed"),
    }
    plugins = ("-p", "xdist.plugin", "-p", "tests.skips", "-p", "no:cacheprovider")
    command = [sys.executable, "-m", "pytest", *plugins, "-n", str(workers), str(folder)]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=100)
    return done.returncode, done.stdout


def test_an_allowed_skip_does_no_harm(tmp_path: Path) -> None:
    code, output = outcome(tmp_path, 1, allowed=ALLOWED, passes=PASSES)
    assert "1 passed, 1 skipped" in output
    assert code == 0


@pytest.mark.parametrize("workers", [0, 1], ids=["in-place", "on-a-worker"])
def test_a_skip_needs_permission(tmp_path: Path, workers: int) -> None:
    code, output = outcome(tmp_path, workers, allowed=ALLOWED, passes=PASSES, wilful=FORBIDDEN)
    assert output.count("without permission") == 1
    assert "skipped without permission: test_wilful.py::test_it: felt like it" in output
    assert code == 1


def test_a_whole_file_is_not_skipped_in_silence(tmp_path: Path) -> None:
    code, output = outcome(tmp_path, 1, passes=PASSES, file=FILE)
    assert "skipped without permission: not today" in output
    assert code not in (0, 5)
