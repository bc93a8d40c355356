"""Pods: what the server fills in, what it keeps, and when they count as placed.

Defaults follow the recorded ``samples/admissionreview-pod-create.json``: a webhook sees the pod after them, and they
run again on what the webhook added.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from hcs.sandbox.apiserver import quantities
from hcs.sandbox.apiserver.status import JsonObject

_NOT_READY = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")


def containers(spec: JsonObject) -> Iterator[tuple[str, JsonObject]]:
    """Every container of a pod spec with its field path."""
    for field in ("initContainers", "containers", "ephemeralContainers"):
        for index, container in enumerate(spec.get(field) or ()):
            yield f"spec.{field}[{index}]", container


def set_defaults(spec: JsonObject, *, template: bool = False) -> None:
    """Fill in a pod spec (of a pod, or of a job's template)."""
    if not template:
        spec.setdefault("restartPolicy", "Always")
    spec.setdefault("terminationGracePeriodSeconds", 30)
    spec.setdefault("dnsPolicy", "ClusterFirst")
    spec.setdefault("securityContext", {})
    spec.setdefault("schedulerName", "default-scheduler")
    if not template:
        spec.setdefault("enableServiceLinks", True)
    if spec.get("serviceAccount") and not spec.get("serviceAccountName"):
        spec["serviceAccountName"] = spec["serviceAccount"]
    elif spec.get("serviceAccountName"):
        spec["serviceAccount"] = spec["serviceAccountName"]
    for _, container in containers(spec):
        _container_defaults(container)
    for volume in spec.get("volumes") or ():
        _volume_defaults(volume)
    for field in ("nodeName", "nodeSelector", "tolerations", "schedulingGates", "volumes", "initContainers"):
        if field in spec and not spec[field]:
            del spec[field]


def _container_defaults(container: JsonObject) -> None:
    container.setdefault("terminationMessagePath", "/dev/termination-log")
    container.setdefault("terminationMessagePolicy", "File")
    image = str(container.get("image", ""))
    _, colon, tag = image.rpartition("/")[2].partition(":")
    latest = (not colon and "@" not in image) or tag == "latest"
    container.setdefault("imagePullPolicy", "Always" if latest else "IfNotPresent")
    resources = container.setdefault("resources", {})
    for kind in ("limits", "requests"):
        if kind in resources:
            resources[kind] = canonical_amounts(resources[kind] or {})
    if resources.get("limits"):
        resources["requests"] = {**resources["limits"], **(resources.get("requests") or {})}
    for port in container.get("ports") or ():
        port.setdefault("protocol", "TCP")
    for variable in container.get("env") or ():
        _source_defaults(variable.get("valueFrom") or {})
        if variable.get("value") == "":
            del variable["value"]
    for probe in ("livenessProbe", "readinessProbe", "startupProbe"):
        if container.get(probe):
            _probe_defaults(container[probe])


def _probe_defaults(probe: JsonObject) -> None:
    for field, value in (
        ("timeoutSeconds", 1),
        ("periodSeconds", 10),
        ("successThreshold", 1),
        ("failureThreshold", 3),
    ):
        probe.setdefault(field, value)
    if "httpGet" in probe:
        probe["httpGet"].setdefault("path", "/")
        probe["httpGet"].setdefault("scheme", "HTTP")


def _source_defaults(source: JsonObject) -> None:
    if source.get("fieldRef"):
        source["fieldRef"].setdefault("apiVersion", "v1")
    if source.get("resourceFieldRef"):
        source["resourceFieldRef"].setdefault("divisor", "0")
    if source.get("fileKeyRef"):
        source["fileKeyRef"].setdefault("optional", False)


def _volume_defaults(volume: JsonObject) -> None:
    if set(volume) <= {"name"}:
        volume["emptyDir"] = {}
    for kind in ("configMap", "secret", "downwardAPI", "projected"):
        if volume.get(kind) is not None:
            volume[kind].setdefault("defaultMode", 420)
    if volume.get("hostPath"):
        volume["hostPath"].setdefault("type", "")
    if volume.get("image") is not None:
        reference = str(volume["image"].get("reference", ""))
        pinned = "@" in reference or (":" in reference.rpartition("/")[2] and not reference.endswith(":latest"))
        volume["image"].setdefault("pullPolicy", "IfNotPresent" if pinned else "Always")
    for item in (volume.get("downwardAPI") or {}).get("items") or ():
        _source_defaults(item)
    for source in (volume.get("projected") or {}).get("sources") or ():
        if "serviceAccountToken" in source:
            source["serviceAccountToken"].setdefault("expirationSeconds", 3600)
        for item in (source.get("downwardAPI") or {}).get("items") or ():
            _source_defaults(item)
    if isinstance((volume.get("emptyDir") or {}).get("sizeLimit"), str | int):
        volume["emptyDir"]["sizeLimit"] = quantities.canonical(volume["emptyDir"]["sizeLimit"])


def canonical_amounts(amounts: JsonObject) -> JsonObject:
    """A resource list in the spelling the server returns, rounded up to thousandths; raises QuantityError."""
    return {name: quantities.canonical(amount, thousandths=True) for name, amount in amounts.items()}


def mirror_addresses(status: JsonObject) -> None:
    """Keep ``podIP`` and ``podIPs`` (and the host's) telling the same."""
    for one, many in (("podIP", "podIPs"), ("hostIP", "hostIPs")):
        if status.get(one) and not status.get(many):
            status[many] = [{"ip": status[one]}]
        elif status.get(many) and not status.get(one):
            status[one] = status[many][0]["ip"]


def admission_defaults(object: JsonObject, classes: dict[str, JsonObject]) -> str | None:
    """What the built-in admission plug-ins write: priority and the two 300 s tolerations. Returns a refusal or None."""
    spec = object["spec"]
    name = spec.get("priorityClassName", "")
    chosen = classes.get(name)
    if name and chosen is None:
        return f"no PriorityClass with name {name} was found"
    if not name:
        chosen = next((c for c in classes.values() if c.get("globalDefault")), None)
        if chosen is not None:
            spec["priorityClassName"] = chosen["metadata"]["name"]
    priority = chosen["value"] if chosen else 0
    if spec.get("priority") is not None and spec["priority"] != priority:
        return f"the integer value of priority ({spec['priority']}) must not be provided in pod spec; " + (
            f"priority admission controller computed {priority} from the given PriorityClass name"
        )
    spec["priority"] = priority
    spec.setdefault("preemptionPolicy", (chosen or {}).get("preemptionPolicy", "PreemptLowerPriority"))
    tolerate_lost_nodes(spec)
    return None


def tolerate_lost_nodes(spec: JsonObject) -> None:
    """Add the two 300 s tolerations where nothing tolerates lost nodes; a real server does so at every update too."""
    tolerations = spec.get("tolerations") or []
    for key in _NOT_READY:
        if not any(_tolerates_no_execute(toleration, key) for toleration in tolerations):
            added = {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
            tolerations = [*tolerations, added]
    spec["tolerations"] = tolerations


def _tolerates_no_execute(toleration: JsonObject, key: str) -> bool:
    return toleration.get("key") in (key, None, "") and toleration.get("effect") in ("NoExecute", None, "")


def quality_of_service(spec: JsonObject) -> str:
    """``Guaranteed``, ``Burstable`` or ``BestEffort``, from cpu and memory alone."""
    named = [container for path, container in containers(spec) if "ephemeral" not in path]
    asked: list[tuple[dict[str, Any], dict[str, Any]]] = []
    for container in named:
        resources = container.get("resources") or {}
        pick = [
            {n: a for n, a in (resources.get(k) or {}).items() if n in ("cpu", "memory")}
            for k in ("requests", "limits")
        ]
        asked.append((pick[0], pick[1]))
    if not any(requests or limits for requests, limits in asked):
        return "BestEffort"
    if all(set(limits) == {"cpu", "memory"} and requests == limits for requests, limits in asked):
        return "Guaranteed"
    return "Burstable"


def initial_status(object: JsonObject, now: str) -> JsonObject:
    """The status of a pod just created; a gated one says so in PodScheduled."""
    status: JsonObject = {"phase": "Pending"}
    if object["spec"].get("schedulingGates"):
        status["conditions"] = [
            {
                "type": "PodScheduled",
                "status": "False",
                "lastProbeTime": None,
                "lastTransitionTime": now,
                "reason": "SchedulingGated",
                "message": "Scheduling is blocked due to non-empty scheduling gates",
            }
        ]
    status["qosClass"] = quality_of_service(object["spec"])
    return status
