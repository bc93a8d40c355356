"""The Job that only pulls an image on a node, and what must be known to ask for it: which images, and where they are.

Pure: equal inputs give equal manifests and names, so a second creation meets the first.
"""

import hashlib
from collections.abc import Iterator, Mapping
from typing import Any, Final

from hcs.cpn.jobmanifest import Overlay, merge
from hcs.kube import resources
from hcs.model import names
from hcs.wide.entries import LABEL_PULL

HOSTNAME: Final = "kubernetes.io/hostname"
_SMALL: Final = {"cpu": "10m", "memory": "32Mi"}


def sent_template(manifest: Mapping[str, Any], overlay: Overlay) -> dict[str, Any]:
    """Metadata and spec of a job's pods as they will be sent, as far as images are concerned."""
    template = (manifest.get("spec") or {}).get("template") or {}
    return {
        "metadata": merge(template.get("metadata") or {}, overlay.metadata),
        "spec": merge(template.get("spec") or {}, overlay.spec),
    }


def images_of(template: Mapping[str, Any]) -> Iterator[str]:
    """Images that its pods will really have; none where HCS puts others in their place, which are not known yet."""
    annotations = template["metadata"].get("annotations") or {}
    if annotations.get(names.RUNTIME) or annotations.get(names.CODE_IMAGE):
        return
    spec = template["spec"]
    for container in (*(spec.get("initContainers") or ()), *(spec.get("containers") or ())):
        if (image := container.get("image")) and container.get("imagePullPolicy") != "Never":
            yield str(image)


def normal(image: str) -> str:
    """An image's full name, as kubelets report it.

    >>> normal("train:1"), normal("localhost:5000/train"), normal("docker.io/me/a:1@sha256:0")
    ('docker.io/library/train:1', 'localhost:5000/train:latest', 'docker.io/me/a@sha256:0')
    """
    name, _, digest = image.partition("@")
    path, _, tag = name.rpartition(":")
    if not path or "/" in tag:
        path, tag = name, ""
    host, slash, rest = path.partition("/")
    if not slash or not ("." in host or ":" in host or host == "localhost"):
        host, rest = "docker.io", path
    if host in ("docker.io", "index.docker.io"):
        host, rest = "docker.io", rest if "/" in rest else f"library/{rest}"
    return f"{host}/{rest}@{digest}" if digest else f"{host}/{rest}:{tag or 'latest'}"


def images_on(node: resources.Node) -> set[str]:
    """What its kubelet reports; by default that is at most 50 images, so others may be there as well."""
    return {normal(name) for image in node.status.get("images") or () for name in image.get("names") or ()}


def pull_name(queue: str, image: str, node: str) -> str:
    """The same for the same pull, so a second creation meets the first."""
    return "cpn-pull-" + hashlib.sha256("\n".join((queue, normal(image), node)).encode()).hexdigest()[:20]


def may_go(spec: Mapping[str, Any], node: resources.Node) -> bool:
    """Whether the pods of a job may come to a node, as far as their node selector says."""
    labels = node.metadata.labels or {}
    wanted = spec.get("nodeSelector") or {}
    return HOSTNAME in labels and all(labels.get(key) == value for key, value in wanted.items())


def pull_manifest(
    queue: str,
    image: str,
    node: resources.Node,
    spec: Mapping[str, Any],
    namespace: str,
    *,
    deadline: int,
    keep: int,
) -> dict[str, Any]:
    """The Job that pulls: no card, no rights, over at once.

    Args:
        queue: the id of the queue.
        image: as the job names it.
        node: where; it has a hostname label.
        spec: that of the pods for which it is done.
        namespace: theirs.
        deadline: seconds it may take.
        keep: seconds it stays when it is over.
    """
    label = {LABEL_PULL: queue}
    managed = {"key": names.MANAGED_TAINT, "operator": "Exists"}
    container = {
        "name": "pull",
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["true"],  # where the image has none, the pod fails, with the image on its node
        "resources": {"requests": _SMALL, "limits": _SMALL},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
        },
    }
    pod = {
        "schedulerName": "default-scheduler",
        "nodeSelector": {HOSTNAME: (node.metadata.labels or {})[HOSTNAME]},
        "tolerations": [*(spec.get("tolerations") or ()), managed],
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": 0,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": 65534,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [container],
        **{key: spec[key] for key in ("imagePullSecrets", "serviceAccountName") if spec.get(key)},
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": pull_name(queue, image, node.metadata.name), "namespace": namespace, "labels": label},
        "spec": {
            "backoffLimit": 0,
            "activeDeadlineSeconds": deadline,
            "ttlSecondsAfterFinished": keep,
            "template": {"metadata": {"labels": label}, "spec": pod},
        },
    }
