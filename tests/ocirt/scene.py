"""A bundle, an emulated micad, and ``hcs-rtos`` run as its callers run it: as a program."""

import array
import contextlib
import io
import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.sandbox.micad.emulator import ECHO, Micad, until

from hcs.ocirt.main import main

PREFIX = "org.openeuler.micrun."


class Scene:
    """Everything under one directory."""

    def __init__(self, home: Path, micad: Micad, **config: Any) -> None:
        self.home, self.micad = home, micad
        self.root = home / "state"
        self.config = home / "micrun.conf"
        facts = {"pcpus": 4, "total_memory_mb": 2048, "mica_timeout": 5, "daemon_grace": 0, **config}
        lines = [
            f'mica_directory = "{micad.sockets}"',
            *(f"{key} = {json.dumps(value)}" for key, value in facts.items()),
        ]
        self.config.write_text("\n".join(lines))
        self.processes: list[subprocess.Popen[bytes]] = []

    def bundle(
        self,
        name: str = "bundle",
        *,
        resources: dict[str, Any] | None = None,
        annotations: dict[str, str] | None = None,
        terminal: bool = False,
        firmware: str = ECHO,
        **more: Any,
    ) -> Path:
        """A bundle with firmware and kernel image; annotations without their prefix get it."""
        path = self.home / name
        rootfs = path / "rootfs"
        rootfs.mkdir(parents=True, exist_ok=True)
        (rootfs / "firmware.elf").write_text(firmware)
        (rootfs / "firmware.elf").chmod(0o755)
        (rootfs / "image.bin").write_text("kernel")
        full = {key if "/" in key else PREFIX + key: value for key, value in (annotations or {}).items()}
        config = {
            "ociVersion": "1.0.2",
            "process": {"terminal": terminal, "cwd": "/", "args": ["ignored"]},
            "root": {"path": "rootfs"},
            "annotations": full,
            "linux": {"resources": resources or {}, **more.pop("linux", {})},
            **more,
        }
        (path / "config.json").write_text(json.dumps(config))
        return path

    def run(self, *arguments: str, check: bool = True, input: str = "") -> subprocess.CompletedProcess[str]:
        """Run one command of ``hcs-rtos``: ``create``, which makes a process, as a program, and all others in place."""
        log = self.home / "log.json"
        command = ["--root", str(self.root), "--log", str(log), "--log-format", "json", *arguments]
        if arguments[0] != "create":
            done = self._in_place(command, input)
        else:
            done = subprocess.run(
                [*self.program(), *command],
                env={**os.environ, "MICRUN_CONF_FILE": str(self.config)},
                capture_output=True,
                text=True,
                timeout=60,
            )
        if check:
            assert done.returncode == 0, done.stderr
        return done

    def _in_place(self, command: list[str], input: str) -> subprocess.CompletedProcess[str]:
        said, told = io.StringIO(), io.StringIO()
        before, sys.stdin = sys.stdin, io.TextIOWrapper(io.BytesIO(input.encode()))
        os.environ["MICRUN_CONF_FILE"] = str(self.config)
        try:
            with contextlib.redirect_stdout(said), contextlib.redirect_stderr(told):
                code = main(command)
        finally:
            sys.stdin = before
            del os.environ["MICRUN_CONF_FILE"]
        return subprocess.CompletedProcess(command, code, said.getvalue(), told.getvalue())

    def program(self) -> list[str]:
        """How ``hcs-rtos`` is called."""
        return [sys.executable, "-m", "hcs.ocirt.main"]

    def create(self, container: str, bundle: Path, *more: str, stdin: Any = subprocess.DEVNULL) -> Path:
        """Create a container with its output in a file, as the child of nobody."""
        out = self.home / f"{container}.out"
        log = ["--log", str(self.home / "log.json"), "--log-format", "json"]
        with open(out, "wb") as file:
            done = subprocess.run(
                [*self.program(), "--root", str(self.root), *log, "create", "--bundle", str(bundle), *more, container],
                env={**os.environ, "MICRUN_CONF_FILE": str(self.config)},
                stdin=stdin,
                stdout=file,
                stderr=file,
                timeout=60,
            )
        assert done.returncode == 0, out.read_text()
        return out

    def state(self, container: str) -> dict[str, Any]:
        """OCI's state."""
        found: dict[str, Any] = json.loads(self.run("state", container).stdout)
        return found

    def record(self, container: str) -> dict[str, Any]:
        """What is on disk."""
        found: dict[str, Any] = json.loads((self.root / container / "state.json").read_text())
        return found

    def until(self, container: str, status: str) -> None:
        """Wait for a status."""
        until(lambda: self.state(container)["status"] == status)

    def left(self) -> list[str]:
        """Containers that are on disk."""
        return sorted(path.name for path in self.root.iterdir()) if self.root.is_dir() else []

    def log(self) -> list[str]:
        """The sentences in the log."""
        try:
            return [json.loads(line)["msg"] for line in (self.home / "log.json").read_text().splitlines()]
        except FileNotFoundError:
            return []

    def close(self) -> None:
        """End every relay that is left."""
        if not self.root.is_dir():
            return
        for file in self.root.glob("*/state.json"):
            pid = json.loads(file.read_text()).get("pid", 0)
            if pid:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    continue


class ConsoleSocket:
    """The caller's side of ``--console-socket``: takes the terminal's master."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen()

    def master(self) -> int:
        """The descriptor that was sent."""
        connection, _ = self._listener.accept()
        descriptors = array.array("i")
        _, found, _, _ = connection.recvmsg(256, socket.CMSG_LEN(descriptors.itemsize))
        descriptors.frombytes(found[0][2][: descriptors.itemsize])
        connection.close()
        self._listener.close()
        return descriptors[0]
