"""What was trained before and what the queue has seen count together, also after a restart."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hcs.cpn.forecasts import Forecasts
from hcs.cpn.learning import MODEL, Learner, restored, trained_before
from hcs.predict.jobs import JobPredictor, ModelFileError, Run, Work
from hcs.store.queue import QueueStore
from hcs.wide.entries import Submission

BEFORE = [Run("bert", "v100", 8.0, 1, 100.0, seconds, None, "succeeded") for seconds in (50.0, 51.0, 52.0)]
SEEN = Run("resnet", "v100", 64.0, 1, 1000.0, 20.0, None, "succeeded")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[QueueStore]:
    names = iter("abcdefgh")
    with QueueStore.open(tmp_path / "queue.db", make_id=lambda: next(names)) as opened:
        yield opened


def learnt(store: QueueStore, file: bytes | None = None) -> dict[str, float]:
    """Expected milliseconds of both jobs, after one fit by a controller that was started with a file or without."""
    before = trained_before(store, file)
    forecasts = Forecasts(restored(store, before))

    async def here(work: Any) -> Any:
        return work()

    asyncio.run(Learner(store, forecasts, offload=here, now=lambda: 0, trained=before).fit())
    raw = store.kept(MODEL)
    predictor = JobPredictor.decode(raw) if raw else restored(store, before)
    queue = [Work("1", "bert", 8.0, 1, 100.0), Work("2", "resnet", 64.0, 1, 1000.0)]
    return {
        work.model: found["v100"].expected_ms if not found["v100"].probe_wanted else 0
        for work, found in zip(queue, predictor.forecast(queue, ["v100"]), strict=True)
    }


def test_a_trained_history_is_not_forgotten_at_the_first_end_nor_at_a_restart(store: QueueStore) -> None:
    file = JobPredictor.fitted(BEFORE).encode()
    assert learnt(store, file) == {"bert": 51_000, "resnet": 0}
    entry, _ = store.submit({"kind": "Job"}, Submission("a"), key=None, now=0)
    store.add_run(entry.id, 0, SEEN)
    assert learnt(store, file) == {"bert": 51_000, "resnet": 20_000}
    assert learnt(store) == {"bert": 51_000, "resnet": 20_000}


def test_another_file_takes_the_place_of_the_one_before(store: QueueStore) -> None:
    learnt(store, JobPredictor.fitted(BEFORE).encode())
    entry, _ = store.submit({"kind": "Job"}, Submission("a"), key=None, now=0)
    store.add_run(entry.id, 0, SEEN)
    assert learnt(store, JobPredictor.fitted(BEFORE[:1]).encode()) == {"bert": 50_000, "resnet": 20_000}


def test_a_file_that_is_no_predictor_is_refused_and_changes_nothing(store: QueueStore) -> None:
    learnt(store, JobPredictor.fitted(BEFORE).encode())
    with pytest.raises(ModelFileError):
        trained_before(store, b"something else")
    assert learnt(store)["bert"] == 51_000
