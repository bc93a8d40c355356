"""Checks that only admission makes: what reading a request cannot know, because it concerns the rest of the pod.

Reading (:mod:`hcs.model.requests`) finds what is malformed, the catalogue (:mod:`hcs.ura.validation`) what no card can
serve; here is what would clash with the fields admission writes, escape a quota or escape us. Everything is said in one
answer, so that people mend all at once.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

import yaml

from hcs.injector.settings import Settings
from hcs.model import names
from hcs.model.gangs import read_membership
from hcs.model.pods import Container, Pod
from hcs.model.quantities import QuantityError, parse_amount
from hcs.model.refusals import Refusal
from hcs.model.requests import ComputeRequest, ContainerRequest, charges
from hcs.ura.exchange import charges_of_total

CODE_VOLUME: Final = "hcs-code"
CODE_PATH: Final = "/workspace/code"
MAX_PLUGIN_LIST: Final = 256
"""Characters of a list of node plugins; the YAML reader's time grows with the depth it could be nested to."""


def check_pod(pod: Pod, settings: Settings) -> Iterator[Refusal]:
    """Find what keeps a pod that asks for compute from ever being placed by us, whatever it asks."""
    if pod.spec.nodeName:
        yield Refusal(
            "PresetNode",
            f"spec.nodeName is set to {pod.spec.nodeName[:120]}; leave it empty so that HCS can choose the card "
            "(use nodeSelector to restrict the nodes)",
        )
    scheduler = pod.spec.schedulerName
    if scheduler and scheduler != "default-scheduler" and scheduler not in settings.schedulers:
        yield Refusal(
            "UnlistedScheduler",
            f"scheduler {scheduler[:120]} does not know cards; leave schedulerName out, or use "
            f"{' or '.join(settings.schedulers)}",
        )
    for container in (*pod.spec.containers, *(pod.spec.initContainers or ())):
        yield from _agreement(container)
    for key in plugin_annotations(pod.annotations):
        if read_plugins(pod.annotations[key]) is None:
            yield Refusal(
                "MalformedPluginList",
                f"annotation {key[:120]} is not a list of plugin names; write it like '[\"{names.NRI_PLUGIN}\"]'",
            )


def check_fields(pod: Pod, request: ComputeRequest) -> Iterator[Refusal]:
    """Find what clashes with the fields that admission writes for this request."""
    if request.substitution == "ask" and read_membership(pod) is not None:
        yield Refusal(
            "GangCannotAsk",
            f"annotation {names.SUBSTITUTION}: ask makes one pod wait for an answer, and a gang starts together; "
            "use never or auto on its members",
        )
    if request.substitution == "ask" and pod.spec.schedulerName == names.VOLCANO:
        yield Refusal(
            "VolcanoCannotAsk",
            f"annotation {names.SUBSTITUTION}: ask is not answered under scheduler volcano; use never or auto, "
            f"or schedulerName: {names.SCHEDULER}",
        )
    if ".." in request.checkpoint.split("/"):
        yield Refusal(
            "BadCheckpointPath",
            f"annotation {names.CHECKPOINT}: {request.checkpoint!r} leaves the container's directory; "
            "name it as the container sees it, without ..",
        )
    if any(not char.isprintable() or char.isspace() for char in request.code_image):
        yield Refusal("BadImage", f"annotation {names.CODE_IMAGE}: {request.code_image!r} is not an image reference")
    elif request.code_image:
        yield from _code_layer(pod, request)
    for container in request.containers:
        yield from _charges(pod, container)


def written_totals(request: ContainerRequest) -> dict[str, int]:
    """What admission writes beside a container's request, so that an ordinary ResourceQuota counts what is asked.

    ``cards`` is among it for per-card requests: it marks a ``total-acu`` beside it as a charge, not as a request.
    """
    if request.total is not None:
        return {names.TOTAL_ACU: charges_of_total(request.total)}
    return {names.CARDS: request.cards, **charges(request)}


def plugin_annotations(annotations: Mapping[str, str]) -> list[str]:
    """The annotations that name required node plugins: for the pod, and narrower ones that override it."""
    narrower = sorted(key for key in annotations if key.startswith(f"{names.REQUIRED_PLUGINS}/"))
    return [key for key in (names.REQUIRED_PLUGINS, *narrower) if key in annotations]


def read_plugins(text: str) -> list[str] | None:
    """Read a YAML list of plugin names as containerd does; None when it is anything else."""
    try:
        found: Any = yaml.safe_load(text) if len(text) <= MAX_PLUGIN_LIST else None
    except (yaml.YAMLError, RecursionError, ValueError):
        return None
    return found if isinstance(found, list) and all(isinstance(name, str) for name in found) else None


def _agreement(container: Container) -> Iterator[Refusal]:
    """Compute cannot be overcommitted by writing less as a request than as a limit."""
    limits, requests = container.resources.limits or {}, container.resources.requests or {}
    for key in sorted(limits.keys() & requests.keys()):
        if not key.startswith(f"{names.DOMAIN}/") or limits[key] == requests[key]:
            continue
        try:
            same = parse_amount(_text(limits[key])) == parse_amount(_text(requests[key]))
        except QuantityError:
            same = False
        if not same:
            yield Refusal(
                "RequestsDifferFromLimits",
                f"container {container.name}: {key[:120]} is {_text(limits[key])[:40]!r} in limits and "
                f"{_text(requests[key])[:40]!r} in requests; write it once, under limits",
            )


def _charges(pod: Pod, request: ContainerRequest) -> Iterator[Refusal]:
    """A charge that somebody wrote must be the one we would write, or a quota could be talked down."""
    container = next(c for c in pod.spec.containers if c.name == request.name)
    given = {**(container.resources.requests or {}), **(container.resources.limits or {})}
    expected = written_totals(request)
    for key in names.CHARGED:
        if key not in given or parse_amount(_text(given[key])) == expected.get(key):
            continue
        yield Refusal(
            "ContradictoryTotals",
            f"container {request.name}: {key} is what the request is charged, and HCS writes it; leave it out",
        )


def _code_layer(pod: Pod, request: ComputeRequest) -> Iterator[Refusal]:
    for volume in pod.spec.volumes or ():
        image = volume.get("image") or {}
        if volume.get("name") == CODE_VOLUME and image.get("reference") != request.code_image:
            yield Refusal(
                "ReservedVolume",
                f"volume {CODE_VOLUME} is the one HCS adds for annotation {names.CODE_IMAGE}; name yours otherwise",
            )
    asking = {*(container.name for container in request.containers), *(name for name, _ in request.reuses)}
    for container in (*pod.spec.containers, *(pod.spec.initContainers or ())):
        for mount in container.volumeMounts or ():
            if container.name in asking and (mount.mountPath.rstrip("/") == CODE_PATH) != (mount.name == CODE_VOLUME):
                yield Refusal(
                    "ReservedMount",
                    f"container {container.name}: {CODE_PATH} is where the image of annotation {names.CODE_IMAGE} "
                    f"appears; mount {mount.name[:60]} elsewhere, or leave the annotation out",
                )


def _text(amount: str | int | float) -> str:
    if isinstance(amount, float):
        return str(int(amount)) if amount.is_integer() else str(amount)
    return str(amount)
