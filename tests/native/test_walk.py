"""Random sequences of every kind of allocation, from several processes, with the books compared after each step."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from tests.native.conftest import cuda_probe
from tests.native.toolkit import GI, MI, Container, Probe, compile_program


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


@pytest.mark.parametrize(
    ("threads", "rounds"),
    [pytest.param(64, 15, id="64-threads"), pytest.param(64, 400, id="64-threads-long", marks=pytest.mark.nightly)],
)
def test_threads_and_processes_that_hammer_never_exceed_the_quota(
    container: Container, programs: Path, threads: int, rounds: int
) -> None:
    """Three processes of 64 threads, every size known beforehand; and when all is over nothing is left."""
    card = container.add_card(total=16 * GI)
    quota = 17 * MI  # less than one thread alone asks for in every fifth round, so it is reached on any machine
    container.limit(quota)
    program = compile_program(programs, "hammer.c", "hammer", "-O2")
    command = [str(program), str(container.ledger_path), str(card), str(threads), str(rounds)]
    racing = [
        subprocess.Popen(command, env=container.environment(), stdout=subprocess.PIPE, text=True) for _ in range(3)
    ]
    answers = [list(map(int, process.communicate(timeout=110)[0].split())) for process in racing]
    assert sum(answer[0] for answer in answers) > 0
    assert sum(answer[1] for answer in answers) > 0, "the quota was never reached"
    assert [answer[2] for answer in answers] == [0, 0, 0], "codes that are neither success nor out of memory"
    assert max(answer[3] for answer in answers) <= quota
    assert container.physically_used() == 0
    probe = Probe(container, cuda_probe(programs, "dlsym"))
    assert probe.code(f"alloc {quota - MI}") == 0, "what the three held is given back in full"
    probe.close()
