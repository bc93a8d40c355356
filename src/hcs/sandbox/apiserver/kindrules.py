"""What is special about each built-in kind: defaults, what a write may touch, what is refused.

A real server has one "strategy" per kind; here a few functions dispatch on the resource. ``normalise`` runs when an
object enters (and again after webhooks), ``prepare_*`` decide which part of the object this request may write,
``validate_*`` collect causes for a 422.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator

from hcs.sandbox.apiserver import (
    customresources,
    expressions,
    metadata,
    pods,
    podvalidation,
    quantities,
    schema,
    wiretypes,
)
from hcs.sandbox.apiserver.kinds import Resource
from hcs.sandbox.apiserver.status import (
    Cause,
    JsonObject,
    bad_request,
    forbidden_field,
    invalid,
    invalid_value,
    required,
    unsupported,
)

_WEBHOOKS = ("mutatingwebhookconfigurations", "validatingwebhookconfigurations")


def normalise(resource: Resource, object: JsonObject) -> JsonObject:
    """Bring an object into the server's form: defaults, canonical quantities, no nulls. Raises ApiError 400."""
    if resource.custom is not None:
        schema.prune(object, resource.custom.schema)
        schema.apply_defaults(object, resource.custom.schema)
        return object
    if resource.plural != "events":
        object, _ = wiretypes.conform(resource, object)
    try:
        _defaults(resource, object)
    except quantities.QuantityError as error:
        raise bad_request(
            f'{resource.kind} in version "{resource.version}" cannot be handled as a {resource.kind}: {error}'
        ) from None
    except (AttributeError, TypeError, KeyError) as error:
        raise bad_request(
            f'{resource.kind} in version "{resource.version}" cannot be handled as a {resource.kind}: '
            f"a field has the wrong type ({error})"
        ) from None
    return object


def _defaults(resource: Resource, object: JsonObject) -> None:
    match resource.plural:
        case "pods":
            object.setdefault("spec", {})
            pods.set_defaults(object["spec"])
            pods.mirror_addresses(object.get("status") or {})
        case "jobs":
            _job_defaults(object)
        case "nodes":
            object.setdefault("spec", {})
            status = object.setdefault("status", {})
            for field in ("capacity", "allocatable"):
                if field in status:
                    status[field] = pods.canonical_amounts(status[field])
            if status.get("capacity") and "allocatable" not in status:
                status["allocatable"] = dict(status["capacity"])
        case "namespaces":
            object.setdefault("spec", {}).setdefault("finalizers", ["kubernetes"])
            object.setdefault("status", {}).setdefault("phase", "Active")
            name = object["metadata"].get("name", "")
            object["metadata"].setdefault("labels", {})["kubernetes.io/metadata.name"] = name
        case "secrets":
            object.setdefault("type", "Opaque")
            for key, text in (object.get("data") or {}).items():
                if not _is_base64(text):
                    raise quantities.QuantityError(f"illegal base64 data in {key}")
            for key, text in (object.pop("stringData", None) or {}).items():
                object.setdefault("data", {})[key] = base64.b64encode(text.encode()).decode()
        case "resourcequotas":
            spec = object.setdefault("spec", {})
            if "hard" in spec:
                spec["hard"] = pods.canonical_amounts(spec["hard"])
            object.setdefault("status", {})
        case "priorityclasses":
            object.setdefault("preemptionPolicy", "PreemptLowerPriority")
        case "customresourcedefinitions":
            customresources.set_defaults(object)
        case "validatingadmissionpolicies":
            _policy_defaults(object)
        case plural if plural in _WEBHOOKS:
            for webhook in object.get("webhooks") or ():
                _webhook_defaults(webhook, mutating=plural == _WEBHOOKS[0])


def _is_base64(text: str) -> bool:
    try:
        base64.b64decode(text, validate=True)
    except ValueError:
        return False
    return True


def _job_defaults(object: JsonObject) -> None:
    spec = object.setdefault("spec", {})
    if "completions" not in spec and "parallelism" not in spec:
        spec["completions"] = 1
    for field, value in (
        ("parallelism", 1),
        ("backoffLimit", 6),
        ("completionMode", "NonIndexed"),
        ("suspend", False),
        ("manualSelector", False),
        ("podReplacementPolicy", "TerminatingOrFailed"),
    ):
        spec.setdefault(field, value)
    template = spec.setdefault("template", {})
    template.setdefault("metadata", {})
    pods.set_defaults(template.setdefault("spec", {}), template=True)
    object.setdefault("status", {})


def _webhook_defaults(webhook: JsonObject, *, mutating: bool) -> None:
    webhook.setdefault("failurePolicy", "Fail")
    webhook.setdefault("matchPolicy", "Equivalent")
    webhook.setdefault("namespaceSelector", {})
    webhook.setdefault("objectSelector", {})
    webhook.setdefault("timeoutSeconds", 10)
    if mutating:
        webhook.setdefault("reinvocationPolicy", "Never")
    for rule in webhook.get("rules") or ():
        rule.setdefault("scope", "*")
    if webhook.get("clientConfig", {}).get("service"):
        webhook["clientConfig"]["service"].setdefault("port", 443)


def _policy_defaults(object: JsonObject) -> None:
    spec = object.setdefault("spec", {})
    spec.setdefault("failurePolicy", "Fail")
    constraints = spec.setdefault("matchConstraints", {})
    constraints.setdefault("matchPolicy", "Equivalent")
    constraints.setdefault("namespaceSelector", {})
    constraints.setdefault("objectSelector", {})
    for rule in constraints.get("resourceRules") or ():
        rule.setdefault("scope", "*")


def prepare_create(resource: Resource, object: JsonObject, now: str) -> None:
    """Decide what a new object's status is; the client's is dropped where a real server drops it."""
    match resource.plural:
        case "pods":
            object["status"] = pods.initial_status(object, now)
        case "jobs":
            object["status"] = {}
            _job_selector(object)
        case "namespaces":
            object["status"] = {"phase": "Active"}
        case "resourcequotas" | "validatingadmissionpolicies":
            object["status"] = {}
        case "poddisruptionbudgets":
            zeros = dict.fromkeys(("currentHealthy", "desiredHealthy", "disruptionsAllowed", "expectedPods"), 0)
            object["status"] = zeros
        case "customresourcedefinitions":
            stored = [version["name"] for version in object["spec"].get("versions") or () if version.get("storage")]
            names = {"plural": "", "kind": ""}
            object["status"] = {"conditions": None, "acceptedNames": names, "storedVersions": stored}
    if resource.custom is not None and resource.has_status:
        object.pop("status", None)


def _job_selector(object: JsonObject) -> None:
    spec, meta = object["spec"], object["metadata"]
    if spec.get("manualSelector"):
        return
    labels = spec["template"]["metadata"].setdefault("labels", {})
    if "labels" not in meta:
        meta["labels"] = labels
    for prefix in ("", "batch.kubernetes.io/"):
        labels[f"{prefix}controller-uid"] = meta["uid"]
        labels[f"{prefix}job-name"] = meta.get("name", "")
    spec.setdefault("selector", {}).setdefault("matchLabels", {})["batch.kubernetes.io/controller-uid"] = meta["uid"]


def prepare_update(resource: Resource, subresource: str, new: JsonObject, old: JsonObject) -> JsonObject:
    """Isolate spec from status: keep of ``old`` what this endpoint may not write, and count the generation."""
    if subresource == "status":
        if resource.custom is not None:
            status = new.get("status")
            new = {**old, "metadata": {**old["metadata"]}}
            new.pop("status", None)
            return {**new, "status": status} if status is not None else new
        for field in {*new, *old} - {"status", "metadata", "apiVersion", "kind"}:
            _keep(new, old, field)
        if resource.plural in ("pods", "jobs"):
            _keep(new["metadata"], old["metadata"], "ownerReferences")
    elif resource.has_status:
        _keep(new, old, "status")
    if resource.plural == "namespaces" and subresource != "finalize":
        _keep(new["spec"], old["spec"], "finalizers")
    if "generation" in new["metadata"] and not subresource and _wish(resource, new) != _wish(resource, old):
        new["metadata"]["generation"] += 1
    return new


def _keep(new: JsonObject, old: JsonObject, field: str) -> None:
    new.pop(field, None)
    if field in old:
        new[field] = old[field]


def _wish(resource: Resource, object: JsonObject) -> JsonObject:
    """The part of an object whose changes its generation counts."""
    return {k: v for k, v in object.items() if k != "metadata" and not (k == "status" and resource.has_status)}


def validate(resource: Resource, new: JsonObject, old: JsonObject | None, subresource: str = "") -> Iterator[Cause]:
    """Everything wrong with an object about to be stored."""
    yield from metadata.validate(resource, new)
    if old is not None:
        yield from metadata.validate_update(new, old)
    if resource.custom is not None:
        yield from schema.validate(new, resource.custom.schema, old)
        return
    match resource.plural:
        case "pods" if subresource == "status":
            yield from _pod_status(new)
        case "pods":
            yield from podvalidation.validate_spec(new["spec"])
            if old is None:
                yield from podvalidation.validate_create(new)
            else:
                yield from podvalidation.validate_update(new, old)
        case "jobs":
            yield from _job(new, old)
        case "priorityclasses":
            if old is not None and new.get("value") != old.get("value"):
                yield forbidden_field("value", "may not be changed in an update.")
        case "customresourcedefinitions":
            yield from customresources.validate(new, old)
        case "configmaps" | "secrets" if old is not None and old.get("immutable"):
            if new.get("data") != old.get("data") or not new.get("immutable"):
                yield forbidden_field("data", "field is immutable when `immutable` is set")
        case "events":
            yield from _event(new)
        case "validatingadmissionpolicies":
            yield from _policy(new)
        case plural if plural in _WEBHOOKS:
            yield from _webhooks(new)


def _event(object: JsonObject) -> Iterator[Cause]:
    about, own = (object.get("involvedObject") or {}).get("namespace", ""), object["metadata"].get("namespace", "")
    if about != own and not (not about and own == "default"):
        yield invalid_value("involvedObject.namespace", about, "does not match event.namespace")


def _pod_status(object: JsonObject) -> Iterator[Cause]:
    name = object.get("status", {}).get("nominatedNodeName", "")
    if name and not metadata.is_subdomain(name):
        yield invalid_value("status.nominatedNodeName", name, metadata.SUBDOMAIN_MESSAGE)


def _job(new: JsonObject, old: JsonObject | None) -> Iterator[Cause]:
    spec = new["spec"]
    policy = spec["template"]["spec"].get("restartPolicy")
    if policy not in ("OnFailure", "Never"):
        yield required("spec.template.spec.restartPolicy", 'valid values: "OnFailure", "Never"')
    else:
        yield from podvalidation.validate_spec(spec["template"]["spec"], "spec.template.spec")
    if old is None:
        return
    suspended = old["spec"].get("suspend")
    for field in ("completions", "selector", "template", "completionMode"):
        if spec.get(field) != old["spec"].get(field) and not (field == "template" and suspended):
            yield Cause(f"spec.{field}", "FieldValueInvalid", "Invalid value: field is immutable")


def _webhooks(object: JsonObject) -> Iterator[Cause]:
    for index, webhook in enumerate(object.get("webhooks") or ()):
        place = f"webhooks[{index}]"
        if webhook.get("name", "").count(".") < 2:
            yield invalid_value(
                f"{place}.name",
                webhook.get("name", ""),
                "should be a domain with at least three segments separated by dots",
            )
        if not webhook.get("admissionReviewVersions"):
            yield required(f"{place}.admissionReviewVersions", "must specify one of v1, v1beta1")
        if webhook.get("sideEffects") and webhook["sideEffects"] not in ("None", "NoneOnDryRun"):
            yield unsupported(f"{place}.sideEffects", webhook["sideEffects"], ("None", "NoneOnDryRun"))
        elif not webhook.get("sideEffects"):
            yield required(f"{place}.sideEffects", "must specify one of None, NoneOnDryRun")
        if not 1 <= webhook["timeoutSeconds"] <= 30:
            yield invalid_value(
                f"{place}.timeoutSeconds",
                webhook["timeoutSeconds"],
                "the timeout value must be between 1 and 30 seconds",
            )
        config = webhook.get("clientConfig") or {}
        if ("url" in config) == ("service" in config):
            yield required(f"{place}.clientConfig", "exactly one of url or service is required")
        elif "url" in config and not str(config["url"]).startswith("https://"):
            yield invalid_value(
                f"{place}.clientConfig.url",
                str(config["url"]).partition(":")[0],
                "'https' is the only allowed URL scheme; desired format: https://host[/path]",
            )
        for position, condition in enumerate(webhook.get("matchConditions") or ()):
            yield from _expression(f"{place}.matchConditions[{position}].expression", condition.get("expression", ""))


def _policy(object: JsonObject) -> Iterator[Cause]:
    spec = object["spec"]
    if not spec.get("validations") and not spec.get("auditAnnotations"):
        yield required("spec.validations", "validations or auditAnnotations must contain at least one item")
    for field in ("variables", "matchConditions", "validations"):
        for index, item in enumerate(spec.get(field) or ()):
            yield from _expression(f"spec.{field}[{index}].expression", item.get("expression", ""))


def _expression(place: str, text: str) -> Iterator[Cause]:
    if not text:
        yield required(place)
        return
    try:
        expressions.compile_text(text)
    except expressions.ExpressionError as error:
        yield invalid_value(place, text, str(error))


def check(resource: Resource, new: JsonObject, old: JsonObject | None, subresource: str = "") -> None:
    """Raise one 422 with every cause found."""

    try:
        causes = list(validate(resource, new, old, subresource))
    except (AttributeError, TypeError, KeyError) as error:
        raise bad_request(f"{resource.kind} cannot be handled: a field has the wrong type ({error!r})") from None
    if causes:
        raise invalid(resource.kind, resource.group, new["metadata"].get("name", ""), causes)
