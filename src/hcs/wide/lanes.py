"""A pool as a lane: the jobs on it in an order, each on the cards that become free first.

Pools do not touch each other, so a plan of a closed queue is a set of lanes, and asking when a lane ends is what
improvement does thousands of times. Jobs follow each other by expected times; the lane's end also counts, for each job,
a part of the distance to its upper value. A long job that starts at once is then as late as it may come out, while of
jobs that follow each other only the last one's error counts: theirs average out, and the plan is mended meanwhile.
"""

from collections.abc import Iterable, Sequence
from heapq import heapreplace
from math import inf

from hcs.wide.jobs import Job, Milliseconds
from hcs.wide.listing import Board

Starts = list[tuple[int, Milliseconds]]
"""Jobs by row, and when they start."""


class Lanes:
    """The rest of the queue by pool, in milliseconds from now; row j, column g: job j's time on pool g, 0 = never.

    ``margins`` holds beside each time the part of its error that counts at the end of a lane.
    """

    def __init__(self, board: Board, jobs: Sequence[Job], caution: int = 0) -> None:
        """``caution`` per mille of the distance from expected to upper count."""
        # A cluster may show a kind of which no card is usable at present.
        pools, now = tuple(pool for pool in board.snapshot.pools if pool.cards), board.snapshot.now
        self.jobs, self.pools, self.caution = jobs, pools, caution
        self.cards = [job.cards for job in jobs]
        runs = [[pool.admits(job) for pool in pools] for job in jobs]
        self.times = [[0 if run is None else run.expected for run in row] for row in runs]
        self.margins = [[0 if run is None else run.cautious(caution) - run.expected for run in row] for row in runs]
        self.sure = not any(any(row) for row in self.margins)
        self.ready = [[max(0, (board.ready(job, pool) or now) - now) for pool in pools] for job in jobs]
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
        self.entries = [
            [(self.cards[job], self.times[job][place], self.margins[job][place]) for job in self.at_rank[place]]
            for place in places
        ]

    def options(self, job: int, cap: float = inf) -> list[int]:
        """Pools the job can run on and take no longer than the cap, its margin included."""
        margins = self.margins[job]
        return [place for place, time in enumerate(self.times[job]) if 0 < time <= cap - margins[place]]

    def end(self, place: int, ranks: Sequence[int]) -> Milliseconds:
        """End of a pool that runs jobs of these ranks, in rising order; what annealing asks thousands of times."""
        if self.fetching:
            return self.run(place, [self.at_rank[place][rank] for rank in ranks])[0]
        free, entries = self.bodies[place].copy(), self.entries[place]
        late = 0
        for at, rank in enumerate(ranks):
            width, time, margin = entries[rank]
            if width == 1:
                # Free moments in rising order are a heap already, and only narrow jobs follow.
                if self.sure:
                    for single in ranks[at:]:
                        heapreplace(free, free[0] + entries[single][1])
                else:
                    for single in ranks[at:]:
                        _, time, margin = entries[single]
                        stop = free[0] + time
                        heapreplace(free, stop)
                        late = max(late, stop + margin)
                break
            stop = free[width - 1] + time
            free[:width] = [stop] * width
            free.sort()
            late = max(late, stop + margin)
        return max(late, *free)

    def run(self, place: int, members: Sequence[int]) -> tuple[Milliseconds, Starts]:
        """End of a pool and the starts on it: wide jobs first, and of equal ones the long first.

        With widths that divide each other, wide first leaves no holes.
        """
        return self.list(place, sorted(members, key=self.rank[place].__getitem__))

    def list(self, place: int, order: Iterable[int]) -> tuple[Milliseconds, Starts]:
        """End of a pool and the starts on it in an order; each job takes the cards that become free first."""
        times, ready, margins = self.times, self.ready, self.margins
        free, starts, late = self.bodies[place].copy(), [], 0
        for job in order:
            width = self.cards[job]
            start = max(free[width - 1], ready[job][place])
            stop = start + times[job][place]
            free[:width] = [stop] * width
            free.sort()
            late = max(late, stop + margins[job][place])
            starts.append((job, start))
        return max(late, free[-1]), starts

    def last(self, chosen: Sequence[int], starts: Sequence[Milliseconds]) -> Milliseconds:
        """The last end of all jobs, margins included."""
        return max(
            start + self.times[job][chosen[job]] + self.margins[job][chosen[job]] for job, start in enumerate(starts)
        )


def members(lanes: Lanes, chosen: Sequence[int]) -> list[list[int]]:
    """The jobs of each lane, from the lane of each job."""
    made: list[list[int]] = [[] for _ in lanes.pools]
    for job, place in enumerate(chosen):
        made[place].append(job)
    return made


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
