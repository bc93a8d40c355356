"""Each extra stands alone: what it installs is enough for the programs it is for.

A dependency that only the tests or another extra bring would be noticed by the first person who installs less than all.
"""

import json
import os
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from hcs.cli.commands import COMMANDS
from hcs.cli.cpn import COMMANDS as CPN_COMMANDS

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

BEGINNING = """
import importlib, pkgutil, sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in absent:
            raise ModuleNotFoundError(f"{name} is not installed with this extra", name=name)
sys.meta_path.insert(0, Absent())
"""
IMPORT_ALL = """
for package in packages:
    module = importlib.import_module(package)
    for found in pkgutil.walk_packages(getattr(module, "__path__", ()), package + "."):
        if not found.name.endswith("__main__") and found.name not in elsewhere:
            importlib.import_module(found.name)
"""


def closure(dependencies: list[str]) -> set[str]:
    """The distributions that installing these brings, by canonical name."""
    found: set[tuple[str, str]] = set()
    waiting = [(Requirement(line), "") for line in dependencies]
    while waiting:
        requirement, extra = waiting.pop()
        name = canonicalize_name(requirement.name)
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": extra}):
            continue
        for wanted in {"", *requirement.extras}:
            if (name, wanted) not in found:
                found.add((name, wanted))
                waiting += [(Requirement(line), wanted) for line in metadata.requires(name) or ()]
    return {name for name, _ in found}


def alone(extra: str, program: str, **facts: list[str]) -> subprocess.CompletedProcess[str]:
    """Run a program that finds no more distributions than an extra declares; without an extra, the base install."""
    declared = PROJECT["dependencies"] + (PROJECT["optional-dependencies"][extra] if extra else [])
    present = closure(declared)
    absent = [
        module
        for module, sources in metadata.packages_distributions().items()
        if module != "hcs" and not any(canonicalize_name(source) in present for source in sources)
    ]
    assert "pytest" in absent
    given = "".join(f"{name} = {json.dumps(value)}\n" for name, value in {**facts, "absent": absent}.items())
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), *sys.path])}
    command = [sys.executable, "-c", given + BEGINNING + program]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=100)


@pytest.mark.parametrize(
    ("extra", "packages"),
    [
        pytest.param(
            "",
            [
                *("hcs.model", "hcs.ura", "hcs.placement", "hcs.inject", "hcs.health", "hcs.kube", "hcs.native"),
                *("hcs.process", "hcs.injector", "hcs.healer", "hcs.cli.main", "hcs.cli.convert", "hcs.cli.why"),
            ],
            id="base",
        ),
        pytest.param("agent", ["hcs.agent", "hcs.vendors"], id="agent"),
        pytest.param("router", ["hcs.router"], id="router"),
        pytest.param("rtos", ["hcs.rtos", "hcs.mica", "hcs.ocirt"], id="rtos"),
        pytest.param(
            "cpn",
            ["hcs.cpn", "hcs.store", "hcs.wide", "hcs.predict", "hcs.cli.cpn_train", "hcs.cli.cpn_history"],
            id="cpn",
        ),
        pytest.param("sandbox", ["hcs.sandbox", "hcs.cli"], id="sandbox"),
    ],
)
def test_an_extra_declares_what_its_programs_import(extra: str, packages: list[str]) -> None:
    # A command that says it needs another extra is loaded by nobody who lacks it.
    elsewhere = [command.module for command in (*COMMANDS, *CPN_COMMANDS) if command.extra not in ("", extra)]
    done = alone(extra, IMPORT_ALL, packages=packages, elsewhere=elsewhere)
    assert done.returncode == 0, done.stderr


def test_the_base_install_converts() -> None:
    program = "sys.argv = ['hcs', 'convert', '2 x 910B2', '--json']; from hcs.cli.main import main; main()"
    done = alone("", program)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)


def test_what_an_extra_does_not_declare_is_not_found() -> None:
    assert "jsonpatch is not installed with this extra" in alone("", "import jsonpatch").stderr
    assert alone("sandbox", "import jsonpatch").returncode == 0
