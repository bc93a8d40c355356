"""Which nodes a pod would rather have, and what a node costs: read from pods and labels, never a condition.

A pod's wishes are those of ``preferredDuringSchedulingIgnoredDuringExecution``, which kube-scheduler cannot heed where
our extender names one node. What cannot be understood here wishes nothing; a pod is never refused for it.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from hcs.model import names

_WEIGHTS: Final = range(1, 101)
_COST: Final = re.compile(r"([0-9]{1,9})(?:\.([0-9]{1,6})[0-9]*)?")
_WHOLE: Final = re.compile(r"[+-]?[0-9]{1,19}", re.ASCII)


class Requirement(msgspec.Struct, frozen=True):
    """What one label has to be; ``operator`` is Kubernetes' word for how."""

    key: str
    operator: str
    values: tuple[str, ...] = ()

    def holds(self, labels: Mapping[str, str]) -> bool:
        """Whether a node with these labels is so."""
        value = labels.get(self.key)
        match self.operator:
            case "In":
                return value is not None and value in self.values
            case "NotIn":
                return value is None or value not in self.values
            case "Exists":
                return value is not None
            case "DoesNotExist":
                return value is None
            case "Gt" | "Lt":
                if value is None or len(self.values) != 1 or not all(map(_WHOLE.fullmatch, (value, self.values[0]))):
                    return False
                here, bound = int(value), int(self.values[0])
                return here > bound if self.operator == "Gt" else here < bound
        return False


class NodePreference(msgspec.Struct, frozen=True):
    """A wish: how much it weighs, 1 to 100, and all that has to hold of the labels, and of the name."""

    weight: int
    labels: tuple[Requirement, ...] = ()
    fields: tuple[Requirement, ...] = ()

    def holds(self, name: str, labels: Mapping[str, str]) -> bool:
        """Whether a node is as wished."""
        own = {"metadata.name": name}
        return all(one.holds(labels) for one in self.labels) and all(one.holds(own) for one in self.fields)


def read_preferences(affinity: Mapping[str, Any] | None) -> tuple[NodePreference, ...]:
    """The wishes in ``spec.affinity``; a term that asks nothing, or nonsense, is none."""
    if not affinity:
        return ()
    about_nodes = affinity.get("nodeAffinity")
    terms = _mapping(about_nodes).get("preferredDuringSchedulingIgnoredDuringExecution")
    found = []
    for term in map(_mapping, _listed(terms)):
        weight, wish = term.get("weight"), _mapping(term.get("preference"))
        labels = _requirements(wish.get("matchExpressions"))
        fields = _requirements(wish.get("matchFields"))
        if isinstance(weight, int) and weight in _WEIGHTS and (labels or fields):
            found.append(NodePreference(weight, labels, fields))
    return tuple(found)


def read_cost(labels: Mapping[str, str]) -> int | None:
    """What a node costs, in millionths of the site's unit, from its label; None where it says nothing readable."""
    written = _COST.fullmatch(labels.get(names.COST_LABEL, ""))
    if written is None:
        return None
    return int(written[1]) * 1_000_000 + int((written[2] or "").ljust(6, "0"))


def _requirements(expressions: object) -> tuple[Requirement, ...]:
    return tuple(
        Requirement(str(one.get("key")), str(one.get("operator")), tuple(map(str, _listed(one.get("values")))))
        for one in map(_mapping, _listed(expressions))
    )


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _listed(value: object) -> Iterable[object]:
    return value if isinstance(value, list | tuple) else ()
