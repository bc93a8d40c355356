"""The Prometheus of the tests outlives nobody: not a run that ends, and not one that is killed."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.clusters import eventually
from tests.observed import NO_PROMETHEUS

PROGRAM = """
import contextlib, pathlib, shutil, sys, time
from tests.observed import serving
folder = pathlib.Path(sys.argv[1])
(folder / "prometheus.yml").write_text("global: {scrape_interval: 1s}")
with serving(shutil.which("prometheus"), folder) as (process, url):
    print(process.pid, flush=True)
    if sys.argv[2] == "stays":
        time.sleep(600)
"""


@pytest.mark.skipif(shutil.which("prometheus") is None, reason=NO_PROMETHEUS)
@pytest.mark.parametrize("way", ["ends", "stays"])
def test_it_ends_with_the_run(way: str, tmp_path: Path) -> None:
    root = Path(__file__).parents[1]
    command = [sys.executable, "-c", PROGRAM, str(tmp_path), way]
    environment = {"PATH": _path(), "PYTHONPATH": "src:."}
    with subprocess.Popen(command, cwd=root, stdout=subprocess.PIPE, env=environment) as run:
        assert run.stdout is not None
        prometheus = Path("/proc") / run.stdout.readline().decode().strip()
        if way == "stays":
            assert prometheus.exists()
            run.kill()
        eventually(lambda: not prometheus.exists())
        assert run.wait() == (-9 if way == "stays" else 0)


def _path() -> str:
    found = shutil.which("prometheus")
    assert found is not None
    return str(Path(found).parent)
