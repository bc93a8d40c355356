"""From spec and adjustment to what a process really gets."""

import asyncio
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.sandbox.kubelet.scene import Ground, answering, over, pod_with, shell

from hcs.inject.adjustments import Adjustment, DeviceNode, Mount, Variable
from hcs.model.pods import Container
from hcs.sandbox.images import PLAIN, Image, ImageStore
from hcs.sandbox.kubelet.containers import Place, StartError, command_line, prepare
from hcs.sandbox.kubelet.environment import ConfigurationError
from hcs.sandbox.kubelet.processes import Launch
from hcs.sandbox.kubelet.volumes import Volume


@pytest.mark.parametrize(
    ("container", "expected"),
    [
        pytest.param(Container(name="c"), ["serve", "--all"], id="the-images-own"),
        pytest.param(Container(name="c", args=["-v"]), ["serve", "--all", "-v"], id="args-follow-the-entry-point"),
        pytest.param(Container(name="c", command=["run"]), ["run"], id="command-replaces-it"),
        pytest.param(Container(name="c", command=["run"], args=["$(A)", "$$(A)"]), ["run", "1", "$(A)"], id="expanded"),
    ],
)
def test_the_command_line(container: Container, expected: list[str]) -> None:
    image = Image("i", Path("/"), entrypoint=("serve", "--all"))
    assert command_line(container, image, {"A": "1"}) == expected


def test_no_command_at_all_is_said() -> None:
    with pytest.raises(ConfigurationError, match="no entry point"):
        command_line(Container(name="c"), Image("i", Path("/")), {})


def prepared(
    images: ImageStore,
    directory: Path,
    adjustment: Adjustment,
    container: dict[str, Any] | None = None,
    variables: dict[str, str] | None = None,
    volumes: dict[str, Volume] | None = None,
) -> Launch:
    pod = pod_with(container or {})
    image = images.find(PLAIN)
    return prepare(
        pod,
        pod.spec.containers[0],
        Place(directory / "c0", directory / "c0.log"),
        image,
        volumes or {},
        {**image.env, **(variables or {})},
        ["python3", "-V"],
        adjustment,
    )


def test_an_adjustment_reaches_the_container(images: ImageStore, tmp_path: Path) -> None:
    for name in ("libhcs.so", "quota", "preload", "card"):
        (tmp_path / name).write_text("/opt/hcs/libhcs.so\n" if name == "preload" else name)
    (tmp_path / "drivers").mkdir()
    (tmp_path / "drivers" / "libcuda.so.1").write_text("emulated driver")
    launch = prepared(
        images,
        tmp_path,
        Adjustment(
            env=(
                Variable("CUDA_VISIBLE_DEVICES", "0"),
                Variable("LD_LIBRARY_PATH", "/usr/local/nvidia/lib64:/lib/of/the/host"),
                Variable("NVIDIA_VISIBLE_DEVICES", None),
            ),
            mounts=(
                Mount(str(tmp_path / "drivers"), "/usr/local/nvidia/lib64", ("ro",)),
                Mount(str(tmp_path / "libhcs.so"), "/opt/hcs/libhcs.so", ("ro",)),
                Mount(str(tmp_path / "preload"), "/etc/ld.so.preload", ("ro",)),
                Mount(str(tmp_path / "quota"), "/etc/hcs/quota", ("ro",)),
                Mount("tmpfs", "/dev/shm", (), "tmpfs"),
            ),
            devices=(DeviceNode("/dev/nvidia0", str(tmp_path / "card")),),
            args=("python3", "/etc/hcs/quota", "--keep"),
        ),
        variables={"NVIDIA_VISIBLE_DEVICES": "all"},
    )
    root = Path(launch.env["HCS_ROOT"])
    assert launch.env["CUDA_VISIBLE_DEVICES"] == "0"
    assert "NVIDIA_VISIBLE_DEVICES" not in launch.env
    assert launch.env["LD_LIBRARY_PATH"] == f"{root}/usr/local/nvidia/lib64:/lib/of/the/host"
    assert launch.env["LD_PRELOAD"] == f"{root}/opt/hcs/libhcs.so"
    assert launch.env["HCS_QUOTA_FILE"] == str(tmp_path / "quota"), "the file itself, not a link to it"
    assert (root / "usr/local/nvidia/lib64/libcuda.so.1").read_text() == "emulated driver"
    assert (root / "dev/nvidia0").read_text() == "card"
    assert (root / "dev/shm").is_dir()
    assert launch.argv == (f"{root}/usr/bin/python3", f"{root}/etc/hcs/quota", "--keep")
    assert not (images.find(PLAIN).tree / "usr/local/nvidia").exists(), "the image is not written to"


def test_the_adjustments_mount_wins_over_the_users(images: ImageStore, tmp_path: Path) -> None:
    (tmp_path / "forged").mkdir()
    (tmp_path / "quota").write_text("ours")
    launch = prepared(
        images,
        tmp_path,
        Adjustment(mounts=(Mount(str(tmp_path / "quota"), "/etc/hcs/quota", ("ro",)),)),
        container={"volumeMounts": [{"name": "v", "mountPath": "/etc/hcs/quota"}]},
        volumes={"v": Volume("emptyDir", tmp_path / "forged")},
    )
    assert Path(launch.env["HCS_QUOTA_FILE"]).read_text() == "ours"


@pytest.mark.parametrize(
    ("adjustment", "message"),
    [
        pytest.param(Adjustment(mounts=(Mount("/no/such", "/x"),)), "/no/such", id="missing-mount"),
        pytest.param(Adjustment(devices=(DeviceNode("/dev/x", "/no/dev"),)), "/no/dev", id="missing-device"),
        pytest.param(Adjustment(cdi=("nvidia.com/gpu=0",)), "CDI", id="cdi"),
    ],
)
def test_what_cannot_be_delivered_stops_the_start(
    images: ImageStore, tmp_path: Path, adjustment: Adjustment, message: str
) -> None:
    with pytest.raises(ConfigurationError, match=message):
        prepared(images, tmp_path, adjustment)


def test_a_program_that_is_not_in_the_container_is_not_taken_from_the_host(images: ImageStore, tmp_path: Path) -> None:
    for program in ("/usr/bin/find", "find"):
        with pytest.raises(StartError, match="find"):
            prepared(images, tmp_path, Adjustment(args=(program,)))


def test_a_container_sees_its_code_its_volumes_and_its_pod(ground: Ground, tmp_path: Path) -> None:
    """The whole way with real processes: image volume, config map, downward API, host path, working directory."""

    async def story() -> None:
        (tmp_path / "shared").mkdir()
        ground.cluster.config_maps["settings"] = {"rate": "0.1"}
        mounts = [
            {"name": "code", "mountPath": "/workspace/code", "readOnly": True},
            {"name": "out", "mountPath": "/workspace/checkpoints"},
            {"name": "settings", "mountPath": "/etc/settings"},
            {"name": "pod", "mountPath": "/etc/pod"},
        ]
        pod = pod_with(
            shell(
                "python3 code/hello.py; cat $HCS_ROOT/etc/settings/rate; echo; cat $HCS_ROOT/etc/pod/allocation; echo;"
                "echo $ME; touch checkpoints/step-1; pwd",
                workingDir="/workspace",
                volumeMounts=mounts,
                env=[{"name": "ME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
            ),
            restartPolicy="Never",
            annotations={"ai.compute/note": "three"},
            volumes=[
                {"name": "code", "image": {"reference": "registry.example/code/hello:1"}},
                {"name": "out", "hostPath": {"path": str(tmp_path / "shared" / "new"), "type": "DirectoryOrCreate"}},
                {"name": "settings", "configMap": {"name": "settings"}},
                {
                    "name": "pod",
                    "downwardAPI": {
                        "items": [
                            {
                                "path": "allocation",
                                "fieldRef": {"fieldPath": "metadata.annotations['ai.compute/note']"},
                            }
                        ]
                    },
                },
            ],
        )
        async with ground.running(pod):
            status = await ground.cluster.until(over)
        assert status["phase"] == "Succeeded", ground.log()
        *words, cwd = ground.log().splitlines()
        assert words == ["hello from the code layer", "0.1", "three", "web"]
        assert cwd.endswith("/rootfs/workspace")
        assert (tmp_path / "shared" / "new" / "step-1").exists()

    asyncio.run(story())


def test_the_agent_is_shown_pod_container_and_image(ground: Ground, tmp_path: Path) -> None:
    asked: list[dict[str, Any]] = []

    def answer(method: str, path: str, body: bytes) -> tuple[int, Any]:
        if method == "POST":
            asked.append(json.loads(body))
        return 200, {"adjustment": {}}

    async def story() -> None:
        ground.socket = str(tmp_path / "agent.sock")
        pod = pod_with(shell("true", env=[{"name": "A", "value": "1"}]), restartPolicy="Never")
        async with answering(tmp_path / "agent.sock", answer), ground.running(pod):
            await ground.cluster.until(over)
        (question,) = asked
        assert question["pod"]["metadata"]["uid"] == pod.metadata.uid
        container = question["container"]
        assert (container["name"], container["image"], container["args"]) == ("c0", PLAIN, ["sh", "-c", "true"])
        env = {entry["name"]: entry["value"] for entry in container["env"]}
        assert env["A"] == "1"
        assert env["PATH"] == "/usr/local/bin:/usr/bin:/bin", "the image's variables, before any path was moved"
        assert msgspec.convert(question["pod"], type(pod)).spec.containers[0].command == ["sh", "-c", "true"]

    asyncio.run(story())
