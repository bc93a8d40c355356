"""What one container needs when one kind of card serves it: a request meets a device and becomes exact amounts.

People ask in the words of their workload: ACU in a named class, TFLOPS in total, two cards of a model they know. A
card's ledger must add up whatever its tenants asked in, so the answer is always in the same two units: bytes, and
thousandths of an ACU in the default class. Forty ACU of decode on a card that decodes at rate R and multiplies at rate
G are 40·G/R of its ledger, rounded up: never in favour of the one who asks.

A substitute, a kind of card the pod did not name, is held to three rules. Memory on each card stays a hard bound.
Whole cards are exchanged, so that the substitutes together do at least what the wanted ones would have; a share keeps
the ACU it asked for. And the rates on both sides must be known and not derived.
"""

from typing import Final

import msgspec

from hcs.model import names
from hcs.model.devices import Device, Rate
from hcs.model.quantities import show_acu, show_bytes
from hcs.model.refusals import Refusal
from hcs.model.requests import ComputeRequest, ContainerRequest, Total

_DISPLAY: Final = {
    "nvidia": "NVIDIA",
    "ascend": "Ascend",
    "mthreads": "Moore Threads",
    "metax": "MetaX",
    "amd": "AMD",
}


class Demand(msgspec.Struct, frozen=True):
    """What a container takes from each of ``cards`` devices of one kind.

    ``bytes`` of memory and ``milliacu`` thousandths of an ACU in the default workload class, on each card. ``whole``:
    the cards are given whole, so the two amounts are all the card has (``milliacu`` is 0 where its rate is unknown).
    """

    cards: int
    bytes: int
    milliacu: int
    whole: bool


class Wanted(msgspec.Struct, frozen=True):
    """The card a substitute stands in for: its model, and the rate of one whole device in the request's class."""

    model: str
    rate: Rate


def demand(
    container: ContainerRequest, request: ComputeRequest, device: Device, *, wanted: Wanted | None = None
) -> Demand | Refusal:
    """Turn one container's request into amounts on one kind of device.

    Args:
        container: the request.
        request: the pod's, for the workload class and the sharing.
        device: any device of the kind; only its model and capacities are read, never its state.
        wanted: what the device stands in for; None where it is what was asked for.

    Returns:
        The demand, or a refusal that no waiting mends: ``VramTooSmall``, ``AcuTooHigh``, ``NoRate`` (the class was
        never measured or derived on it), ``NoRatedFigure`` (its data sheet does not state the total asked for),
        ``DerivedRateOnly`` (a substitute, and one of the two rates is derived), ``ShareNotEnforceable`` (a share, of a
        card that is given whole or not at all).
    """
    if container.vram > device.vram:
        return Refusal(
            "VramTooSmall",
            f"needs {show_bytes(container.vram)} on one card; {label(device)} has {show_bytes(device.vram)}",
        )
    rate = device.rate(request.workload)
    if wanted is not None and (refusal := _exchange_refused(device, rate, wanted, request.workload)) is not None:
        return refusal
    gemm = device.rate()
    ledger = gemm.milliacu if gemm is not None else 0
    if container.total is not None:
        return _enforceable(_by_total(container, container.total, request, device, ledger), device)
    if container.cards > 1 or request.exclusive or not container.vram:
        cards = container.cards
        if wanted is not None and rate is not None:
            cards = max(1, _ceil(cards * wanted.rate.milliacu, rate.milliacu))
        elif container.milliacu and (refusal := _too_slow(container.milliacu, device, request.workload)) is not None:
            return refusal
        return Demand(cards, device.vram, ledger, whole=True)
    if not container.milliacu:
        return _enforceable(Demand(1, container.vram, 0, whole=False), device)
    if (refusal := _too_slow(container.milliacu, device, request.workload)) is not None:
        return refusal
    if rate is None or not ledger:
        return _no_rate(device, "gemm")
    share = Demand(1, container.vram, _ceil(container.milliacu * ledger, rate.milliacu), whole=False)
    return _enforceable(share, device)


def _enforceable(found: Demand | Refusal, device: Device) -> Demand | Refusal:
    """A share of a card where nothing holds a container to it would be a promise that nobody keeps."""
    if isinstance(found, Refusal) or found.whole or not device.whole_only:
        return found
    return Refusal(
        "ShareNotEnforceable",
        f"asks for a share; nothing here holds a container to a share of {label(device)}, "
        f"ask for a whole card with annotation {names.SHARING}: exclusive",
    )


def label(device: Device) -> str:
    """The card's name for people: the vendor once, then the model.

    >>> label(Device(id="0", index=0, vendor="nvidia", model="L4", vram=0))
    'NVIDIA L4'
    """
    if device.model.casefold().startswith(device.vendor.casefold()):
        return device.model
    return f"{_DISPLAY.get(device.vendor, device.vendor.capitalize())} {device.model}"


def _by_total(
    container: ContainerRequest, total: Total, request: ComputeRequest, device: Device, ledger: int
) -> Demand | Refusal:
    """Turn a total into cards of this kind, or into a share where one card is more than enough."""
    asked, word = total.amount * 1000, total.resource.removeprefix(f"{names.DOMAIN}/")
    if total.resource == names.TOTAL_ACU:
        rate = device.rate(request.workload)
        if rate is None or rate.milliacu <= 0:
            return _no_rate(device, request.workload)
        one = rate.milliacu
    else:
        rated = _rated(device, total.resource)
        if not rated:
            return Refusal("NoRatedFigure", f"needs {total.amount} {word}; {label(device)} has no rated figure for it")
        one = rated
    if asked <= one and container.vram and not request.exclusive:
        if not ledger:
            return _no_rate(device, "gemm")
        return Demand(1, container.vram, _ceil(asked * ledger, one), whole=False)
    return Demand(_ceil(asked, one), device.vram, ledger, whole=True)


def _rated(device: Device, resource: str) -> int | None:
    if resource == names.FP16_TFLOPS:
        return device.fp16_mtflops
    if resource == names.FP32_TFLOPS:
        return device.fp32_mtflops
    return device.int8_mtops


def _exchange_refused(device: Device, rate: Rate | None, wanted: Wanted, workload: str) -> Refusal | None:
    if rate is None or rate.milliacu <= 0:
        return _no_rate(device, workload)
    for name, one in ((label(device), rate), (wanted.model, wanted.rate)):
        if one.source == "derived":
            return Refusal(
                "DerivedRateOnly",
                f"{label(device)} could stand in for {wanted.model}, but the rate of {name} in {workload} is derived, "
                f"not measured; measure it, or name {label(device)} in annotation {names.MODELS}",
            )
    return None


def _too_slow(asked: int, device: Device, workload: str) -> Refusal | None:
    rate = device.rate(workload)
    if rate is None or rate.milliacu <= 0:
        return _no_rate(device, workload)
    if asked <= rate.milliacu:
        return None
    return Refusal(
        "AcuTooHigh",
        f"needs {show_acu(asked)} ACU in {workload} on one card; {label(device)} does {show_acu(rate.milliacu)}",
    )


def _no_rate(device: Device, workload: str) -> Refusal:
    return Refusal("NoRate", f"the rate of {label(device)} in {workload} is not known; calibrate it or state it")


def _ceil(numerator: int, denominator: int) -> int:
    return -(-numerator // denominator)
