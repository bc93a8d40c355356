"""An application as it is installed: a package of compiled models, each with its logical cores and its appetite.

The layout of the vendors' packages is not public, so this is a neutral one, in JSON: what a placement needs to know and
what an emulated board needs to run it. Logical core ids count from 0; a model that gives no shape gets the squarest
rectangle that holds its cores.
"""

import math
import re
from typing import Any, Final

import msgspec

from hcs.model.refusals import Refusal, RefusedError
from hcs.neuro.allocator import CoreRequest
from hcs.neuro.capacities import Amounts, check_amounts
from hcs.neuro.grids import MAX_SIDE

MAX_BYTES: Final = 64 << 20
MAX_CORES: Final = 1 << 16
MAX_EDGES: Final = 1 << 20
_NAME: Final = r"^[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?$"


class LogicalCore(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One core of a compiled model. ``core_class`` is empty where any will do; ``threshold`` is the spike threshold."""

    neurons: int
    core_class: str = ""
    threshold: int = 1


class Synapse(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A connection from neuron (core, index) to neuron (core, index); a ``plastic`` one learns."""

    source: tuple[int, int]
    target: tuple[int, int]
    weight: int = 1
    plastic: bool = False


class Model(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One compiled network.

    ``inputs`` and ``outputs`` are logical cores that talk to the host. Rates as in
    :class:`hcs.neuro.capacities.Amounts`. ``rotation`` says whether its relay plan survives being turned.
    """

    name: str
    cores: tuple[LogicalCore, ...]
    width: int = 0
    height: int = 0
    rotation: bool = True
    synapses: tuple[Synapse, ...] = ()
    inputs: tuple[int, ...] = (0,)
    outputs: tuple[int, ...] = ()
    ksps: int = 1
    streams: int = 1
    activations: int = 0
    updates: int = 0

    @property
    def request(self) -> CoreRequest:
        """The rectangle it needs."""
        if self.width and self.height:
            return CoreRequest(self.width, self.height, self.rotation)
        width, height = squarest(len(self.cores))
        return CoreRequest(width, height, self.rotation)

    @property
    def amounts(self) -> Amounts:
        """What it takes while it is there."""
        return Amounts(self.ksps, self.streams, self.activations, self.updates, self.request.cores)


class Package(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An application: several models under one name and version."""

    name: str
    version: str
    models: tuple[Model, ...]

    def model(self, name: str) -> Model:
        """One of the models; the only one where no name is given.

        Raises:
            RefusedError: there is none of that name, or several and no name.
        """
        if not name and len(self.models) == 1:
            return self.models[0]
        for model in self.models:
            if model.name == name:
                return model
        known = ", ".join(model.name for model in self.models)
        raise RefusedError(Refusal("UnknownModel", f"{self.name} has no model {name[:60]!r}; it has {known}"))


def read_package(content: bytes | str | dict[str, Any]) -> Package:
    """Read a package, from JSON or from what JSON becomes.

    Raises:
        RefusedError: with everything that is wrong with it.
    """
    try:
        if isinstance(content, dict):
            package = msgspec.convert(content, Package)
        else:
            if len(content) > MAX_BYTES:
                raise RefusedError(
                    Refusal("PackageTooLarge", f"a package of {len(content)} bytes; the most is {MAX_BYTES}")
                )
            package = msgspec.json.decode(content, type=Package)
    except (msgspec.DecodeError, RecursionError, UnicodeError) as error:
        raise RefusedError(
            Refusal(
                "MalformedPackage",
                f"cannot read the package: {error}; it is JSON with name, version and models, "
                "each with a name and a list of cores",
            )
        ) from error
    refusals = [*_check_names(package), *(refusal for model in package.models for refusal in _check(model))]
    if refusals:
        raise RefusedError(*refusals)
    return package


def squarest(cores: int) -> tuple[int, int]:
    """The rectangle nearest to a square that holds this many cores with the least left over."""
    width = max(1, math.isqrt(cores))
    best = min(
        range(max(1, width // 2), width * 2 + 2),
        key=lambda w: (w * -(-cores // w) - cores + abs(w - -(-cores // w)), w),
    )
    return max(best, -(-cores // best)), min(best, -(-cores // best))


def _check_names(package: Package) -> list[Refusal]:
    refusals = []
    for what, name in (("package", package.name), *(("model", model.name) for model in package.models)):
        if not re.match(_NAME, name):
            refusals.append(
                Refusal("MalformedPackage", f"{what} name {name[:60]!r}: use small letters, digits, dots and dashes")
            )
    if not package.version or len(package.version) > 63:
        refusals.append(Refusal("MalformedPackage", "a version of 1 to 63 characters is needed"))
    names = [model.name for model in package.models]
    if not names:
        refusals.append(Refusal("MalformedPackage", "a package has at least one model"))
    if len(set(names)) != len(names):
        refusals.append(Refusal("MalformedPackage", "two models have the same name"))
    return refusals


def _check(model: Model) -> list[Refusal]:
    refusals: list[Refusal] = []
    count = len(model.cores)

    def no(reason: str, message: str) -> None:
        refusals.append(Refusal(reason, f"model {model.name}: {message}"))

    if not 1 <= count <= MAX_CORES:
        no("MalformedPackage", f"{count} logical cores; 1 to {MAX_CORES} are possible")
        return refusals
    if bool(model.width) != bool(model.height):
        no("MalformedPackage", "give both width and height, or neither")
    if min(model.width, model.height) < 0:
        no("NegativeSize", f"a shape of {model.width}x{model.height}; sides are 1 or more")
    elif max(model.width, model.height) > MAX_SIDE:
        no("MalformedPackage", f"a shape of {model.width}x{model.height}; the longest side is {MAX_SIDE}")
    elif model.width and model.width * model.height < count:
        no("MalformedPackage", f"{count} logical cores do not fit into {model.width}x{model.height}")
    for number, core in enumerate(model.cores):
        if core.neurons < 1 or core.threshold < 1:
            no("MalformedPackage", f"logical core {number}: neurons and threshold are 1 or more")
            break
    for cores in (model.inputs, model.outputs):
        if any(not 0 <= number < count for number in cores):
            no("MalformedPackage", f"inputs and outputs are logical cores from 0 to {count - 1}")
    if not model.inputs:
        no("MalformedPackage", "without an input core nothing ever happens; name one")
    if len(model.synapses) > MAX_EDGES:
        no("MalformedPackage", f"{len(model.synapses)} synapses; the most is {MAX_EDGES}")
    for synapse in model.synapses:
        for at, neuron in (synapse.source, synapse.target):
            if not 0 <= at < count or not 0 <= neuron < model.cores[at].neurons:
                no("MalformedPackage", f"a synapse names neuron {neuron} of core {at}, which is not there")
                return refusals
    if model.ksps < 1 or model.streams < 1:
        no("ImpossibleRate", "at least 1 KSPS and 1 stream are needed, or no event ever reaches it")
    refusals.extend(check_amounts(model.amounts, f"model {model.name}"))
    return refusals
