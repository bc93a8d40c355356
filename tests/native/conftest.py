"""Fixtures for tests of the C libraries: built libraries, compiled programs, containers."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.native.toolkit import PROGRAMS, Container, Probe, build_native, compile_program

from hcs import native

ROADS = {"direct": "a", "dlsym": "b", "lookup": "c"}

# What a probe speaks: the vendor whose emulated driver it needs, and the library of it.
RUNTIMES = {
    "cuda": ("nvidia", "libcuda.so.1"),
    "acl": ("ascend", "libascendcl.so"),
    "rt": ("ascend", "libruntime.so"),
    "cn": ("cambricon", "libcndrv.so"),
    "hip": ("hygon", "libamdhip64.so"),
    "musa": ("mthreads", "libmusa.so"),
}


@pytest.fixture(scope="session", autouse=True)
def _libraries() -> None:
    build_native()


@pytest.fixture(scope="session")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory of compiled programs that lasts as long as the session."""
    return tmp_path_factory.mktemp("programs")


def probe_of(directory: Path, runtime: str, road: str) -> Path:
    """The probe for a runtime and a road, compiled against the public interface alone."""
    vendor, library = RUNTIMES[runtime]
    header = directory / f"probe_{runtime}.h"
    if not header.exists():
        text = (PROGRAMS / ("probe_cuda.h" if runtime == "musa" else header.name)).read_text()
        if runtime == "musa":
            text = re.sub(r"(?<![A-Za-z])cu([A-Z])", r"mu\1", text).replace("libcuda.so.1", library)
        header.write_text(text)
    flags = [f"-DROAD='{ROADS[road]}'", f'-DRUNTIME="{header}"']
    if road == "direct":
        driver = native.emulated_driver_dir(vendor)
        flags += [str(driver / library), f"-Wl,-rpath-link,{driver}"]
    return compile_program(directory, "probe.c", f"probe-{runtime}-{road}", *flags)


def cuda_probe(directory: Path, road: str) -> Path:
    return probe_of(directory, "cuda", road)


def acl_probe(directory: Path, road: str) -> Path:
    return probe_of(directory, "acl", road)


@pytest.fixture(params=list(ROADS))
def every_road(request: pytest.FixtureRequest, programs: Path) -> Path:
    """The CUDA probe, once per road into the driver."""
    return cuda_probe(programs, request.param)


@pytest.fixture
def probe_program(programs: Path) -> Path:
    """The CUDA probe that finds the driver by dlopen and dlsym."""
    return cuda_probe(programs, "dlsym")


@pytest.fixture
def container(tmp_path: Path) -> Container:
    return Container(tmp_path)


@pytest.fixture
def start(container: Container) -> Iterator[Callable[..., Probe]]:
    """Starts probes and ends what is left of them."""
    probes: list[Probe] = []

    def starting(program: Path, *arguments: str, initialise: bool = True, within: Container | None = None) -> Probe:
        probes.append(Probe(within or container, program, *arguments, initialise=initialise))
        return probes[-1]

    yield starting
    for probe in probes:
        if probe.process.poll() is None:
            probe.process.kill()
        probe.process.communicate(timeout=60)
