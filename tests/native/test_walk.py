"""Random sequences of every kind of allocation, from several processes, with the books compared after each step."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.native.toolkit import GI, MI, Container, compile_program


@pytest.mark.parametrize(
    ("steps", "seed", "context"),
    [
        pytest.param(5_000, 1, 0, id="short"),
        pytest.param(5_000, 2, 3 * MI, id="short-with-measured-contexts"),
        *(pytest.param(250_000, 10 + n, n % 2 * 3 * MI, id=f"long-{n}", marks=pytest.mark.nightly) for n in range(4)),
    ],
)
def test_ledger_card_and_quota_agree_after_every_step_of_a_random_walk(
    container: Container, programs: Path, steps: int, seed: int, context: int
) -> None:
    """No known size ever passes the quota, nothing that fits is refused, and who is killed leaves nothing behind."""
    card = container.add_card(total=16 * GI, context=context)
    quota = 96 * MI
    container.limit(quota)
    program = compile_program(programs, "walk.c", "walk", "-Wno-strict-prototypes", "-Wno-unused-result")
    done = container.run(
        str(program), str(container.ledger_path), str(card), str(quota), str(steps), str(seed), seconds=600
    )
    assert done.stdout.startswith("ok "), done.stdout + done.stderr
    walked, refused, killed = map(int, done.stdout.split()[1:])
    assert walked == steps
    assert refused > steps // 100
    assert killed >= 1
