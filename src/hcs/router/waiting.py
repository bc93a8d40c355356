"""Pods we refused, and which of them to wake when only our own view of the fleet changes.

kube-scheduler tries a refused pod again when a pod or a node changes. A card that heals, a lifted quarantine or a
lapsed promise is neither, so nothing would wake the pod: the router touches an annotation of it. Only pods that *would*
be placed now are touched, each with growing pauses, so that a poke that leads nowhere is not repeated for ever.
"""

from collections.abc import Callable, Iterator
from typing import Final

import msgspec

FIRST_PAUSE: Final = 1.0
LONGEST_PAUSE: Final = 300.0
LATE_SECONDS: Final = 60.0
"""How long a pod may be asked about before our view shows it, or after it is gone."""
BATCH: Final = 16
"""Pods weighed in one go; a long queue must not keep kube-scheduler waiting for an answer."""


class Waiting(msgspec.Struct, frozen=True):
    """A refused pod: the nodes it was refused on (None: any), our last words to it, and ``at`` which second."""

    nodes: tuple[str, ...] | None
    summary: str
    pokes: int = 0
    poked_at_growth: int = -1
    weighed_in_round: int = -1
    not_before: float = 0.0
    at: float = 0.0


class WaitingRoom:
    """The refused pods, by UID.

    After each growth of the fleet every pod is poked once at most. All are weighed in *rounds*: what the pods poked in
    one round do not take after all is offered to the others in the next.
    """

    def __init__(self) -> None:
        self._waiting: dict[str, Waiting] = {}
        self._growth = 0
        self.round = 0
        """Which round it is; whoever weighs the pods begins anew with each."""
        self._round_at: float | None = None
        self._again: list[float] = []

    def __len__(self) -> int:
        return len(self._waiting)

    def __iter__(self) -> Iterator[str]:
        return iter(tuple(self._waiting))

    def uids(self) -> tuple[str, ...]:
        """Who waits."""
        return tuple(self._waiting)

    def refuse(self, uid: str, nodes: tuple[str, ...], summary: str, now: float = 0.0) -> bool:
        """A pod was refused at this second; tells whether these are new words to it."""
        before = self._waiting.get(uid)
        self._waiting[uid] = (
            msgspec.structs.replace(before, nodes=nodes, summary=summary, at=now)
            if before
            else Waiting(nodes, summary, at=now)
        )
        return before is None or before.summary != summary

    def find(self, uid: str) -> None:
        """A pod is known to have been refused by a router before us."""
        self._waiting.setdefault(uid, Waiting(None, ""))

    def leave(self, uid: str) -> None:
        """A pod was placed, or is gone."""
        self._waiting.pop(uid, None)

    def forget(self, exists: Callable[[str], bool], now: float) -> None:
        """Drop those that are not there a while after they were refused: kube-scheduler asked too late."""
        gone = [uid for uid, one in self._waiting.items() if one.at + LATE_SECONDS <= now and not exists(uid)]
        for uid in gone:
            del self._waiting[uid]

    def grown(self) -> None:
        """More may fit now than when they were refused."""
        self._growth += 1
        self._begin_round(0.0)

    def due(self, fits: Callable[[str, Waiting], bool], now: float) -> tuple[list[str], float | None]:
        """The pods to poke now, and when to ask again (None: not before the next growth).

        Args:
            fits: whether a pod would be placed now, beside those already found to fit in this round.
            now: seconds.
        """
        if self._round_at is None or now < self._round_at:
            return [], self._round_at
        poke: list[str] = []
        weighed = 0
        for uid, waiting in list(self._waiting.items()):
            if waiting.poked_at_growth == self._growth or waiting.weighed_in_round == self.round:
                continue
            if weighed == BATCH:
                return poke, now
            waiting = msgspec.structs.replace(waiting, weighed_in_round=self.round)
            if now < waiting.not_before:
                self._again.append(waiting.not_before)
            else:
                weighed += 1
                if fits(uid, waiting):
                    pause = min(LONGEST_PAUSE, FIRST_PAUSE * 2.0 ** min(waiting.pokes, 20))
                    waiting = msgspec.structs.replace(
                        waiting, pokes=waiting.pokes + 1, poked_at_growth=self._growth, not_before=now + pause
                    )
                    poke.append(uid)
                    self._again.append(now + FIRST_PAUSE)
            self._waiting[uid] = waiting
        self._begin_round(min(self._again) if self._again else None)
        return poke, self._round_at

    def _begin_round(self, at: float | None) -> None:
        self.round += 1
        self._round_at, self._again = at, []
