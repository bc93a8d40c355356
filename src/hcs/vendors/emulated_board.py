"""An emulated spiking board: runs small integrate-and-fire networks exactly, and counts every event.

It stands in for hardware in tests, in the sandbox and in continuous integration, and its states say ``emulated``. A
neuron adds the weights of the spikes that reach it and fires in the next step once the sum reaches its core's
threshold; then it begins at zero. Spikes from outside make their neuron fire at once. Each task is held to its rate
by a token bucket at the ingress: what a step's length earns, saved up for at most four steps.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

from hcs.neuro.boards import BoardState
from hcs.neuro.drivers import DriverError, Limits, Load, Spike, Usage
from hcs.neuro.grids import Cell

BURST_STEPS: Final = 4
MAX_STEPS: Final = 100_000


class EmulatedBoard:
    """One board that exists in memory only; it implements :class:`hcs.neuro.drivers.BoardDriver`."""

    def __init__(self, state: BoardState) -> None:
        """Begin with nothing loaded.

        Args:
            state: what the board is; it is marked as emulated.
        """
        self._state = msgspec.structs.replace(state, emulated=True)
        self._limits: dict[int, Limits] = {}
        self._tasks: dict[int, _Network] = {}

    def query(self) -> BoardState:
        """The board as it is now."""
        return self._state

    def fail(self, *, cores: Iterable[Cell] = (), routers: Iterable[Cell] = ()) -> None:
        """Let cores or routers die; for tests and demonstrations."""
        self._state = msgspec.structs.replace(
            self._state,
            dead_cores=self._state.dead_cores | frozenset(cores),
            dead_routers=self._state.dead_routers | frozenset(routers),
        )

    def configure(self, task: int, limits: Limits) -> None:
        """Hold a task to its limits from now on."""
        if limits.ksps < 0:
            raise DriverError(f"emulated board {self._state.id}: a limit of {limits.ksps} KSPS makes no sense")
        self._limits[task] = limits

    def load(self, task: int, load: Load) -> None:
        """Write a network into its cores; what the task had loaded before is gone."""
        if task not in self._limits:
            raise DriverError(f"emulated board {self._state.id}: task {task} has no limits yet; configure it first")
        taken = {cell: other for other, network in self._tasks.items() if other != task for cell in network.load.cores}
        dead = self._state.dead_cores | self._state.dead_routers
        for cell in load.cores:
            if not self._state.model.layout.has(cell) or cell in dead:
                raise DriverError(f"emulated board {self._state.id}: core ({cell[0]},{cell[1]}) does not answer")
            if cell in taken:
                raise DriverError(
                    f"emulated board {self._state.id}: core ({cell[0]},{cell[1]}) belongs to task {taken[cell]}"
                )
        self._tasks[task] = _Network(load)

    def run(self, task: int, inputs: Sequence[Sequence[Spike]]) -> Sequence[Sequence[Spike]]:
        """Run one time step for each list of input spikes; return the spikes of output cores of each step."""
        network = self._tasks.get(task)
        if network is None:
            raise DriverError(f"emulated board {self._state.id}: nothing is loaded for task {task}")
        if len(inputs) > MAX_STEPS:
            raise DriverError(f"emulated board {self._state.id}: {len(inputs)} steps at once; at most {MAX_STEPS}")
        dead = self._state.dead_cores | self._state.dead_routers
        if dead.intersection(network.load.cores):
            raise DriverError(f"emulated board {self._state.id}: a core of task {task} does not answer")
        refill = self._limits[task].ksps * self._state.model.step_us  # thousandths of a spike a step
        return [network.step(spikes, refill) for spikes in inputs]

    def unload(self, task: int) -> None:
        """Clear a task's cores."""
        self._tasks.pop(task, None)
        self._limits.pop(task, None)

    def usage(self) -> Mapping[int, Usage]:
        """What each loaded task has used."""
        return {task: network.usage for task, network in self._tasks.items()}

    def limits(self) -> Mapping[int, Limits]:
        """What each task is held to."""
        return dict(self._limits)


class _Network:
    """One loaded network and its state."""

    def __init__(self, load: Load) -> None:
        self.load = load
        self.usage = Usage()
        self._tokens: int | None = None
        self._sums: dict[Spike, int] = {}
        self._due: set[Spike] = set()
        self._axons: dict[Spike, list[tuple[Spike, int, bool]]] = {}
        for synapse in load.model.synapses:
            self._axons.setdefault(synapse.source, []).append((synapse.target, synapse.weight, synapse.plastic))

    def step(self, spikes: Sequence[Spike], refill: int) -> list[Spike]:
        model = self.load.model
        saved = refill * BURST_STEPS
        self._tokens = min(saved, (saved if self._tokens is None else self._tokens) + refill)
        inputs = set(model.inputs)
        accepted = []
        for core, neuron in spikes:
            if core not in inputs or not 0 <= neuron < model.cores[core].neurons:
                raise DriverError(f"({core},{neuron}) is no neuron of an input core of {model.name}")
            if self._tokens >= 1000:
                self._tokens -= 1000
                accepted.append((core, neuron))
        firing = self._due | set(accepted)
        self._due = set()
        delivered = updates = 0
        for neuron_fired in sorted(firing):
            for target, weight, plastic in self._axons.get(neuron_fired, ()):
                delivered += 1
                updates += plastic
                total = self._sums.get(target, 0) + weight
                self._sums[target] = total
        for target, total in list(self._sums.items()):
            if total >= model.cores[target[0]].threshold:
                del self._sums[target]
                self._due.add(target)
        self.usage = Usage(
            steps=self.usage.steps + 1,
            spikes_in=self.usage.spikes_in + len(accepted),
            spikes=self.usage.spikes + len(accepted) + delivered,
            dropped=self.usage.dropped + len(spikes) - len(accepted),
            activations=self.usage.activations + len(firing),
            updates=self.usage.updates + updates,
        )
        outputs = set(model.outputs)
        return sorted(spike for spike in firing if spike[0] in outputs)
