"""What a board's driver can do: the one interface between the service and hardware, whoever made it."""

from collections.abc import Mapping, Sequence
from typing import Protocol

import msgspec

from hcs.neuro.boards import BoardState
from hcs.neuro.grids import Cell
from hcs.neuro.packages import Model
from hcs.neuro.routes import Route


class DriverError(RuntimeError):
    """The board did not do what it was told; the message says what, and what the board said."""


class Limits(msgspec.Struct, frozen=True):
    """What a task may use at most: spikes per second in thousands, and events entering on these (port, channel)s."""

    ksps: int
    channels: tuple[tuple[str, int], ...]


class Load(msgspec.Struct, frozen=True):
    """A network on its way to the board: each logical core's cell, and the ways of its spikes."""

    model: Model
    cores: tuple[Cell, ...]
    spike_routes: tuple[Route, ...] = ()


class Usage(msgspec.Struct, frozen=True):
    """What a task has used since it was loaded.

    ``spikes_in`` were accepted from outside, ``spikes`` processed by its cores (those among them), ``dropped`` refused
    at the ingress because the rate was used up, ``activations`` fired by its neurons, ``updates`` weight writes.
    """

    steps: int = 0
    spikes_in: int = 0
    spikes: int = 0
    dropped: int = 0
    activations: int = 0
    updates: int = 0


Spike = tuple[int, int]
"""(logical core, neuron)."""


class BoardDriver(Protocol):
    """One board. Calls may block and may raise :class:`DriverError`."""

    def query(self) -> BoardState:
        """The board as it is now, faults included."""

    def configure(self, task: int, limits: Limits) -> None:
        """Hold a task to its limits from now on."""

    def load(self, task: int, load: Load) -> None:
        """Write a network into its cores."""

    def run(self, task: int, inputs: Sequence[Sequence[Spike]]) -> Sequence[Sequence[Spike]]:
        """Run one time step for each list of input spikes; return the spikes of output cores of each step."""

    def unload(self, task: int) -> None:
        """Clear a task's cores; nothing where it has none."""

    def usage(self) -> Mapping[int, Usage]:
        """What each loaded task has used."""
