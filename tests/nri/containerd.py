"""A real containerd on a folder of its own, asked over CRI as a kubelet would ask it.

``HCS_CONTAINERD`` names the program, else it is looked for on the path; its shim and ``ctr`` lie beside it. It needs
root and runc. The image is made of this machine's own ``sh``, so nothing is downloaded; pods use the host's network.
"""

import asyncio
import contextlib
import hashlib
import io
import json
import os
import re
import shutil
import subprocess
import tarfile
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path

import grpc
from tests.protobuf import Fields, every, one, string_map, text, write
from tests.waiting import until

IMAGE = "test.invalid/hcs/sh:1"
PROGRAMS = ("/bin/sh", "/bin/sleep", "/bin/cat", "/usr/bin/env", "/bin/ls")
HOST_NETWORK = 2


def find() -> tuple[Path, tuple[int, int]] | None:
    """The program and its version."""
    named = os.environ.get("HCS_CONTAINERD") or shutil.which("containerd")
    if not named or not Path(named).exists():
        return None
    told = subprocess.run([named, "--version"], capture_output=True, text=True, check=False).stdout
    found = re.search(r"\bv?(\d+)\.(\d+)\.\d+", told)
    return (Path(named), (int(found[1]), int(found[2]))) if found else None


def lacking(least: tuple[int, int] = (2, 2)) -> str:
    """Why no test with a real containerd can run; empty where it can."""
    found = find()
    if found is None or found[1] < least:
        seen = "none" if found is None else f"{found[1][0]}.{found[1][1]}"
        return f"no containerd from {least[0]}.{least[1]} on (found: {seen}); set HCS_CONTAINERD"
    if os.geteuid() != 0:
        return "no containerd without root"
    if shutil.which("runc") is None:
        return "no containerd without runc"
    return ""


class Containerd:
    """One containerd with NRI and the default validator on."""

    def __init__(self, folder: Path, *, validator: bool = True) -> None:
        found = find()
        assert found is not None
        self.program, self.version = found
        self.folder, self.validator = folder, validator
        self.nri = folder / "nri" / "nri.sock"
        self.cdi = folder / "cdi"
        self._socket = folder / "ctrd.sock"
        self._process: subprocess.Popen[bytes] | None = None
        self._count = 0

    async def start(self) -> None:
        """Start it, and wait until it answers."""
        for name in ("root", "state", "nri", "cdi", "plugins", "conf"):
            (self.folder / name).mkdir(exist_ok=True)
        config = self.folder / "config.toml"
        config.write_text(self._config())
        with open(self.folder / "containerd.log", "ab") as log:
            self._process = subprocess.Popen(  # noqa: ASYNC220 - it is only started here
                [self.program, "--config", config, "--log-level", "info"],
                stdout=log,
                stderr=log,
                env={**os.environ, "PATH": f"{self.program.parent}:{os.environ['PATH']}"},
            )
        await until(self._answers)

    def end(self) -> None:
        """End the process; containers go on."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def import_image(self) -> None:
        """Bring the image in."""
        path = self.folder / "image.tar"
        path.write_bytes(_image())
        ctr = [self.program.with_name("ctr"), "--address", self._socket, "--namespace", "k8s.io"]
        done = subprocess.run(
            [*ctr, "images", "import", "--local", "--snapshotter", "native", path], capture_output=True
        )
        assert done.returncode == 0, done.stderr.decode()

    async def call(self, method: str, fields: Fields) -> bytes:
        """A method of CRI's runtime service.

        Raises:
            grpc.aio.AioRpcError: it says no.
        """
        async with grpc.aio.insecure_channel(
            f"unix://{self._socket}", options=[("grpc.default_authority", "localhost")]
        ) as channel:
            answer: bytes = await channel.unary_unary(f"/runtime.v1.RuntimeService/{method}")(write(fields), timeout=60)
            return answer

    async def run_pod(self, name: str, uid: str, annotations: Mapping[str, str] | None = None) -> "RealPod":
        """A pod's sandbox."""
        config: Fields = [
            (1, [(1, name), (2, uid), (3, "default")]),
            *string_map(7, annotations or {}),
            (8, [(2, [(1, [(1, HOST_NETWORK)])])]),
        ]
        answer = await self.call("RunPodSandbox", [(1, config)])
        return RealPod(self, text(answer, 1), config)

    async def remove_all(self) -> None:
        """End every pod."""
        with contextlib.suppress(grpc.aio.AioRpcError):
            for sandbox in every(await self.call("ListPodSandbox", []), 1):
                await self.call("StopPodSandbox", [(1, text(sandbox, 1))])
                await self.call("RemovePodSandbox", [(1, text(sandbox, 1))])

    async def _answers(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, (self.folder / "containerd.log").read_text()[-2000:]
        try:
            status = await self.call("Status", [])
        except grpc.aio.AioRpcError:
            return False
        return bool(status)

    def _config(self) -> str:
        nri = f"""
disable = false
socket_path = "{self.nri}"
plugin_path = "{self.folder}/plugins"
plugin_config_path = "{self.folder}/conf"
"""
        common = f"""
root = "{self.folder}/root"
state = "{self.folder}/state"
[grpc]
address = "{self._socket}"
[ttrpc]
address = "{self._socket}.ttrpc"
"""
        if self.version < (2, 0):
            return f"""version = 2
{common}
[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "{IMAGE}"
disable_apparmor = true
restrict_oom_score_adj = true
[plugins."io.containerd.grpc.v1.cri".containerd]
snapshotter = "native"
[plugins."io.containerd.nri.v1.nri"]
{nri}
"""
        validator = f"default_validator = {{enable = {str(self.validator).lower()}}}" if self.version >= (2, 2) else ""
        return f"""version = 3
{common}
[plugins."io.containerd.cri.v1.images"]
snapshotter = "native"
[plugins."io.containerd.cri.v1.images".pinned_images]
sandbox = "{IMAGE}"
[plugins."io.containerd.cri.v1.runtime"]
enable_cdi = true
cdi_spec_dirs = ["{self.cdi}"]
disable_apparmor = true
restrict_oom_score_adj = true
[plugins."io.containerd.nri.v1.nri"]
{nri}
{validator}
"""


class RealPod:
    """A sandbox, in which containers are made."""

    def __init__(self, containerd: Containerd, sandbox: str, config: Fields) -> None:
        self.containerd, self.sandbox, self._config = containerd, sandbox, config
        self._attempt = 0

    async def create(
        self, name: str = "main", env: Mapping[str, str] | None = None, command: Sequence[str] = ("/bin/sleep", "3600")
    ) -> str:
        """Create a container.

        Raises:
            grpc.aio.AioRpcError: it is not created.
        """
        self._attempt += 1
        config: Fields = [
            (1, [(1, name), (2, self._attempt)]),
            (2, [(1, IMAGE)]),
            *((3, word) for word in command),
            *((6, [(1, key), (2, value)]) for key, value in (env or {}).items()),
        ]
        answer = await self.containerd.call("CreateContainer", [(1, self.sandbox), (2, config), (3, self._config)])
        return text(answer, 1)

    async def start(self, *arguments: object, **facts: object) -> str:
        """Create and start a container."""
        container = await self.create(*arguments, **facts)  # type: ignore[arg-type]
        await self.containerd.call("StartContainer", [(1, container)])
        return container

    async def run(self, container: str, *command: str) -> tuple[int, str]:
        """What a command prints in a container, and its status."""
        answer = await self.containerd.call("ExecSync", [(1, container), *((2, word) for word in command), (3, 30)])
        shown = (one(answer, 1) or b"") + (one(answer, 2) or b"")
        return one(answer, 3) or 0, shown.decode()

    async def remove(self, container: str) -> None:
        """End a container."""
        await self.containerd.call("StopContainer", [(1, container)])
        await self.containerd.call("RemoveContainer", [(1, container)])


@contextlib.asynccontextmanager
async def real_containerd(folder: Path, *, validator: bool = True) -> AsyncIterator[Containerd]:
    """A running containerd with the image; at the end nothing of it is left."""
    containerd = Containerd(folder, validator=validator)
    await containerd.start()
    try:
        await asyncio.to_thread(containerd.import_image)
        yield containerd
    finally:
        await containerd.remove_all()
        containerd.end()


def _image() -> bytes:
    """An image of this machine's own programs, as an OCI layout in a tar file."""
    files: set[str] = set(PROGRAMS)
    for program in PROGRAMS:
        told = subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout
        files |= set(re.findall(r"(/\S+) \(0x", told))
    layer = _tar({name: Path(name).resolve().read_bytes() for name in sorted(files)}, folders=("tmp", "etc", "proc"))
    config = json.dumps(
        {
            "architecture": "amd64" if os.uname().machine == "x86_64" else "arm64",
            "os": "linux",
            "config": {"Cmd": ["/bin/sleep", "infinity"], "Env": ["PATH=/bin:/usr/bin", "FROM_IMAGE=1"]},
            "rootfs": {"type": "layers", "diff_ids": [_digest(layer)]},
        }
    ).encode()
    manifest = json.dumps(
        {
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "config": _descriptor("config", config),
            "layers": [_descriptor("layer.tar", layer)],
        }
    ).encode()
    index = {
        "schemaVersion": 2,
        "manifests": [
            {**_descriptor("manifest", manifest), "annotations": {"io.containerd.image.name": IMAGE}},
        ],
    }
    return _tar(
        {
            "oci-layout": b'{"imageLayoutVersion": "1.0.0"}',
            "index.json": json.dumps(index).encode(),
            **{f"blobs/sha256/{_digest(blob)[7:]}": blob for blob in (layer, config, manifest)},
        }
    )


def _descriptor(kind: str, content: bytes) -> dict[str, object]:
    media = {
        "config": "application/vnd.oci.image.config.v1+json",
        "layer.tar": "application/vnd.oci.image.layer.v1.tar",
        "manifest": "application/vnd.oci.image.manifest.v1+json",
    }
    return {"mediaType": media[kind], "digest": _digest(content), "size": len(content)}


def _digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def _tar(files: Mapping[str, bytes], folders: Sequence[str] = ()) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for folder in folders:
            entry = tarfile.TarInfo(folder)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o755
            archive.addfile(entry)
        for name, content in files.items():
            entry = tarfile.TarInfo(name.lstrip("/"))
            entry.size, entry.mode = len(content), 0o755
            archive.addfile(entry, io.BytesIO(content))
    return out.getvalue()
