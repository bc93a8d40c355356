"""ValidatingAdmissionPolicy: CEL rules that hold even while every webhook is down.

Promises: a policy acts only through a binding, ``Deny`` refuses and ``Warn`` warns, variables are available to later
ones, and an expression that fails to evaluate follows the policy's failure policy. Parameters (``paramKind``) and
``authorizer`` are not part of the sandbox; a policy that needs them fails closed.
"""

from __future__ import annotations

from hcs.sandbox.apiserver import expressions
from hcs.sandbox.apiserver.attempts import Attempt, NamespaceLookup, concerns, selected
from hcs.sandbox.apiserver.status import ApiError, JsonObject
from hcs.sandbox.apiserver.storage import Store

_GROUP = "admissionregistration.k8s.io"
_CODES = {"Unauthorized": 401, "Forbidden": 403, "Invalid": 422, "RequestEntityTooLarge": 413}


def enforce(store: Store, namespace: NamespaceLookup, attempt: Attempt) -> list[str]:
    """Check every bound policy; raises ApiError for the first refusal, returns warnings."""
    warnings: list[str] = []
    if attempt.resource.group == _GROUP:
        return warnings
    bindings = [stored.object for stored in store.objects(f"validatingadmissionpolicybindings.{_GROUP}")]
    for stored in store.objects(f"validatingadmissionpolicies.{_GROUP}"):
        policy, name = stored.object, stored.name
        constraints = policy["spec"]["matchConstraints"]
        if not _in_scope(constraints, attempt, namespace):
            continue
        for binding in bindings:
            if binding["spec"]["policyName"] != name:
                continue
            narrowed = binding["spec"].get("matchResources")
            if narrowed and not _in_scope({"resourceRules": None, **narrowed}, attempt, namespace):
                continue
            _enforce_bound(policy, binding, attempt, namespace, warnings)
    return warnings


def _in_scope(constraints: JsonObject, attempt: Attempt, namespace: NamespaceLookup) -> bool:
    rules = constraints.get("resourceRules")
    if rules is not None and not concerns(rules, attempt):
        return False
    if concerns(constraints.get("excludeResourceRules") or [], attempt):
        return False
    return selected(constraints, attempt, namespace)


def _enforce_bound(
    policy: JsonObject, binding: JsonObject, attempt: Attempt, namespace: NamespaceLookup, warnings: list[str]
) -> None:
    spec, actions = policy["spec"], binding["spec"].get("validationActions") or []
    scope = attempt.expression_scope(namespace(attempt.namespace) if attempt.namespace else None)
    scope["params"] = None
    failures: list[tuple[JsonObject, str]] = []
    try:
        if not _conditions_hold(spec, scope):
            return
        scope["variables"] = _variables(spec, scope)
    except expressions.ExpressionError as error:
        failures = [({}, str(error))] if spec.get("failurePolicy") == "Fail" else []
        scope = {}
    for validation in (spec.get("validations") or ()) if scope else ():
        try:
            if expressions.evaluate(validation["expression"], scope) is not True:
                failures.append((validation, _message(validation, scope)))
        except expressions.ExpressionError as error:
            if spec.get("failurePolicy") == "Fail":
                text = f"expression '{validation['expression']}' resulted in error: {error}"
                failures.append((validation, text))
    for validation, text in failures:
        names = f"'{policy['metadata']['name']}' with binding '{binding['metadata']['name']}'"
        if "Deny" in actions:
            raise _refusal(attempt, f"ValidatingAdmissionPolicy {names} denied request: {text}", validation)
        if "Warn" in actions:
            warnings.append(f"Validation failed for ValidatingAdmissionPolicy {names}: {text}")


def _conditions_hold(spec: JsonObject, scope: JsonObject) -> bool:
    """One false condition skips the policy; otherwise the first error among them is raised."""
    failure: expressions.ExpressionError | None = None
    for condition in spec.get("matchConditions") or ():
        try:
            if expressions.evaluate(condition["expression"], scope) is not True:
                return False
        except expressions.ExpressionError as error:
            text = f"expression '{condition['expression']}' resulted in error: {error}"
            failure = failure or expressions.ExpressionError(text)
    if failure is not None:
        raise failure
    return True


def _variables(spec: JsonObject, scope: JsonObject) -> JsonObject:
    """Variables by name. One that fails is left out: like a lazy one, it hurts only the expressions that use it."""
    values: JsonObject = {}
    for variable in spec.get("variables") or ():
        try:
            values[variable["name"]] = expressions.evaluate(variable["expression"], {**scope, "variables": values})
        except expressions.ExpressionError:
            continue
    return values


def _message(validation: JsonObject, scope: JsonObject) -> str:
    if validation.get("messageExpression"):
        try:
            text = expressions.evaluate(validation["messageExpression"], scope)
        except expressions.ExpressionError:
            text = ""
        if isinstance(text, str) and text.strip():
            return text
    return str(validation.get("message") or f"failed expression: {validation['expression'].strip()}")


def _refusal(attempt: Attempt, sentence: str, validation: JsonObject) -> ApiError:
    reason = validation.get("reason") or "Invalid"
    resource = attempt.resource
    plural = f"{resource.plural}.{resource.group}" if resource.group else resource.plural
    details = {
        "name": attempt.name,
        "group": resource.group,
        "kind": resource.plural,
        "causes": [{"message": sentence}],
    }
    if not resource.group:
        del details["group"]
    subject = f'{plural} "{attempt.name}"' if attempt.name else plural
    return ApiError(_CODES.get(reason, 422), reason, f"{subject} is forbidden: {sentence}", details)
