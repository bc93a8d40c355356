"""The node checks of kube-scheduler that a program can repeat from outside: cordons, taints, selectors and affinity.

The sandbox's scheduler refuses by them, and the router plans by them, so that it does not reserve devices where
kube-scheduler would not let the pod go. Specs are plain data, as the API server sends them.
"""

from collections.abc import Mapping
from typing import Any, Final

from hcs.kube.resources import Node
from hcs.model.preferences import Requirement

_KEEPS_OUT: Final = ("NoSchedule", "NoExecute")


def unfit(spec: Mapping[str, Any], node: Node) -> str:
    """Why a pod with this spec may not go to a node, in kube-scheduler's words; the empty string where it may."""
    cordon = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
    if node.spec.get("unschedulable") and not tolerated(cordon, spec):
        return "node(s) were unschedulable"
    for taint in node.spec.get("taints") or ():
        if taint.get("effect") in _KEEPS_OUT and not tolerated(taint, spec):
            return f"node(s) had untolerated taint {{{taint.get('key')}: {taint.get('value', '')}}}"
    if not affine(spec, node):
        return "node(s) didn't match Pod's node affinity/selector"
    return ""


def tolerated(taint: Mapping[str, Any], spec: Mapping[str, Any]) -> bool:
    """Whether a pod accepts a taint."""
    for toleration in spec.get("tolerations") or ():
        if toleration.get("effect") and toleration["effect"] != taint.get("effect"):
            continue
        if toleration.get("key") and toleration["key"] != taint.get("key"):
            continue
        if toleration.get("operator", "Equal") == "Exists":
            return True
        if toleration.get("key") and (toleration.get("value") or "") == (taint.get("value") or ""):
            return True
    return False


def affine(spec: Mapping[str, Any], node: Node) -> bool:
    """Whether a node matches the pod's selector and required affinity."""
    labels = node.metadata.labels or {}
    if any(labels.get(key) != value for key, value in (spec.get("nodeSelector") or {}).items()):
        return False
    affinity = ((spec.get("affinity") or {}).get("nodeAffinity") or {}).get(
        "requiredDuringSchedulingIgnoredDuringExecution"
    )
    if affinity is None:
        return True
    return any(_term_matches(term, node, labels) for term in affinity.get("nodeSelectorTerms") or ())


def _term_matches(term: Mapping[str, Any], node: Node, labels: Mapping[str, str]) -> bool:
    expressions, fields = term.get("matchExpressions") or (), term.get("matchFields") or ()
    if not expressions and not fields:
        return False  # an empty term matches nothing
    return all(_holds(e, labels) for e in expressions) and all(
        _holds(f, {"metadata.name": node.metadata.name}) for f in fields
    )


def _holds(expression: Mapping[str, Any], values: Mapping[str, str]) -> bool:
    wanted = tuple(expression.get("values") or ())
    return Requirement(expression["key"], expression["operator"], wanted).holds(values)


def selects(selector: Mapping[str, Any] | None, labels: Mapping[str, str]) -> bool:
    """Whether a label selector matches; an absent one matches nothing, an empty one everything (policy/v1)."""
    if selector is None:
        return False
    wanted = selector.get("matchLabels") or {}
    return all(labels.get(key) == value for key, value in wanted.items()) and all(
        _holds(expression, labels) for expression in selector.get("matchExpressions") or ()
    )
