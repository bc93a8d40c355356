"""A closed queue, improved: who runs on which pool so that the last job ends soonest.

The linear program says how much of each job belongs on which pool; rounded, that is a good beginning. Pools do not
touch each other, so moving a job means listing two pools anew, which is cheap: annealing makes thousands of moves.
CP-SAT then takes a window of jobs, with what was found as its hint. Every step keeps the best plan so far, so it can be
stopped at any time. Work is counted, not timed: equal seeds give equal plans.
"""

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Sequence
from heapq import heapreplace
from math import inf

import msgspec
import numpy as np

from hcs.wide.bound import Shares, fractional
from hcs.wide.jobs import Job, Milliseconds
from hcs.wide.listing import Board, listed
from hcs.wide.snapshot import Place
from hcs.wide.window import solved

Starts = list[tuple[int, Milliseconds]]
"""Jobs by row, and when they start."""


class Budget(msgspec.Struct, frozen=True):
    """How much work improving may be.

    ``restarts`` of ``moves`` of annealing each, every one followed by ``tries`` of other orders; then ``rounds`` of
    CP-SAT of ``effort`` deterministic seconds each on ``window`` jobs. It ends early once the plan is within ``close``
    per mille of the bound: more work could hardly gain anything. A guide whose end came out by more than ``drift`` per
    mille of what remains otherwise is improved again, with one restart and a tenth of the moves.
    """

    restarts: int = 24
    tries: int = 800
    moves: int = 16_000
    rounds: int = 1
    effort: float = 0.2
    window: int = 100
    close: int = 2
    drift: int = 20
    seed: int = 0


class Lanes:
    """The rest of the queue by pool, in milliseconds from now; row j, column g: job j's time on pool g, 0 = never."""

    def __init__(self, board: Board, jobs: Sequence[Job]) -> None:
        pools, now = board.snapshot.pools, board.snapshot.now
        self.jobs, self.pools = jobs, pools
        self.cards = [job.cards for job in jobs]
        self.times = [[run.expected if (run := pool.admits(job)) is not None else 0 for pool in pools] for job in jobs]
        self.ready = [[max(0, (board.snapshot.ready(job, pool) or now) - now) for pool in pools] for job in jobs]
        self.fetching = any(any(row) for row in self.ready)
        self.bodies = [_bodies(board, pool.name, pool.cards) for pool in pools]
        places = range(len(pools))
        self.at_rank = [
            sorted(range(len(jobs)), key=lambda job: (-self.cards[job], -self.times[job][place], job))
            for place in places
        ]
        self.rank = [[0] * len(jobs) for _ in places]
        for place, order in enumerate(self.at_rank):
            for rank, job in enumerate(order):
                self.rank[place][job] = rank
        self.entries = [[(self.cards[job], self.times[job][place]) for job in self.at_rank[place]] for place in places]

    def options(self, job: int, cap: float = inf) -> list[int]:
        """Pools the job can run on and take no longer than the cap."""
        return [place for place, time in enumerate(self.times[job]) if 0 < time <= cap]

    def end(self, place: int, ranks: Sequence[int]) -> Milliseconds:
        """End of a pool that runs jobs of these ranks, in rising order; what annealing asks thousands of times."""
        if self.fetching:
            return self.run(place, [self.at_rank[place][rank] for rank in ranks])[0]
        free, entries = self.bodies[place].copy(), self.entries[place]
        for at, rank in enumerate(ranks):
            width, time = entries[rank]
            if width == 1:
                # Free moments in rising order are a heap already, and only narrow jobs follow.
                for single in ranks[at:]:
                    heapreplace(free, free[0] + entries[single][1])
                break
            free[:width] = [free[width - 1] + time] * width
            free.sort()
        return max(free)

    def run(self, place: int, members: Sequence[int]) -> tuple[Milliseconds, Starts]:
        """End of a pool and the starts on it: wide jobs first, and of equal ones the long first.

        With widths that divide each other, wide first leaves no holes.
        """
        return self.list(place, sorted(members, key=self.rank[place].__getitem__))

    def list(self, place: int, order: Iterable[int]) -> tuple[Milliseconds, Starts]:
        """End of a pool and the starts on it in an order; each job takes the cards that become free first."""
        times, ready = self.times, self.ready
        free, starts = self.bodies[place].copy(), []
        for job in order:
            width = self.cards[job]
            start = max(free[width - 1], ready[job][place])
            free[:width] = [start + times[job][place]] * width
            free.sort()
            starts.append((job, start))
        return free[-1], starts


def _bodies(board: Board, pool: str, cards: int) -> list[Milliseconds]:
    """When each card becomes free, as the running jobs and the promises leave them."""
    profile, now = board.profiles[pool], board.snapshot.now
    free: list[Milliseconds] = []
    lowest, after = cards, now
    # From the back: a card that is taken again later counts as free only after that.
    for moment, count in zip(reversed(profile.times), reversed(profile.free), strict=True):
        if count < lowest:
            free += [after - now] * (lowest - count)
            lowest = count
        after = moment
    return sorted(free + [0] * lowest)


def improved(
    board: Board, jobs: Sequence[Job], guide: Sequence[Place], budget: Budget, stop: Callable[[], bool]
) -> tuple[Place, ...]:
    """Places of all jobs from now on, better than any list where there is something to gain."""
    if not jobs:
        return ()
    lanes = Lanes(board, jobs)
    taken = [float(sum(bodies)) for bodies in lanes.bodies]
    bound, shares = fractional(jobs, lanes.pools, taken)
    aim = bound * (1 + budget.close / 1000)
    known = {place.job: place.pool for place in guide}
    best = _rounded(lanes, shares, known, inf) or [lanes.options(row)[0] for row in range(len(jobs))]
    listing = _list_of(lanes, board, jobs)
    best = min(best, listing, key=lambda found: _span(lanes, found))
    span, starts = _packed(lanes, best, inf, budget.tries, budget.seed)
    for turn in range(budget.restarts):
        # A job that alone takes longer than the best end somewhere has no business there: without it the program
        # rounds to a better beginning, and annealing does not fall for it.
        cap = span * (1 - budget.close / 1000)
        if stop() or span <= aim or any(not lanes.options(row, cap) for row in range(len(jobs))):
            break
        begin = _rounded(lanes, fractional(jobs, lanes.pools, taken, cap)[1], known, cap) if turn == 0 else None
        begin = begin or _kicked(lanes, best, cap, budget.seed + turn)
        found = anneal(lanes, begin, budget, budget.seed + turn, cap, aim, stop)
        end, moments = _packed(lanes, found, span, budget.tries, budget.seed + turn)
        if end <= span:
            span, best, starts = end, found, moments
    for turn in range(budget.rounds):
        end = max(start + lanes.times[job][best[job]] for job, start in enumerate(starts))
        if stop() or end <= aim:
            break
        better = solved(lanes, best, starts, end, budget.window, budget.effort, budget.seed + turn)
        if better is None:
            break
        best, starts = better
    return _places(board, lanes, best, _mirrored(lanes, best, starts))


def _kicked(lanes: Lanes, chosen: Sequence[int], cap: float, seed: int) -> list[int]:
    """A sixth of the jobs anywhere, the others where they were: near enough to a good plan, and out of its valley."""
    dice = np.random.default_rng(seed)
    kicked = list(chosen)
    stuck = [job for job, place in enumerate(kicked) if lanes.times[job][place] > cap]
    for job in [*stuck, *dice.choice(len(kicked), -(-len(kicked) // 6), replace=False).tolist()]:
        options = lanes.options(job, cap)
        kicked[job] = options[int(dice.integers(len(options)))]
    return kicked


def _rounded(lanes: Lanes, shares: Shares, known: dict[str, str], cap: float) -> list[int] | None:
    """Each job where it was, or else where most of it belongs; None where some job fits nowhere under the cap."""
    names = [pool.name for pool in lanes.pools]
    chosen = []
    for row, job in enumerate(lanes.jobs):
        options = lanes.options(row, cap)
        if not options:
            return None
        share, meant = shares.get(job.id, {}), known.get(job.id)
        wanted = [place for place in options if names[place] == meant]
        chosen.append(
            (wanted or [max(options, key=lambda place: (share.get(names[place], 0.0), -lanes.times[row][place]))])[0]
        )
    return chosen


def _packed(
    lanes: Lanes, chosen: Sequence[int], span: float, tries: int, seed: int
) -> tuple[Milliseconds, list[Milliseconds]]:
    """The last end and the starts, after trying other orders on the pools that end last.

    A plan that is far from the best so far is not worth the tries.
    """
    dice = np.random.default_rng(seed)
    members = _members(lanes, chosen)
    orders = [sorted(rows, key=lanes.rank[place].__getitem__) for place, rows in enumerate(members)]
    found = [lanes.list(place, order) for place, order in enumerate(orders)]
    last = max(end for end, _ in found)
    left = tries if last <= span * 1.015 else 0
    while left > 0:
        place = max(range(len(found)), key=lambda at: found[at][0])
        order, end, gained = orders[place], found[place][0], False
        for here, there in dice.random((min(left, 64), 2)).tolist() if len(order) > 1 else []:
            left -= 1
            trial = order.copy()
            trial.insert(int(there * len(order)), trial.pop(int(here * len(order))))
            answer = lanes.list(place, trial)
            if answer[0] <= end:
                gained = gained or answer[0] < end
                order, end, found[place], orders[place] = trial, answer[0], answer, trial
        if not gained:
            left -= 256
    starts = [0] * len(chosen)
    for _, jobs in found:
        for job, start in jobs:
            starts[job] = start
    return max(end for end, _ in found), starts


def _list_of(lanes: Lanes, board: Board, jobs: Sequence[Job]) -> list[int]:
    """Longest first, each where it ends first."""
    ordered = sorted(jobs, key=lambda job: (-min(run.expected for run in job.times.values()), job.id))
    pools = {place.job: place.pool for place in listed(board.copy(), ordered)}
    names = [pool.name for pool in lanes.pools]
    return [names.index(pools[job.id]) for job in jobs]


def _members(lanes: Lanes, chosen: Sequence[int]) -> list[list[int]]:
    members: list[list[int]] = [[] for _ in lanes.pools]
    for job, place in enumerate(chosen):
        members[place].append(job)
    return members


def _span(lanes: Lanes, chosen: Sequence[int]) -> Milliseconds:
    return max(lanes.run(place, rows)[0] for place, rows in enumerate(_members(lanes, chosen)))


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
    chosen, members = list(first), _members(lanes, first)
    lines = [sorted(lanes.rank[place][job] for job in rows) for place, rows in enumerate(members)]
    ends = [lanes.end(place, line) for place, line in enumerate(lines)]
    if not movable:
        return chosen
    areas = [
        sum(lanes.bodies[place]) + sum(cards[job] * times[job][place] for job in rows)
        for place, rows in enumerate(members)
    ]
    sizes = [pool.cards for pool in lanes.pools]
    best, best_end, worth = chosen.copy(), max(ends), _worth(ends)
    # Long lanes cost more a move: the work, not the number of moves, is what the budget holds.
    moves = max(200, budget.moves * 80 // max(80, len(chosen)))
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


def _mirrored(lanes: Lanes, chosen: Sequence[int], starts: list[Milliseconds]) -> list[Milliseconds]:
    """The same lanes run backwards where that ends as soon and jobs end earlier on average.

    A lane of which all cards are free at the beginning may be turned round: what was packed last, the short jobs,
    comes first, and the last end stays the same.
    """
    turned = starts.copy()
    for place, rows in enumerate(_members(lanes, chosen)):
        if not rows or any(lanes.bodies[place]) or any(lanes.ready[job][place] for job in rows):
            continue
        end = max(starts[job] + lanes.times[job][place] for job in rows)
        back = {job: end - starts[job] - lanes.times[job][place] for job in rows}
        if sum(back.values()) < sum(starts[job] for job in rows):
            for job in rows:
                turned[job] = back[job]
    return turned


def _places(board: Board, lanes: Lanes, chosen: Sequence[int], starts: Sequence[Milliseconds]) -> tuple[Place, ...]:
    now = board.snapshot.now
    places = []
    for row, job in enumerate(lanes.jobs):
        pool = lanes.pools[chosen[row]]
        start = now + starts[row]
        places.append(Place(job.id, pool.name, start, start + job.times[pool.kind].upper))
    return tuple(sorted(places, key=lambda place: (place.start, place.job)))
