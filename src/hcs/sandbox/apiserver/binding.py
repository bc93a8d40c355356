"""pods/binding: the one write that puts a pod on a node.

Promises: nodeName, annotations and labels of the Binding arrive together in one MODIFIED event; they are **not**
validated (a real server does not either, and later writes of such a pod fail); the refusals and their texts are those
of ``samples/binding-conflicts.json``; a node that does not exist is accepted.
"""

from __future__ import annotations

from typing import Any

from hcs.sandbox.apiserver import policies
from hcs.sandbox.apiserver.attempts import Attempt, User
from hcs.sandbox.apiserver.cluster import Cluster
from hcs.sandbox.apiserver.kinds import Resource
from hcs.sandbox.apiserver.status import (
    ApiError,
    JsonObject,
    bad_request,
    conflict,
    failed_precondition,
    required,
    unsupported,
)
from hcs.sandbox.apiserver.storage import StaleError, Stored
from hcs.sandbox.apiserver.writing import WriteOptions, check_texts


async def bind(
    cluster: Cluster, pods: Resource, namespace: str, name: str, body: Any, user: User, options: WriteOptions
) -> None:
    """Assign a pod to a node. Raises ApiError 404, 409, 422."""
    binding = _read(body, namespace, name)
    attempt = Attempt(
        pods, "CREATE", namespace, name, user, binding, subresource="binding",
        options=options.named("CreateOptions"), dry_run=options.dry_run, kind=("", "v1", "Binding"),
    )  # fmt: skip
    await cluster.webhooks.mutate(attempt, lambda changed: changed)
    policies.enforce(cluster.store, cluster.namespace, attempt)
    await cluster.webhooks.validate(attempt)
    assert attempt.object is not None
    binding = attempt.object
    while True:
        stored = cluster.must_get(pods, namespace, name)
        _refuse_conflicts(pods, stored, binding["metadata"])
        try:
            if not options.dry_run:
                cluster.store.replace(stored, _bound(stored, binding, cluster.sources.timestamp()))
        except StaleError:
            continue
        return


def _read(body: Any, namespace: str, name: str) -> JsonObject:
    if not isinstance(body, dict) or body.get("kind", "Binding") != "Binding":
        raise bad_request("the body is not a Binding")
    meta, target = body.get("metadata") or {}, body.get("target") or {}
    if not isinstance(meta, dict) or not isinstance(target, dict):
        raise bad_request("the body is not a Binding: metadata and target are objects")
    meta = dict(meta)
    check_texts("Binding", "v1", meta)
    if meta.setdefault("name", name) != name:
        raise bad_request(f"the name in the URL ({name}) does not match the name in the Binding ({meta['name']})")
    if meta.setdefault("namespace", namespace) != namespace:
        raise bad_request("the namespace of the provided object does not match the namespace sent on the request")
    causes = []
    if target.get("kind") not in (None, "", "Node"):
        causes.append(unsupported("target.kind", target["kind"], ("Node", "<empty>")))
    if not target.get("name"):
        causes.append(required("target.name"))
    if causes:  # a plain 500 on the real server too
        raise ApiError(500, "", str(causes[0]) if len(causes) == 1 else f"[{', '.join(map(str, causes))}]")
    return {"kind": "Binding", "apiVersion": "v1", "metadata": meta, "target": dict(target)}


def _refuse_conflicts(pods: Resource, stored: Stored, asked: JsonObject) -> None:
    name, pod = stored.name, stored.object
    key = pods.registry_key(stored.namespace, name)
    for field, wanted, seen in (
        ("UID", asked.get("uid"), stored.uid),
        ("ResourceVersion", asked.get("resourceVersion"), str(stored.version)),
    ):
        if wanted and wanted != seen:
            raise failed_precondition("pods", "", key, name, field, wanted, seen)
    if pod["metadata"].get("deletionTimestamp"):
        raise conflict("pods/binding", "", name, f"pod {name} is being deleted, cannot be assigned to a host")
    if node := pod["spec"].get("nodeName"):
        raise conflict("pods/binding", "", name, f'pod {name} is already assigned to node "{node}"')
    if pod["spec"].get("schedulingGates"):
        raise conflict("pods/binding", "", name, f"pod {name} has non-empty .spec.schedulingGates")


def _bound(stored: Stored, binding: JsonObject, now: str) -> JsonObject:
    pod = stored.copy()
    pod["spec"]["nodeName"] = binding["target"]["name"]
    for field in ("annotations", "labels"):
        added = binding["metadata"].get(field)
        if added:
            pod["metadata"][field] = {**(pod["metadata"].get(field) or {}), **added}
    scheduled = {"type": "PodScheduled", "status": "True", "lastProbeTime": None, "lastTransitionTime": now}
    conditions = [c for c in pod["status"].get("conditions") or () if c["type"] != "PodScheduled"]
    pod["status"]["conditions"] = [*conditions, scheduled]
    return pod
