"""The Job that an entry becomes on a cluster: what the user wrote, held to what was decided.

Pure: an entry and a placement in, a manifest out; equal inputs give equal manifests, so a second creation after a lost
answer asks for the same thing. The Job is created suspended and may fail once: retries are the queue's, which can send
the next one somewhere else. Only what a Kubernetes disruption took away is made again by the cluster itself, where the
healer's notes tell it from which checkpoint.
"""

import copy
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from hcs.model import names
from hcs.wide.entries import LABEL_ENTRY, LABEL_QUEUE, Entry, Placement
from hcs.wide.needs import is_vendor_device

BLOB_STORE: Final = "HCS_BLOB_STORE"
"""Variable that names the cluster's blob store, in every container of a job with inputs."""
INPUTS: Final = "HCS_INPUTS"
"""Variable with the digests of the job's inputs, separated by blanks."""
_QUEUE_OWNS: Final = (
    "suspend", "ttlSecondsAfterFinished", "managedBy", "manualSelector", "selector", "podReplacementPolicy"
)  # fmt: skip
"""Fields of a Job's spec that a user's manifest may not set: a Job that deletes itself could end unseen, and beside our
``podFailurePolicy`` the API takes no other ``podReplacementPolicy`` than its default."""
_CONTROLLERS: Final = (
    "controller-uid", "job-name", "batch.kubernetes.io/controller-uid", "batch.kubernetes.io/job-name"
)  # fmt: skip
"""Labels that the Job controller writes; those of another Job, read from a cluster, would be refused."""
LEAST_MEMORY: Final = 1 << 30
"""What an exclusive job asks for whose memory nobody knows: it gets the whole card whatever it asks for."""


class Overlay(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """What a site needs on every pod, merged last: another scheduler, annotations such as a resource pool, limits.

    ``metadata`` and ``spec`` are merge patches of those of the pod template; ``limits`` go to the container that
    computes, where null takes one away.
    """

    metadata: dict[str, Any] = {}
    spec: dict[str, Any] = {}
    limits: dict[str, str | None] = {}


def job_manifest(entry: Entry, placement: Placement, queue: str, *, overlay: Overlay, store: str = "") -> Any:
    """The manifest to create.

    Args:
        entry: the user's manifest and what was read from it.
        placement: where it goes, under which name, with how much memory.
        queue: the id of the queue; Jobs that no entry claims are found by it.
        overlay: the cluster's.
        store: address of the cluster's blob store, if there is one.
    """
    user = copy.deepcopy(entry.manifest)
    metadata, spec = dict(user.get("metadata") or {}), dict(user.get("spec") or {})
    labels = {LABEL_ENTRY: entry.id, LABEL_QUEUE: queue}
    for field in _QUEUE_OWNS:
        spec.pop(field, None)
    template = dict(spec.get("template") or {})
    spec["template"] = {
        "metadata": _pod_metadata(template.get("metadata") or {}, entry, placement, labels, overlay),
        "spec": _pod_spec(template.get("spec") or {}, entry, placement, overlay, store),
    }
    disrupted = {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]}
    failed = {"action": "FailJob", "onExitCodes": {"operator": "NotIn", "values": [0]}}
    spec |= {"suspend": True, "backoffLimit": 0, "podFailurePolicy": {"rules": [disrupted, failed]}}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": placement.job,
            "namespace": entry.submission.namespace,
            "labels": {**(metadata.get("labels") or {}), **labels},
            "annotations": _texts(metadata.get("annotations") or {}),
        },
        "spec": spec,
    }


def _pod_metadata(
    user: Mapping[str, Any], entry: Entry, placement: Placement, labels: Mapping[str, str], overlay: Overlay
) -> dict[str, Any]:
    ours = {names.MODELS: placement.kind}
    if cards_of_a_pod(entry) == 1:
        ours[names.SHARING] = "shared" if placement.shared else "exclusive"
        if placement.shared and placement.group:
            ours[names.SHARING_GROUP] = placement.group
    said = _texts(user.get("annotations") or {})
    said.pop(names.SHARING_GROUP, None)  # whom it shares a card with is what was planned
    theirs = {"labels": user.get("labels") or {}, "annotations": {**said, **ours}}
    made: dict[str, Any] = merge(theirs, overlay.metadata)
    own = {key: value for key, value in (made.get("labels") or {}).items() if key not in _CONTROLLERS}
    made["labels"] = {**own, **labels}
    made["annotations"] = _texts(made.get("annotations") or {})
    return made


def _pod_spec(
    user: Mapping[str, Any], entry: Entry, placement: Placement, overlay: Overlay, store: str
) -> dict[str, Any]:
    spec = {**user, "restartPolicy": "Never"}
    containers = [dict(container) for container in spec.get("containers") or ()]
    if containers:
        at = computing(containers)
        containers[at]["resources"] = _resources(containers[at].get("resources") or {}, entry, placement, overlay)
    if store and entry.submission.inputs:
        digests = " ".join(blob.digest for blob in entry.submission.inputs)
        told = [{"name": BLOB_STORE, "value": store}, {"name": INPUTS, "value": digests}]
        for container in containers:
            own = [
                variable for variable in container.get("env") or () if variable.get("name") not in (BLOB_STORE, INPUTS)
            ]
            container["env"] = [*own, *told]
    spec["containers"] = containers
    merged: dict[str, Any] = merge(spec, overlay.spec)
    return merged


def cards_of_a_pod(entry: Entry) -> int:
    """How many cards each of its pods gets."""
    return max(1, entry.submission.cards // max(1, entry.submission.pods))


def computing(containers: list[dict[str, Any]]) -> int:
    """Which container computes: the first that asks for our resources, else the first."""
    for at, container in enumerate(containers):
        resources = container.get("resources") or {}
        named = {*(resources.get("limits") or {}), *(resources.get("requests") or {})}
        if named & {*names.REQUESTED} or any(is_vendor_device(key) for key in named):
            return at
    return 0


def _resources(user: Mapping[str, Any], entry: Entry, placement: Placement, overlay: Overlay) -> dict[str, Any]:
    """Limits and requests of the container that computes; of our resources, requests must equal limits.

    Once host memory ran out the container is given more: a higher limit where it has one, and a node with as much.
    """
    asked = {**(user.get("requests") or {}), **(user.get("limits") or {})}
    limits = dict(user.get("limits") or {})
    requests = {key: value for key, value in (user.get("requests") or {}).items() if key not in names.REQUESTED}
    ours = {key: str(asked[key]) for key in asked if key in names.REQUESTED}
    for kept in (limits, requests):
        for device in [key for key in kept if is_vendor_device(key)]:
            del kept[device]  # it was read as a number of cards of any vendor
    if not any(total in ours for total in names.TOTALS):
        if (each := cards_of_a_pod(entry)) > 1:
            ours[names.CARDS] = str(each)
        if placement.memory is not None or names.ACU not in ours:
            ours[names.VRAM] = str(placement.memory or LEAST_MEMORY)
    if (floor := entry.host_floor) is not None:
        if "memory" in limits:
            limits["memory"] = str(floor)
        requests["memory"] = str(floor)
    limits = merge(limits | ours, overlay.limits)
    merged = {**user, "limits": limits}
    if requests:
        merged["requests"] = requests
    else:
        merged.pop("requests", None)
    return merged


def merge(target: Any, patch: Any) -> Any:
    """A JSON merge patch (RFC 7396).

    >>> merge({"a": 1, "b": {"c": 2}}, {"a": None, "b": {"d": 3}})
    {'b': {'c': 2, 'd': 3}}
    """
    if not isinstance(patch, Mapping):
        return patch
    made = dict(target) if isinstance(target, Mapping) else {}
    for key, value in patch.items():
        if value is None:
            made.pop(key, None)
        else:
            made[key] = merge(made.get(key), value)
    return made


def _texts(annotations: Mapping[str, Any]) -> dict[str, str]:
    """Annotations as the API wants them: numbers that were not quoted become text."""
    return {
        key: value if isinstance(value, str) else msgspec.json.encode(value).decode()
        for key, value in annotations.items()
    }
