"""The boards we know by name. Figures are the published ones; what is assumed says so in ``source``.

A throughput figure in KSPS (thousand spikes per second) is published for none of these boards. Those here are upper
bounds that follow from neurons, step length and port width; a site writes its measured ones into a board file.
"""

import difflib
from typing import Final

from hcs.model.refusals import Refusal, RefusedError
from hcs.neuro.boards import SIDES, BoardModel, CoreClass, EdgePort, Side, check_model
from hcs.neuro.grids import Cell


def _edges(width: int, height: int, ksps: int, sides: tuple[Side, ...] = SIDES) -> tuple[EdgePort, ...]:
    """One port in the middle of each of these sides."""
    cells: dict[Side, Cell] = {
        "west": (0, height // 2),
        "east": (width - 1, height // 2),
        "north": (width // 2, 0),
        "south": (width // 2, height - 1),
    }
    return tuple(EdgePort(side, side, cells[side], ksps) for side in sides)


_DARWIN3_CLASS: Final = CoreClass(
    name="standard", neurons=4096, synapses=174_000, ksps=400, activations=41, updates=400
)

DARWIN3: Final = BoardModel(
    name="darwin3",
    title="Darwin3, one chip",
    chip_width=24,
    chip_height=24,
    classes=(_DARWIN3_CLASS,),
    ports=_edges(24, 24, 50_000),
    virtual_channels=4,
    control_channels=4,
    hop_limit=15,
    relay_capacity=16,
    controllers=((0, 0),),
    step_us=11,
    source="grid, 575 neuron cores, 4096 neurons, four edges, up to 4 virtual channels, 4-bit distance and shortest "
    "step of 10.24 us: published; 50 000 KSPS a port is the bound of a 32-bit port at 100 MHz with two-flit spikes; "
    "assumed: the controller's place (0,0), one control channel an edge, the rates of a core, the relays of a router",
)

DARWIN3_CHASSIS: Final = BoardModel(
    name="darwin3-chassis",
    title="Darwin3 blade, 64 chips",
    chip_width=24,
    chip_height=24,
    chips_across=8,
    chips_down=8,
    classes=(_DARWIN3_CLASS,),
    ports=_edges(192, 192, 50_000),
    virtual_channels=4,
    control_channels=4,
    hop_limit=15,
    relay_capacity=16,
    controllers=tuple((x * 24, y * 24) for y in range(8) for x in range(8)),
    step_us=11,
    source="64 chips a blade: published; assumed: chips tile 8x8, else as darwin3",
)

LOIHI2: Final = BoardModel(
    name="loihi2",
    title="Loihi 2, one chip",
    chip_width=8,
    chip_height=16,
    classes=(CoreClass(name="standard", neurons=8192, synapses=937_500, ksps=1000, activations=819, updates=1000),),
    ports=_edges(8, 16, 10_000),
    virtual_channels=4,
    control_channels=4,
    relay_capacity=16,
    step_us=1000,
    source="128 cores, up to 8192 neurons a core, 120 M synapses a chip: published; 8x16 is one press report; assumed: "
    "ports, channels and all rates",
)

TRUENORTH: Final = BoardModel(
    name="truenorth",
    title="TrueNorth, one chip",
    chip_width=64,
    chip_height=64,
    classes=(CoreClass(name="standard", neurons=256, synapses=65_536, ksps=256, activations=256, updates=0),),
    ports=_edges(64, 64, 10_000),
    virtual_channels=2,
    control_channels=0,
    step_us=1000,
    source="4096 cores, 256 neurons and a 256x256 crossbar each, no learning: published; 64x64 and the 1 ms tick are "
    "common knowledge; 256 000 spikes a second is one a neuron and tick; assumed: ports and channels",
)

SPINNAKER: Final = BoardModel(
    name="spinnaker",
    title="SpiNNaker-like, one board of 48 chips",
    chip_width=4,
    chip_height=4,
    chips_across=8,
    chips_down=6,
    classes=(CoreClass(name="application", neurons=1000, ksps=10, activations=10, updates=10),),
    ports=_edges(32, 24, 5_000, ("west", "east")),
    virtual_channels=4,
    control_channels=2,
    controllers=tuple((x * 4, y * 4) for y in range(6) for x in range(8)),
    step_us=1000,
    source="48 chips a board, 18 cores a chip of which about 16 run neurons, about 1000 neurons a core: published; the "
    "six-link triangular mesh is simplified to a rectangular one of 4x4 cores a chip; assumed: all rates and ports",
)

MODELS: Final = {model.name: check_model(model) for model in (DARWIN3, DARWIN3_CHASSIS, LOIHI2, TRUENORTH, SPINNAKER)}


def custom(width: int, height: int, *, name: str = "custom") -> BoardModel:
    """A plain grid of Darwin3-like cores without a controller, for trying things out.

    Raises:
        RefusedError: the size is no grid.
    """
    if min(width, height) < 1:
        raise RefusedError(
            Refusal("NegativeSize", f"a grid has at least one core a side, not {width}x{height}; write it like 24x24")
        )
    return check_model(
        BoardModel(
            name=name,
            title=f"{width}x{height} cores",
            chip_width=width,
            chip_height=height,
            classes=(_DARWIN3_CLASS,),
            ports=_edges(width, height, 50_000),
            virtual_channels=4,
            control_channels=4,
            hop_limit=15,
            step_us=11,
            source="made up",
        )
    )


def find_model(name: str) -> BoardModel:
    """A board by its name.

    Raises:
        RefusedError: nobody knows it.
    """
    found = MODELS.get(name.lower())
    if found is not None:
        return found
    close = difflib.get_close_matches(name.lower()[:64], MODELS, n=1, cutoff=0.5)
    hint = f"did you mean {close[0]}?" if close else f"known are {', '.join(MODELS)}"
    raise RefusedError(
        Refusal("UnknownChip", f"there is no board {name[:60]!r}; {hint}; describe others in a board file")
    )
