"""Annealing: jobs move between lanes, or change places, and a worse plan is taken now and then to leave a valley.

The work is counted, and every draw is seeded, so equal seeds give equal plans. ``stop`` is asked now and then.
"""

from bisect import bisect_left, insort
from collections.abc import Callable, Sequence

import msgspec
import numpy as np

from hcs.wide.jobs import Milliseconds
from hcs.wide.lanes import Lanes, members

QUEUE = 80
"""Jobs of a queue that the numbers of a budget are meant for."""


class Budget(msgspec.Struct, frozen=True):
    """How much work improving may be.

    ``restarts`` of ``moves`` of annealing each, every one followed by ``tries`` of other orders; then ``rounds`` of
    CP-SAT of ``effort`` deterministic seconds each on ``window`` jobs. It ends early once the plan is within ``close``
    per mille of the bound: more work could hardly gain anything. A guide whose end came out by more than ``drift`` per
    mille of what remains otherwise is improved again, with one restart and a tenth of the moves. ``caution`` is the
    part, per mille, of the distance from a job's expected time to its upper one that a plan leaves room for.
    """

    restarts: int = 24
    tries: int = 800
    moves: int = 16_000
    rounds: int = 1
    effort: float = 0.2
    window: int = 100
    close: int = 2
    drift: int = 20
    caution: int = 500
    seed: int = 0

    def for_jobs(self, count: int) -> "Budget":
        """The same work on a queue of so many jobs: beyond ``QUEUE`` lanes are longer and each try costs more."""
        if count <= QUEUE:
            return self
        return msgspec.structs.replace(
            self,
            restarts=-(-self.restarts * QUEUE // count),
            moves=max(100, self.moves * QUEUE // count),
            tries=self.tries * QUEUE // count,
        )


def anneal(
    lanes: Lanes,
    first: Sequence[int],
    budget: Budget,
    seed: int,
    cap: float,
    aim: float,
    stop: Callable[[], bool],
) -> list[int]:
    """The pools of the jobs after so many moves and swaps, more of them away from the pool that ends last.

    A move whose cards alone would take too long is dropped before its lanes are listed.
    """
    dice = np.random.default_rng(seed)
    times, cards, count = lanes.times, lanes.cards, len(lanes.pools)
    options = [lanes.options(job, cap) for job in range(len(first))]
    movable = [job for job in range(len(first)) if len(options[job]) > 1]
    chosen, rows_of = list(first), members(lanes, first)
    lines = [sorted(lanes.rank[place][job] for job in rows) for place, rows in enumerate(rows_of)]
    ends = [lanes.end(place, line) for place, line in enumerate(lines)]
    if not movable:
        return chosen
    areas = [
        sum(lanes.bodies[place]) + sum(cards[job] * times[job][place] for job in rows)
        for place, rows in enumerate(rows_of)
    ]
    sizes = [pool.cards for pool in lanes.pools]
    best, best_end, worth = chosen.copy(), max(ends), _worth(ends)
    moves = budget.moves
    draws = dice.random((moves, 4)).tolist()
    lucks = (-np.log(1.0 - dice.random(moves))).tolist()
    for turn in range(moves):
        if turn % 256 == 0 and (best_end <= aim or stop()):
            break
        limit = worth + 0.01 * aim * (1 - turn / moves) ** 2 * lucks[turn]
        pick, other, kind, mate = draws[turn]
        if kind < 0.5:
            last = max(range(count), key=ends.__getitem__)
            line = lines[last]
            if not line:
                continue
            job = lanes.at_rank[last][line[int(pick * len(line))]]
        else:
            job = movable[int(pick * len(movable))]
        source = chosen[job]
        targets = [place for place in options[job] if place != source]
        if not targets:
            continue
        target = targets[int(other * len(targets))]
        partners: list[int] = []
        if kind % 0.5 < 0.25 and lines[target]:
            line, share = lines[target], mate * len(lines[target])
            partners = [lanes.at_rank[target][line[int(share)]]]
            second = lanes.at_rank[target][line[int(share % 1.0 * len(line))]]
            if kind % 0.5 < 0.1 and second not in partners:
                partners.append(second)
            if any(source not in options[partner] for partner in partners):
                continue
        left_area = areas[source] - cards[job] * times[job][source]
        right_area = areas[target] + cards[job] * times[job][target]
        for partner in partners:
            left_area += cards[partner] * times[partner][source]
            right_area -= cards[partner] * times[partner][target]
        trial = ends.copy()
        trial[source], trial[target] = left_area // sizes[source], right_area // sizes[target]
        if _worth(trial) > limit:
            continue
        right = lines[target].copy()
        for partner in partners:
            del right[bisect_left(right, lanes.rank[target][partner])]
        insort(right, lanes.rank[target][job])
        trial[target] = lanes.end(target, right)
        if _worth(trial) > limit:
            continue
        left = lines[source].copy()
        del left[bisect_left(left, lanes.rank[source][job])]
        for partner in partners:
            insort(left, lanes.rank[source][partner])
        trial[source] = lanes.end(source, left)
        value = _worth(trial)
        if value > limit:
            continue
        lines[source], lines[target], ends, worth = left, right, trial, value
        areas[source], areas[target] = left_area, right_area
        chosen[job] = target
        for partner in partners:
            chosen[partner] = source
        if max(ends) < best_end:
            best, best_end = chosen.copy(), max(ends)
    return best


def _worth(ends: Sequence[Milliseconds]) -> float:
    """The last end, and a little of all ends, so that room gained elsewhere counts."""
    return max(ends) + 0.1 * sum(ends) / len(ends)


def kicked(lanes: Lanes, chosen: Sequence[int], cap: float, seed: int) -> list[int]:
    """A sixth of the jobs anywhere, the others where they were: near enough to a good plan, and out of its valley."""
    dice = np.random.default_rng(seed)
    moved = list(chosen)
    stuck = [job for job, place in enumerate(moved) if place not in lanes.options(job, cap)]
    for job in [*stuck, *dice.choice(len(moved), -(-len(moved) // 6), replace=False).tolist()]:
        options = lanes.options(job, cap)
        moved[job] = options[int(dice.integers(len(options)))]
    return moved
