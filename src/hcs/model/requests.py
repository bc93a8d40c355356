"""What a pod asks for: read once from its resources and annotations into exact values, or refused with sentences.

A pod asks per container, in one of two ways: *per card* (``vram``, ``cards``, ``acu``) or by a *total*
(``fp16-tflops``, ``fp32-tflops``, ``int8-tops``, ``total-acu``) that the converter turns into a number of cards for
each model it considers. One card is a share of it with ``vram`` as its quota, unless ``sharing: exclusive``; several
cards are whole cards with at least ``vram`` each.

Reading is the same at admission, in the router, in the agent and in ``hcs why``, so all see the same request.
Admission writes the charged totals (``total-vram``, ``total-cards``, ``total-acu``) beside the request; reading accepts
them where they agree with it. ``total-acu`` is a request of its own only where no ``cards`` stand beside it, which
admission always writes for per-card requests.
"""

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Literal, cast

import msgspec

from hcs.model import names
from hcs.model.devices import DEFAULT_WORKLOAD, WORKLOADS
from hcs.model.gangs import read_membership
from hcs.model.locality import NOWHERE, Locality, read_locality
from hcs.model.pods import Container, Pod
from hcs.model.preferences import NodePreference, read_preferences
from hcs.model.quantities import QuantityError, parse_amount, parse_bytes, parse_count, show_bytes
from hcs.model.refusals import Refusal, RefusedError

Sharing = Literal["shared", "exclusive"]
Substitution = Literal["never", "ask", "auto"]

_GROUP: Final = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
MAX_CARDS: Final = 1024
"""More cards than any node has; a request above it is a typing mistake."""


class Total(msgspec.Struct, frozen=True):
    """A total over all cards: ``resource`` is one of :data:`hcs.model.names.TOTALS`, ``amount`` in its whole unit."""

    resource: str
    amount: int


class ContainerRequest(msgspec.Struct, frozen=True):
    """What one container asks for.

    ``cards`` is a count (1 where a total is given: the converter decides), ``vram`` bytes on each card (0: not stated),
    ``milliacu`` thousandths of an ACU on each card (0: not stated).
    """

    name: str
    cards: int = 1
    vram: int = 0
    milliacu: int = 0
    total: Total | None = None


class ComputeRequest(msgspec.Struct, frozen=True):
    """Everything a pod asks of HCS. ``vendors`` and ``models`` are empty where any will do."""

    containers: tuple[ContainerRequest, ...]
    vendors: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    workload: str = DEFAULT_WORKLOAD
    sharing: Sharing = "shared"
    group: str = ""
    """With whom alone it shares its card, as namespace and name; empty: with all whose group is empty as well."""
    substitution: Substitution = "never"
    portable: bool = False
    runtime: str = ""
    code_image: str = ""
    checkpoint: str = ""
    entrypoints: tuple[tuple[str, str], ...] = ()
    locality: Locality = NOWHERE
    reuses: tuple[tuple[str, str], ...] = ()
    """Init containers that ask for cards, each with the main container whose cards it uses before that one starts."""
    capacities: tuple[tuple[str, int], ...] = ()
    """What it takes of the node beside devices: names of ``NodeInventory.capacities`` and amounts in their units."""
    preferences: tuple[NodePreference, ...] = ()

    @property
    def exclusive(self) -> bool:
        """Whether the cards are given whole."""
        return self.sharing == "exclusive"


def asks_for_compute(pod: Pod) -> bool:
    """Whether any container names one of our resources."""
    containers = (*pod.spec.containers, *(pod.spec.initContainers or ()))
    return any(_is_ours(key) for container in containers for key in _resources(container))


def read_request(pod: Pod) -> ComputeRequest | None:
    """Read what a pod asks for; None when it asks for nothing of ours.

    Raises:
        RefusedError: with every refusal found, not only the first, so that people mend all at once.
    """
    if not asks_for_compute(pod):
        return None
    refusals: list[Refusal] = []
    annotations = pod.annotations
    sharing = annotations.get(names.SHARING)
    requests = [
        request
        for container in pod.spec.containers
        if (request := _read_container(container, sharing, refusals)) is not None
    ]
    whole = any(request.cards > 1 or (request.vram == 0 and request.total is None) for request in requests)
    if sharing is None and whole and any(r.cards == 1 and r.vram and r.total is None for r in requests):
        refusals.append(
            Refusal(
                "MixedSharing",
                "some containers ask for whole cards and others for a share of one; "
                f"set annotation {names.SHARING}: exclusive, or split the pod",
            )
        )
    reuses = _read_init(pod, requests, sharing, refusals)
    choices = _read_annotations(annotations, refusals)
    locality = read_locality(annotations, refusals)
    in_gang = False
    try:
        membership = read_membership(pod)
        in_gang = membership is not None and membership.origin == "hcs"
    except RefusedError as error:
        refusals.extend(error.refusals)
    by_total = any(r.total is not None and r.vram == 0 for r in requests)
    effective = "exclusive" if sharing == "exclusive" or whole or by_total else "shared"
    group = _read_group(pod, refusals, whole=effective == "exclusive", in_gang=in_gang)
    if refusals:
        raise RefusedError(*sorted(set(refusals)))
    return ComputeRequest(
        containers=tuple(requests),
        sharing=cast(Sharing, effective),
        group=group,
        vendors=choices.vendors,
        models=choices.models,
        workload=choices.workload,
        substitution=choices.substitution,
        portable=choices.portable,
        runtime=annotations.get(names.RUNTIME, ""),
        code_image=annotations.get(names.CODE_IMAGE, ""),
        checkpoint=annotations.get(names.CHECKPOINT, ""),
        entrypoints=choices.entrypoints,
        locality=locality,
        reuses=reuses,
        preferences=read_preferences(pod.spec.affinity),
    )


def check_annotations(annotations: Mapping[str, str], *, trusted: bool = False) -> list[Refusal]:
    """Find annotations of our domain that a person may not write, or that do not exist.

    Args:
        annotations: the pod's.
        trusted: whether the writer is HCS itself, which may write its own.
    """
    refusals = []
    for key in sorted(annotations):
        if not key.startswith(f"{names.DOMAIN}/") or key in names.USER_ANNOTATIONS:
            continue
        if key in names.OUR_ANNOTATIONS:
            if not trusted:
                refusals.append(
                    Refusal("ReservedAnnotation", f"annotation {key} is written by HCS alone; remove it from the pod")
                )
        elif key == names.SUBSTITUTION_ANSWER:
            refusals.append(
                Refusal(
                    "AnswerWithoutOffer",
                    f"annotation {key} answers an offer that the pod cannot have yet; remove it, "
                    f"or set {names.SUBSTITUTION}: auto to accept any",
                )
            )
        elif key.startswith(names.ENTRYPOINT_PREFIX):
            vendor = key.removeprefix(names.ENTRYPOINT_PREFIX)
            if vendor not in names.VENDOR_WORDS:
                refusals.append(_unknown_vendor(vendor, key))
        else:
            hint = _hint(key, sorted(names.USER_ANNOTATIONS), "known ones are")
            refusals.append(Refusal("UnknownAnnotation", f"there is no annotation {key[:120]}; {hint}"))
    return refusals


class _Choices(msgspec.Struct, frozen=True):
    vendors: tuple[str, ...]
    models: tuple[str, ...]
    workload: str
    substitution: Substitution
    portable: bool
    entrypoints: tuple[tuple[str, str], ...]


def _read_annotations(annotations: Mapping[str, str], refusals: list[Refusal]) -> _Choices:
    vendors = _words(annotations.get(names.VENDORS, ""))
    refusals.extend(_unknown_vendor(word, names.VENDORS) for word in vendors if word not in names.VENDOR_WORDS)
    workload = _one_of(annotations, names.WORKLOAD, WORKLOADS, DEFAULT_WORKLOAD, refusals)
    _one_of(annotations, names.SHARING, ("shared", "exclusive"), "shared", refusals)
    substitution = _one_of(annotations, names.SUBSTITUTION, ("never", "ask", "auto"), "never", refusals)
    portable = _one_of(annotations, names.PORTABLE, ("true", "false"), "false", refusals)
    return _Choices(
        vendors=vendors,
        models=_words(annotations.get(names.MODELS, "")),
        workload=workload,
        substitution=cast(Substitution, substitution),
        portable=portable == "true",
        entrypoints=tuple(
            (key.removeprefix(names.ENTRYPOINT_PREFIX), value)
            for key, value in sorted(annotations.items())
            if key.startswith(names.ENTRYPOINT_PREFIX)
        ),
    )


def _read_group(pod: Pod, refusals: list[Refusal], *, whole: bool, in_gang: bool) -> str:
    """The sharing group with its namespace: nobody comes into a group of another."""
    name, key = pod.annotations.get(names.SHARING_GROUP, ""), names.SHARING_GROUP
    if not name:
        return ""
    if _GROUP.fullmatch(name) is None:
        refusals.append(
            Refusal("BadSharingGroup", f"annotation {key} is a name of at most 63 letters, digits, '-', '_' and '.'")
        )
    elif whole:
        refusals.append(
            Refusal("GroupOfWholeCards", f"annotation {key} is about shares of a card, and this asks for whole cards")
        )
    elif in_gang:
        refusals.append(
            Refusal("GroupInGang", f"annotation {key} is not kept among the members of a gang; remove one of the two")
        )
    return f"{pod.metadata.namespace or 'default'}/{name}"


def _read_container(container: Container, sharing: str | None, refusals: list[Refusal]) -> ContainerRequest | None:
    """Read one container; None when it asks for nothing of ours or was refused (then ``refusals`` grew)."""
    before = len(refusals)
    amounts: dict[str, int] = {}
    for key, text in _resources(container).items():
        if not _is_ours(key):
            continue
        if key not in names.REQUESTED and key not in names.CHARGED:
            hint = _hint(key, names.REQUESTED, "known ones are")
            refusals.append(Refusal("UnknownResource", f"container {container.name}: no resource {key[:120]}; {hint}"))
            continue
        try:
            if isinstance(text, float):
                text = str(int(text)) if text.is_integer() else str(text)
            if key in (names.VRAM, names.TOTAL_VRAM):
                amounts[key] = parse_bytes(text)
            elif key in (names.CARDS, names.TOTAL_CARDS):
                amounts[key] = parse_count(text, what="cards")
            else:
                amounts[key] = parse_amount(text, what=key.removeprefix(f"{names.DOMAIN}/"), example="100")
        except QuantityError as error:
            refusals.append(Refusal("MalformedQuantity", f"container {container.name}, {key}: {error}"))
    if len(refusals) > before or not amounts:
        return None
    request = _combine(container.name, amounts, sharing, refusals)
    return request if len(refusals) == before else None


def _read_init(
    pod: Pod, requests: Sequence[ContainerRequest], sharing: str | None, refusals: list[Refusal]
) -> tuple[tuple[str, str], ...]:
    """Give each init container that asks for cards a main container whose cards it uses while that one still waits.

    It is the first that asks for at least as much, so the pod never holds more than its main containers asked for.
    """
    reuses = []
    for container in pod.spec.initContainers or ():
        if not any(_is_ours(key) for key in _resources(container)):
            continue
        if container.restartPolicy == "Always":
            refusals.append(
                Refusal(
                    "SidecarCompute",
                    f"init container {container.name} is a sidecar, it runs beside the main containers and cannot use "
                    "their cards; ask for its share in a main container",
                )
            )
            continue
        asked = _read_container(container, sharing, refusals)
        if asked is None:
            continue
        host = next((main.name for main in requests if _covers(main, asked, sharing)), None)
        if host is None:
            refusals.append(
                Refusal(
                    "InitContainerCompute",
                    f"init container {container.name} asks for more than each main container does; init containers use "
                    "the cards of one main container before it starts, so ask for as much there",
                )
            )
        else:
            reuses.append((container.name, host))
    return tuple(reuses)


def _covers(main: ContainerRequest, asked: ContainerRequest, sharing: str | None) -> bool:
    """Whether what one container asks for is certainly within what another does, on whatever card."""
    if asked.total is not None:
        return (
            main.total is not None
            and main.total.resource == asked.total.resource
            and main.total.amount >= asked.total.amount
            and main.vram >= asked.vram
        )
    whole = sharing == "exclusive" or main.cards > 1 or not main.vram
    enough_memory = main.vram >= asked.vram
    if main.total is not None:
        return asked.cards == 1 and bool(asked.vram) and enough_memory and not asked.milliacu
    return (
        main.cards >= asked.cards
        and enough_memory
        and main.milliacu >= asked.milliacu
        and (whole or bool(asked.vram) or asked.cards > 1)
    )


def _combine(name: str, amounts: dict[str, int], sharing: str | None, refusals: list[Refusal]) -> ContainerRequest:
    def refuse(reason: str, message: str) -> None:
        refusals.append(Refusal(reason, f"container {name}: {message}"))

    for key, amount in amounts.items():
        if amount == 0 and key not in names.CHARGED:
            reason = "ZeroCards" if key == names.CARDS else "ZeroAmount"
            refuse(reason, f"{key} is 0; leave it out, or ask for at least 1")
    totals = [key for key in names.TOTALS if key in amounts]
    per_card = names.CARDS in amounts or names.ACU in amounts
    if names.TOTAL_ACU in totals and (per_card or len(totals) > 1):
        totals.remove(names.TOTAL_ACU)  # then it is the charge that admission wrote, checked below
    if len(totals) > 1:
        refuse("ContradictoryTotals", f"asks for {' and '.join(totals)} at once; keep one of them")
    if totals and per_card:
        refuse("ContradictoryTotals", f"asks for {totals[0]} and for cards or acu; a total decides the cards by itself")
    cards, vram, acu = amounts.get(names.CARDS, 1), amounts.get(names.VRAM, 0), amounts.get(names.ACU, 0)
    if cards > MAX_CARDS:
        refuse(
            "TooManyCards", f"{cards} cards on one node; no node has more than {MAX_CARDS}, split the work into pods"
        )
    if totals:
        return ContainerRequest(name, 1, vram, 0, Total(totals[0], amounts[totals[0]]))
    if cards > 1 and sharing == "shared":
        refuse(
            "ShareOfSeveralCards",
            f"asks for shares of {cards} cards; several cards are always whole: "
            f"ask for one, or set annotation {names.SHARING}: exclusive",
        )
    if names.VRAM not in amounts and sharing != "exclusive" and cards == 1 and (acu or sharing == "shared"):
        refuse("MissingVram", f"a share of a card needs {names.VRAM} as its memory quota, like 16Gi")
    if not per_card and names.VRAM not in amounts:
        refuse("NothingAsked", f"names only charged totals; ask for {names.VRAM}, {names.CARDS} or a total")
    for key, expected in ((names.TOTAL_CARDS, cards), (names.TOTAL_VRAM, cards * vram), (names.TOTAL_ACU, cards * acu)):
        if key in amounts and amounts[key] != expected:
            shown = show_bytes(expected) if key == names.TOTAL_VRAM else str(expected)
            refuse("ContradictoryTotals", f"{key} does not agree with the rest of the request ({shown}); leave it out")
    return ContainerRequest(name, cards, vram, acu * 1000)


def charges(request: ContainerRequest) -> dict[str, int]:
    """The totals a per-card request is charged against an ordinary ResourceQuota: resource name → amount.

    Memory in bytes, cards as a count, ACU whole. A request by total is charged in ACU alone, by ``hcs.ura``.
    """
    result = {names.TOTAL_CARDS: request.cards}
    if request.vram:
        result[names.TOTAL_VRAM] = request.cards * request.vram
    if request.milliacu:
        result[names.TOTAL_ACU] = request.cards * (request.milliacu // 1000)
    return result


def _resources(container: Container) -> dict[str, str | int | float]:
    return {**(container.resources.requests or {}), **(container.resources.limits or {})}


def _is_ours(key: str) -> bool:
    """Whether a resource is one of cards; RTOS guests have a way of their own."""
    return key.startswith(f"{names.DOMAIN}/") and key != names.RTOS_GUESTS


def _words(text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(word.strip() for word in text.split(",") if word.strip()))


def _unknown_vendor(word: str, where: str) -> Refusal:
    hint = _hint(word.lower(), names.VENDOR_WORDS, "known vendors are")
    return Refusal("UnknownVendor", f"annotation {where}: no vendor {word[:60]!r}; {hint}")


def _hint(word: str, known: Sequence[str], otherwise: str) -> str:
    """What was probably meant. The domain is left out of the comparison: shared by all, it makes all look alike."""
    prefix = f"{names.DOMAIN}/"
    by_suffix = {name.removeprefix(prefix): name for name in known}
    close = difflib.get_close_matches(word.removeprefix(prefix)[:64], by_suffix, n=1, cutoff=0.65)
    return f"did you mean {by_suffix[close[0]]}?" if close else f"{otherwise} {', '.join(known)}"


def _one_of(
    annotations: Mapping[str, str], key: str, known: Iterable[str], default: str, refusals: list[Refusal]
) -> str:
    value = annotations.get(key, default)
    if value in known:
        return value
    refusals.append(Refusal("UnknownValue", f"annotation {key}: {value[:60]!r} is not one of {', '.join(known)}"))
    return default
