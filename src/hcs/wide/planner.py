"""Our policy: cheap jobs first, waiting for a better kind where that pays, and nobody waits without end.

Three steps on one board. Promises made earlier are booked first; each may only move to a place that starts no later and
ends no later. Jobs that have waited longer than the patience are promised a place, in order of arrival, after those.
Everybody else is listed by what they take from the fleet, so each is a backfilling that delays no promise while
intervals hold. Only the first ``window`` of those are given a place each; a job behind them starts when it fits now and
waiting would not pay.

**The bound.** Let D be the largest upper run time on a pool and W the patience. When a job is promised, what runs there
ends within D and each of the k promises before it takes at most D more, so it starts no later than W + D (k + 1) after
its arrival (and after its bytes are there), while run times stay within their upper value and the planner is asked at
every arrival, end and moment when somebody's patience ends.
"""

from collections.abc import Callable, Sequence
from math import isqrt

import msgspec

from hcs.model.refusals import Refusal
from hcs.wide.annealing import Budget
from hcs.wide.baselines import BASELINES, Decide
from hcs.wide.consistency import consistent
from hcs.wide.fleets import why_never
from hcs.wide.guests import guests
from hcs.wide.improvement import improved
from hcs.wide.jobs import Job, Milliseconds
from hcs.wide.listing import Board
from hcs.wide.snapshot import Place, Plan, Running, Snapshot, fetches


class Settings(msgspec.Struct, frozen=True):
    """``window``: jobs that are given a place each, promises aside. ``budget``: how much a closed queue is improved."""

    window: int = 128
    budget: Budget = Budget()


class Planner:
    """Decides from a snapshot. Holds no state: equal snapshots and settings give equal plans."""

    def __init__(self, settings: Settings | None = None, stop: Callable[[], bool] = lambda: False) -> None:
        """``stop`` ends the improvement early; where it does, the plan depends on the machine's speed."""
        self._settings = settings or Settings()
        self._stop = stop

    def decide(self, snapshot: Snapshot) -> Plan:
        """What to start now, what is promised, what is expected."""
        certain = not snapshot.closed or bool(snapshot.promises)
        if not certain:
            # The last end counts, and nobody is promised anything: plan with what is expected.
            snapshot = _agreeing(snapshot)
        refused = [
            (job.id, no)
            for job in snapshot.waiting
            if (no := why_never(job, snapshot.pools + snapshot.away)) is not None
        ]
        never = {job for job, _ in refused}
        board = Board(snapshot, upper=certain)
        able = []
        for job in snapshot.waiting:
            if job.id in never:
                continue
            if snapshot.network is not None and not any(
                pool.admits(job) and board.ready(job, pool) is not None for pool in snapshot.pools + snapshot.away
            ):
                message = f"job {job.id} needs bytes that no cluster it could run in can get; store them or add a link"
                refused.append((job.id, Refusal("NoWayForData", message)))
                continue
            if any(pool.admits(job) for pool in snapshot.pools):
                able.append(job)
        promises = self._promises(board, able)
        held = {place.job for place in promises}
        rest = [job for job in able if job.id not in held]
        shared: list[Place] = []
        slowed: list[Running] = []
        if snapshot.sharing is not None:
            shared, slowed = self._guests(board, rest)
            joining = {place.job for place in shared}
            rest = [job for job in rest if job.id not in joining]
        guide, places = self._rest(board, rest, promises)
        return Plan(
            starts=tuple(place for place in places if place.start <= snapshot.now) + tuple(shared),
            promises=tuple(place for place in promises if place.start > snapshot.now),
            expected=tuple(places),
            guide=guide,
            fetches=fetches(snapshot, places),
            refused=tuple(refused),
            slowed=tuple(slowed),
        )

    def _rest(self, board: Board, rest: Sequence[Job], promises: list[Place]) -> tuple[tuple[Place, ...], list[Place]]:
        """The guide, and the places of promised jobs and of all others, which are booked."""
        if board.snapshot.closed:
            guide = self._guide(board, rest)
            return guide, promises + self._list(board, _guided(rest, guide), guide, len(rest))
        return (), promises + self._list(board, _ranked(board.snapshot, rest), (), self._settings.window)

    def _guests(self, board: Board, rest: Sequence[Job]) -> tuple[list[Place], list[Running]]:
        """Who joins a running job now, against where all would go without; their cards are booked."""
        snapshot, window = board.snapshot, self._settings.window
        if not snapshot.closed:
            order = _ranked(snapshot, rest)
            return guests(board, order[:window], self._list(board.copy(), order, (), window))
        order = _guided(rest, snapshot.guide)
        places = self._list(board.copy(), order, snapshot.guide, len(rest))
        latest = max((place.end for place in (*places, *snapshot.guide)), default=snapshot.now)
        end = max((place.end for place in places), default=0)
        for most in (len(order), 4, 1):
            trial = board.copy()
            joining, hosts = guests(trial, order[::-1], places, latest, most)
            names = {place.job for place in joining}
            without = [job for job in order if job.id not in names]
            after = self._list(trial.copy(), without, snapshot.guide, len(rest))
            # The last end counts here: what the pairs hold longer must not move it.
            if joining and max((place.end for place in (*after, *joining)), default=0) <= end:
                board.profiles = trial.profiles
                return joining, hosts
        return [], []

    def _promises(self, board: Board, jobs: Sequence[Job]) -> list[Place]:
        """Earlier promises, moved forward where that is possible, then those of jobs whose patience has ended."""
        snapshot = board.snapshot
        by_id = {job.id: job for job in jobs}
        kept: list[Place] = []
        broken: list[Job] = []
        for place in snapshot.promises:
            job = by_id.pop(place.job, None)
            if job is None:
                continue
            profile = board.profiles.get(place.pool)
            if (
                profile is None
                or place.start < snapshot.now
                or not profile.fits(job.cards, place.start, board.until(job, place))
            ):
                # Something overran, or the pool is gone: the promise is made anew, in its turn.
                broken.append(job)
                continue
            board.book(job, place)
            kept.append(place)
        jobs_of = {job.id: job for job in snapshot.waiting}
        for at, place in enumerate(kept):
            job = jobs_of[place.job]
            board.release(job, place)
            better = [
                (end, option)
                for end, option in board.options(job)
                if option.start <= place.start and option.end <= place.end
            ]
            kept[at] = min(better, key=lambda option: (option[0], option[1].start))[1] if better else place
            board.book(job, kept[at])
        if not snapshot.closed:
            aged = [job for job in by_id.values() if snapshot.now - job.arrival >= snapshot.patience]
            broken += sorted(aged, key=lambda job: (job.arrival, job.id))
        for job in broken:
            made = board.best(job)
            if made is not None:
                board.book(job, made)
                kept.append(made)
        return kept

    def _guide(self, board: Board, jobs: Sequence[Job]) -> tuple[Place, ...]:
        """The guide while it holds; improved where there is none, a little where the times came out otherwise."""
        snapshot, budget = board.snapshot, self._settings.budget
        if not {job.id for job in jobs} <= {place.job for place in snapshot.guide}:
            return improved(board, jobs, snapshot.guide, budget, self._stop)
        little = msgspec.structs.replace(
            budget, restarts=1, moves=budget.moves // 10, tries=budget.tries // 4, rounds=0
        )
        if any(run.upper > run.expected for job in jobs for run in job.times.values()):
            return improved(board, jobs, snapshot.guide, little, self._stop)
        ends = max((place.end for place in snapshot.guide), default=snapshot.now)
        trial = self._list(board.copy(), _guided(jobs, snapshot.guide), snapshot.guide, len(jobs))
        late = max((place.end for place in trial), default=snapshot.now)
        if abs(late - ends) * 1000 <= budget.drift * (ends - snapshot.now):
            return snapshot.guide
        return improved(board, jobs, snapshot.guide, little, self._stop)

    @staticmethod
    def _list(board: Board, jobs: Sequence[Job], guide: Sequence[Place], window: int) -> list[Place]:
        """Places of the first jobs, each on its guide's pool if it has one, and starts of those behind them."""
        now, places = board.snapshot.now, []
        pools = {place.job: place.pool for place in guide}
        for at, job in enumerate(jobs):
            if at >= window and not any(profile.free[0] >= job.cards for profile in board.profiles.values()):
                continue
            options = board.options(job)
            meant = [option for option in options if option[1].pool == pools.get(job.id)]
            best = min(meant or options, key=lambda option: option[0], default=None)
            if best is None:
                continue
            place = best[1]
            if at < window or place.start <= now:
                board.book(job, place)
                places.append(place)
        return places


def _agreeing(snapshot: Snapshot) -> Snapshot:
    """The same with times that agree between jobs of one profile."""
    made = consistent([*snapshot.waiting, *(running.job for running in snapshot.running)])
    kinds = {pool.name: pool.kind for pool in snapshot.pools}
    running = []
    for live in snapshot.running:
        job, kind = made[live.job.id], kinds.get(live.pool, "")
        if kind in job.times:
            until = live.until + job.times[kind].upper - live.job.times[kind].upper
            live = msgspec.structs.replace(live, job=job, until=until)
        running.append(live)
    waiting = tuple(made[job.id] for job in snapshot.waiting)
    return msgspec.structs.replace(snapshot, waiting=waiting, running=tuple(running))


def cost(job: Job) -> Milliseconds:
    """What counts against the job: its time on its best kind, times the root of its cards.

    By card-milliseconds a wide job is last among equals until it is promised a place, and a fleet that is never empty
    then drains once for each of them: the longest wait hangs on chance. By time alone the narrow ones pay. The root
    lies between the two.
    """
    return min(run.expected for run in job.times.values()) * isqrt(job.cards * 1_000_000) // 1000


def _ranked(snapshot: Snapshot, jobs: Sequence[Job]) -> list[Job]:
    """Priority first, then deadlines that can still be met, then the least cost."""

    def key(job: Job) -> tuple[int, int, bool, Milliseconds, Milliseconds, str]:
        fastest = min(run.upper for run in job.times.values())
        urgent = job.deadline is not None and snapshot.now + fastest <= job.deadline
        slack = job.deadline - fastest if job.deadline is not None and urgent else 0
        return snapshot.attempts.get(job.id, 0), -job.priority, not urgent, slack, cost(job), job.id

    return sorted(jobs, key=key)


def _guided(jobs: Sequence[Job], guide: Sequence[Place]) -> list[Job]:
    """In the order of the guide's starts."""
    turn = {place.job: (place.start, at) for at, place in enumerate(guide)}
    return sorted(jobs, key=lambda job: (-job.priority, turn.get(job.id, (1 << 62, 0)), job.arrival))


def policy(name: str, settings: Settings | None = None, stop: Callable[[], bool] = lambda: False) -> Decide:
    """A policy by name: ``hcs`` or one of the baselines."""
    return Planner(settings, stop).decide if name == "hcs" else BASELINES[name]
