"""What a history is worth is told by runs that were left out of it."""

from tests.predict.worlds import world

from hcs.predict.jobs import Run, Settings
from hcs.predict.validation import validated

ROWS, SECONDS = world()
RUNS = [
    Run(
        str(ROWS.model[i]),
        str(ROWS.card[i]),
        float(ROWS.batch[i]),
        int(ROWS.cards[i]),
        100.0,
        100 * float(SECONDS[i]),
        None,
        "succeeded",
    )
    for i in range(len(ROWS))
    if ROWS.cards[i] <= 2 and ROWS.nodes[i] == 1 and ROWS.card[i] != "slow" and ROWS.model[i] != "tiny"
]


def test_errors_grow_with_novelty_and_both_kinds_of_trees_are_tried() -> None:
    found = validated(RUNS)
    levels = {level.level: level for level in found.levels}
    assert set(found.trees) == {"forest", "boosted"}
    assert found.trees[found.chosen] == min(found.trees.values())
    assert levels["known"].runs > len(RUNS) / 2
    assert levels["known"].mape_pct < levels["pairing"].mape_pct < levels["model"].mape_pct
    assert levels["known"].coverage_90_pct > 70


def test_the_same_history_and_seed_are_worth_the_same() -> None:
    assert validated(RUNS[::3], seed=3) == validated(RUNS[::3], seed=3)


def test_too_few_jobs_tell_nothing() -> None:
    found = validated(RUNS[:9] * 5, settings=Settings(trees="forest"))
    assert (found.levels, found.trees, found.chosen) == ((), {}, "forest")
