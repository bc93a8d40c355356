"""The command line as a whole: its overview, its three-line errors, its exit codes, its two names, its two streams."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

import hcs
from hcs.cli.commands import COMMANDS, Registered
from hcs.cli.errors import CommandError
from hcs.cli.group import load
from hcs.cli.main import build

RUNNER = CliRunner()
SOURCE = str(Path(hcs.__file__).parent.parent)


def run(*arguments: str):
    return RUNNER.invoke(build(), arguments, prog_name="hcs")


def run_apart(*arguments: str, name: str = "hcs", **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the program in a process of its own, under the name given."""
    code = f"import sys; sys.argv = [{name!r}, *sys.argv[1:]]; from hcs.cli.main import main; main()"
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "PYTHONPATH": SOURCE, **environment},
        check=False,
    )


@pytest.mark.parametrize("arguments", [(), ("--help",), ("-h",)])
def test_the_overview_names_every_command_and_goes_to_stdout(arguments):
    result = run(*arguments)
    assert (result.exit_code, result.stderr) == (0, "")
    for command in COMMANDS:
        assert f"\n  {command.name} " in result.stdout
        assert command.summary in " ".join(result.stdout.split())


def test_the_overview_loads_no_command():
    code = (
        "import sys; from hcs.cli.main import build\n"
        "try: build()(args=['--help'])\n"
        "except SystemExit: pass\n"
        "loaded = {'numpy', 'lightkube', 'rich', 'uvicorn', 'yaml', 'hcs.cli.convert', 'hcs.ura'} & set(sys.modules)\n"
        "print(sorted(loaded), file=sys.stderr)"
    )
    result = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "PYTHONPATH": SOURCE},
        check=True,
    )
    assert result.stderr.strip() == "[]"


def test_the_version():
    assert run("--version").stdout == f"hcs {hcs.__version__}\n"


@pytest.mark.parametrize(
    ("arguments", "what", "usage"),
    [
        pytest.param(("conver",), "no such command 'conver'. Did you mean 'convert'?", "hcs --help", id="typo"),
        pytest.param(("--foo",), "no such option: --foo", "hcs --help", id="unknown-option"),
        pytest.param(("accept",), "missing argument", "hcs accept --help", id="missing-argument"),
        pytest.param(("convert", "T4", "-o", "xml"), "invalid value for '-o'", "hcs convert --help", id="bad-format"),
        pytest.param(("convert", "T4", "--workload", "x"), "invalid value", "hcs convert --help", id="bad-choice"),
    ],
)
def test_wrong_usage_ends_with_three_lines_and_code_2(arguments, what, usage):
    result = run(*arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    lines = result.stderr.splitlines()
    assert len(lines) == 3
    assert lines[0].startswith("error: ")
    assert what in lines[0]
    assert lines[1].startswith("  why:  usage is hcs")
    assert lines[2] == f"  try:  {usage}"


def test_a_group_without_its_command_shows_its_help():
    result = run("sandbox")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith("Usage: hcs sandbox [OPTIONS] COMMAND")
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)
def test_a_command_is_there_or_says_what_is_missing(command):
    try:
        said = load(command).name
    except CommandError as error:
        said = str(error)
    assert said == command.name or "is not installed" in said


def test_a_missing_module_is_told_only_when_its_command_is_called():
    missing = Registered("x", "hcs.cli.no_such_module", "", "sandbox")
    with pytest.raises(CommandError) as caught:
        load(missing)
    assert str(caught.value).splitlines() == [
        "error: hcs x is not available here",
        "  why:  module hcs.cli.no_such_module is not installed",
        "  try:  pip install 'hetero-compute-router[sandbox]'",
    ]


def test_kubectl_sees_its_own_words():
    result = run_apart("convert", "--help", name="/usr/local/bin/kubectl-hcs")
    assert result.stdout.startswith("Usage: kubectl hcs convert ")
    wrong = run_apart("nonsense", name="kubectl-hcs")
    assert (wrong.returncode, wrong.stderr.splitlines()[-1]) == (2, "  try:  kubectl hcs --help")


def test_data_goes_to_stdout_and_talk_to_stderr():
    """In a process of its own: only there are the streams what a shell sees."""
    result = run_apart("convert", "2 x 910B2", "--to", "A100-SXM4-80GB", "--workload", "decode", "--json")
    assert result.returncode == 0
    assert result.stdout.startswith("{")
    assert result.stdout.count("\n") == 1
    assert "warning: this figure is derived" in result.stderr
    failed = run_apart("convert", "nothing-like-it")
    assert (failed.returncode, failed.stdout) == (2, "")
    assert failed.stderr.startswith("error: no card 'nothing-like-it' is known\n  why:  ")


def test_a_reader_that_leaves_early_is_no_traceback():
    code = "from hcs.cli.main import main; main()"
    process = subprocess.Popen(
        [sys.executable, "-c", code, "convert", "100 ACU"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": SOURCE},
    )
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    talk = process.stderr.read().decode()
    process.stderr.close()
    process.wait(timeout=60)
    assert "Traceback" not in talk
    assert "Exception" not in talk


def test_completion_knows_the_commands():
    result = run_apart(
        _HCS_COMPLETE="complete_bash", COMP_WORDS="hcs con", COMP_CWORD="1", _TYPER_COMPLETE_ARGS="hcs con"
    )
    assert result.stdout.split() == ["convert"]
