"""List scheduling: jobs in an order, each where it finishes first.

A job may be planned to wait for a better kind of card; taking the fastest that happens to be free is as bad as chance.
"""

from collections.abc import Iterable, Sequence

from hcs.wide.fleets import Pool
from hcs.wide.jobs import Job, Milliseconds
from hcs.wide.profile import Profile
from hcs.wide.snapshot import Place, Snapshot


class Board:
    """Profiles of all pools in the making of one plan.

    Cards are booked until the upper end of a run, so that what was promised holds. Where nothing is promised, booking
    them until the expected end keeps fewer of them waiting for nobody.
    """

    def __init__(self, snapshot: Snapshot, upper: bool = True) -> None:
        self.snapshot, self.upper = snapshot, upper
        self._kinds = {pool.name: pool.kind for pool in snapshot.pools}
        self._clusters = {pool.name: pool.cluster for pool in snapshot.pools}
        # What is fetched for one job keeps links busy for the next; a place counts on that.
        self._network = None if snapshot.network is None else snapshot.network.copy()
        self.profiles: dict[str, Profile] = snapshot.profiles(upper)

    def copy(self) -> "Board":
        """An independent copy."""
        twin = Board.__new__(Board)
        twin.snapshot, twin.upper, twin._kinds = self.snapshot, self.upper, self._kinds
        twin._clusters, twin._network = self._clusters, None if self._network is None else self._network.copy()
        twin.profiles = {name: profile.copy() for name, profile in self.profiles.items()}
        return twin

    def ready(self, job: Job, pool: Pool) -> Milliseconds | None:
        """When the job's bytes can be in the pool's cluster, after all that was booked; None: never."""
        if self._network is None or not job.inputs:
            return self.snapshot.now
        return self._network.ready(pool.cluster, job.inputs, self.snapshot.now)

    def options(self, job: Job, pools: Iterable[str] | None = None) -> list[tuple[int, Place]]:
        """Expected finish and place on every pool that admits the job."""
        found = []
        for pool in self.snapshot.pools:
            run = pool.admits(job)
            if run is None or (pools is not None and pool.name not in pools):
                continue
            ready = self.ready(job, pool)
            if ready is None:
                continue
            length = run.upper + self.snapshot.lag if self.upper else run.expected
            start = self.profiles[pool.name].earliest(job.cards, length, ready)
            found.append((start + run.expected, Place(job.id, pool.name, start, start + run.upper)))
        return found

    def best(self, job: Job) -> Place | None:
        """The place of the earliest expected finish; the first pool of equal ones."""
        return min(self.options(job), key=lambda option: option[0], default=(0, None))[1]

    def book(self, job: Job, place: Place) -> None:
        """Take the place, and have the job's bytes fetched."""
        if self._network is not None and job.inputs:
            self._network.fetch(self._clusters[place.pool], job.inputs, self.snapshot.now)
        self.profiles[place.pool].book(job.cards, place.start, self.until(job, place))

    def release(self, job: Job, place: Place) -> None:
        """Give it back."""
        self.profiles[place.pool].book(-job.cards, place.start, self.until(job, place))

    def until(self, job: Job, place: Place) -> Milliseconds:
        """Until when the place's cards are booked."""
        if self.upper:
            return place.end + self.snapshot.lag
        run = job.times[self._kinds[place.pool]]
        return place.end - run.upper + run.expected


def listed(board: Board, jobs: Sequence[Job]) -> list[Place]:
    """Places of the jobs, booked in this order; a job without any is left out."""
    places = []
    for job in jobs:
        place = board.best(job)
        if place is not None:
            board.book(job, place)
            places.append(place)
    return places
