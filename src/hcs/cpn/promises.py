"""Whether promised starts are kept: counted, apart from those for which there is a reason.

A promise holds while run times stay within their upper value and the fleet stays as it was. When a job overran or could
not be started when it was due, cards vanished, others took cards, a cluster was out of reach or would not have it just
now, or somebody set the clock, a promise may have to be made anew, and that is told as excused; so is the first
decision after a start, since nobody decided meanwhile. Anything else is a promise broken.
"""

import logging
from typing import Final

from prometheus_client import CollectorRegistry, Counter

from hcs.cpn.deciding import Question, Situation
from hcs.wide.jobs import Milliseconds
from hcs.wide.snapshot import Plan

log = logging.getLogger(__name__)

SETTLES: Final[Milliseconds] = 600_000
"""For so long a trouble may still be the reason that a promise, made before it, moves."""
_DRIFT: Final[Milliseconds] = 5_000
"""A clock that went so much faster or slower than time between two decisions was set."""


class Promises:
    """Compares each plan's promises with those before it."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._broken = Counter("hcs_cpn_promises_broken", "Promises not kept for no reason.", registry=registry)
        self._moved = Counter("hcs_cpn_promises_excused", "Promises made anew, with a reason.", registry=registry)
        self._kept = Counter("hcs_cpn_promises_kept", "Promises that were kept.", registry=registry)
        self._trouble: Milliseconds | None = None
        """When it was last seen, by the time that no clock changes."""
        self._ahead: Milliseconds | None = None
        """By how much the clock was ahead of that time."""

    def judge(
        self, plan: Plan, question: Question, situation: Situation, before: Question | None, elapsed: Milliseconds
    ) -> None:
        """Take in a plan.

        Args:
            plan: what was decided.
            question: what from.
            situation: and what that was made of.
            before: what the last plan was made from, None after a start.
            elapsed: time that no change of the clock alters.
        """
        now, promised = situation.now, bool(situation.memory.promises)
        clock_set = self._ahead is not None and abs(now - elapsed - self._ahead) > _DRIFT
        self._ahead = now - elapsed
        fresh = before is None and promised
        if fresh or clock_set or question.shut or self._overran(situation) or _lost(question, before):
            self._trouble = elapsed
        made, started = {place.job: place for place in plan.promises}, {place.job for place in plan.starts}
        for place in situation.memory.promises:
            after = made.get(place.job)
            if place.job not in question.jobs:
                continue
            if place.job in started:
                self._kept.inc()
                continue
            if after is not None and after.start <= place.start:
                continue
            long = max(SETTLES, place.end - place.start)
            paused = any(job == place.job and until > now for (job, _), until in situation.refused.items())
            excused = paused or (self._trouble is not None and elapsed - self._trouble <= long)
            (self._moved if excused else self._broken).inc()
            if not excused:
                log.warning("a promise was broken: job=%s promised=%d now=%s", place.job, place.start, after)

    @staticmethod
    def _overran(situation: Situation) -> bool:
        """Whether anything runs for longer than its upper value, or its cluster took long to let it begin.

        What was placed later than now was so before somebody set the clock back: its cards are booked for too long.
        """
        for held in (entry.placement for entry in situation.placed):
            if held is None:
                continue
            late = (held.started or situation.now) - held.decided
            if late > situation.lag or not held.decided <= situation.now <= held.upper + late:
                return True
        return False


def _lost(question: Question, before: Question | None) -> bool:
    """Whether a pool has fewer cards than it had."""
    if before is None:
        return False
    cards = {name: pool.cards for name, pool in question.pools.items()}
    return any(cards.get(name, 0) < pool.cards for name, pool in before.pools.items())
