"""Fixtures for tests of the C libraries: built libraries, compiled programs, containers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.native.toolkit import Container, Probe, build_native, compile_program

from hcs import native

ROADS = {"direct": "a", "dlsym": "b", "cuGetProcAddress": "c"}


@pytest.fixture(scope="session", autouse=True)
def _libraries() -> None:
    build_native()


@pytest.fixture(scope="session")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory of compiled programs that lasts as long as the session."""
    return tmp_path_factory.mktemp("programs")


def cuda_probe(directory: Path, road: str) -> Path:
    flags = [f"-DROAD='{ROADS[road]}'"]
    if road == "direct":
        flags += [str(native.emulated_driver_dir("nvidia") / "libcuda.so.1")]
    return compile_program(directory, "probe.c", f"probe-{road}", *flags)


def acl_probe(directory: Path, road: str) -> Path:
    flags = [f"-DROAD='{ROADS[road]}'", "-DRUNTIME_ACL"]
    if road == "direct":
        flags += [str(native.emulated_driver_dir("ascend") / "libascendcl.so")]
    return compile_program(directory, "probe.c", f"acl-probe-{road}", *flags)


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
