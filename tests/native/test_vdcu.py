"""Virtual DCUs on an emulated card: the record that the agent writes holds a program, with no library of ours in it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.native.conftest import probe_of
from tests.native.toolkit import GI, MI, Container, Probe

from hcs.inject.vdcu import FILE, VdcuRecord, render_vdcu

Start = Callable[..., Probe]


def with_record(directory: Path, card: Path | None, record: VdcuRecord | None, text: str = "") -> Container:
    """A container with a virtual DCU; ``card`` is another's, for neighbours."""
    container = Container(directory, "hygon")
    container.intercepted = False
    if card is None:
        container.add_card()
    else:
        container.cards.append(card)
        container.give(card, 0)
    folder = container.root / "etc/vdev/docker"
    folder.mkdir(parents=True)
    (folder / FILE).write_text(text or (render_vdcu(record) if record else ""))
    return container


def record(mebibytes: int, pipe: int, mask: int = 0xFFFF) -> VdcuRecord:
    return VdcuRecord("0000:3b:00.0", mask, mebibytes, 0, pipe)


@pytest.mark.parametrize("command", ["alloc {}", "async {}", "create {} 0", "graph {}|launch 0"])
def test_a_container_is_held_to_its_part_of_the_memory(
    tmp_path: Path, start: Start, programs: Path, command: str
) -> None:
    container = with_record(tmp_path / "one", None, record(8, 0))
    probe = start(probe_of(programs, "hip", "direct"), within=container)
    assert probe("info") == [0, 8 * MI, 8 * MI]
    assert probe("totalmem 0") == [0, 8 * MI]
    codes = [probe.code(step) for step in command.format(9 * MI).split("|")]
    assert codes[-1] == 2
    assert probe.code(f"alloc {8 * MI}") == 0
    assert probe.code("alloc 1") == 2


def test_neighbours_have_each_their_own_and_a_process_more_has_the_same(
    tmp_path: Path, start: Start, programs: Path
) -> None:
    one = with_record(tmp_path / "one", None, record(1024, 0))
    two = with_record(tmp_path / "two", one.cards[0], record(2048, 1, 0xFFFF0000))
    program = probe_of(programs, "hip", "dlsym")
    first, again, second = (start(program, within=each) for each in (one, one, two))
    assert [first.code(f"alloc {GI}"), again.code(f"alloc {MI}"), second.code(f"alloc {2 * GI}")] == [0, 2, 0]
    assert again("info") == [0, 0, GI]
    assert one.physically_used() == 3 * GI
    first.kill()
    assert again.code(f"alloc {GI}") == 0, "what a dead process held is the container's again"


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(render_vdcu(record(8, 0)).replace("cu_count: 16", "cu_count: 17"), id="other-count"),
        pytest.param(render_vdcu(record(8, 0)).replace("vdev_id: 0", "vdev_id: 1"), id="other-file"),
        pytest.param("hello\n", id="no-record"),
        pytest.param(render_vdcu(record(8, 0)).replace("0000:3B", "0000:3C"), id="other-card"),
    ],
)
def test_a_record_that_is_none_leaves_no_device(tmp_path: Path, start: Start, programs: Path, text: str) -> None:
    container = with_record(tmp_path / "one", None, None, text)
    probe = start(probe_of(programs, "hip", "direct"), within=container, initialise=False)
    assert probe.code("init") == 100
