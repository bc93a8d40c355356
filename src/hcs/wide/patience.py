"""How long a job may wait before it is promised a place: what first-come-first-served would have asked of somebody.

Every arriving job is also booked in a line that is never reordered. The longest wait in that line is a fair measure of
how crowded the fleet is, in the fleet's own time scale: shortest-first may pass a job by, but not for longer than
fairness would have made somebody wait. A share of it is left for the promise to come true.
"""

from hcs.wide.fleets import Pool
from hcs.wide.jobs import Job, Milliseconds
from hcs.wide.profile import Profile


class FairLine:
    """The line. Call ``join`` for each job as it arrives, in order of arrival."""

    def __init__(
        self,
        pools: tuple[Pool, ...],
        now: Milliseconds = 0,
        percent: int = 80,
        profiles: dict[str, Profile] | None = None,
    ) -> None:
        """``percent`` of the longest fair wait is the patience; ``profiles`` are free cards by pool as what runs leaves
        them, None: nothing runs. They are the line's from now on."""
        self._pools, self._percent = pools, percent
        self._profiles = profiles or {pool.name: Profile(now, pool.cards) for pool in pools}
        self._longest = 0

    def join(self, job: Job) -> None:
        """Book the arriving job where it would finish first."""
        places = []
        for pool in self._pools:
            run = pool.admits(job)
            if run is not None:
                start = self._profiles[pool.name].earliest(job.cards, run.expected, job.arrival)
                places.append((start + run.expected, pool.name, start))
        if not places:
            return
        end, pool_name, start = min(places)
        profile = self._profiles[pool_name]
        profile.forget(job.arrival)
        profile.book(job.cards, start, end)
        self._longest = max(self._longest, start - job.arrival)

    @property
    def patience(self) -> Milliseconds:
        """How long a job may wait before it is promised a place."""
        return self._longest * self._percent // 100
