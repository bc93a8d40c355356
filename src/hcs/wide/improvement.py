"""A closed queue, improved: who runs on which pool so that the last job ends soonest.

The linear program says how much of each job belongs on which pool; rounded, that is a good beginning. Pools do not
touch each other, so moving a job means listing two pools anew, which is cheap: annealing makes thousands of moves.
CP-SAT then takes a window of jobs, with what was found as its hint. Every step keeps the best plan so far, so it can be
stopped at any time. Work is counted, not timed: equal seeds give equal plans.
"""

from collections.abc import Callable, Sequence
from math import inf

import numpy as np

from hcs.wide.annealing import Budget, anneal, kicked
from hcs.wide.bound import Shares, fractional
from hcs.wide.jobs import Job, Milliseconds
from hcs.wide.lanes import Lanes, members
from hcs.wide.listing import Board, listed
from hcs.wide.snapshot import Place
from hcs.wide.window import solved

SLACK = 10
"""Per mille of a lane's length that running it backwards may cost."""


def improved(
    board: Board, jobs: Sequence[Job], guide: Sequence[Place], budget: Budget, stop: Callable[[], bool]
) -> tuple[Place, ...]:
    """Places of all jobs from now on, better than any list where there is something to gain."""
    if not jobs:
        return ()
    budget = budget.for_jobs(len(jobs))
    lanes = Lanes(board, jobs, budget.caution)
    taken = [float(sum(bodies)) for bodies in lanes.bodies]
    bound, shares = fractional(jobs, lanes.pools, taken, caution=budget.caution)
    aim = bound * (1 + budget.close / 1000)
    known = {place.job: place.pool for place in guide}
    followed = _followed(lanes, guide)
    best = _rounded(lanes, shares, known, inf) or [lanes.options(row)[0] for row in range(len(jobs))]
    if followed is None:
        best = min(best, _list_of(lanes, board, jobs), key=lambda found: _span(lanes, found))
    span, starts = _packed(lanes, best, inf, budget.tries, budget.seed)
    if followed is not None and followed[0] <= span:
        span, best, starts = followed
    for turn in range(budget.restarts):
        # A job that alone takes longer than the best end somewhere has no business there: without it the program
        # rounds to a better beginning, and annealing does not fall for it.
        cap = span * (1 - budget.close / 1000)
        if stop() or span <= aim or any(not lanes.options(row, cap) for row in range(len(jobs))):
            break
        begin = None
        if turn == 0:
            begin = _rounded(lanes, fractional(jobs, lanes.pools, taken, cap, budget.caution)[1], known, cap)
        begin = begin or kicked(lanes, best, cap, budget.seed + turn)
        found = anneal(lanes, begin, budget, budget.seed + turn, cap, aim, stop)
        end, moments = _packed(lanes, found, span, budget.tries, budget.seed + turn)
        if end <= span:
            span, best, starts = end, found, moments
    for turn in range(budget.rounds):
        end = lanes.last(best, starts)
        if stop() or end <= aim:
            break
        better = solved(lanes, best, starts, end, budget.window, budget.effort, budget.seed + turn)
        if better is None:
            break
        best, starts = better
    return _places(board, lanes, best, _mirrored(lanes, best, starts))


def _followed(lanes: Lanes, guide: Sequence[Place]) -> tuple[Milliseconds, list[int], list[Milliseconds]] | None:
    """The last end, pools and starts where the guide's pools and orders are kept; None where it lacks a job."""
    meant = {place.job: place for place in guide}
    names = {pool.name: at for at, pool in enumerate(lanes.pools)}
    if not all(job.id in meant and meant[job.id].pool in names for job in lanes.jobs):
        return None
    chosen = [names[meant[job.id].pool] for job in lanes.jobs]
    if any(not lanes.times[row][place] for row, place in enumerate(chosen)):
        return None
    starts, last = [0] * len(chosen), 0
    for place, rows in enumerate(members(lanes, chosen)):
        order = sorted(rows, key=lambda row: (meant[lanes.jobs[row].id].start, lanes.rank[place][row]))
        end, moments = lanes.list(place, order)
        last = max(last, end)
        for row, start in moments:
            starts[row] = start
    return last, chosen, starts


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
    orders = [sorted(rows, key=lanes.rank[place].__getitem__) for place, rows in enumerate(members(lanes, chosen))]
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


def _span(lanes: Lanes, chosen: Sequence[int]) -> Milliseconds:
    return max(lanes.run(place, rows)[0] for place, rows in enumerate(members(lanes, chosen)))


def _mirrored(lanes: Lanes, chosen: Sequence[int], starts: list[Milliseconds]) -> list[Milliseconds]:
    """The same lanes run backwards where that ends as soon and jobs end earlier on average.

    A lane of which all cards are free at the beginning may be turned round: what was packed last, the short jobs,
    comes first, and the last end stays the same. Where times are so uncertain that the long job, now last, may end
    later by more than ``SLACK`` per mille, the lane stays as it is: short jobs at its end can still be moved.
    """
    turned = starts.copy()
    for place, rows in enumerate(members(lanes, chosen)):
        if not rows or any(lanes.bodies[place]) or any(lanes.ready[job][place] for job in rows):
            continue
        end = max(starts[job] + lanes.times[job][place] for job in rows)
        if max(lanes.margins[job][place] for job in rows) * 1000 > SLACK * end:
            continue
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
