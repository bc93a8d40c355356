"""What ended runs teach: kept with the end of the run, learnt from off the decision path.

A run is written down in the transaction that records its end, once for each attempt. Fitting takes a while, so it is
done elsewhere while decisions go on with the predictor there is; several ends in a row are learnt together. The fitted
predictor is kept in the store with its version, so a restart begins where the last one stood. What a file of ``hcs cpn
train`` knows is kept beside it, and counts in every later fit.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, Protocol

import msgspec

from hcs.cpn.attempts import Finished
from hcs.cpn.forecasts import Forecasts, Predicts
from hcs.predict.jobs import JobPredictor, ModelFileError, Run
from hcs.store.errors import StoreError
from hcs.store.queue import QueueStore

log = logging.getLogger(__name__)

MODEL: Final = "model"
"""Under this name the store keeps the predictor."""
TRAINED: Final = "trained"
"""And under this one the runs that were trained on before."""
_AFTER_TROUBLE: Final = 30.0


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``pause``: seconds between two fits at least. ``most``: the newest runs that are learnt from."""

    pause: float = 1.0
    most: int = 20_000
    seed: int = 0


class Fitted(Predicts, Protocol):
    """A predictor that can be kept."""

    def encode(self) -> bytes: ...


class Learner:
    """Takes runs and makes predictors of them."""

    def __init__(
        self,
        store: QueueStore,
        forecasts: Forecasts,
        *,
        offload: Callable[[Callable[[], Any]], Awaitable[Any]] = asyncio.to_thread,
        now: Callable[[], int],
        fit: Callable[[list[Run], int], Fitted] = lambda runs, seed: JobPredictor.fitted(runs, seed=seed),
        trained: Sequence[Run] = (),
        settings: Settings | None = None,
    ) -> None:
        """
        Args:
            store: the queue.
            forecasts: gets each new predictor.
            offload: where fitting is done.
            now: milliseconds since 1970.
            fit: makes a predictor of runs and a seed.
            trained: runs of before, of which the queue knows nothing.
            settings: limits.
        """
        self._store, self._forecasts, self._offload, self._now = store, forecasts, offload, now
        self._fit, self._trained, self._settings = fit, list(trained), settings or Settings()
        self._fresh = asyncio.Event()
        self.learnt = 0
        """How many runs the present predictor knows."""

    def take(self, finished: Finished) -> None:
        """Keep what an attempt taught; called inside the transaction that records its end."""
        entry, placement = finished.entry, finished.entry.placement
        assert placement is not None
        asked = entry.submission
        partner = self._store.get(placement.beside) if placement.beside else None
        run = Run(
            model=asked.model,
            kind=placement.kind,
            batch=asked.batch,
            cards=asked.cards,
            steps=asked.steps,
            seconds=finished.seconds,
            peak_memory=finished.peak_memory,
            outcome=finished.outcome,  # type: ignore[arg-type]
            probe=placement.probe,
            shared_with=partner.submission.model if partner is not None else None,
            finished=self._now(),
        )
        if self._store.add_run(entry.id, entry.attempts, run):
            log.info(
                "run learnt: job=%s model=%s kind=%s seconds=%.3f memory=%s by=%s",
                entry.id,
                run.model,
                run.kind,
                run.seconds,
                run.peak_memory,
                finished.memory_source,
            )
            self._fresh.set()

    async def run(self, taught: Callable[[], None]) -> None:
        """Fit whenever there is something new, until cancelled; ``taught`` is called after each."""
        if not self._store.kept(MODEL) and next(self._store.runs(Run), None) is not None:
            self._fresh.set()
        while True:
            await self._fresh.wait()
            self._fresh.clear()
            try:
                if await self.fit():
                    taught()
            except StoreError as error:
                log.warning("what was learnt is not written down, trying again: %s", error)
                await asyncio.sleep(_AFTER_TROUBLE)
                self._fresh.set()
            except Exception as error:
                # Decisions go on with the predictor there is.
                log.exception("nothing learnt from the last runs: %s", error)
            await asyncio.sleep(self._settings.pause)

    async def fit(self) -> bool:
        """Learn from all runs that are kept; False where there are none."""
        runs = list(self._store.runs(Run))[-self._settings.most :]
        if not runs:
            return False
        predictor = await self._offload(lambda: self._fit([*self._trained, *runs], self._settings.seed))
        self._forecasts.replace(predictor)
        self._store.keep(MODEL, predictor.encode())
        self.learnt = len(runs)
        return True


def trained_before(store: QueueStore, file: bytes | None = None) -> tuple[Run, ...]:
    """The runs of a predictor file, which the store keeps from now on; without one, those that it keeps.

    Raises:
        ModelFileError: it is no such file.
    """
    if file is not None:
        runs = JobPredictor.decode(file).runs
        if (raw := msgspec.json.encode(runs)) != store.kept(TRAINED):
            store.keep(TRAINED, raw)
            store.keep(MODEL, b"")  # it did not know them
        return runs
    kept = store.kept(TRAINED)
    return tuple(msgspec.json.decode(kept, type=list[Run])) if kept else ()


def restored(store: QueueStore, trained: Sequence[Run] = (), *, seed: int = 0) -> JobPredictor:
    """The predictor to begin with: the store's, else one of all runs there are."""
    if raw := store.kept(MODEL):
        try:
            return JobPredictor.decode(raw)
        except ModelFileError as error:
            log.warning("the kept predictor is left aside: %s", error)
    return JobPredictor.fitted([*trained, *store.runs(Run)], seed=seed)
