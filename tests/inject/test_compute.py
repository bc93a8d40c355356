"""The compute of a share is held by the vendor's own mechanism where there is one, and called advisory elsewhere."""

import msgspec
import pytest
from hypothesis import given as for_all
from hypothesis import strategies as st
from tests.inject.node import GIB, allocation, card, node, profile

from hcs.inject.compute import (
    ASCEND_RUNTIME,
    MPS_PIPES,
    REASON_VARIABLE,
    SHARE_VARIABLE,
    compute_share,
    cu_list,
    percent_of,
    vnpu_template,
)
from hcs.inject.injection import Adjustment, ContainerFacts, NodeFiles, inject
from hcs.model.allocations import Grant
from hcs.model.devices import Device, Rate

WHOLE = 100_000  # thousandths of an ACU


def rated(vendor: str, **changes: object) -> Device:
    return card(vendor, 0, rates=(Rate("gemm", WHOLE, "datasheet"),), **changes)


def injected(device: Device, milliacu: int, *, missing: tuple[str, ...] = (), amount: int = 16 * GIB) -> Adjustment:
    grants = {"main": (Grant(device.id, amount, milliacu),)}
    granted = allocation(device, exclusive=False, containers=grants)
    facts = ContainerFacts("main")
    return inject(granted, profile(device.vendor), facts, node(device, missing=missing))


@pytest.mark.parametrize(("milliacu", "percent"), [(40_000, 40), (40_001, 41), (1, 1), (WHOLE, 100), (2 * WHOLE, 100)])
def test_the_percentage_is_of_the_whole_card_and_rounded_up(milliacu: int, percent: int) -> None:
    assert percent_of(rated("nvidia"), Grant("nvidia-uuid-00", GIB, milliacu)) == percent


def test_where_the_mps_daemon_runs_it_holds_the_active_threads() -> None:
    given = injected(rated("nvidia"), 25_000)
    assert given.variables()["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] == "25"
    assert given.variables()[SHARE_VARIABLE] == "mps:25"
    pipes = given.mount(MPS_PIPES)
    assert pipes is not None
    assert not pipes.read_only


def test_without_the_daemon_the_share_is_called_advisory() -> None:
    given = injected(rated("nvidia"), 25_000, missing=(MPS_PIPES,))
    assert given.variables()[SHARE_VARIABLE] == "advisory:25"
    assert given.variables()[REASON_VARIABLE].startswith("NoMpsDaemon: ")
    assert "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE" not in given.variables()
    assert given.mount(MPS_PIPES) is None


def test_an_emulated_card_never_pretends() -> None:
    assert injected(rated("nvidia", emulated=True), 25_000).variables()[SHARE_VARIABLE] == "advisory:25"


def test_a_mig_instance_is_held_by_hardware() -> None:
    given = injected(rated("nvidia", id="MIG-11111111-2222-4333-8444-555555555555"), 25_000)
    assert given.variables()[SHARE_VARIABLE] == "mig:25"
    assert "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE" not in given.variables()


@pytest.mark.parametrize(
    ("model", "memory", "percent", "template"),
    [
        ("Ascend910B3", 8, 25, "vir05_1c_16g"),
        ("910B3", 16, 26, "vir10_3c_32g"),
        ("910B3", 17, 1, "vir10_3c_32g"),
        ("910B3", 33, 1, None),
        ("910B4-1", 16, 25, "vir05_1c_16g"),
        ("910B4", 16, 25, "vir10_3c_16g"),
        ("310P3", 3, 13, "vir02"),
        ("950", 1, 1, None),
    ],
)
def test_the_smallest_virtual_npu_that_holds_memory_and_cores(
    model: str, memory: int, percent: int, template: str | None
) -> None:
    found = vnpu_template(model, memory * GIB, percent)
    assert (found.name if found else None) == template


def test_where_the_ascend_runtime_is_it_makes_a_virtual_npu() -> None:
    given = injected(rated("ascend", model="910B3"), 20_000, amount=8 * GIB).variables()
    assert (given["ASCEND_VNPU_SPECS"], given[SHARE_VARIABLE]) == ("vir05_1c_16g", "vnpu:20")
    given = injected(rated("ascend", model="910B3"), 20_000, missing=(ASCEND_RUNTIME,)).variables()
    assert (given.get("ASCEND_VNPU_SPECS"), given[SHARE_VARIABLE]) == (None, "advisory:20")
    assert str(given[REASON_VARIABLE]).startswith("NoVendorRuntime: ")
    given = injected(rated("ascend", model="910B3"), 80_000, amount=8 * GIB).variables()
    assert (given.get("ASCEND_VNPU_SPECS"), given[SHARE_VARIABLE]) == (None, "advisory:80")
    assert str(given[REASON_VARIABLE]).startswith("NoTemplate: ")


def units_in(listed: str) -> list[int]:
    ranges = [part.split("-") for part in listed.split(",")]
    return [unit for first, last in ranges for unit in range(int(first), int(last) + 1)]


@for_all(units=st.integers(1, 400), percent=st.integers(1, 100), holder=st.text())
def test_a_mask_names_the_percentage_of_the_units_in_adjacent_pairs(units: int, percent: int, holder: str) -> None:
    listed = units_in(cu_list(units, percent, holder))
    assert len(set(listed)) == len(listed)
    assert set(listed) <= set(range(units))
    assert units * percent <= len(listed) * 100
    assert (len(listed) - 2) * 100 < units * percent
    if units % 2 == 0:
        assert {unit ^ 1 for unit in listed} == set(listed)


def test_containers_that_share_a_card_begin_at_different_units() -> None:
    assert len({cu_list(104, 25, f"pod-{number}") for number in range(12)}) > 6


def test_amds_compute_units_are_masked_by_the_numbers_that_programs_see() -> None:
    """A profile of the cluster's own may allow shares of AMD's cards; the mask then holds their compute."""
    cards = [rated("amd"), msgspec.structs.replace(rated("amd"), id="amd-uuid-07", index=7)]
    grants = {"main": (Grant(cards[1].id, GIB, WHOLE), Grant(cards[0].id, GIB, 25_000))}
    files = {one.id: NodeFiles(compute_units=104) for one in cards}
    allowed = msgspec.structs.replace(profile("amd"), quota="interceptor")
    granted = allocation(*cards, exclusive=False, containers=grants)
    given = inject(granted, allowed, ContainerFacts("main"), node(*cards, files=files)).variables()
    assert given[SHARE_VARIABLE] == "cu-mask:25"
    assert REASON_VARIABLE not in given
    number, listed = str(given["HSA_CU_MASK"]).split(":")  # the second card is granted whole: no mask
    assert (number, len(units_in(listed))) == ("0", 26)


@pytest.mark.parametrize(
    ("device", "reason"),
    [
        (rated("amd"), "ComputeUnitsUnknown"),
        (rated("amd", emulated=True), "EmulatedCard"),
        (rated("hygon"), "NoInstance"),
        (rated("cambricon"), "NoInstance"),
        (rated("mthreads"), "NoMechanism"),
        (rated("nvidia"), "NoMpsDaemon"),
        (rated("ascend"), "NoVendorRuntime"),
    ],
)
def test_an_advisory_share_says_why_nothing_holds_it(device: Device, reason: str) -> None:
    units = {device.id: 104} if reason != "ComputeUnitsUnknown" else {}
    share = compute_share([(device, Grant(device.id, GIB, 25_000))], frozenset(), units, "pod")
    assert share is not None
    given = {variable.name: variable.value for variable in share.env}
    assert given.pop(SHARE_VARIABLE) == "advisory:25"
    assert str(given.pop(REASON_VARIABLE)).startswith(f"{reason}: ")
    assert given == {}


def test_nothing_is_said_where_nothing_is_known_or_all_is_granted() -> None:
    for given in (injected(card("nvidia", 0), 25_000), injected(rated("nvidia"), WHOLE), injected(rated("nvidia"), 0)):
        assert SHARE_VARIABLE not in given.variables()
