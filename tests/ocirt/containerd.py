"""A real containerd of our own: private root, state and socket; the CRI plugin off, ``ctr`` as its client.

``ctr`` 1.6 has no ``update``, so that one request is made over the API: two length-delimited fields.
"""

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import grpc
from tests.ocirt.scene import Scene
from tests.sandbox.micad.emulator import until

from hcs.ocirt.cgroups import directories

NEEDED = ("containerd", "containerd-shim-runc-v2", "ctr")


def missing() -> str:
    """Why a real containerd cannot be tried here; empty where it can."""
    if os.geteuid() != 0:
        return "containerd needs root"
    absent = [program for program in NEEDED if shutil.which(program) is None]
    return f"no {', '.join(absent)} on the path" if absent else ""


class Containerd:
    """One containerd."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        scene.root = scene.root / "default"  # the shim adds containerd's namespace
        self.home = Path(tempfile.mkdtemp(prefix="ctrd-"))
        self.address = self.home / "c.sock"
        self.runtime = self.home / "hcs-rtos"
        self.runtime.write_text(
            f'#!/bin/sh\nexport MICRUN_CONF_FILE={scene.config}\nexec {sys.executable} -m hcs.ocirt.main "$@"\n'
        )
        self.runtime.chmod(0o755)
        config = self.home / "config.toml"
        config.write_text(
            f'version = 2\nroot = "{self.home}/root"\nstate = "{self.home}/state"\n'
            f'disabled_plugins = ["io.containerd.grpc.v1.cri"]\n[grpc]\n  address = "{self.address}"\n'
        )
        self._log = (self.home / "log").open("wb")
        self._process = subprocess.Popen(
            ["containerd", "-c", str(config)],
            stdout=self._log,
            stderr=self._log,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(["src", *sys.path])},
        )
        until(lambda: self.ctr("version", check=False).returncode == 0)

    def ctr(self, *arguments: str, check: bool = True, **options: Any) -> subprocess.CompletedProcess[str]:
        """Run ``ctr`` to its end."""
        done = subprocess.run(
            ["ctr", "-a", str(self.address), *arguments], capture_output=True, text=True, timeout=60, **options
        )
        if check:
            assert done.returncode == 0, f"{done.stderr}\n{(self.home / 'log').read_text()[-2000:]}"
        return done

    def run_arguments(self, container: str, bundle: Path, *flags: str, terminal: bool = False) -> list[str]:
        """The arguments of ``ctr run`` for a bundle's ``config.json`` and rootfs."""
        config = json.loads((bundle / "config.json").read_text())
        config["root"]["path"] = str(bundle / "rootfs")
        config["linux"]["cgroupsPath"] = f"/hcs-test-{os.getpid()}/{container}"
        config["process"]["terminal"] = terminal
        spec = bundle / f"{container}.json"
        spec.write_text(json.dumps(config))
        runtime = ["--runc-binary", str(self.runtime), "--runc-root", str(self.scene.root.parent)]
        return ["run", *runtime, "--config", str(spec), *flags, "--rootfs", container]

    def status(self, container: str) -> str:
        """What containerd says of a task."""
        rows = [line.split() for line in self.ctr("task", "ls").stdout.splitlines()]
        return next((row[2] for row in rows if row[0] == container), "")

    def update(self, container: str, resources: dict[str, Any]) -> None:
        """Change a task's resources.

        Raises:
            grpc.RpcError: it was refused.
        """
        kind = b"types.containerd.io/opencontainers/runtime-spec/1/LinuxResources"
        wrapped = _field(1, kind) + _field(2, json.dumps(resources).encode())
        with grpc.insecure_channel(f"unix://{self.address}") as channel:
            call = channel.unary_unary("/containerd.services.tasks.v1.Tasks/Update")
            call(
                _field(1, container.encode()) + _field(2, wrapped),
                metadata=(("containerd-namespace", "default"),),
                timeout=60,
            )

    def close(self) -> None:
        """End it and what it started."""
        for line in self.ctr("task", "ls", "-q").stdout.split():
            self.ctr("task", "kill", "-s", "KILL", line, check=False)
        deadline = time.monotonic() + 10
        for line in self.ctr("container", "ls", "-q").stdout.split():
            while self.ctr("task", "rm", "-f", line, check=False).returncode and time.monotonic() < deadline:
                time.sleep(0.05)
            self.ctr("container", "rm", line, check=False)
        self._process.terminate()
        self._process.wait()
        self._log.close()
        shutil.rmtree(self.home, ignore_errors=True)
        for group in directories(f"/hcs-test-{os.getpid()}"):
            with contextlib.suppress(OSError):
                group.rmdir()


def _field(number: int, raw: bytes) -> bytes:
    """A length-delimited field of a protobuf message."""
    length, size = len(raw), b""
    while length >= 0x80:
        size += bytes([length & 0x7F | 0x80])
        length >>= 7
    return bytes([number << 3 | 2]) + size + bytes([length]) + raw
