"""What the queue is expected to take: every waiting job on every kind of card, asked in one call, kept per model.

A forecast depends on what is asked and on what was learnt so far, so an answer is kept until the predictor is replaced.
Between two completions only new jobs are asked about, all of them together.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Protocol, cast

import msgspec

from hcs.cpn.pairs import Slows
from hcs.predict.jobs import Forecast, Work
from hcs.wide.entries import Entry
from hcs.wide.jobs import Bytes, Milliseconds, RunTime

FARTHEST: Final[Milliseconds] = 30 * 86_400_000
"""No plan looks further ahead: where nothing is known, an interval would reach years."""


class Predicts(Protocol):
    """What is asked of a predictor; :class:`hcs.predict.jobs.JobPredictor` is one."""

    def forecast(self, queue: Sequence[Work], kinds: Sequence[str]) -> list[dict[str, Forecast]]: ...


class _Question(msgspec.Struct, frozen=True):
    model: str
    batch: float | None
    cards: int
    steps: float | None


class Forecasts:
    """The answers of the present predictor."""

    def __init__(self, predictor: Predicts) -> None:
        self._predictor = predictor
        self._known: dict[_Question, dict[str, Forecast]] = {}
        self.revision = 0

    @property
    def predictor(self) -> Predicts:
        """The predictor that is asked."""
        return self._predictor

    def slowdowns(self) -> Slows | None:
        """The same predictor, where it knows what sharing a card does."""
        return cast(Slows, self._predictor) if hasattr(self._predictor, "slowdown") else None

    def replace(self, predictor: Predicts) -> None:
        """Ask another predictor from now on."""
        self._predictor, self._known = predictor, {}
        self.revision += 1

    def of(self, entries: Iterable[Entry], kinds: Iterable[str]) -> dict[str, Mapping[str, Forecast]]:
        """The forecasts of entries on kinds, by entry id."""
        wanted = sorted(set(kinds))
        questions = {entry.id: question(entry) for entry in entries}
        missing = [
            asked for asked in dict.fromkeys(questions.values()) if not set(wanted) <= self._known.get(asked, {}).keys()
        ]
        if missing and wanted:
            works = [
                Work(str(at), asked.model, asked.batch, asked.cards, asked.steps) for at, asked in enumerate(missing)
            ]
            for asked, found in zip(missing, self._predictor.forecast(works, wanted), strict=True):
                self._known.setdefault(asked, {}).update(found)
        if len(self._known) > 100_000:
            self._known = {asked: self._known[asked] for asked in set(questions.values()) if asked in self._known}
        return {id: self._known.get(asked, {}) for id, asked in questions.items()}


def question(entry: Entry) -> _Question:
    """What is asked about an entry; equal questions have equal answers."""
    asked = entry.submission
    return _Question(asked.model, asked.batch, asked.cards, asked.steps)


def run_time(found: Forecast) -> RunTime:
    """The interval to plan with."""
    expected = min(max(1, found.expected_ms), FARTHEST)
    return RunTime(expected, max(expected, min(found.upper_ms, FARTHEST)))


def memory_ask(entry: Entry, found: Forecast | None, largest: Bytes | None = None) -> Bytes | None:
    """Bytes on each card to ask for: what the user said, else what is forecast; never less than what was too little.

    A forecast beyond ``largest``, the most that any card it may use has, asks for all of that card unless runs have
    shown that it needs more: no job shall wait for ever for a guess. None: nobody knows how large the cards are.
    """
    asked = entry.submission.memory
    if asked is None and found is not None and found.memory is not None:
        asked = found.memory if largest is None else min(found.memory, max(largest, found.needed))
    if entry.floor is not None:
        asked = max(asked or 0, entry.floor)
    return asked
