"""What admission changes in a pod that asks for compute, and when it refuses.

Pure: a pod goes in as plain data and comes out changed, or a list of refusals does. Nothing vendor-specific is written
here: at this moment nobody knows the vendor, and later the fields could not be changed any more. Applying it twice
gives the same pod, because the API server may call a webhook again, and reading the request gives the same before and
after.
"""

import copy
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from hcs.injector.checks import (
    CODE_PATH,
    CODE_VOLUME,
    check_fields,
    check_pod,
    plugin_annotations,
    read_plugins,
    written_totals,
)
from hcs.injector.limits import check_limits
from hcs.injector.settings import Settings
from hcs.model import names
from hcs.model.gangs import read_membership
from hcs.model.pods import Pod
from hcs.model.refusals import Refusal, RefusedError
from hcs.model.requests import ComputeRequest, ContainerRequest, check_annotations, read_request
from hcs.neuro.pods import read_spiking
from hcs.rtos.hosting import asks_for_guests, check_guests
from hcs.ura.catalogue import Catalogue
from hcs.ura.validation import canonical_models, check_request

WORKING_DIRECTORY: Final = "/workspace"


def mutate(raw: Mapping[str, Any], catalogue: Catalogue, settings: Settings) -> dict[str, Any]:
    """Give a pod its defaults, totals, scheduler, gates, toleration, plug-in requirement and code layer.

    Args:
        raw: the pod as the API server sent it; not changed.
        catalogue: the card models that exist, to refuse what no card can serve.
        settings: the site's choices.

    Returns:
        The changed pod; equal to ``raw`` when the pod is none of ours.

    Raises:
        RefusedError: with every reason found.
    """
    try:
        pod = msgspec.convert(raw, Pod)
    except msgspec.ValidationError as error:
        raise RefusedError(Refusal("MalformedPod", f"the pod cannot be read: {error}")) from error
    if oversized := check_limits(pod):
        raise RefusedError(*oversized)
    guests = asks_for_guests(pod)
    request = _read(pod, catalogue, settings, guests=guests)
    changed: dict[str, Any] = copy.deepcopy(dict(raw))
    if request is None and not guests:
        return changed
    spec = changed["spec"]
    if spec.get("schedulerName") not in settings.schedulers:
        spec["schedulerName"] = settings.schedulers[0]
    _tolerate(spec)
    if guests:
        for container in spec["containers"]:
            _write_guest(container)
    if request is None:
        return changed
    _require_plugin(changed)
    if request.substitution == "ask" and (request.models or request.vendors):
        _gate(spec, names.ASK_GATE)
    if spec["schedulerName"] == names.SCHEDULER and read_membership(pod) is not None:
        _gate(spec, names.GANG_GATE)
    if request.models:
        changed["metadata"]["annotations"][names.MODELS] = ",".join(canonical_models(request, catalogue))
    for asked in request.containers:
        _write_totals(_container(spec, asked.name), asked)
    for name, _ in request.reuses:
        _write_alike(_container(spec, name))  # the cards are charged once, to the main container
    if request.code_image:
        _attach_code(spec, request)
    _add(spec, "imagePullSecrets", [{"name": secret} for secret in settings.pull_secrets])
    return changed


def _read(pod: Pod, catalogue: Catalogue, settings: Settings, *, guests: bool) -> ComputeRequest | None:
    """The request for cards, None where the pod asks for none.

    Raises:
        RefusedError: with every reason found.
    """
    refusals = check_annotations(pod.annotations)
    try:
        read_spiking(pod, domain=settings.spiking_domain)
    except RefusedError as error:
        refusals += error.refusals
    request: ComputeRequest | None = None
    try:
        request = read_request(pod)
    except RefusedError as error:
        refusals += error.refusals
    if request is not None:
        refusals += check_request(request, catalogue)
        refusals += check_fields(pod, request)
    if guests:
        refusals += check_guests(pod)
    ours = sorted(key for key in pod.annotations if key.startswith(f"{names.DOMAIN}/"))
    if request is None and not guests and not refusals:
        if not ours:
            return None
        refusals.append(
            Refusal(
                "NothingAsked",
                f"annotation {ours[0]} is set but no container asks for {names.VRAM}, {names.CARDS} or a total",
            )
        )
    refusals += check_pod(pod, settings)
    if refusals:
        raise RefusedError(*sorted(set(refusals)))
    return request


def _container(spec: dict[str, Any], name: str) -> dict[str, Any]:
    every = (*spec["containers"], *(spec.get("initContainers") or ()))
    found: dict[str, Any] = next(container for container in every if container["name"] == name)
    return found


def _write_totals(container: dict[str, Any], request: ContainerRequest) -> None:
    """Write the totals, and every amount of ours under limits and requests alike.

    Kubernetes wants the two to be equal for resources it cannot overcommit, and fills in neither after a webhook.
    """
    amounts = _write_alike(container)
    written = {key: str(total) for key, total in written_totals(request).items() if key not in amounts}
    for kind in ("limits", "requests"):
        container["resources"][kind] = {**written, **container["resources"][kind]}


def _write_alike(container: dict[str, Any]) -> dict[str, Any]:
    """Write every amount of ours under limits and requests alike, and return them."""
    resources = container.get("resources") or {}
    kinds = {kind: resources.get(kind) or {} for kind in ("limits", "requests")}
    given = {**kinds["requests"], **kinds["limits"]}
    amounts = {key: amount for key, amount in given.items() if key.startswith(f"{names.DOMAIN}/")}
    container["resources"] = {**resources, **{kind: {**amounts, **written} for kind, written in kinds.items()}}
    return amounts


def _write_guest(container: dict[str, Any]) -> None:
    """Say in the container's resources that it is one RTOS guest, so that the pod comes to us and a quota counts it."""
    resources = container.get("resources") or {}
    kinds = {kind: {**(resources.get(kind) or {}), names.RTOS_GUESTS: "1"} for kind in ("limits", "requests")}
    container["resources"] = {**resources, **kinds}


def _tolerate(spec: dict[str, Any]) -> None:
    wanted = {"key": names.MANAGED_TAINT, "operator": "Exists"}
    tolerated = any(
        t.get("key") == names.MANAGED_TAINT and t.get("operator") == "Exists" and not t.get("effect")
        for t in spec.get("tolerations") or ()
    )
    if not tolerated:
        _add(spec, "tolerations", [wanted])


def _gate(spec: dict[str, Any], gate: str) -> None:
    """Keep the pod from being tried until the router opens the gate; gates of others stay."""
    _add(spec, "schedulingGates", [{"name": gate}])


def _require_plugin(changed: dict[str, Any]) -> None:
    """Name our node plugin as required wherever such a list stands: a narrower list overrides the pod's."""
    metadata = changed.get("metadata") or {}
    annotations = dict(metadata.get("annotations") or {})
    for key in plugin_annotations({names.REQUIRED_PLUGINS: "[]", **annotations}):
        plugins = read_plugins(annotations.get(key, "[]")) or []
        if not any(plugin == names.NRI_PLUGIN or plugin.endswith(f"-{names.NRI_PLUGIN}") for plugin in plugins):
            annotations[key] = msgspec.json.encode([*plugins, names.NRI_PLUGIN]).decode()
    changed["metadata"] = {**metadata, "annotations": annotations}


def _attach_code(spec: dict[str, Any], request: ComputeRequest) -> None:
    if not any(volume.get("name") == CODE_VOLUME for volume in spec.get("volumes") or ()):
        image = {"reference": request.code_image, "pullPolicy": "IfNotPresent"}
        _add(spec, "volumes", [{"name": CODE_VOLUME, "image": image}])
    for name in (*(asked.name for asked in request.containers), *(name for name, _ in request.reuses)):
        container = _container(spec, name)
        if not any(mount.get("name") == CODE_VOLUME for mount in container.get("volumeMounts") or ()):
            _add(container, "volumeMounts", [{"name": CODE_VOLUME, "mountPath": CODE_PATH, "readOnly": True}])
        container["workingDir"] = container.get("workingDir") or WORKING_DIRECTORY


def _add(holder: dict[str, Any], field: str, entries: list[dict[str, Any]]) -> None:
    """Append to a list that may be missing or null; entries that stand there already are not repeated."""
    present = holder.get(field) or []
    missing = [entry for entry in entries if entry not in present]
    if missing:
        holder[field] = [*present, *missing]
