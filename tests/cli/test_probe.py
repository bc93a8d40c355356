"""``hcs probe parse`` prints one object for a machine, and a table for a person."""

import json
from pathlib import Path

import pytest
from tests.vendors import texts
from typer.testing import CliRunner

from hcs.cli.main import build
from hcs.vendors.parsing.report import FIELDS

RUNNER = CliRunner()


def probe(*arguments: str, input: str | bytes | None = None):
    return RUNNER.invoke(build(), ["probe", "parse", *arguments], prog_name="hcs", input=input)


def test_one_object_with_every_key(tmp_path: Path):
    file = tmp_path / "cnmon.txt"
    file.write_text(texts.CNMON)
    result = probe("--tool", "cnmon", str(file), "--json")
    assert result.exit_code == 0, result.stderr
    found = json.loads(result.stdout)
    assert list(found)[:7] == ["tool", "version", "driver", "devices", "gpus", "links", "numa"]
    assert (found["tool"], found["version"], found["driver"]) == ("cnmon", "6.2.10", "6.2.10")
    (device,) = found["devices"]
    assert tuple(device)[: len(FIELDS)] == FIELDS
    assert device["uuid"] is None
    assert (device["gpus"] if "gpus" in device else found["gpus"]) is None


def test_standard_input_and_the_command_line_of_the_tool():
    command = "--query-gpu=index,power.draw --format=csv,noheader,nounits"
    result = probe("--tool", "nvidia-smi", "--command", command, "-", "--json", input="3, 55.5\n")
    (device,) = json.loads(result.stdout)["devices"]
    assert (device["index"], device["power_w"]) == (3, 55.5)


def test_a_table_for_people():
    result = probe("--tool", "npu-smi", "-", input=texts.NPU_310P)
    assert result.stdout.splitlines() == [
        "INDEX   VENDOR   NAME    BUS ID                MIB   %    C   W   HEALTH",
        "    4   ascend   310P3   0000:81:00.0   1508/44280   9   51   -   OK",
        "    5   ascend   310P3   0000:81:00.0   1333/43693   0   48   -   OK",
    ]
    assert result.stderr == "npu-smi: version 23.0.7, driver 23.0.5\n"


def test_links_and_events_are_listed():
    links = probe("--tool", "nvidia-smi", "-", input=texts.TOPOLOGY)
    assert "GPU0   GPU1   NV4" in links.stdout.splitlines()
    events = probe("--tool", "kernel-log", "-", input=texts.KERNEL_LOG)
    assert "xid 79 at 0000:3b:00: GPU has fallen off the bus." in events.stdout.splitlines()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        pytest.param(("--tool", "brsmi", "-"), "error: no tool is called brsmi", id="unknown-tool"),
        pytest.param(("--tool", "cnmon", "/nowhere/x"), "error: /nowhere/x cannot be read", id="no-file"),
        pytest.param(("/nowhere/x",), "error: missing option '--tool'", id="no-tool"),
    ],
)
def test_mistakes_on_the_command_line_are_told_in_three_lines(arguments: tuple[str, ...], message: str):
    result = probe(*arguments, input="")
    assert result.exit_code == 2
    assert result.stderr.splitlines()[0] == message
    assert [line.split(":")[0].strip() for line in result.stderr.splitlines()] == ["error", "why", "try"]


def test_what_is_no_output_of_the_tool_is_said_and_no_error():
    result = probe("--tool", "cnmon", "-", "--json", input=b"\xff\xfe\x00garbage\x80")
    assert result.exit_code == 0
    assert json.loads(result.stdout)["devices"] == []
    assert result.stderr.startswith("nothing in it is known as output of cnmon")
