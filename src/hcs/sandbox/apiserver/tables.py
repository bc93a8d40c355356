"""Tables: what ``kubectl get`` prints.

kubectl asks for ``as=Table`` and shows the cells as they are, so the columns people know are made here: one function
per built-in kind, and ``additionalPrinterColumns`` (a JSONPath subset) for custom resources. Columns with priority 1
appear with ``-o wide``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

from hcs.sandbox.apiserver import jsonpath
from hcs.sandbox.apiserver.kinds import Resource
from hcs.sandbox.apiserver.status import JsonObject
from hcs.sandbox.apiserver.storage import Stored

Cells = Callable[[JsonObject, datetime], list[Any]]


def wanted(accept: str) -> bool:
    """Whether an Accept header prefers a table."""
    first = next((part for part in accept.split(",") if "json" in part), "")
    return "as=Table" in first


def table(resource: Resource, items: Iterable[Stored], metadata: JsonObject, now: datetime, include: str) -> JsonObject:
    """A Table document; ``include`` is ``Object``, ``Metadata`` (default) or ``None``."""
    columns, cells = _columns(resource)
    return {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": metadata,
        "columnDefinitions": columns,
        "rows": [
            {"cells": cells(stored.object, now), "object": _row_object(stored.object, include)}
            if include != "None"
            else {"cells": cells(stored.object, now)}
            for stored in items
        ],
    }


def _row_object(object: JsonObject, include: str) -> JsonObject:
    if include == "Object":
        return object
    return {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": object["metadata"]}


def _columns(resource: Resource) -> tuple[list[JsonObject], Cells]:
    if resource.custom is not None:
        shown = resource.custom.columns
        definitions = [_definition("Name", "string", 0, "name")]
        definitions += [_definition(c.name, c.type, c.priority, c.format) for c in shown]
        return definitions, lambda object, now: [
            object["metadata"].get("name", ""),
            *(_custom_cell(object, column.path, column.type, now) for column in shown),
        ]
    names, cells = _BUILTIN.get(resource.storage_key, _DEFAULT)
    definitions = []
    for text in names:
        name, _, kind = text.rstrip("+").partition(":")
        wide = 1 if text.endswith("+") else 0
        definitions.append(_definition(name, kind or "string", wide, "name" if name == "Name" else ""))
    return definitions, cells


def _definition(name: str, type: str, priority: int, format: str) -> JsonObject:
    return {"name": name, "type": type, "format": format, "description": name, "priority": priority}


def _custom_cell(object: JsonObject, path: str, type: str, now: datetime) -> Any:
    found = jsonpath.find(object, path)
    if not found:
        return None
    if type == "date":
        return age(str(found[0]), now)
    if type == "string":
        return ",".join(jsonpath.text(value) for value in found)
    return found[0]


def age(moment: str | None, now: datetime) -> str:
    """Time since a moment as kubectl prints it: ``5s``, ``3m20s``, ``2h``, ``5d``."""
    if not moment:
        return "<unknown>"
    try:
        return spell_duration(now.astimezone(UTC) - datetime.fromisoformat(moment))
    except ValueError:
        return "<unknown>"


def spell_duration(span: timedelta) -> str:
    seconds = int(span.total_seconds())
    if seconds < 0:
        return "0s"
    minutes, hours, days = seconds // 60, seconds // 3600, seconds // 86400
    if seconds < 120:
        return f"{seconds}s"
    if minutes < 10:
        return f"{minutes}m{seconds % 60}s" if seconds % 60 else f"{minutes}m"
    if minutes < 180:
        return f"{minutes}m"
    if hours < 8:
        return f"{hours}h{minutes % 60}m" if minutes % 60 else f"{hours}h"
    if hours < 48:
        return f"{hours}h"
    if days < 8:
        return f"{days}d{hours % 24}h" if hours % 24 else f"{days}d"
    return f"{days}d" if days < 730 else f"{days // 365}y"


def _meta(object: JsonObject) -> JsonObject:
    meta: JsonObject = object["metadata"]
    return meta


def _age_of(object: JsonObject, now: datetime) -> str:
    return age(_meta(object).get("creationTimestamp"), now)


def _pod(object: JsonObject, now: datetime) -> list[Any]:
    spec, status = object["spec"], object.get("status") or {}
    statuses = status.get("containerStatuses") or []
    ready = sum(bool(s.get("ready")) for s in statuses)
    restarts = sum(s.get("restartCount", 0) for s in statuses)
    gates = spec.get("readinessGates") or []
    return [
        _meta(object)["name"],
        f"{ready}/{len(spec['containers'])}",
        pod_phase(object),
        str(restarts),
        _age_of(object, now),
        status.get("podIP") or "<none>",
        spec.get("nodeName") or "<none>",
        status.get("nominatedNodeName") or "<none>",
        f"0/{len(gates)}" if gates else "<none>",
    ]


def pod_phase(object: JsonObject) -> str:
    """The STATUS column: the reason that matters most to a person."""
    status = object.get("status") or {}
    reason = str(status.get("reason") or status.get("phase") or "Unknown")
    for condition in status.get("conditions") or ():
        if condition["type"] == "PodScheduled" and condition.get("reason") == "SchedulingGated":
            reason = "SchedulingGated"
    running = False
    for container in reversed(status.get("containerStatuses") or []):
        state = container.get("state") or {}
        if (state.get("waiting") or {}).get("reason"):
            reason = state["waiting"]["reason"]
        elif "terminated" in state:
            ended = state["terminated"] or {}
            reason = ended.get("reason") or (
                f"Signal:{ended['signal']}" if ended.get("signal") else f"ExitCode:{ended.get('exitCode', 0)}"
            )
        elif container.get("ready") and "running" in state:
            running = True
    if reason == "Completed" and running:
        reason = "Running"
    if _meta(object).get("deletionTimestamp") and status.get("phase") not in ("Succeeded", "Failed"):
        reason = "Unknown" if status.get("reason") == "NodeLost" else "Terminating"
    return reason


def _node(object: JsonObject, now: datetime) -> list[Any]:
    status, labels = object.get("status") or {}, _meta(object).get("labels") or {}
    conditions = {c["type"]: c["status"] for c in status.get("conditions") or ()}
    states = ["Ready" if conditions.get("Ready") == "True" else "NotReady"] if "Ready" in conditions else ["Unknown"]
    if object.get("spec", {}).get("unschedulable"):
        states.append("SchedulingDisabled")
    prefix = "node-role.kubernetes.io/"
    roles = sorted(key.removeprefix(prefix) for key in labels if key.startswith(prefix)) or ["<none>"]
    addresses = {a["type"]: a["address"] for a in reversed(status.get("addresses") or [])}
    info = status.get("nodeInfo") or {}
    return [
        _meta(object)["name"],
        ",".join(states),
        ",".join(roles),
        _age_of(object, now),
        info.get("kubeletVersion", ""),
        addresses.get("InternalIP", "<none>"),
        addresses.get("ExternalIP", "<none>"),
        info.get("osImage") or "<unknown>",
        _kernel(info),
        info.get("containerRuntimeVersion") or "<unknown>",
    ]


def _kernel(info: JsonObject) -> str:
    kernel = info.get("kernelVersion") or "<unknown>"
    return f"{kernel} ({info['architecture']})" if info.get("architecture") else kernel


def _event(object: JsonObject, now: datetime) -> list[Any]:
    regarding, source = object.get("involvedObject") or {}, object.get("source") or {}
    first, last, count = object.get("firstTimestamp"), object.get("lastTimestamp"), object.get("count", 1)
    if object.get("series"):
        last, count = object["series"].get("lastObservedTime"), object["series"].get("count", 1)
    first = first or object.get("eventTime") or _meta(object).get("creationTimestamp")
    component = source.get("component") or object.get("reportingComponent") or ""
    instance = source.get("host") or object.get("reportingInstance") or ""
    return [
        age(last or first, now),
        object.get("type", ""),
        object.get("reason", ""),
        f"{regarding.get('kind', '').lower()}/{regarding.get('name', '')}",
        regarding.get("fieldPath", ""),
        ", ".join(part for part in (component, instance) if part),
        str(object.get("message", "")).strip(),
        age(first, now),
        count or 1,
        _meta(object)["name"],
    ]


def _job(object: JsonObject, now: datetime) -> list[Any]:
    spec, status = object["spec"], object.get("status") or {}
    conditions = {c["type"] for c in status.get("conditions") or () if c.get("status") == "True"}
    state = next((s for s in ("Complete", "Failed", "Suspended") if s in conditions), "Running")
    if _meta(object).get("deletionTimestamp") and state == "Running":
        state = "Terminating"
    wanted_count = spec.get("completions")
    succeeded = status.get("succeeded", 0)
    completions = (
        f"{succeeded}/{wanted_count}" if wanted_count is not None else f"{succeeded}/1 of {spec['parallelism']}"
    )
    duration = ""
    if status.get("startTime"):
        end = datetime.fromisoformat(status["completionTime"]) if status.get("completionTime") else now.astimezone(UTC)
        duration = spell_duration(end - datetime.fromisoformat(status["startTime"]))
    containers = spec["template"]["spec"].get("containers") or []
    selector = (spec.get("selector") or {}).get("matchLabels") or {}
    return [
        _meta(object)["name"],
        state,
        completions,
        duration,
        _age_of(object, now),
        ",".join(c["name"] for c in containers),
        ",".join(c.get("image", "") for c in containers),
        ",".join(f"{k}={v}" for k, v in sorted(selector.items())) or "<none>",
    ]


def _simple(*paths: str) -> Cells:
    """Name, one cell per path, age."""

    def cells(object: JsonObject, now: datetime) -> list[Any]:
        values = [", ".join(jsonpath.text(v) for v in jsonpath.find(object, path)) for path in paths]
        return [_meta(object)["name"], *values, _age_of(object, now)]

    return cells


def _count(field: str) -> Cells:
    return lambda object, now: [_meta(object)["name"], len(object.get(field) or ()), _age_of(object, now)]


def _quota(object: JsonObject, now: datetime) -> list[Any]:
    status = object.get("status") or {}
    used, hard = status.get("used") or {}, status.get("hard") or object["spec"].get("hard") or {}
    pairs = {True: [], False: []}  # type: dict[bool, list[str]]
    for name in sorted(hard):
        pairs[name.startswith("limits.")].append(f"{name}: {used.get(name, '0')}/{hard[name]}")
    return [_meta(object)["name"], ", ".join(pairs[False]), ", ".join(pairs[True]), _age_of(object, now)]


_WEBHOOKS: tuple[tuple[str, ...], Cells] = (("Name", "Webhooks:integer", "Age"), _count("webhooks"))
_DEFAULT: tuple[tuple[str, ...], Cells] = (("Name", "Age"), _simple())
_BUILTIN: dict[str, tuple[tuple[str, ...], Cells]] = {
    "pods": (
        ("Name", "Ready", "Status", "Restarts", "Age", "IP+", "Node+", "Nominated Node+", "Readiness Gates+"),
        _pod,
    ),
    "nodes": (
        (
            "Name", "Status", "Roles", "Age", "Version", "Internal-IP+", "External-IP+", "OS-Image+",
            "Kernel-Version+", "Container-Runtime+",
        ),
        _node,
    ),
    "namespaces": (("Name", "Status", "Age"), _simple(".status.phase")),
    "events": (
        (
            "Last Seen", "Type", "Reason", "Object", "Subobject+", "Source+", "Message", "First Seen+",
            "Count:integer+",
            "Name+",
        ),
        _event,
    ),
    "jobs.batch": (
        ("Name", "Status", "Completions", "Duration", "Age", "Containers+", "Images+", "Selector+"),
        _job,
    ),
    "leases.coordination.k8s.io": (("Name", "Holder", "Age"), _simple(".spec.holderIdentity")),
    "configmaps": (("Name", "Data:integer", "Age"), _count("data")),
    "secrets": (
        ("Name", "Type", "Data:integer", "Age"),
        lambda o, now: [_meta(o)["name"], o.get("type", ""), len(o.get("data") or ()), _age_of(o, now)],
    ),
    "resourcequotas": (("Name", "Request", "Limit", "Age"), _quota),
    "priorityclasses.scheduling.k8s.io": (
        ("Name", "Value:integer", "Global-Default:boolean", "Age", "PreemptionPolicy+"),
        lambda o, now: [
            _meta(o)["name"], o.get("value", 0), bool(o.get("globalDefault")), _age_of(o, now),
            o.get("preemptionPolicy", ""),
        ],
    ),
    "poddisruptionbudgets.policy": (
        ("Name", "Min Available", "Max Unavailable", "Allowed Disruptions:integer", "Age"),
        lambda o, now: [
            _meta(o)["name"], str(o["spec"].get("minAvailable", "N/A")),
            str(o["spec"].get("maxUnavailable", "N/A")),
            (o.get("status") or {}).get("disruptionsAllowed", 0), _age_of(o, now),
        ],
    ),
    "customresourcedefinitions.apiextensions.k8s.io": (
        ("Name", "Created At:date"),
        lambda o, now: [_meta(o)["name"], _meta(o).get("creationTimestamp", "")],
    ),
    "mutatingwebhookconfigurations.admissionregistration.k8s.io": _WEBHOOKS,
    "validatingwebhookconfigurations.admissionregistration.k8s.io": _WEBHOOKS,
}  # fmt: skip
