"""The node's configuration and facts, read where they are: configuration files, and ``xl`` on Xen."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from hcs.mica.client import Limits, Mica
from hcs.mica.messages import layout_named
from hcs.model.refusals import Refusal, RefusedError
from hcs.rtos.configuration import Config, read_config_text
from hcs.rtos.cpusets import parse_cpuset
from hcs.rtos.hosts import XEN, Host

FILE_VARIABLE: Final = "MICRUN_CONF_FILE"
FOLDER_VARIABLE: Final = "MICRUN_CONF_DIR"
FOLDER: Final = Path("/etc/mica/micrun/conf.d")
FILE: Final = Path("/etc/mica/micrun/micrun.conf")


def load_config(environment: Mapping[str, str] = os.environ, root: Path = Path("/")) -> Config:
    """Read the configuration from the first place that has one; the files of a folder add up, in the order of names.

    Args:
        environment: may name the place.
        root: where the host's file tree is seen, for the places that nobody names.

    Raises:
        RefusedError: a file that was named is not there, or cannot be read.
    """
    if named := environment.get(FILE_VARIABLE):
        files = [Path(named)]
    elif folder := environment.get(FOLDER_VARIABLE):
        files = _files(Path(folder))
    else:
        own = root / FILE.relative_to("/")
        files = _files(root / FOLDER.relative_to("/")) or [file for file in (own,) if file.is_file()]
    config = Config()
    for file in files:
        try:
            config = read_config_text(file.read_text(), config, name=str(file))
        except (OSError, UnicodeDecodeError) as error:
            raise RefusedError(Refusal("UnreadableConfig", f"{file}: {error}")) from error
    return config


def client_of(config: Config) -> Mica:
    """The client of the node's daemon."""
    return Mica(
        config.mica_directory,
        limits=Limits(config.mica_timeout, config.mica_start_timeout),
        layout=layout_named(config.mica_layout),
    )


def host_of(config: Config) -> Host:
    """What is known of this machine: the configuration's word, and what ``xl info`` says where that is silent."""
    pedestal = config.pedestal.lower() or XEN
    pcpus, total = config.pcpus, config.total_memory_mb
    if pedestal == XEN and not (pcpus and total):
        facts = Xl(config.xl).info()
        pcpus, total = pcpus or facts.get("nr_cpus", 0), total or facts.get("total_memory", 0)
    return Host(pcpus, total, pedestal, parse_cpuset(config.dom0_cpus))


class DomainUse(msgspec.Struct, frozen=True):
    """One domain as ``xl list`` shows it: seconds of CPU it has used so far, and its memory in MiB."""

    name: str
    seconds: float
    memory_mb: int
    vcpus: int


class XlError(Exception):
    """``xl`` is not there or said no."""


class Xl:
    """The hypervisor's own tool, for what micad has no word for."""

    def __init__(self, program: str) -> None:
        """Prepare; nothing is run.

        Args:
            program: its name or path.
        """
        self._program = program

    def pause(self, domain: str) -> None:
        """Hold a domain's vCPUs.

        Raises:
            XlError: it did not work.
        """
        self._run("pause", domain)

    def unpause(self, domain: str) -> None:
        """Let them go on.

        Raises:
            XlError: it did not work.
        """
        self._run("unpause", domain)

    def list(self) -> dict[str, DomainUse]:
        """All domains by name.

        Raises:
            XlError: it did not work.
        """
        found = {}
        for line in self._run("list").splitlines()[1:]:
            words = line.split()
            if len(words) == 6:
                name, _, memory, vcpus, _, seconds = words
                found[name] = DomainUse(name, float(seconds), int(memory), int(vcpus))
        return found

    def info(self) -> dict[str, int]:
        """The numbers ``xl info`` shows; nothing where it does not run."""
        try:
            lines = self._run("info").splitlines()
        except XlError:
            return {}
        pairs = (line.partition(":") for line in lines)
        return {key.strip(): int(value) for key, _, value in pairs if value.strip().isdecimal()}

    def _run(self, *arguments: str) -> str:
        import subprocess  # here, because it costs every command time, and few need it

        try:
            done = subprocess.run(
                [self._program, *arguments], capture_output=True, text=True, timeout=10, stdin=subprocess.DEVNULL
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise XlError(f"{self._program} {' '.join(arguments)}: {error}") from error
        if done.returncode:
            raise XlError(f"{self._program} {' '.join(arguments)}: {done.stderr.strip()[:200] or done.returncode}")
        return done.stdout


def _files(folder: Path) -> list[Path]:
    try:
        return sorted(file for file in folder.iterdir() if file.is_file() and not file.name.startswith("."))
    except OSError:
        return []
