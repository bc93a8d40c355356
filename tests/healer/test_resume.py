"""Where a pod resumes: through volume mounts, from object stores, and never at the price of waiting for them."""

import asyncio
import threading
from pathlib import Path
from typing import Any

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from hcs.healer.resume import host_directory, resume_point
from hcs.model import names
from hcs.model.pods import Container, ObjectMeta, Pod, PodSpec, VolumeMount


def pod(place: str, *, working: str | None = None, volumes: Any = (), mounts: Any = ()) -> Pod:
    container = Container("main", workingDir=working, volumeMounts=[VolumeMount(*mount) for mount in mounts])
    return Pod(
        ObjectMeta("train", annotations={names.CHECKPOINT: place} if place else {}),
        PodSpec([container], volumes=list(volumes)),
    )


def host(name: str, path: Path | str) -> dict[str, Any]:
    return {"name": name, "hostPath": {"path": str(path)}}


@pytest.mark.parametrize(
    ("place", "working", "mounts", "expected"),
    [
        pytest.param("/ckpt", None, [("v", "/ckpt")], "/host", id="the-mount-itself"),
        pytest.param("/ckpt/run", None, [("v", "/ckpt/")], "/host/run", id="below-the-mount"),
        pytest.param("ckpt", "/data", [("v", "/data/ckpt")], "/host", id="relative-to-the-working-directory"),
        pytest.param("/a/b/c", None, [("w", "/a"), ("v", "/a/b")], "/host/c", id="the-nearest-mount-counts"),
        pytest.param("/ckpt/x", None, [("v", "/ckpt", "sub")], "/host/sub/x", id="sub-path"),
        pytest.param("/x", None, [("v", "/")], "/host/x", id="mounted-at-the-root"),
        pytest.param("/ckpt2", None, [("v", "/ckpt")], None, id="a-name-that-only-begins-alike"),
        pytest.param("/ckpt/../etc", None, [("v", "/ckpt")], None, id="dots-do-not-lead-out"),
        pytest.param("/claim", None, [("pvc", "/claim")], None, id="another-kind-of-volume"),
        pytest.param("/ckpt", None, [], None, id="no-mount"),
    ],
)
def test_a_path_is_followed_to_the_host(place: str, working: str | None, mounts: Any, expected: str | None) -> None:
    made = pod(
        place, working=working, mounts=mounts, volumes=[host("v", "/host"), host("w", "/other"), {"name": "pvc"}]
    )
    found = host_directory(made, made.spec.containers[0], place)
    assert (str(found) if found else None) == expected


@pytest.mark.parametrize(
    ("place", "entries", "expected"),
    [
        pytest.param(
            "/ckpt", ["step-9", "step-10.json", "step-11.partial"], "/ckpt/step-10.json", id="newest-complete"
        ),
        pytest.param("/ckpt/", ["step-9"], "/ckpt/step-9", id="trailing-slash"),
        pytest.param("file:///ckpt", ["step-9"], "file:///ckpt/step-9", id="a-path-as-a-url"),
        pytest.param("/ckpt", [], "/ckpt", id="nothing-yet"),
        pytest.param("/elsewhere", ["step-9"], "/elsewhere", id="where-we-cannot-see"),
        pytest.param("", ["step-9"], "", id="keeps-no-checkpoints"),
    ],
)
def test_a_directory_is_listed(tmp_path: Path, place: str, entries: list[str], expected: str) -> None:
    for entry in entries:
        (tmp_path / entry).touch()
    made = pod(place, mounts=[("v", "/ckpt")], volumes=[host("v", tmp_path)])
    assert asyncio.run(resume_point(made)) == expected


def test_an_object_store_is_listed() -> None:
    filesystem = fsspec.filesystem("memory")
    for step in (8, 16):
        filesystem.pipe_file(f"/bucket-of-this-test/run/step-{step}/model", b"x")
    assert (
        asyncio.run(resume_point(pod("memory://bucket-of-this-test/run"))) == "memory://bucket-of-this-test/run/step-16"
    )


@pytest.mark.parametrize(
    "place", ["http://169.254.169.254/latest", "simplecache::memory://a", "nonsense://x", "file://host/ckpt", "s4://b"]
)
def test_other_urls_are_not_followed(place: str) -> None:
    assert asyncio.run(resume_point(pod(place))) == place


class HangingStore(MemoryFileSystem):  # type: ignore[misc]
    """A store that does not answer before it is told to."""

    protocol = "hdfs"
    answer = threading.Event()

    def ls(self, path: str, detail: bool = True, **_: Any) -> Any:
        self.answer.wait(20)
        raise OSError("stale file handle")


def test_storage_that_hangs_or_fails_is_not_waited_for() -> None:
    """The loop goes on meanwhile, and what was found before still counts."""
    fsspec.register_implementation("hdfs", HangingStore, clobber=True)

    async def story() -> None:
        made = pod("hdfs://name/ckpt")
        looking = asyncio.create_task(resume_point(made, patience=0.1))
        await asyncio.sleep(0)
        assert await resume_point(pod("/ckpt")) == "/ckpt"
        assert not looking.done()
        assert await looking == "hdfs://name/ckpt"
        HangingStore.answer.set()
        assert await resume_point(made, "hdfs://name/ckpt/step-5") == "hdfs://name/ckpt/step-5"

    asyncio.run(story())
