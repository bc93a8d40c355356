"""pods/eviction: a deletion that respects disruption budgets.

Without a budget an eviction is a deletion. With one it follows ``status.disruptionsAllowed`` as a real server does; the
sandbox has no disruption controller, so that status is whatever somebody wrote into it.
"""

from __future__ import annotations

from typing import Any

from hcs.sandbox.apiserver import deletion, policies
from hcs.sandbox.apiserver.attempts import Attempt, User
from hcs.sandbox.apiserver.cluster import Cluster
from hcs.sandbox.apiserver.kinds import Resource
from hcs.sandbox.apiserver.selectors import matches_selector
from hcs.sandbox.apiserver.status import JsonObject, bad_request, internal, too_many_requests
from hcs.sandbox.apiserver.storage import Stored
from hcs.sandbox.apiserver.writing import WriteOptions

_BUDGETS = "poddisruptionbudgets.policy"


async def evict(
    cluster: Cluster, pods: Resource, namespace: str, name: str, body: Any, user: User, options: WriteOptions
) -> None:
    """Evict a pod. Raises ApiError 404, 409 and, when a budget forbids it, 429."""
    meta = body.get("metadata") or {} if isinstance(body, dict) else None
    if not isinstance(meta, dict) or meta.get("name", name) != name:
        raise bad_request("name in URL does not match name in Eviction object")
    wanted = deletion.DeleteOptions.read(body.get("deleteOptions") or {}, {"dryRun": "All"} if options.dry_run else {})
    body = {**body, "metadata": {**meta, "name": name, "namespace": namespace}}
    stored = cluster.must_get(pods, namespace, name)
    attempt = Attempt(
        pods, "CREATE", namespace, name, user, body, subresource="eviction", options=options.named("CreateOptions"),
        dry_run=options.dry_run, kind=("policy", "v1", "Eviction"),
    )  # fmt: skip
    await cluster.webhooks.mutate(attempt, lambda changed: changed)
    policies.enforce(cluster.store, cluster.namespace, attempt)
    await cluster.webhooks.validate(attempt)
    if not options.dry_run:
        _spend_budget(cluster, stored)
    await deletion.delete(cluster, pods, namespace, name, user, wanted)


def _spend_budget(cluster: Cluster, pod: Stored) -> None:
    phase = (pod.object.get("status") or {}).get("phase")
    if phase in ("Succeeded", "Failed", "Pending") or pod.object["metadata"].get("deletionTimestamp"):
        return
    labels = pod.object["metadata"].get("labels") or {}
    budgets = [
        stored
        for stored in cluster.store.objects(_BUDGETS, pod.namespace)
        if stored.object["spec"].get("selector") is not None
        and matches_selector(stored.object["spec"]["selector"], labels)
    ]
    if len(budgets) > 1:
        raise internal(
            "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
        )
    for budget in budgets:
        _take_one(cluster, budget, pod.name)


def _take_one(cluster: Cluster, budget: Stored, pod: str) -> None:
    object = budget.copy()
    status: JsonObject = object.setdefault("status", {})
    message = "Cannot evict pod as it would violate the pod's disruption budget."
    if status.get("observedGeneration", 0) < object["metadata"].get("generation", 0):
        why = f"The disruption budget {budget.name} is still being processed by the server."
        raise too_many_requests(message, [{"reason": "DisruptionBudget", "message": why}], retry_seconds=10)
    if status.get("disruptionsAllowed", 0) <= 0:
        desired, healthy = status.get("desiredHealthy", 0), status.get("currentHealthy", 0)
        why = f"The disruption budget {budget.name} needs {desired} healthy pods and has {healthy} currently"
        raise too_many_requests(message, [{"reason": "DisruptionBudget", "message": why}])
    status["disruptionsAllowed"] -= 1
    status.setdefault("disruptedPods", {})[pod] = cluster.sources.timestamp()
    cluster.store.replace(budget, object)
