"""Queues made up from a seed: the same again, and what the planner knows is what the manifest asks for."""

import pytest

from hcs.wide.generation import equipped, generate, manifest, pair_rates
from hcs.wide.submissions import read_submission

NOW = 1_900_000_000_000


@pytest.mark.parametrize("seed", range(3))
def test_a_manifest_asks_for_what_the_planner_was_told(seed: int) -> None:
    for made in generate(60, seed, ("fast", "slow"), gap=60_000, urgent=30):
        read = read_submission(manifest(made), NOW)
        asked, job = read.submission, made.job
        assert (asked.name, asked.model, asked.batch) == (job.id, made.model, made.batch)
        assert (asked.cards, asked.memory, asked.cpu) == (job.cards, job.memory, job.cpu)
        assert (asked.host_memory, asked.inputs, asked.priority) == (made.host_memory, job.inputs, job.priority)
        assert asked.steps == pytest.approx(made.steps, abs=1)
        if job.deadline is None:
            assert asked.deadline is None
        else:
            assert asked.deadline == pytest.approx(NOW + job.deadline - job.arrival, abs=1000)
        assert read.cautions == ()


def test_a_queue_is_varied_and_its_models_are_told_apart() -> None:
    queue = generate(200, 1, ("fast", "slow"), gap=1000, urgent=20)
    assert queue == generate(200, 1, ("fast", "slow"), gap=1000, urgent=20)
    assert queue != generate(200, 2, ("fast", "slow"), gap=1000, urgent=20)
    assert {each.job.cards for each in queue} == {1, 2, 4}
    assert len({each.job.profile for each in queue}) == 6
    assert any(each.job.priority for each in queue)
    assert any(each.job.deadline for each in queue)
    rates = pair_rates(queue, ("fast",))
    assert all(("fast", a.job.profile, b.job.profile) in rates for a in queue[:20] for b in queue[:20])
    assert all(pool.memory and pool.cpu for pool in equipped(()))
