"""Checks: can any card in the world answer this request?

Reading a request finds what is malformed; this finds what is well-formed and impossible, so that a pod which no fleet
could ever serve is refused at admission with a sentence, not left pending for a person to puzzle over. Whether *this*
fleet has room is not asked here: fleets change.
"""

from collections.abc import Iterable
from operator import itemgetter

from hcs.model import names
from hcs.model.quantities import show_acu, show_bytes
from hcs.model.refusals import Refusal
from hcs.model.requests import MAX_CARDS, ComputeRequest, ContainerRequest
from hcs.ura.catalogue import AmbiguousCardError, CardError, CardModel, Catalogue
from hcs.ura.exchange import cards_for_total


def check_request(request: ComputeRequest, catalogue: Catalogue) -> list[Refusal]:
    """Every reason why no card of the catalogue could answer, sorted; empty when some could."""
    refusals = check_models(request, catalogue)
    if refusals:
        return refusals
    allowed = catalogue.select(request.vendors, request.models)
    if not allowed:
        return [_no_cards(request)]
    found: list[Refusal] = []
    for container in request.containers:
        found += _check_container(container, request, allowed)
    return sorted(set(found))


def check_models(request: ComputeRequest, catalogue: Catalogue) -> list[Refusal]:
    """Model names that are unknown, ambiguous, or of vendors the request rules out."""
    refusals = []
    for name in request.models:
        if request.vendors and (refusal := _contradiction(name, request.vendors, catalogue)):
            refusals.append(refusal)
            continue
        try:
            (card,) = catalogue.select(request.vendors, (name,))
        except AmbiguousCardError as error:
            refusals.append(Refusal("AmbiguousModel", f"annotation {names.MODELS}: {error}"))
        except CardError as error:
            refusals.append(Refusal("UnknownModel", f"annotation {names.MODELS}: {error}"))
        else:
            makers = {other.vendor for other in catalogue.select(request.vendors) if other.model == card.model}
            if len(makers) > 1:
                refusals.append(
                    Refusal(
                        "AmbiguousModel",
                        f"annotation {names.MODELS}: {' and '.join(sorted(makers))} both make a {card.model}; "
                        f"say whose in annotation {names.VENDORS}: {card.vendor}",
                    )
                )
    return sorted(set(refusals))


def canonical_models(request: ComputeRequest, catalogue: Catalogue) -> tuple[str, ...]:
    """The request's models as devices name them, where people wrote an alias or another case.

    Admission writes these back, so that all that follows compares names and needs no catalogue.

    Raises:
        CardError: :func:`check_models` would refuse the request.
    """
    if not request.models:
        return ()
    return tuple(dict.fromkeys(card.model for card in catalogue.select(request.vendors, request.models)))


def _contradiction(name: str, vendors: tuple[str, ...], catalogue: Catalogue) -> Refusal | None:
    """A model that exists, but of none of these vendors."""
    makers = {card.vendor for card in catalogue.family(name)}
    if not makers or makers & set(vendors):
        return None
    return Refusal(
        "ContradictoryVendor",
        f"annotations {names.VENDORS} and {names.MODELS} contradict each other: {name[:60]} is made by "
        f"{' and '.join(sorted(makers))}, not by {' or '.join(vendors)}; change one of them",
    )


def _no_cards(request: ComputeRequest) -> Refusal:
    return Refusal("NoSuchCard", f"no card of {' or '.join(request.vendors)} is known; remove it from {names.VENDORS}")


def _check_container(
    container: ContainerRequest, request: ComputeRequest, allowed: tuple[CardModel, ...]
) -> Iterable[Refusal]:
    name = container.name
    largest = max((card for card in allowed if card.vram), key=lambda card: card.vram or 0, default=None)
    unpublished = any(card.vram is None for card in allowed) and (request.models or largest is None)
    if largest and not unpublished and container.vram > (largest.vram or 0):
        yield Refusal(
            "VramBeyondAnyCard",
            f"container {name}: {names.VRAM} is memory on one card and asks for {show_bytes(container.vram)}; the "
            f"largest allowed card, {largest.key}, has {show_bytes(largest.vram or 0)}; ask for less on each of "
            f"several {names.CARDS}",
        )
    if container.milliacu:
        yield from _check_acu(container, request, allowed)
    if container.total:
        yield from _check_total(container, request, allowed)


def _check_acu(
    container: ContainerRequest, request: ComputeRequest, allowed: tuple[CardModel, ...]
) -> Iterable[Refusal]:
    rated = [(rate.milliacu, card) for card in allowed if (rate := card.rate(request.workload))]
    if not rated:
        yield _no_rate(container, f"{names.ACU} in workload class {request.workload}", names.VRAM)
        return
    most, card = max(rated, key=itemgetter(0))
    if container.milliacu > most:
        yield Refusal(
            "AcuBeyondAnyCard",
            f"container {container.name}: {names.ACU} is compute on one card and asks for "
            f"{show_acu(container.milliacu)}; the fastest allowed card, {card.key}, does {show_acu(most)} in workload "
            f"class {request.workload}; ask for {names.TOTAL_ACU} over several cards",
        )


def _check_total(
    container: ContainerRequest, request: ComputeRequest, allowed: tuple[CardModel, ...]
) -> Iterable[Refusal]:
    total = container.total
    assert total is not None
    counts = [(count, card) for card in allowed if (count := cards_for_total(total, card, request.workload))]
    if not counts:
        yield _no_rate(container, f"{total.resource}", names.CARDS)
        return
    fewest, card = min(counts, key=itemgetter(0))
    if fewest > MAX_CARDS:
        yield Refusal(
            "TooManyCards",
            f"container {container.name}: {total.resource} of {total.amount} is {fewest} cards even of {card.key}; "
            f"no node has more than {MAX_CARDS}, split the work into pods",
        )


def _no_rate(container: ContainerRequest, what: str, instead: str) -> Refusal:
    return Refusal(
        "NoKnownRate",
        f"container {container.name}: nothing is published about {what} for any allowed card; "
        f"ask by {instead}, or allow other models",
    )
