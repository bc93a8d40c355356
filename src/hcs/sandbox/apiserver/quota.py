"""ResourceQuota: what a namespace may ask for in total.

Promises: the check and the write that follows happen without anything between them, so two pods never pass on the same
remainder; finished pods do not count; ``status.used`` follows every pod change. Counted are pods, ``count/…`` of any
resource, and ``requests.*`` and ``limits.*`` of any container resource, ours included.
"""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction

from hcs.sandbox.apiserver import quantities
from hcs.sandbox.apiserver.kinds import Resource
from hcs.sandbox.apiserver.status import ApiError, JsonObject, forbidden
from hcs.sandbox.apiserver.storage import Store

Amounts = dict[str, Fraction]
_ALIASES = {"cpu": "requests.cpu", "memory": "requests.memory", "ephemeral-storage": "requests.ephemeral-storage"}


def pod_usage(pod: JsonObject) -> Amounts:
    """What one pod charges: sums over containers, or the largest init container where that is more."""
    spec, usage = pod["spec"], {"pods": Fraction(1), "count/pods": Fraction(1)}
    for kind in ("requests", "limits"):
        total: Amounts = {}
        for container in spec.get("containers") or ():
            for name, amount in ((container.get("resources") or {}).get(kind) or {}).items():
                total[name] = total.get(name, Fraction(0)) + quantities.value(amount)
        for container in spec.get("initContainers") or ():
            for name, amount in ((container.get("resources") or {}).get(kind) or {}).items():
                total[name] = max(total.get(name, Fraction(0)), quantities.value(amount))
        usage |= {f"{kind}.{name}": amount for name, amount in total.items()}
    return usage


def _charges(resource: Resource, object: JsonObject) -> Amounts:
    if resource.storage_key == "pods":
        return pod_usage(object)
    key = f"{resource.plural}.{resource.group}" if resource.group else resource.plural
    charges = {f"count/{key}": Fraction(1)}
    if not resource.group:
        charges[resource.plural] = Fraction(1)
    return charges


def used(store: Store, namespace: str, hard: Iterable[str]) -> Amounts:
    """Present use of the named quota keys."""
    names = list(hard)
    total: Amounts = dict.fromkeys(names, Fraction(0))
    for name in names:
        if name.startswith("count/") and name != "count/pods":
            total[name] = Fraction(len(store.objects(name.removeprefix("count/"), namespace)))
        elif name in ("configmaps", "secrets", "services", "persistentvolumeclaims", "resourcequotas"):
            total[name] = Fraction(len(store.objects(name, namespace)))
    for stored in store.objects("pods", namespace):
        if (stored.object.get("status") or {}).get("phase") in ("Succeeded", "Failed"):
            continue
        usage = pod_usage(stored.object)
        for name in names:
            total[name] += usage.get(_ALIASES.get(name, name), Fraction(0))
    return total


def admit(store: Store, resource: Resource, namespace: str, object: JsonObject) -> None:
    """Raise ApiError 403 when a new object would exceed a quota of its namespace."""
    name = object["metadata"].get("name", "")
    for stored in store.objects("resourcequotas", namespace):
        hard = stored.object["spec"].get("hard") or {}
        charges = _charges(resource, object)
        if resource.storage_key == "pods":
            missing = [key for key in hard if _ALIASES.get(key, key) not in charges and _must_be_named(key)]
            if missing:
                why = f"failed quota: {stored.name}: must specify {','.join(sorted(missing))} for: " + ",".join(
                    sorted(container["name"] for container in object["spec"]["containers"])
                )
                raise forbidden(resource.plural, resource.group, name, why)
        asked = {key: charges[_ALIASES.get(key, key)] for key in hard if _ALIASES.get(key, key) in charges}
        usage = used(store, namespace, asked)
        over = [key for key in asked if usage[key] + asked[key] > quantities.value(hard[key])]
        if over:
            raise _exceeded(resource, name, stored.name, sorted(over), asked, usage, hard)


def _must_be_named(key: str) -> bool:
    plain = _ALIASES.get(key, key)
    return plain.partition(".")[0] in ("requests", "limits") and "/" not in plain


def _exceeded(
    resource: Resource, name: str, quota: str, over: list[str], asked: Amounts, usage: Amounts, hard: JsonObject
) -> ApiError:
    def spelled(amounts: Amounts) -> str:
        return ",".join(f"{key}={quantities.spell(amounts[key], _family(hard[key]))}" for key in over)

    limited = ",".join(f"{key}={hard[key]}" for key in over)
    why = f"exceeded quota: {quota}, requested: {spelled(asked)}, used: {spelled(usage)}, limited: {limited}"
    return forbidden(resource.plural, resource.group, name, why)


def _family(amount: object) -> str:
    return quantities.parse(amount)[1]


def status(store: Store, namespace: str, quota: JsonObject) -> JsonObject:
    """The status a quota should have now."""
    hard = quota["spec"].get("hard") or {}
    usage = used(store, namespace, hard)
    return {"hard": hard, "used": {key: quantities.spell(usage[key], _family(hard[key])) for key in hard}}
