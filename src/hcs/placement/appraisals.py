"""A request weighed against every kind of card in the fleet, before anybody looks at what is free.

For each container and each kind there is one of four outcomes: the kind is named by the pod (or the pod names none) and
serves with a certain demand; it may stand in for the named ones and does, with another demand; the pod does not allow
it; or it is allowed and cannot, for a reason of its hardware.

Which kinds may stand in: with ``substitution: auto`` all kinds that the pod's ``vendors`` and ``models`` leave out, so
that both are then a preference and not a bound; with ``never`` and ``ask`` none. Entry points and ``portable`` play no
part: a pod that cannot run on another vendor says so by not allowing substitution.

What a substitute stands in for is one model per pod: the first in ``models`` whose rate is known, from the fleet's own
cards or from the catalogue; where only ``vendors`` are named, the slowest card of theirs in the fleet that would have
served, since the pod would have had to accept it.
"""

from collections.abc import Iterable, Mapping
from functools import cached_property

import msgspec
import numpy as np

from hcs.model import names
from hcs.model.devices import SOURCES, Device, Rate
from hcs.model.refusals import Refusal
from hcs.model.requests import ComputeRequest, ContainerRequest
from hcs.placement.fleet import Fleet, Integers, Mask
from hcs.ura.demand import Demand, Wanted, demand
from hcs.ura.naming import fold

ReferenceRates = Mapping[str, tuple[Rate, ...]]
"""Rates of models that may be named and absent: model → its rates, as the catalogue knows them."""


class VendorBound(msgspec.Struct, frozen=True):
    """The only vendors whose cards can run the pod, and what to tell a node that has none of theirs.

    Known to programs and not to the request: for which vendors there is an image, who can read a checkpoint, which
    model was offered and accepted. ``models`` narrows it further; empty: any model of the vendors.
    """

    vendors: frozenset[str]
    refusal: Refusal
    models: frozenset[str] = frozenset()

    def admits(self, device: Device) -> bool:
        """Whether cards like this one can run the pod."""
        return device.vendor in self.vendors and (not self.models or device.model in self.models)


class Appraisal(msgspec.Struct, frozen=True, eq=False, dict=True):
    """One container's request against each kind [K]. Amounts of kinds that do not serve are 0."""

    container: ContainerRequest
    request: ComputeRequest
    demands: tuple[Demand | Refusal, ...]
    """What the kind would have to give, or why its hardware cannot; also for kinds that are not allowed."""
    bound: VendorBound | None
    vendor_able: Mask
    vendor_allowed: Mask
    model_allowed: Mask
    substitute: Mask
    wanted: Wanted | None
    cards: Integers
    bytes: Integers
    milliacu: Integers
    whole: Mask

    @cached_property
    def serves(self) -> Mask:
        """[K] Whether the kind is allowed and able."""
        able = np.array([isinstance(found, Demand) for found in self.demands], dtype=np.bool_)
        result: Mask = able & self.vendor_able & self.vendor_allowed & self.model_allowed
        return result


def appraise(
    fleet: Fleet,
    request: ComputeRequest,
    reference_rates: ReferenceRates | None = None,
    bound: VendorBound | None = None,
) -> tuple[Appraisal, ...]:
    """Weigh each container of the request against each kind of the fleet, in the order of the request."""
    vendor_able = np.array([bound is None or bound.admits(device) for device in fleet.kinds], dtype=np.bool_)
    named = np.array([is_named(request, device) for device in fleet.kinds], dtype=np.bool_)
    wanted = None
    if request.substitution != "never" and (request.models or request.vendors):
        wanted = _wanted(fleet.kinds, request, reference_rates or {})
    auto = request.substitution == "auto"
    vendors = np.array([not request.vendors or d.vendor in request.vendors for d in fleet.kinds], dtype=np.bool_) | auto
    models = np.array([_model_named(request, device) for device in fleet.kinds], dtype=np.bool_) | auto
    appraisals = []
    for container in request.containers:
        demands = tuple(
            demand(container, request, device) if is_it else _stand_in(container, request, device, wanted)
            for device, is_it in zip(fleet.kinds, named, strict=True)
        )
        appraisals.append(
            Appraisal(
                container=container,
                request=request,
                demands=demands,
                bound=bound,
                vendor_able=vendor_able,
                vendor_allowed=vendors,
                model_allowed=models,
                substitute=~named,
                wanted=wanted,
                cards=_column(found.cards if isinstance(found, Demand) else 0 for found in demands),
                bytes=_column(found.bytes if isinstance(found, Demand) else 0 for found in demands),
                milliacu=_column(found.milliacu if isinstance(found, Demand) else 0 for found in demands),
                whole=np.array([isinstance(found, Demand) and found.whole for found in demands], dtype=np.bool_),
            )
        )
    return tuple(appraisals)


def is_named(request: ComputeRequest, device: Device) -> bool:
    """Whether the device is one the pod names; all are where it names none."""
    return (not request.vendors or device.vendor in request.vendors) and _model_named(request, device)


def _model_named(request: ComputeRequest, device: Device) -> bool:
    return not request.models or any(_same_model(written, device) for written in request.models)


def _same_model(written: str, device: Device) -> bool:
    """Whether a name people write is this device's: ``910B2``, ``Ascend 910B2`` and ``ascend/910B2`` all are."""
    vendor, bare = _parted(written)
    return vendor in ("", device.vendor) and bare == _parted(device.model)[1]


def _parted(written: str) -> tuple[str, str]:
    """A model's name without regard to case and spaces, and the vendor's word in front of it, if it is there."""
    folded = fold(written)
    vendor = next((word for word in names.VENDOR_WORDS if folded.startswith(word) and folded != word), "")
    return vendor, folded.removeprefix(vendor).lstrip("/")


def _stand_in(
    container: ContainerRequest, request: ComputeRequest, device: Device, wanted: Wanted | None
) -> Demand | Refusal:
    """The demand on a kind the pod does not name; without a rate to exchange by, there is none."""
    if wanted is not None:
        return demand(container, request, device, wanted=wanted)
    asked = " or ".join(request.models or request.vendors)
    return Refusal(
        "NoRate",
        f"nothing is known to exchange {asked} by in {request.workload}; name a model that the catalogue knows",
    )


def _wanted(kinds: tuple[Device, ...], request: ComputeRequest, reference_rates: ReferenceRates) -> Wanted | None:
    if not request.models:
        serving = [
            (rate.milliacu, device.model, rate)
            for device in kinds
            if device.vendor in request.vendors
            and (rate := device.rate(request.workload)) is not None
            and rate.milliacu > 0
            and not any(isinstance(demand(c, request, device), Refusal) for c in request.containers)
        ]
        slowest = min(serving, key=lambda entry: entry[:2], default=None)
        return None if slowest is None else Wanted(slowest[1], slowest[2])
    for model in request.models:
        known = [
            rate
            for device in kinds
            if _same_model(model, device) and is_named(request, device)
            for rate in device.rates
        ]
        rate = _best(known, request.workload)
        if rate is None or rate.source == "derived":
            rate = _best(_reference(model, reference_rates), request.workload) or rate
        if rate is not None:
            return Wanted(model, rate)
    return None


def _reference(written: str, reference_rates: ReferenceRates) -> tuple[Rate, ...]:
    """The rates of a model that people name, by its exact name where it has one: the others take a look at each."""
    if written in reference_rates:
        return reference_rates[written]
    bare = _parted(written)[1]
    return next((rates for model, rates in reference_rates.items() if _parted(model)[1] == bare), ())


def _best(rates: Iterable[Rate], workload: str) -> Rate | None:
    """The most trustworthy rate of the class; among equals the highest, so that nobody gets less than was named."""
    fitting = [rate for rate in rates if rate.workload == workload and rate.milliacu > 0]
    return min(fitting, key=lambda rate: (SOURCES.index(rate.source), -rate.milliacu), default=None)


def _column(values: Iterable[int]) -> Integers:
    return np.fromiter(values, dtype=np.int64)
