"""CP-SAT on a window of jobs, from a plan that is there already.

From scratch the solver is worse than a list on long queues, so it gets a window and a hint. Time is cut into ticks,
rounded up: what it returns is feasible, and gains are read off exact times.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ortools.sat.python import cp_model

from hcs.wide.jobs import Milliseconds

if TYPE_CHECKING:
    from hcs.wide.lanes import Lanes

TICKS = 2000


def solved(
    lanes: Lanes,
    chosen: Sequence[int],
    starts: Sequence[Milliseconds],
    end: Milliseconds,
    window: int,
    effort: float,
    seed: int,
) -> tuple[list[int], list[Milliseconds]] | None:
    """A plan that ends earlier: pools and starts of all jobs; None where none was found.

    The jobs that end last are free to move, ``window`` of them; all others stay as they are.
    """
    rows = range(len(chosen))
    tick = max(1, -(-end // TICKS))
    horizon = end // tick
    last = sorted(rows, key=lambda row: (-(starts[row] + lanes.times[row][chosen[row]]), row))
    free = sorted(last[:window])
    fixed = set(rows) - set(free)
    model = cp_model.CpModel()
    goal = model.new_int_var(0, horizon, "end")
    intervals: list[list[cp_model.IntervalVar]] = [[] for _ in lanes.pools]
    demands: list[list[int]] = [[] for _ in lanes.pools]
    present: dict[tuple[int, int], cp_model.IntVar] = {}
    begin: dict[int, cp_model.IntVar] = {}
    for row in free:
        begin[row] = model.new_int_var(0, horizon, f"s{row}")
        model.add_hint(begin[row], min(horizon, starts[row] // tick))
        options = lanes.options(row)
        for place in options:
            here = model.new_bool_var(f"x{row}_{place}")
            present[row, place] = here
            model.add_hint(here, place == chosen[row])
            length = -(-lanes.times[row][place] // tick)
            stop = model.new_int_var(0, horizon, f"e{row}_{place}")
            interval = model.new_optional_interval_var(begin[row], length, stop, here, f"i{row}_{place}")
            intervals[place].append(interval)
            demands[place].append(lanes.cards[row])
            margin = -(-lanes.margins[row][place] // tick)
            model.add(goal >= stop + margin).only_enforce_if(here)
            ready = -(-lanes.ready[row][place] // tick)
            if ready:
                model.add(begin[row] >= ready).only_enforce_if(here)
        model.add_exactly_one(present[row, place] for place in options)
    for row in sorted(fixed):
        place = chosen[row]
        first = starts[row] // tick
        length = -(-(starts[row] + lanes.times[row][place]) // tick) - first
        intervals[place].append(model.new_fixed_size_interval_var(first, length, f"f{row}"))
        demands[place].append(lanes.cards[row])
    for place, pool in enumerate(lanes.pools):
        for card, until in enumerate(lanes.bodies[place]):
            if until:
                intervals[place].append(model.new_fixed_size_interval_var(0, -(-until // tick), f"b{place}_{card}"))
                demands[place].append(1)
        if intervals[place]:
            model.add_cumulative(intervals[place], demands[place], pool.cards)
            busy = sum(
                -(-lanes.times[row][place] // tick) * lanes.cards[row] * present[row, place]
                for row in free
                if (row, place) in present
            )
            taken = sum(lanes.bodies[place]) // tick
            model.add(busy + taken <= pool.cards * goal + pool.cards)
    model.minimize(goal)
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.random_seed = seed
    solver.parameters.max_deterministic_time = effort
    solver.parameters.max_time_in_seconds = 4 * effort + 1
    if solver.solve(model) not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return None
    pools, moments = list(chosen), list(starts)
    for row in free:
        pools[row] = next(place for place in lanes.options(row) if solver.boolean_value(present[row, place]))
        moments[row] = solver.value(begin[row]) * tick
    return (pools, moments) if lanes.last(pools, moments) < end else None
