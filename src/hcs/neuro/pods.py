"""Pods that ask for spiking capacity: read, checked, and refused with the fix.

The resources are ordinary extended resources, ``DOMAIN/ksps`` and so on, with ``-MODULE`` behind the word where a node
carries unlike boards. Kubernetes has rules for extended resources that people run into: whole numbers only, requests
equal limits, and no reading of them through ``resourceFieldRef``. A pod that breaks one is refused here in words,
before the API server or the kubelet does it in others.
"""

import difflib
from typing import Any, Final

import msgspec

from hcs.model.pods import Container, Pod
from hcs.model.quantities import QuantityError, parse_amount
from hcs.model.refusals import Refusal, RefusedError
from hcs.neuro.capacities import DOMAIN, WORDS, Amounts

_FIELD_REF_ALLOWED: Final = ("limits.cpu", "limits.memory", "limits.ephemeral-storage", "limits.hugepages-*")


class SpikingRequest(msgspec.Struct, frozen=True):
    """What one container asks for; ``module`` is empty for the plain resources. In units of the resource."""

    container: str
    module: str
    units: Amounts


def read_spiking(pod: Pod, *, domain: str = DOMAIN) -> tuple[SpikingRequest, ...]:
    """What a pod asks of spiking hardware; empty where it asks for nothing.

    Args:
        pod: the pod.
        domain: the resources' domain, as the plugin is set.

    Raises:
        RefusedError: with everything that is wrong, and how to mend it.
    """
    refusals: list[Refusal] = []
    found: list[SpikingRequest] = []
    for container in (*pod.spec.containers, *(pod.spec.initContainers or ())):
        found.extend(_read(container, domain, refusals))
        refusals.extend(_field_references(container, domain))
    if refusals:
        raise RefusedError(*refusals)
    return tuple(found)


def _read(container: Container, domain: str, refusals: list[Refusal]) -> list[SpikingRequest]:
    limits, requests = container.resources.limits or {}, container.resources.requests or {}
    prefix = f"{domain}/"
    names = dict.fromkeys(key for key in (*limits, *requests) if key.startswith(prefix))
    by_module: dict[str, dict[str, int]] = {}
    for name in names:
        word = name.removeprefix(prefix)
        base = next((known for known in WORDS if word == known or word.startswith(f"{known}-")), None)
        if base is None:
            close = difflib.get_close_matches(word, WORDS, n=1, cutoff=0.5)
            hint = f"did you mean {prefix}{close[0]}?" if close else f"there are {', '.join(WORDS)}"
            refusals.append(Refusal("UnknownResource", f"container {container.name}: no resource {name}; {hint}"))
            continue
        if name not in limits:
            refusals.append(
                Refusal(
                    "LimitMissing",
                    f"container {container.name}: {name} stands in requests alone; extended resources are never "
                    "over-committed, write it under limits",
                )
            )
            continue
        if name in requests and str(requests[name]) != str(limits[name]):
            refusals.append(
                Refusal(
                    "RequestNotLimit",
                    f"container {container.name}: {name} is {requests[name]} in requests and {limits[name]} in "
                    "limits; for extended resources both are the same, leave requests out",
                )
            )
            continue
        try:
            text = limits[name]
            amount = parse_amount(str(text) if isinstance(text, float) else text, what=word, example="150")
        except QuantityError as error:
            refusals.append(Refusal("MalformedQuantity", f"container {container.name}, {name}: {error}"))
            continue
        by_module.setdefault(word.removeprefix(base).removeprefix("-"), {})[WORDS[base]] = amount
    return [SpikingRequest(container.name, module, Amounts(**amounts)) for module, amounts in by_module.items()]


def _field_references(container: Container, domain: str) -> list[Refusal]:
    found = []
    for variable in container.env or ():
        source: Any = variable.valueFrom
        reference = source.get("resourceFieldRef") if isinstance(source, dict) else None
        resource = str(reference.get("resource", "")) if isinstance(reference, dict) else ""
        if f"{domain}/" in resource:
            word = resource.rpartition("/")[2]
            instead = {
                "ksps": "SNN_KSPS_ALLOCATED",
                "event-routing-streams": "SNN_ROUTING_STREAMS_ALLOCATED",
            }.get(word, "SNN_MAX_KSPS")
            found.append(
                Refusal(
                    "FieldRefNotAllowed",
                    f"container {container.name}: variable {variable.name} reads {resource} through resourceFieldRef, "
                    f"which Kubernetes allows for {', '.join(_FIELD_REF_ALLOWED)} only; remove it and read "
                    f"{instead}, which the device plugin sets",
                )
            )
    return found
