"""The pods of the demo: all run the same unchanged ``train.py``, from the same code image."""

from typing import Any, Final

from hcs.model import names
from hcs.model.quantities import format_bytes
from hcs.sandbox import images

RUNTIME: Final = "pytorch-2.6"
WANTED: Final = "A100-SXM4-80GB"
GIB: Final = 1 << 30


def train_pod(
    name: str,
    *,
    vram: int,
    arguments: tuple[str, ...] = (),
    annotations: dict[str, str] | None = None,
    restart: str = "Never",
) -> dict[str, Any]:
    """A pod that trains on whatever card it gets.

    Args:
        name: of the pod.
        vram: bytes on each card.
        arguments: of ``train.py``.
        annotations: on top of runtime and code image.
        restart: the restart policy.
    """
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "annotations": _annotations(annotations)},
        "spec": _spec(vram, arguments, restart),
    }


def train_job(
    name: str, *, vram: int, arguments: tuple[str, ...], annotations: dict[str, str], checkpoints: str
) -> dict[str, Any]:
    """A Job whose pod keeps checkpoints on a host path, and is made again when it is evicted.

    Args:
        name: of the job.
        vram: bytes on each card.
        arguments: of ``train.py``.
        annotations: on top of runtime and code image.
        checkpoints: the host path that appears as ``checkpoints`` in the working directory.
    """
    spec = _spec(vram, arguments, "OnFailure")
    spec["containers"][0]["volumeMounts"] = [{"name": "checkpoints", "mountPath": "/workspace/checkpoints"}]
    spec["volumes"] = [{"name": "checkpoints", "hostPath": {"path": checkpoints, "type": "DirectoryOrCreate"}}]
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {
            "backoffLimit": 6,
            "template": {
                "metadata": {"annotations": _annotations({names.CHECKPOINT: "checkpoints", **annotations})},
                "spec": spec,
            },
        },
    }


def _annotations(more: dict[str, str] | None) -> dict[str, str]:
    return {names.RUNTIME: RUNTIME, names.CODE_IMAGE: images.CODE, **(more or {})}


def _spec(vram: int, arguments: tuple[str, ...], restart: str) -> dict[str, Any]:
    return {
        "restartPolicy": restart,
        "terminationGracePeriodSeconds": 1,
        "containers": [
            {
                "name": "train",
                "image": images.PENDING,
                "command": ["python3", "code/train.py", *arguments],
                "workingDir": "/workspace",
                "resources": {"limits": {names.VRAM: format_bytes(vram)}},
            }
        ],
    }
