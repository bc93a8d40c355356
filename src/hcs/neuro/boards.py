"""What a spiking board is: a grid of cores, what they can do, and where events enter and leave.

A :class:`BoardModel` is the description of a product: the same for every board of its kind. A :class:`BoardState` adds
what is true of one board today: which cores and which routers are dead. Both are values.

A *dead core* computes nothing but its router still passes packets on. A *dead router* passes nothing on, so its core is
lost as well. Some nodes are *controllers*: their routers work, and they carry no neurons, so for placing they are like
dead cores.
"""

from collections.abc import Iterable
from typing import Final, Literal

import msgspec

from hcs.model.refusals import Refusal, RefusedError
from hcs.neuro.grids import MAX_SIDE, Cell, Layout, Rectangle, layout

Side = Literal["west", "east", "north", "south"]
SIDES: Final = ("west", "east", "north", "south")
MAX_CORES: Final = 1 << 18
MAX_RATE: Final = 1 << 40


class CoreClass(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of core.

    ``neurons`` and ``synapses`` are what one core holds. ``ksps`` is the thousands of spikes per second it can process,
    ``activations`` the thousands of output spikes per second, ``updates`` the thousands of synaptic weight updates.
    """

    name: str
    neurons: int
    synapses: int = 0
    ksps: int
    activations: int
    updates: int = 0


class Region(msgspec.Struct, frozen=True):
    """Cores of another class than the board's first."""

    rectangle: Rectangle
    core_class: str


class EdgePort(msgspec.Struct, frozen=True):
    """Where the host's events enter and leave. ``ksps`` is what the port carries, in thousand spikes per second."""

    name: str
    side: Side
    cell: Cell
    ksps: int


class BoardModel(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of board.

    ``chip_width`` x ``chip_height`` cores are one chip; chips tile the board. ``hop_limit`` is the number of hops a
    packet can make on each axis before it must be sent again, 0 for no limit. ``relay_capacity`` is the number of
    paths one router can send again. ``step_us`` is the least length of a time step in microseconds.
    """

    name: str
    title: str
    chip_width: int
    chip_height: int
    chips_across: int = 1
    chips_down: int = 1
    classes: tuple[CoreClass, ...]
    regions: tuple[Region, ...] = ()
    ports: tuple[EdgePort, ...]
    virtual_channels: int
    control_channels: int = 0
    hop_limit: int = 0
    relay_capacity: int = 16
    controllers: tuple[Cell, ...] = ()
    rotation: bool = True
    step_us: int = 1000
    ksps: int = 0
    """The measured throughput of the whole board in KSPS; 0 takes what cores and ports add up to."""
    module: str = ""
    """Set where a node carries unlike boards: the resources of this one are named with it, like ``ksps-type-a``."""
    source: str = ""
    """Where the figures come from, and which of them are assumed."""

    @property
    def width(self) -> int:
        """Columns of cores."""
        return self.chip_width * self.chips_across

    @property
    def height(self) -> int:
        """Rows of cores."""
        return self.chip_height * self.chips_down

    @property
    def layout(self) -> Layout:
        """The grid."""
        return layout(self.width, self.height)

    def core_class(self, cell: Cell) -> CoreClass:
        """The class of a core."""
        for region in self.regions:
            if region.rectangle.holds(cell):
                return next(c for c in self.classes if c.name == region.core_class)
        return self.classes[0]

    def class_mask(self, name: str) -> int:
        """The set of cores of a class, without controllers."""
        grid = self.layout
        claimed, found = 0, 0
        for region in self.regions:
            cells = grid.rectangle(region.rectangle) & ~claimed
            claimed |= cells
            if region.core_class == name:
                found |= cells
        if name == self.classes[0].name:
            found |= grid.cells & ~claimed
        return found & ~grid.of(self.controllers)

    @property
    def streams(self) -> int:
        """Event streams that can be open at once: edge ports times virtual channels, without those for control."""
        return max(0, len(self.ports) * self.virtual_channels - self.control_channels)


class BoardState(msgspec.Struct, frozen=True, kw_only=True):
    """One board today. ``numa`` is the NUMA node its host port hangs on, ``emulated`` whether it only plays a board."""

    id: str
    model: BoardModel
    dead_cores: frozenset[Cell] = frozenset()
    dead_routers: frozenset[Cell] = frozenset()
    numa: int | None = None
    emulated: bool = False

    def live(self) -> int:
        """The set of cores that compute."""
        grid = self.model.layout
        return grid.cells & ~grid.of((*self.dead_cores, *self.dead_routers, *self.model.controllers))

    def check(self) -> None:
        """See that the faults are on the board.

        Raises:
            RefusedError: they are not.
        """
        outside = sorted(c for c in self.dead_cores | self.dead_routers if not self.model.layout.has(c))
        if outside:
            raise RefusedError(
                Refusal(
                    "OutsideGrid",
                    f"board {self.id} has no core ({outside[0][0]},{outside[0][1]}); "
                    f"its grid is {self.model.width}x{self.model.height}, counted from (0,0)",
                )
            )


def check_model(model: BoardModel) -> BoardModel:
    """See that a description makes sense, and give it back.

    Raises:
        RefusedError: with every mistake found.
    """
    refusals: list[Refusal] = []

    def no(reason: str, message: str) -> None:
        refusals.append(Refusal(reason, f"board {model.name or '(without a name)'}: {message}"))

    if not model.name or len(model.name) > 63:
        no("MalformedBoard", "a name of 1 to 63 characters is needed")
    sides = (model.chip_width, model.chip_height, model.chips_across, model.chips_down)
    if min(sides) < 1:
        no("NegativeSize", f"sizes are 1 or more, not {min(sides)}")
    elif max(model.width, model.height) > MAX_SIDE or model.width * model.height > MAX_CORES:
        no(
            "BoardTooLarge",
            f"{model.width}x{model.height} cores; the most is {MAX_SIDE} a side and {MAX_CORES} in all, "
            "describe a larger machine as several boards",
        )
    if not model.classes:
        no("MalformedBoard", "at least one core class is needed")
    names = [core_class.name for core_class in model.classes]
    if len(set(names)) != len(names):
        no("MalformedBoard", "two core classes have the same name")
    for core_class in model.classes:
        figures = (core_class.neurons, core_class.ksps, core_class.activations)
        if min(figures) < 1 or min(core_class.synapses, core_class.updates) < 0:
            no(
                "ImpossibleRate",
                f"class {core_class.name}: neurons, ksps and activations are 1 or more, others 0 or more",
            )
        if max(*figures, core_class.synapses, core_class.updates) > MAX_RATE:
            no("ImpossibleRate", f"class {core_class.name}: no core does more than {MAX_RATE} of anything")
    if not refusals:
        whole = Rectangle(0, 0, model.width, model.height)
        for region in model.regions:
            if region.core_class not in names:
                no("UnknownClass", f"a region names class {region.core_class}; known are {', '.join(names)}")
            if not model.layout.fits(region.rectangle):
                no("OutsideGrid", f"region {region.rectangle} is not within {whole.width}x{whole.height}")
        refusals.extend(_check_ports(model))
        for cell in model.controllers:
            if not whole.holds(cell):
                no("OutsideGrid", f"controller ({cell[0]},{cell[1]}) is not within {whole.width}x{whole.height}")
        if len(set(model.controllers)) >= model.width * model.height:
            no("MalformedBoard", "no core is left beside the controllers")
    if model.virtual_channels < 1 or model.virtual_channels > 1024:
        no("MalformedBoard", f"virtual channels are 1 to 1024, not {model.virtual_channels}")
    if min(model.control_channels, model.hop_limit, model.relay_capacity) < 0:
        no("NegativeSize", "control channels, hop limit and relay capacity are 0 or more")
    if model.step_us < 1:
        no("ImpossibleRate", f"a time step lasts at least 1 microsecond, not {model.step_us}")
    if refusals:
        raise RefusedError(*refusals)
    return model


def _check_ports(model: BoardModel) -> Iterable[Refusal]:
    if not model.ports:
        yield Refusal("MalformedBoard", f"board {model.name}: at least one edge port is needed")
    if len({port.name for port in model.ports}) != len(model.ports):
        yield Refusal("MalformedBoard", f"board {model.name}: two ports have the same name")
    edges: dict[str, tuple[int, int]] = {
        "west": (0, 0), "east": (0, model.width - 1), "north": (1, 0), "south": (1, model.height - 1)
    }  # fmt: skip
    for port in model.ports:
        axis, position = edges[port.side]
        if not model.layout.has(port.cell) or port.cell[axis] != position:
            yield Refusal(
                "OutsideGrid",
                f"board {model.name}: port {port.name} is on the {port.side} side, "
                f"and cell ({port.cell[0]},{port.cell[1]}) is not on that edge",
            )
        if not 1 <= port.ksps <= MAX_RATE:
            yield Refusal(
                "ImpossibleRate", f"board {model.name}: port {port.name} carries 1 or more KSPS, not {port.ksps}"
            )
