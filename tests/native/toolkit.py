"""Builds and drives C programs against the emulated drivers, with or without the interceptor.

A ``Container`` is what the node prepares: a root with device nodes, a quota file, and the environment. A ``Probe`` is a
program in it that allocates as it is told, one line at a time.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

from hcs import native
from hcs.inject.quota_file import QuotaCard, QuotaFile, render
from hcs.native.ledger import Ledger, read_ledger
from hcs.vendors import emulated

REPOSITORY = Path(__file__).parents[2]
PROGRAMS = Path(__file__).parent / "programs"
INTERCEPTOR_SOURCES = [
    path
    for path in sorted((REPOSITORY / "native/interceptor").glob("*.c"))
    + sorted((REPOSITORY / "native/common").glob("*.c"))
    if path.stem != "audit" and not path.stem.startswith("hip")  # of the audit library
]

LIBRARIES = (
    "libhcs_interceptor.so",
    "libhcs_audit.so",
    "emulated/nvidia/libcuda.so.1",
    "emulated/nvidia/libcudart.so",
    "emulated/nvidia/libnvidia-ml.so.1",
    "emulated/ascend/libascendcl.so",
    "emulated/ascend/libruntime.so",
    "emulated/cambricon/libcndrv.so",
    "emulated/hygon/libamdhip64.so",
    "emulated/mthreads/libmusa.so",
)

MODELS = {
    "nvidia": "NVIDIA A100-SXM4-80GB",
    "ascend": "Ascend910B3",
    "cambricon": "MLU370-X8",
    "hygon": "Hygon K100",
    "mthreads": "MTT S4000",
}
NODES = {
    "nvidia": "nvidia",
    "ascend": "davinci",
    "cambricon": "cambricon_dev",
    "hygon": "emulated-hygon",
    "mthreads": "emulated-mthreads",
}

KI, MI, GI = 1 << 10, 1 << 20, 1 << 30
OUT_OF_MEMORY = 2
ACL_OUT_OF_MEMORY = 207001


def gpu_uuid(number: int) -> str:
    """The UUID of the number-th emulated NVIDIA card of a test."""
    return f"GPU-00000000-aaaa-4bbb-8ccc-{number:012x}"


def build_native() -> None:
    """Build the libraries into the package unless they are there and newer than every source.

    An installed package brings its own and is tested as it is; a package of another source tree is a mistake.
    """
    if native.LIBRARY_DIR.is_relative_to(sysconfig.get_path("platlib")):
        return
    own = REPOSITORY / "src/hcs/native/lib"
    assert own == native.LIBRARY_DIR, f"hcs is imported from {native.LIBRARY_DIR}, not from this tree; set PYTHONPATH"
    with (Path(tempfile.gettempdir()) / f"hcs-native-build-{os.getuid()}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # test workers start together
        libraries = [native.LIBRARY_DIR / name for name in LIBRARIES]
        sources = [
            path for path in (REPOSITORY / "native").rglob("*") if path.suffix in {".c", ".h", ".def", ".map", ".txt"}
        ]
        newest = max(path.stat().st_mtime for path in sources)
        if all(path.is_file() and path.stat().st_mtime >= newest for path in libraries):
            return
        cmake = _tool("cmake")
        with tempfile.TemporaryDirectory(prefix="hcs-native-") as build:
            _run([cmake, "-S", str(REPOSITORY), "-B", build, "-DCMAKE_BUILD_TYPE=Release"])
            _run([cmake, "--build", build, "--parallel", "2"])
        for path in libraries:  # an unchanged library is not linked again
            os.utime(path)


def compile_program(directory: Path, source: str, output: str, *flags: str) -> Path:
    """Compile one of the programs beside this file."""
    return compile_sources(directory, [PROGRAMS / source], output, *flags)


def compile_sources(directory: Path, sources: list[Path], output: str, *flags: str) -> Path:
    target = directory / output
    if not target.exists():
        common = ["-std=gnu17", "-Wall", "-Wextra", "-Werror", "-D_GNU_SOURCE"]
        _run(["cc", *common, *map(str, sources), "-o", str(target), *flags, "-ldl", "-pthread"])
    return target


def build_tool(*arguments: str) -> None:
    """Run CMake."""
    _run([_tool("cmake"), *arguments])


def _tool(name: str) -> str:
    beside = Path(sysconfig.get_path("scripts")) / name
    found = str(beside) if beside.exists() else shutil.which(name)
    assert found is not None, f"{name} is needed to build the C libraries; install it or the [dev] extra"
    return found


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}\n{done.stderr}"


class Container:
    """A container on an emulated node: its root, its cards and its quota file."""

    def __init__(self, directory: Path, vendor: str = "nvidia") -> None:
        self.directory = directory
        self.vendor = vendor
        self.root = directory / "root"
        self.dev = self.root / "dev"
        self.dev.mkdir(parents=True)
        self.quota_path = directory / "quota"
        self.ledger_path = directory / "ledger"
        self.cards: list[Path] = []
        self.intercepted = True
        self.interceptor = native.interceptor_path()
        self.variables: dict[str, str] = {}
        self.uuid: str | None = None  # of the next card, where a test wants a certain one

    def add_card(self, total: int = 16 * GI, node: int | None = None, context: int = 0) -> Path:
        """A new card, visible in the container as device node number ``node``."""
        number = len(self.cards)
        node = number if node is None else node
        path = self.directory / f"card-{number}"
        uuid = gpu_uuid(number) if self.vendor != "ascend" else f"ascend-card-{number}"
        if self.vendor == "cambricon":
            uuid = uuid.replace("GPU", "MLU")
        if self.vendor == "hygon":
            uuid = f"GPU-{number:016x}"  # HIP keeps 16 letters
        uuid = uuid if self.uuid is None else self.uuid
        emulated.create_card(
            path,
            vendor=self.vendor,
            model=MODELS[self.vendor],
            uuid=uuid,
            index=node,
            total_bytes=total,
            bus_id=f"00000000:{number + 0x3B:02X}:00.0",
            context_bytes=context,
        )
        self.cards.append(path)
        self.give(path, node)
        return path

    def give(self, card: Path, node: int) -> None:
        (self.dev / f"{NODES[self.vendor]}{node}").symlink_to(card)

    def limit(self, *quotas: int, context: int = 0, counter: int = 1, uuids: list[str] | None = None) -> None:
        """Write the quota file: one quota in bytes per card."""
        cards = []
        for number, quota in enumerate(quotas):
            card = emulated.read_card(self.cards[number])
            cards.append(
                QuotaCard(
                    vendor=self.vendor,
                    uuid=card.uuid if uuids is None else uuids[number],
                    quota_bytes=quota,
                    context_bytes=context,
                    physical_id=card.index if self.vendor == "ascend" else None,
                )
            )
        fresh = self.quota_path.with_name("quota.new")
        fresh.write_text(render(QuotaFile(cards=tuple(cards), counter=counter)))
        fresh.rename(self.quota_path)

    def environment(self) -> dict[str, str]:
        variables = {
            "PATH": os.environ["PATH"],
            "HCS_ROOT": str(self.root),
            "LD_LIBRARY_PATH": str(native.emulated_driver_dir(self.vendor)),
            "HCS_QUOTA_FILE": str(self.quota_path),
        }
        if self.intercepted and self.vendor == "hygon":
            variables["LD_AUDIT"] = str(native.audit_path())
        elif self.intercepted:
            variables["LD_PRELOAD"] = str(self.interceptor)
        return variables | self.variables

    def ledger(self) -> Ledger:
        return read_ledger(self.ledger_path)

    def used(self, card: int = 0) -> int:
        """Bytes the ledger says are in use on the card."""
        return self.ledger().cards[card].used_bytes

    def physically_used(self, card: int = 0) -> int:
        """Bytes the card itself says are in use."""
        return emulated.read_card(self.cards[card]).used_bytes

    def run(self, *command: str, seconds: float = 60, **variables: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command, env=self.environment() | variables, capture_output=True, text=True, check=False, timeout=seconds
        )


class Probe:
    """A running probe program; calling it sends one line and returns the numbers (or words) of the answer."""

    def __init__(self, container: Container, program: Path, *arguments: str, initialise: bool = True) -> None:
        self.process = subprocess.Popen(
            [str(program), *arguments],
            env=container.environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        if initialise:
            assert self("init") == [0]
            assert self("device 0") == [0]

    def send(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def receive(self) -> list[int]:
        return [int(word) for word in self.receive_text().split()]

    def receive_text(self) -> str:
        assert self.process.stdout is not None
        answer = self.process.stdout.readline()
        if not answer:
            assert self.process.stderr is not None
            raise AssertionError(f"the probe ended: {self.process.stderr.read()}")
        return answer.rstrip("\n")

    def __call__(self, line: str) -> list[int]:
        self.send(line)
        return self.receive()

    def code(self, line: str) -> int:
        """The driver's code for one command."""
        return self(line)[0]

    def kill(self, *, reap: bool = True) -> None:
        """SIGKILL; without reap the process stays a zombie until ``close``."""
        self.process.send_signal(signal.SIGKILL)
        if reap:
            self.process.wait(10)
        else:
            os.waitid(os.P_PID, self.process.pid, os.WEXITED | os.WNOWAIT)

    def close(self) -> str:
        """End it by closing its input; what it wrote to standard error."""
        _, errors = self.process.communicate(timeout=30)
        return errors


PYTHON = sys.executable
