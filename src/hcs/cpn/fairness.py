"""How long a job may wait until it is promised a place, measured while jobs come; see :mod:`hcs.wide.patience`."""

import msgspec

from hcs.cpn.deciding import Question
from hcs.wide.fleets import Pool
from hcs.wide.jobs import Milliseconds
from hcs.wide.patience import FairLine


class Fairness:
    """Every job joins the fair line as it comes; the line begins anew when the fleet or what is known changes."""

    def __init__(self) -> None:
        self._line: tuple[tuple[tuple[Pool, ...], int], FairLine, set[str]] | None = None

    def patience(self, question: Question, revision: int) -> Milliseconds:
        """The patience after all jobs of a question have joined; ``revision`` counts what is known of run times."""
        # How busy CPUs are changes all the time and means nothing to the line.
        pools = tuple(msgspec.structs.replace(pool, cpu=None, busy=0) for pool in question.snapshot.pools)
        key = (pools, revision)
        if self._line is None or self._line[0] != key:
            # Who comes now waits for what runs, also in a line that never saw it come.
            self._line = key, FairLine(pools, profiles=question.snapshot.profiles(upper=False)), set()
        _, line, known = self._line
        for job in sorted(question.jobs.values(), key=lambda job: (job.arrival, job.id)):
            if job.id not in known and job.times:
                known.add(job.id)
                line.join(msgspec.structs.replace(job, arrival=max(job.arrival, question.snapshot.now)))
        return line.patience
