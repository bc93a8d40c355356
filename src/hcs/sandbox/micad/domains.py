"""The emulated hypervisor: domains as processes of this machine, and the ``xl`` commands that change them.

A domain's process reads and writes two FIFOs which it keeps open both ways itself, so that it lives on when the daemon
dies, as a real guest does. The table of domains is a file, which the emulated ``xl`` reads.
"""

import contextlib
import os
import shlex
import signal
import subprocess
from pathlib import Path

import msgspec

KEYS = {
    "cpucapacity": ("sched-credit2", "-d {dom} -c {value}"),
    "cpuweight": ("sched-credit2", "-d {dom} -w {value}"),
    "cpu": ("vcpu-pin", "{dom} all {value}"),
    "vcpu": ("vcpu-set", "{dom} {value}"),
    "memory": ("mem-set", "{dom} {value}m"),
    "maxmemory": ("mem-max", "{dom} {value}m"),
}
"""Key of ``set`` → the ``xl`` command behind it."""


class Domain(msgspec.Struct):
    """One domain: its process (0 while it has none) and what the hypervisor was told. Memory is MiB."""

    name: str
    pid: int = 0
    cpus: str = ""
    vcpus: int = 1
    weight: int = 256
    cap: int = 0
    memory: int = 0
    maxmem: int = 0
    paused: bool = False


class Hypervisor:
    """Domains by name; everything it is told is recorded."""

    def __init__(self, directory: Path) -> None:
        """Prepare.

        Args:
            directory: where FIFOs, the table and the record of commands are kept.
        """
        self._directory = directory
        self.domains: dict[str, Domain] = {}
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        directory.mkdir(parents=True, exist_ok=True)

    def create(self, domain: Domain, firmware: str, boot_seconds: float) -> tuple[int, int]:
        """Run a domain's firmware, which says its first word after ``boot_seconds``.

        Returns:
            The daemon's ends of its channel: one to read what it says, one to write what it hears.

        Raises:
            OSError: the firmware cannot be executed.
        """
        if not os.access(firmware, os.X_OK):
            raise PermissionError(f"{firmware} cannot be executed, and an emulated guest is a program of this machine")
        fifos = [self._directory / f"{domain.name}.{end}" for end in ("in", "out")]
        for fifo in fifos:
            fifo.unlink(missing_ok=True)
            os.mkfifo(fifo, 0o600)
        hears, says = (os.open(fifo, os.O_RDWR | os.O_NONBLOCK) for fifo in fifos)
        reader = os.open(fifos[1], os.O_RDONLY | os.O_NONBLOCK)
        try:
            for end in (hears, says):
                os.set_blocking(end, True)
            process = subprocess.Popen(
                ["/bin/sh", "-c", 'sleep "$1"; exec "$0"', firmware, str(boot_seconds)],
                stdin=hears,
                stdout=says,
                stderr=says,
                start_new_session=True,
                cwd="/",
                env={"PATH": "/usr/local/bin:/usr/bin:/bin", "MICA_GUEST": domain.name},
            )
        except OSError:
            os.close(reader)
            raise
        finally:
            os.close(hears)
            os.close(says)
        writer = os.open(fifos[0], os.O_WRONLY | os.O_NONBLOCK)
        domain.pid = process.pid
        self._processes[domain.name], self.domains[domain.name] = process, domain
        self.record("xl", f"xl create -p {domain.name}-xen.cfg")
        self.record("xl", f"xl unpause {domain.name}")
        self._write()
        return reader, writer

    def ended(self, name: str) -> int | None:
        """The status with which a domain's process ended by itself; None while it runs or when there is none."""
        process = self._processes.get(name)
        return None if process is None else process.poll()

    def await_end(self, name: str) -> int:
        """The same, waiting for it: its channel has closed, so it is about to end."""
        process = self._processes.get(name)
        return 0 if process is None else process.wait()

    def destroy(self, name: str) -> None:
        """End a domain's process, and all it started."""
        process = self._processes.pop(name, None)
        if self.domains.pop(name, None) is None or process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        self.record("xl", f"xl destroy {name}")
        self._write()

    def set(self, name: str, key: str, value: str) -> bool:
        """Carry out one ``set``; the ``xl`` command behind it is recorded, also where it fails."""
        domain = self.domains.get(name)
        if key not in KEYS or domain is None:
            return False
        command, arguments = KEYS[key]
        self.record("xl", f"xl {command} {arguments.format(dom=name, value=value)}")
        try:
            if key == "cpu":
                domain.cpus = "" if value == "all" else value
                return self._write()
            number = int(value)
        except ValueError:
            return False
        least, most = {"cpuweight": (1, 65535), "cpucapacity": (0, 65535), "vcpu": (1, 4096)}.get(key, (1, 2**31))
        if not least <= number <= most or (key == "memory" and number > domain.maxmem > 0):
            return False
        field = {"cpuweight": "weight", "cpucapacity": "cap", "vcpu": "vcpus", "maxmemory": "maxmem"}.get(key, key)
        setattr(domain, field, number)
        return self._write()

    def record(self, what: str, text: str) -> None:
        """Append a line to the record of everything that was asked and done."""
        with open(self._directory / "record.log", "a") as file:
            file.write(f"{what} {text}\n")

    def _write(self) -> bool:
        partial = self._directory / "domains.json.new"
        partial.write_bytes(msgspec.json.encode(list(self.domains.values())))
        partial.replace(self._directory / "domains.json")
        return True


def recorded(directory: Path, what: str) -> list[str]:
    """Everything of one kind in the record, in order: ``request`` or ``xl``."""
    try:
        lines = (directory / "record.log").read_text().splitlines()
    except FileNotFoundError:
        return []
    return [line.removeprefix(f"{what} ") for line in lines if line.startswith(f"{what} ")]


def words_of(command: str) -> list[str]:
    """A recorded command as words."""
    return shlex.split(command)
