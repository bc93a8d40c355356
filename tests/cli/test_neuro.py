"""``hcs neuro``: boards and placements tried out, files checked, and a running plugin looked at."""

import json
import xml.etree.ElementTree as Xml
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from tests.clusters import eventually
from tests.config.configured import InThread
from tests.neuro.boards import board as made_board
from typer.testing import CliRunner

from hcs.cli.main import build
from hcs.neuroplugin.node import NeuroNode
from hcs.neuroplugin.settings import Settings
from hcs.process.serving import Endpoint, serve
from hcs.vendors.emulated_board import EmulatedBoard

RUNNER = CliRunner()
EXAMPLES = Path(__file__).parents[2] / "examples" / "snn"


def neuro(*arguments: str, **env: str) -> Any:
    return RUNNER.invoke(build(), ["neuro", *arguments], prog_name="hcs", env={"COLUMNS": "80", **env})


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A plugin that serves HTTP, with an app installed for tenant lab."""
    ready = tmp_path_factory.mktemp("neuro") / "ready.json"
    node = NeuroNode({"b0": EmulatedBoard(made_board(width=12, height=12))}, Settings(resources=()), directory=None)
    running = InThread(lambda: serve(node.app, Endpoint(), ready=ready))
    eventually(ready.exists)
    url = json.loads(ready.read_text())["url"]
    package = (EXAMPLES / "package.json").read_bytes()
    httpx2.post(f"{url}/v1/tenants/lab/apps", content=package).raise_for_status()
    httpx2.post(f"{url}/v1/tenants/lab/tasks", json={"app": "echo", "model": "chain"}).raise_for_status()
    yield url
    running.stop()


def test_known_boards_are_listed_and_shown() -> None:
    assert "darwin3" in neuro("board").stdout
    shown = neuro("board", "darwin3")
    assert shown.exit_code == 0
    assert "575 live of 576" in shown.stdout
    assert max(map(len, shown.stdout.splitlines())) <= 80
    facts = json.loads(neuro("board", "8x4", "--dead", "1,1", "--json").stdout)
    assert facts[0]["live"] == 31
    assert facts[0]["maximalRectangles"] == [[0, 0, 8, 4]]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["board", "darwn3"], "did you mean darwin3?"),
        (["board", "0x4"], "below 1"),
        (["board", "8x8", "--dead", "9,9"], "has no core (9,9)"),
        (["board", "8x8", "--dead", "x"], "column,row"),
        (["board", "/nowhere/lab.yaml"], "cannot read"),
        (["place", "2x2", "--dead-share", "1.5"], "out of range"),
        (["place", "2x2", "3x3", "--release", "nobody"], "no rectangle is called nobody"),
        (["lease", "10"], "whose lease?"),
        (["check", "/nowhere"], "cannot read"),
        (["tasks", "--server", "http://127.0.0.1:1"], "no neuromorphic plugin to ask"),
    ],
)
def test_mistakes_get_three_lines(arguments: list[str], sentence: str) -> None:
    found = neuro(*arguments)
    assert found.exit_code in (1, 2)
    assert sentence in found.stderr
    assert found.stderr.startswith("error: ")


def test_rectangles_are_placed_and_drawn(tmp_path: Path) -> None:
    svg = tmp_path / "board.svg"
    found = neuro("place", "a=10x10", "8x6", "--board", "12x16", "--svg", str(svg))
    assert found.exit_code == 0
    assert "a       10x10  10x10 at" in found.stdout
    assert "44 of 192 cores free" in found.stdout
    Xml.fromstring(svg.read_text())


def test_what_does_not_fit_is_said_and_moving_makes_room() -> None:
    story = ["place", "a=3x8", "b=2x8", "c=5x8", "--board", "8x8", "--no-rotation", "--release", "a"]
    found = neuro("place", "9x9", "0x1", "--board", "8x8")
    assert found.exit_code == 1
    assert "largest rectangle that fits is 8x8" in found.stdout
    assert "below 1" in found.stdout
    alone, moved = neuro(*story), neuro(*story, "--migrate")
    assert moved.exit_code == 0
    assert alone.exit_code == 0 or "after 1 moves of 16 cores" in moved.stdout


def test_files_are_checked_offline(tmp_path: Path) -> None:
    pod = neuro("check", str(EXAMPLES / "01-pod.yaml"), "--domain", "snn.vendor.com")
    assert pod.exit_code == 0
    assert "container main asks for 150 KSPS, 2 streams" in pod.stdout
    for name in ("02-neural-task.yaml", "package.json", "boards.yaml"):
        assert neuro("check", str(EXAMPLES / name)).exit_code == 0
    wrong = tmp_path / "wrong.yaml"
    field = "env: [{name: A, valueFrom: {resourceFieldRef: {resource: limits.snn.vendor.com/ksps}}}]\n      resources:"
    wrong.write_text((EXAMPLES / "01-pod.yaml").read_text().replace("resources:", field))
    found = neuro("check", str(wrong), "--domain", "snn.vendor.com")
    assert found.exit_code == 1
    assert "FieldRefNotAllowed" in found.stdout
    assert "read SNN_KSPS_ALLOCATED" in found.stdout


def test_leases_and_tasks_of_a_running_plugin(server: str, tmp_path: Path) -> None:
    assert "lease 1 of lab: 5x2" in neuro("lease", "10", "-t", "lab", "--server", server).stdout
    assert "lab" in neuro("lease", HCS_NEURO=server).stdout
    listed = neuro("tasks", "-t", "lab", HCS_NEURO=server)
    assert "chain" in listed.stdout
    assert "Ready" in listed.stdout
    svg = tmp_path / "top.svg"
    top = neuro("top", "--once", "--svg", str(svg), HCS_NEURO=server)
    assert "(emulated)" in top.stdout
    assert "14/144 cores" in top.stdout
    Xml.fromstring(svg.read_text())
    refused = neuro("lease", "--end", "7", "-t", "lab", HCS_NEURO=server)
    assert refused.exit_code == 1
    assert "you have no lease 7" in refused.stderr
    assert neuro("lease", "--end", "1", "-t", "lab", HCS_NEURO=server).exit_code == 0
