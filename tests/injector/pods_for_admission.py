"""Pods as an API server sends them to admission, for the tests of this folder."""

from typing import Any

from hcs.model import names


def pod(
    limits: dict[str, Any] | None = None,
    *,
    annotations: dict[str, str] | None = None,
    requests: dict[str, Any] | None = None,
    container: dict[str, Any] | None = None,
    **spec: Any,
) -> dict[str, Any]:
    """One container asking for ``limits`` (default: a share of 16Gi), in a pod with the server's own defaults."""
    limits = {names.VRAM: "16Gi"} if limits is None else limits
    resources: dict[str, Any] = {"limits": limits, "requests": dict(limits) if requests is None else requests}
    metadata: dict[str, Any] = {"name": "train-1", "namespace": "default"}
    if annotations is not None:
        metadata["annotations"] = annotations
    return {
        "kind": "Pod",
        "apiVersion": "v1",
        "metadata": metadata,
        "spec": {
            "containers": [{"name": "main", "image": "train:1", "resources": resources, **(container or {})}],
            "restartPolicy": "Always",
            "schedulerName": "default-scheduler",
            "tolerations": [{"key": "node.kubernetes.io/not-ready", "operator": "Exists", "tolerationSeconds": 300}],
            **spec,
        },
        "status": {},
    }


def review(
    subject: dict[str, Any] | None, *, kind: str = "Pod", operation: str = "CREATE", **more: Any
) -> dict[str, Any]:
    """An AdmissionReview of a pod's creation, or of something else."""
    return {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": "8ba04bdd-cf81-4fb9-9353-bd0b0a3b72a5",
            "kind": {"group": "", "version": "v1", "kind": kind},
            "resource": {"group": "", "version": "v1", "resource": "pods"},
            "name": "train-1",
            "namespace": "default",
            "operation": operation,
            "userInfo": {"username": "alice", "groups": ["system:authenticated"]},
            "object": subject,
            "oldObject": None,
            "dryRun": False,
            **more,
        },
    }
