"""A queue of pods and a fleet, played through: who runs where and when, who waits, and who never gets a place.

Every decision is :func:`hcs.placement.engine.place`, the function the router calls. Around it stands what
kube-scheduler does: pods are tried in order of priority and arrival, one that finds no place does not hold up those
behind it, and all that wait are tried again when something ends. CPU and memory of the nodes count as they do there;
its other rules (affinity, spreading, volumes) do not.

Deterministic: the same fleet and work give the same story. Time jumps from event to event.
"""

import heapq
from collections.abc import Callable, Iterable, Iterator
from statistics import fmean
from typing import Final, Literal

import msgspec
import numpy as np

from hcs.model.refusals import Refusal
from hcs.model.requests import ComputeRequest
from hcs.placement.appraisals import ReferenceRates
from hcs.placement.engine import place
from hcs.placement.plans import Placement
from hcs.placement.snapshot import Snapshot
from hcs.simulate.work import Room, Rooms, Work

State = Literal["Refused", "Waiting", "Running", "Done"]
"""``Refused`` at admission; ``Waiting`` when nothing more happens; ``Running`` for work that stays."""

NO_ROOM: Final = Refusal("InsufficientCpuOrMemory", "the node's CPU, memory or number of pods is used up")


class Outcome(msgspec.Struct, frozen=True):
    """What became of one pod. Times in seconds; None where it never came to that.

    ``why`` says where it went and why, or what refused it at the last attempt.
    """

    work: Work
    state: State
    started: float | None = None
    ended: float | None = None
    placement: Placement | None = None
    why: str = ""

    @property
    def waited(self) -> float | None:
        """Seconds from arrival to start."""
        return None if self.started is None else self.started - self.work.arrive


class Usage(msgspec.Struct, frozen=True):
    """How much of the usable cards was given away, as ratios from 0 to 1: at most, and on average over the time."""

    vram_peak: float
    vram_mean: float
    acu_peak: float
    acu_mean: float


class Story(msgspec.Struct, frozen=True):
    """The end of a simulation: ``outcomes`` in the order of the work, ``seconds`` from 0 to the last event."""

    outcomes: tuple[Outcome, ...]
    seconds: float
    usage: Usage

    def waits(self) -> tuple[float, ...]:
        """How long each pod that started had waited, in seconds, ascending."""
        return tuple(sorted(o.waited for o in self.outcomes if o.waited is not None))

    @property
    def mean_wait(self) -> float | None:
        """Mean of the waits in seconds, None where nobody started."""
        waits = self.waits()
        return fmean(waits) if waits else None


class _Running(msgspec.Struct, order=True):
    ends: float
    number: int


def simulate(
    snapshot: Snapshot,
    work: Iterable[Work],
    *,
    rooms: Rooms | None = None,
    reference_rates: ReferenceRates | None = None,
    policy: str = "hcs",
    progress: Callable[[int, int], None] | None = None,
) -> Story:
    """Play the work through on the fleet.

    Args:
        snapshot: cards, and what is taken of them for good.
        work: the pods, in any order.
        rooms: CPU and memory of the nodes.
        reference_rates: rates of models the fleet lacks, for substitution.
        policy: one of :data:`hcs.placement.policies.POLICIES`.
        progress: told how many pods have arrived, of how many.

    Raises:
        KeyError: there is no such policy.
    """
    return _Simulation(snapshot, tuple(work), rooms or {}, reference_rates, policy, progress).run()


class _Simulation:
    def __init__(
        self,
        snapshot: Snapshot,
        work: tuple[Work, ...],
        rooms: Rooms,
        reference_rates: ReferenceRates | None,
        policy: str,
        progress: Callable[[int, int], None] | None,
    ) -> None:
        self.snapshot, self.work, self.rates, self.policy = snapshot, work, reference_rates, policy
        self.rooms: dict[str, Room] = dict(rooms)
        self.progress = progress or (lambda _arrived, _all: None)
        self.outcomes: list[Outcome] = [Outcome(w, "Waiting", why="it never arrived") for w in work]
        self.waiting: list[int] = []
        self.running: list[_Running] = []
        self.refused: dict[tuple[ComputeRequest, int, int], str] = {}
        """Shapes that found no place since something last ended, and why: equal pods need not be tried again."""
        usable = snapshot.fleet.usable
        self.vram = max(1, int(snapshot.fleet.vram[usable].sum()))
        self.milliacu = max(1, int(snapshot.fleet.milliacu[usable].sum()))
        self.samples: list[tuple[float, float, float]] = []

    def run(self) -> Story:
        arrivals = sorted(range(len(self.work)), key=lambda n: (self.work[n].arrive, n))
        position, now = 0, 0.0
        self._sample(now)
        while position < len(arrivals) or self.running:
            now = min(self._times(arrivals, position))
            while self.running and self.running[0].ends <= now:
                self._end(heapq.heappop(self.running).number, now)
            while position < len(arrivals) and self.work[arrivals[position]].arrive <= now:
                self._arrive(arrivals[position])
                position += 1
            self.progress(position, len(arrivals))
            self._try_all(now)
            self._sample(now)
        return Story(tuple(self.outcomes), now, self._usage(now))

    def _times(self, arrivals: list[int], position: int) -> Iterator[float]:
        if position < len(arrivals):
            yield self.work[arrivals[position]].arrive
        if self.running:
            yield self.running[0].ends

    def _arrive(self, number: int) -> None:
        work = self.work[number]
        if work.refusals or work.request is None:
            why = "; ".join(f"{r.reason}: {r.message}" for r in work.refusals) or "it asks HCS for nothing"
            self.outcomes[number] = Outcome(work, "Refused", why=why)
        else:
            self.waiting.append(number)

    def _try_all(self, now: float) -> None:
        self.waiting.sort(key=lambda n: (-self.work[n].priority, self.work[n].arrive, n))
        self.waiting = [number for number in self.waiting if not self._try(number, now)]

    def _try(self, number: int, now: float) -> bool:
        work = self.work[number]
        assert work.request is not None  # those are refused on arrival
        shape = (work.request, work.cpu, work.memory)
        if shape not in self.refused:
            nodes = [
                node.name
                for node in self.snapshot.fleet.nodes
                if (room := self.rooms.get(node.name)) is None or room.holds(work)
            ]
            found = place(self.snapshot, work.request, nodes=nodes, reference_rates=self.rates, policy=self.policy)
            if isinstance(found, Placement):
                self._start(number, found, now)
                return True
            short = len(self.snapshot.fleet.nodes) - len(nodes)
            cramped = f", {short} {NO_ROOM.reason} ({NO_ROOM.message})" if short else ""
            self.refused[shape] = found.summary + cramped
        self.outcomes[number] = Outcome(work, "Waiting", why=self.refused[shape])
        return False

    def _start(self, number: int, placement: Placement, now: float) -> None:
        work = self.work[number]
        self.snapshot = self.snapshot.with_allocation(placement.allocation(str(number)))
        if placement.node in self.rooms:
            self.rooms[placement.node] = self.rooms[placement.node].less(work)
        self.outcomes[number] = Outcome(work, "Running", now, None, placement, placement.reason)
        if work.duration is not None:
            heapq.heappush(self.running, _Running(now + work.duration, number))

    def _end(self, number: int, now: float) -> None:
        outcome = self.outcomes[number]
        placement = outcome.placement
        assert placement is not None  # only what was placed runs
        self.snapshot = self.snapshot.without(placement.allocation(str(number)))
        if placement.node in self.rooms:
            self.rooms[placement.node] = self.rooms[placement.node].less(outcome.work, -1)
        self.outcomes[number] = msgspec.structs.replace(outcome, state="Done", ended=now)
        self.refused.clear()

    def _sample(self, now: float) -> None:
        usable = self.snapshot.fleet.usable
        vram = 1 - int(self.snapshot.free_bytes[usable].sum()) / self.vram
        acu = 1 - int(self.snapshot.free_milliacu[usable].sum()) / self.milliacu
        self.samples.append((now, vram, acu))

    def _usage(self, end: float) -> Usage:
        """Peaks and means over the time; where no time passes, the last state is both."""
        times = np.array([*(t for t, _, _ in self.samples), end])
        spans = np.diff(times)
        columns = [np.array([sample[column] for sample in self.samples]) for column in (1, 2)]
        total = float(spans.sum())
        means = [float((spans * column).sum() / total) if total else float(column[-1]) for column in columns]
        return Usage(float(columns[0].max()), means[0], float(columns[1].max()), means[1])
