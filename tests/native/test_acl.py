"""The same promises for Ascend's AscendCL."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.native.conftest import acl_probe
from tests.native.toolkit import ACL_OUT_OF_MEMORY, GI, Container, Probe

from hcs.vendors import emulated

Start = Callable[..., Probe]


@pytest.fixture
def container(tmp_path: Path) -> Container:
    return Container(tmp_path, "ascend")


@pytest.fixture(params=["direct", "dlsym"])
def program(request: pytest.FixtureRequest, programs: Path) -> Path:
    return acl_probe(programs, request.param)


def test_exactly_the_quota_is_granted_and_not_one_byte_more(container: Container, start: Start, program: Path) -> None:
    container.add_card(node=5)
    container.limit(4 * GI)
    probe = start(program)
    assert probe.code(f"alloc32 {4 * GI + 1}") == ACL_OUT_OF_MEMORY
    assert probe.code(f"alloc32 {4 * GI}") == 0
    assert probe.code("alloc32 1") == ACL_OUT_OF_MEMORY
    assert container.used() == container.physically_used() == 4 * GI
    assert probe.code("free 0") == 0
    assert container.used() == 0


@pytest.mark.parametrize("command", ["alloc", "cached"])
def test_the_32_bytes_that_the_runtime_adds_are_charged(
    container: Container, start: Start, program: Path, command: str
) -> None:
    container.add_card(node=5)
    container.limit(4 * GI)
    probe = start(program)
    assert probe.code(f"{command} {4 * GI}") == ACL_OUT_OF_MEMORY
    assert probe.code(f"{command} {4 * GI - 32}") == 0
    assert container.used() == container.physically_used() == 4 * GI


def test_the_emulated_card_gives_the_same_code_when_it_is_full(
    container: Container, start: Start, program: Path
) -> None:
    container.add_card(total=GI)
    container.intercepted = False
    assert start(program).code(f"alloc {2 * GI}") == ACL_OUT_OF_MEMORY


def test_queries_agree_with_the_quota(container: Container, start: Start, program: Path) -> None:
    container.add_card()
    container.limit(4 * GI)
    probe = start(program)
    assert probe("info") == [0, 4 * GI, 4 * GI]
    assert probe.code(f"alloc32 {3 * GI}") == 0
    assert probe("info") == [0, 1 * GI, 4 * GI]


def test_the_right_card_is_charged_whatever_the_visible_devices(
    container: Container, start: Start, program: Path
) -> None:
    """Physical ids 3 and 6; the program sees only the second, as device 0."""
    container.add_card(node=3)
    container.add_card(node=6)
    container.limit(1 * GI, 4 * GI)
    container.variables["ASCEND_RT_VISIBLE_DEVICES"] = "1"
    probe = start(program)
    assert probe.code(f"alloc32 {4 * GI}") == 0
    assert (container.used(0), container.used(1)) == (0, 4 * GI)
    assert container.physically_used(1) == 4 * GI


def test_an_unknown_pointer_is_the_runtimes_business(container: Container, start: Start, program: Path) -> None:
    param_invalid = 107000
    container.add_card()
    container.limit(GI)
    assert start(program).code("freeraw 4096") == param_invalid


def test_a_dead_card_answers_like_a_driver_that_has_lost_its_device(
    container: Container, start: Start, program: Path
) -> None:
    drv_internal_error = 507899
    card = container.add_card()
    container.limit(GI)
    probe = start(program)
    assert probe.code("alloc32 64") == 0
    emulated.inject_fault(card, 8, "device lost")
    assert probe.code("alloc32 64") == drv_internal_error
    assert probe.code("info") == drv_internal_error
    emulated.clear_fault(card)
    assert probe.code("alloc32 64") == 0
