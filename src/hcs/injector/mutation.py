"""What admission changes in a pod that asks for compute, and what it refuses.

Pure: a pod goes in as plain data and comes out changed, or a list of refusals does. Nothing vendor-specific is written
here: at this moment nobody knows the vendor, and later the fields could not be changed any more. Applying it twice
gives the same pod, because the API server may call a webhook again.
"""

import copy
from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec
import yaml

from hcs.model import names
from hcs.model.pods import Pod
from hcs.model.refusals import Refusal, RefusedError
from hcs.model.requests import ComputeRequest, ContainerRequest, charges, check_annotations, read_request
from hcs.ura.catalogue import Catalogue
from hcs.ura.exchange import charges_of_total
from hcs.ura.validation import check_request

CODE_VOLUME: Final = "hcs-code"
CODE_PATH: Final = "/workspace/code"
WORKING_DIRECTORY: Final = "/workspace"
MAX_ANNOTATION: Final = 1024
"""Characters of any annotation people write for us; longer ones are mistakes."""


class Settings(msgspec.Struct, frozen=True):
    """What a site may choose.

    ``schedulers`` are the scheduler names that carry our extender; a pod that names none of them is moved to the first
    if it asked for the default scheduler and refused otherwise. ``pull_secrets`` are added to every managed pod, since
    the image it will run is not known yet.
    """

    schedulers: tuple[str, ...] = (names.SCHEDULER,)
    pull_secrets: tuple[str, ...] = ()


def mutate(raw: Mapping[str, Any], catalogue: Catalogue, settings: Settings) -> dict[str, Any]:
    """Give a pod its defaults, totals, scheduler, toleration, plug-in requirement and code layer.

    Args:
        raw: the pod as the API server sent it.
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
    refusals = check_annotations(pod.annotations)
    refusals += _check_sizes(pod.annotations)
    request: ComputeRequest | None = None
    try:
        request = read_request(pod)
    except RefusedError as error:
        refusals += error.refusals
    if request is None and not refusals:
        ours = sorted(key for key in pod.annotations if key.startswith(f"{names.DOMAIN}/"))
        if not ours:
            return dict(raw)
        refusals.append(
            Refusal(
                "NothingAsked",
                f"annotation {ours[0]} is set but no container asks for {names.VRAM}, {names.CARDS} or a total",
            )
        )
    if request is not None:
        refusals += check_request(request, catalogue)
        refusals += _check_paths(request)
    refusals += _check_spec(pod, settings)
    if refusals or request is None:
        raise RefusedError(*sorted(set(refusals)))
    changed: dict[str, Any] = copy.deepcopy(dict(raw))
    spec, metadata = changed.setdefault("spec", {}), changed.setdefault("metadata", {})
    if spec.get("schedulerName") not in settings.schedulers:
        spec["schedulerName"] = settings.schedulers[0]
    _tolerate(spec)
    _require_plugin(metadata)
    for container in request.containers:
        _write_totals(_container(spec, container.name), container)
    if request.code_image:
        _attach_code(spec, request)
    secrets = spec.get("imagePullSecrets") or []
    missing = [secret for secret in settings.pull_secrets if {"name": secret} not in secrets]
    if missing:
        spec["imagePullSecrets"] = [*secrets, *({"name": secret} for secret in missing)]
    return changed


def _check_sizes(annotations: Mapping[str, str]) -> list[Refusal]:
    return [
        Refusal(
            "OversizedAnnotation",
            f"annotation {key[:120]} has {len(value)} characters; at most {MAX_ANNOTATION} are accepted",
        )
        for key, value in sorted(annotations.items())
        if key.startswith(f"{names.DOMAIN}/") and len(value) > MAX_ANNOTATION
    ]


def _check_paths(request: ComputeRequest) -> Iterable[Refusal]:
    if ".." in request.checkpoint.split("/"):
        yield Refusal(
            "BadCheckpointPath",
            f"annotation {names.CHECKPOINT}: {request.checkpoint!r} leaves the container's directory; "
            "name it as the container sees it, without ..",
        )
    if request.code_image != request.code_image.strip() or any(c.isspace() for c in request.code_image):
        yield Refusal("BadImage", f"annotation {names.CODE_IMAGE}: {request.code_image!r} is not an image reference")


def _check_spec(pod: Pod, settings: Settings) -> Iterable[Refusal]:
    if pod.spec.nodeName:
        yield Refusal(
            "PresetNode",
            f"spec.nodeName is set to {pod.spec.nodeName}; leave it empty so that HCS can choose the card "
            "(use nodeSelector to restrict the nodes)",
        )
    scheduler = pod.spec.schedulerName
    if scheduler and scheduler != "default-scheduler" and scheduler not in settings.schedulers:
        yield Refusal(
            "UnlistedScheduler",
            f"scheduler {scheduler} does not know cards; leave schedulerName out, or use {settings.schedulers[0]}",
        )


def _container(spec: dict[str, Any], name: str) -> dict[str, Any]:
    found: dict[str, Any] = next(container for container in spec["containers"] if container["name"] == name)
    return found


def _write_totals(container: dict[str, Any], request: ContainerRequest) -> None:
    amounts = (
        {names.CARDS: request.cards, **charges(request)}
        if request.total is None
        else {names.TOTAL_ACU: charges_of_total(request.total)}
    )
    resources = container.setdefault("resources", {})
    for kind in ("limits", "requests"):
        written = resources.setdefault(kind, {})
        for key, amount in amounts.items():
            written.setdefault(key, str(amount))


def _tolerate(spec: dict[str, Any]) -> None:
    tolerations = spec.get("tolerations") or []
    if not any(t.get("key") == names.MANAGED_TAINT and t.get("operator") == "Exists" for t in tolerations):
        spec["tolerations"] = [*tolerations, {"key": names.MANAGED_TAINT, "operator": "Exists"}]


def _require_plugin(metadata: dict[str, Any]) -> None:
    annotations = metadata.setdefault("annotations", {})
    try:
        required = yaml.safe_load(annotations.get(names.REQUIRED_PLUGINS, "[]"))
    except yaml.YAMLError:
        required = None
    plugins = [str(name) for name in required] if isinstance(required, list) else []
    if names.NRI_PLUGIN not in plugins:
        plugins.append(names.NRI_PLUGIN)
    annotations[names.REQUIRED_PLUGINS] = msgspec.json.encode(plugins).decode()


def _attach_code(spec: dict[str, Any], request: ComputeRequest) -> None:
    volumes = spec.setdefault("volumes", [])
    if not any(volume.get("name") == CODE_VOLUME for volume in volumes):
        image = {"reference": request.code_image, "pullPolicy": "IfNotPresent"}
        volumes.append({"name": CODE_VOLUME, "image": image})
    for asked in request.containers:
        container = _container(spec, asked.name)
        mounts = container.setdefault("volumeMounts", [])
        if not any(mount.get("mountPath") == CODE_PATH for mount in mounts):
            mounts.append({"name": CODE_VOLUME, "mountPath": CODE_PATH, "readOnly": True})
        container.setdefault("workingDir", WORKING_DIRECTORY)
