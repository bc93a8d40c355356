"""One attempted write, as admission sees it, and the rules that say whom it concerns.

Webhooks and admission policies match attempts in the same way: by rule (operation, group, version, resource), by the
labels of the namespace and of the object.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from hcs.sandbox.apiserver.kinds import Resource
from hcs.sandbox.apiserver.selectors import matches_selector
from hcs.sandbox.apiserver.status import JsonObject

NamespaceLookup = Callable[[str], JsonObject | None]


class User(msgspec.Struct, frozen=True):
    """Who asks."""

    name: str
    uid: str = ""
    groups: tuple[str, ...] = ()

    @property
    def info(self) -> JsonObject:
        info: JsonObject = {"username": self.name}
        if self.uid:
            info["uid"] = self.uid
        return {**info, "groups": list(self.groups)}


class Attempt(msgspec.Struct):
    """A write on its way to storage. ``object`` may be replaced by mutating webhooks; None for deletions."""

    resource: Resource
    operation: str
    namespace: str
    name: str
    user: User
    object: JsonObject | None
    old: JsonObject | None = None
    subresource: str = ""
    options: JsonObject = {}
    dry_run: bool = False
    kind: tuple[str, str, str] | None = None

    def review(self, uid: str) -> JsonObject:
        """The ``request`` of an AdmissionReview, with the fields and the order a 1.36 server sends."""
        group, version, kind = self.kind or (self.resource.group, self.resource.version, self.resource.kind)
        kinds = {"group": group, "version": version, "kind": kind}
        names = {"group": self.resource.group, "version": self.resource.version, "resource": self.resource.plural}
        request: JsonObject = {"uid": uid, "kind": kinds, "resource": names}
        if self.subresource:
            request["subResource"] = self.subresource
        request |= {"requestKind": kinds, "requestResource": names}
        if self.subresource:
            request["requestSubResource"] = self.subresource
        if self.name:
            request["name"] = self.name
        if self.namespace:
            request["namespace"] = self.namespace
        return {
            **request,
            "operation": self.operation,
            "userInfo": self.user.info,
            "object": self.object,
            "oldObject": self.old,
            "dryRun": self.dry_run,
            "options": self.options or None,
        }

    def expression_scope(self, namespace_object: JsonObject | None = None) -> JsonObject:
        """Variables of CEL expressions in webhooks and policies."""
        request = self.review("")
        request.setdefault("name", "")
        request.setdefault("namespace", "")
        request.setdefault("subResource", "")
        for field in ("object", "oldObject", "uid"):
            del request[field]
        return {"object": self.object, "oldObject": self.old, "request": request, "namespaceObject": namespace_object}


def concerns(rules: list[JsonObject], attempt: Attempt) -> bool:
    """Whether any rule names this operation on this resource."""
    resource = attempt.resource
    full = f"{resource.plural}/{attempt.subresource}" if attempt.subresource else resource.plural
    wildcards = {f"*/{attempt.subresource}", f"{resource.plural}/*", "*/*"} if attempt.subresource else {"*", "*/*"}
    scope = "Namespaced" if attempt.namespace else "Cluster"
    return any(
        ({attempt.operation, "*"} & set(rule.get("operations") or ()))
        and {resource.group, "*"} & set(rule.get("apiGroups") or ())
        and {resource.version, "*"} & set(rule.get("apiVersions") or ())
        and ({full} | wildcards) & set(rule.get("resources") or ())
        and rule.get("scope", "*") in ("*", scope)
        and (not rule.get("resourceNames") or attempt.name in rule["resourceNames"])
        for rule in rules
    )


def selected(selectors: JsonObject, attempt: Attempt, namespace: NamespaceLookup) -> bool:
    """Whether the namespace and the object carry the labels asked for (``namespaceSelector``, ``objectSelector``)."""
    wanted = selectors.get("namespaceSelector")
    if wanted and (attempt.namespace or attempt.resource.plural == "namespaces"):
        holder = namespace(attempt.namespace or attempt.name) or attempt.object or {}
        if not matches_selector(wanted, (holder.get("metadata") or {}).get("labels") or {}):
            return False
    wanted = selectors.get("objectSelector")
    if not wanted:
        return True
    return any(
        matches_selector(wanted, (object.get("metadata") or {}).get("labels") or {})
        for object in (attempt.object, attempt.old)
        if object is not None
    )
