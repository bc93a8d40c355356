"""What was decided, written down: starts, what they mean for hosts, who is given up. The steps follow by themselves.

The planner knows cards and times. What it does not count is looked at here: whether the bytes are really there, and
whether a host has the memory.
"""

import contextlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

from hcs.cpn.deciding import Memory, Question, Situation, placement_of
from hcs.cpn.pairs import welcomed
from hcs.cpn.shortages import Shortages
from hcs.cpn.views import ClusterView
from hcs.store.errors import StaleEntryError
from hcs.store.queue import QueueStore
from hcs.wide.entries import Entry
from hcs.wide.jobs import Blob, Milliseconds
from hcs.wide.network import Network
from hcs.wide.snapshot import Plan


class Bytes(Protocol):
    """Whoever brings bytes to where jobs need them; see :mod:`hcs.cpn.transfers`."""

    def network(self, now: Milliseconds) -> Network | None:
        """What lies where, what is on its way, how fast the links are; None: nobody knows of any store."""
        ...

    def fetch(self, cluster: str, inputs: Iterable[Blob]) -> None:
        """Have these brought there; what is there or on its way is not brought again."""
        ...

    def present(self, cluster: str, inputs: Iterable[Blob]) -> bool:
        """Whether all of these are there."""
        ...


class Carrier:
    """See the module."""

    def __init__(
        self,
        store: QueueStore,
        data: Bytes | None,
        *,
        views: Callable[[], Sequence[ClusterView]],
        now: Callable[[], Milliseconds],
        started: Callable[[], None],
        shortages: Shortages,
        again: Callable[[], None],
    ) -> None:
        """
        Args:
            store: the queue.
            data: brings bytes; None: jobs with inputs start without them.
            views: what is known of every cluster now.
            now: milliseconds since 1970.
            started: called for every start that is written down.
            shortages: which clusters are left out for a job just now.
            again: called when another decision is wanted at once.
        """
        self._store, self._data, self._views, self._now, self._started = store, data, views, now, started
        self._shortages, self._again = shortages, again

    def carry_out(
        self, plan: Plan, question: Question, situation: Situation, remember: Callable[[Memory], None]
    ) -> None:
        """Write the starts down, all or none, with what the next decision must remember."""
        entries = {entry.id: entry for entry in situation.queued}
        sent = list(situation.placed)
        memory = Memory(plan.promises, plan.guide, question.snapshot.patience)
        if self._data is not None:
            for job, cluster in plan.fetches:
                self._data.fetch(cluster, question.jobs[job].inputs)
        with self._store.together():
            for place in plan.starts:
                entry = entries[place.job]
                if not self._startable(entry, question.pools[place.pool].cluster, situation, sent):
                    continue
                number = sum(step.after == "Placing" for step in self._store.transitions(entry.id))
                placement = placement_of(entry, place, question, situation, number)
                message = f"goes to {placement.kind} of {placement.cluster}"
                try:
                    moved = self._store.move(
                        entry, "Placing", now=situation.now, reason="Placed", message=message, placement=placement
                    )
                except StaleEntryError:
                    continue
                sent.append(moved)
                self._started()
                if place.host is not None:
                    self._welcome(place.host, entry.id, question, situation)
            self._give_up(plan, entries)
            remember(memory)

    def _welcome(self, host: str, guest: str, question: Question, situation: Situation) -> None:
        """Write down that a host's end comes later now."""
        entry = self._store.get(host)
        runs = next((live for live in question.snapshot.running if live.job.id == host), None)
        sharing = question.snapshot.sharing
        if entry is None or runs is None or sharing is None:
            return
        pool = question.pools[runs.pool]
        placement = welcomed(entry, runs, question.jobs[guest], pool, sharing, situation.now, situation.lag)
        if placement is not None:
            self._store.amend(entry, now=entry.changed, placement=placement)

    def _give_up(self, plan: Plan, entries: Mapping[str, Entry]) -> None:
        """A job that ran out of memory on the largest cards there are would wait for ever; its owner is told."""
        if not all(view.reachable for view in self._views()):
            return
        for job, refusal in plan.refused:
            entry = entries[job]
            paused = self._shortages.paused(job)  # larger cards may only refuse it just now
            if refusal.reason == "TooLittleMemory" and entry.floor is not None and not paused:
                message = f"it ran out of memory, and no cluster has cards with more: {refusal.message}"
                with contextlib.suppress(StaleEntryError):
                    self._store.move(entry, "Failed", now=self._now(), reason=refusal.reason, message=message)

    def _startable(self, entry: Entry, cluster: str, situation: Situation, sent: Sequence[Entry]) -> bool:
        """What the planner does not count: that the bytes are really there, and host memory."""
        if self._data is not None and not self._data.present(cluster, entry.submission.inputs):
            self._data.fetch(cluster, entry.submission.inputs)
            return False
        view = next((view for view in situation.views if view.name == cluster), None)
        if view is None or self._shortages.fits(entry, view, sent, situation.now):
            return True
        self._again()  # its card is somebody else's meanwhile
        return False
