"""Break the code on purpose, one place at a time; a named test must turn red each time.

A test that cannot fail proves nothing. The YAML files beside this one, one a subject, list the breaks: a file, the text
that stands there, what is put in its place, and the tests that must notice. Everything happens in a copy of the tracked
files; C code is built again where it was changed. Prints one line a mutant; exit 1 when one survives or no longer
applies.

    python tests/mutants/run.py [NAME …]
"""

import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
import venv
from pathlib import Path

import msgspec
import yaml

ROOT = Path(__file__).resolve().parents[2]
SECONDS = 300


class Mutant(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One break."""

    name: str
    file: str
    old: str
    new: str
    tests: list[str]


def main() -> int:
    """Run the mutants that were named, or all."""
    mutants = [
        mutant
        for file in sorted(Path(__file__).parent.glob("*.yaml"))
        for mutant in msgspec.convert(yaml.safe_load(file.read_text()), list[Mutant])
    ]
    wanted = set(sys.argv[1:])
    unknown = wanted - {mutant.name for mutant in mutants}
    if unknown:
        print(f"error: no mutant {', '.join(sorted(unknown))}", file=sys.stderr)
        return 2
    chosen = [mutant for mutant in mutants if not wanted or mutant.name in wanted]
    with tempfile.TemporaryDirectory(prefix="hcs-mutants-") as folder:
        copy = Path(folder)
        _copy_tracked(copy)
        _build(copy)
        _make_environment(copy)
        every = sorted({test for mutant in chosen for test in mutant.tests})
        if not _green(copy, every):
            print("error: the tests that should notice are red without any mutant", file=sys.stderr)
            return 1
        survivors = [mutant.name for mutant in chosen if not _killed(copy, mutant)]
    print(f"{len(chosen) - len(survivors)} of {len(chosen)} mutants noticed")
    return 1 if survivors else 0


def _killed(copy: Path, mutant: Mutant) -> bool:
    path = copy / mutant.file
    original = path.read_text()
    if original.count(mutant.old) != 1:
        print(f"STALE     {mutant.name}: its text stands {original.count(mutant.old)} times in {mutant.file}")
        return False
    begun = time.monotonic()
    path.write_text(original.replace(mutant.old, mutant.new))
    try:
        if mutant.file.startswith("native/"):
            _build(copy)
        killed = not _green(copy, mutant.tests)
    finally:
        path.write_text(original)
        if mutant.file.startswith("native/"):
            _build(copy)
    print(f"{'noticed ' if killed else 'SURVIVED'}  {mutant.name} ({time.monotonic() - begun:.1f} s)", flush=True)
    return killed


def _copy_tracked(copy: Path) -> None:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout
    for name in listed.decode().split("\0"):
        if name and (ROOT / name).is_file():
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, copy / name)


def _make_environment(copy: Path) -> None:
    """A virtual environment with our packages and the copy's ``hcs``.

    An editable install of this checkout would win over any search path; a path file that names the folder of packages
    brings the packages and not the install.
    """
    venv.create(copy / ".venv", with_pip=False, symlinks=True)
    (packages,) = (copy / ".venv" / "lib").glob("python3*/site-packages")
    (packages / "mutants.pth").write_text(f"{copy / 'src'}\n{sysconfig.get_path('purelib')}\n")


def _build(copy: Path) -> None:
    tools = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": tools}
    for command in (
        ["cmake", "-S", ".", "-B", "build/native", "-DCMAKE_BUILD_TYPE=Release"],
        ["cmake", "--build", "build/native"],
    ):
        subprocess.run(command, cwd=copy, env=environment, capture_output=True, check=True)


def _green(copy: Path, tests: list[str]) -> bool:
    """Whether the tests pass; a test that cannot be found or collected is an error, not a notice."""
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    command = [str(copy / ".venv" / "bin" / "python"), "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *tests]
    try:
        result = subprocess.run(command, cwd=copy, env=environment, capture_output=True, text=True, timeout=SECONDS)
    except subprocess.TimeoutExpired:
        return False
    if result.returncode not in (0, 1):
        raise SystemExit(f"pytest ended with {result.returncode}:\n{result.stdout[-3000:]}{result.stderr[-1000:]}")
    return result.returncode == 0


if __name__ == "__main__":
    sys.exit(main())
