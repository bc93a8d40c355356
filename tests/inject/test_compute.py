"""The compute of a share is held by the vendor's own mechanism where there is one, and called advisory elsewhere."""

import pytest
from tests.inject.node import GIB, allocation, card, node, profile

from hcs.inject.compute import (
    ASCEND_RUNTIME,
    MPS_MEMORY,
    MPS_PIPES,
    REASON_VARIABLE,
    SHARE_VARIABLE,
    compute_share,
    percent_of,
    vnpu_template,
)
from hcs.inject.injection import Adjustment, ContainerFacts, inject
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
    pipes, memory = given.mount(MPS_PIPES), given.mount("/dev/shm")
    assert pipes is not None
    assert not pipes.read_only
    assert memory is not None
    assert memory.source == MPS_MEMORY, "a client must have the daemon's shared memory, or it cannot connect"


@pytest.mark.parametrize("missing", [MPS_PIPES, MPS_MEMORY])
def test_without_the_daemon_the_share_is_called_advisory(missing: str) -> None:
    given = injected(rated("nvidia"), 25_000, missing=(missing,))
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
        ("Ascend910B3", 16, 25, "vir05_1c_16g"),
        ("910B3", 16, 26, None),
        ("910B3", 32, 50, "vir10_3c_32g"),
        ("910B3", 8, 1, None),
        ("910B3", 17, 1, None),
        ("910B4-1", 16, 25, "vir05_1c_16g"),
        ("910B4", 16, 25, "vir10_3c_16g"),
        ("310P3", 3, 12, "vir01"),
        ("310P3", 3, 13, None),
        ("950", 1, 1, None),
    ],
)
def test_a_virtual_npu_has_exactly_the_memory_and_at_least_the_cores(
    model: str, memory: int, percent: int, template: str | None
) -> None:
    found = vnpu_template(model, memory * GIB, percent)
    assert (found.name if found else None) == template


def test_where_the_ascend_runtime_is_it_makes_a_virtual_npu() -> None:
    given = injected(rated("ascend", model="910B3"), 20_000)
    assert (given.variables()["ASCEND_VNPU_SPECS"], given.variables()[SHARE_VARIABLE]) == ("vir05_1c_16g", "vnpu:20")
    assert given.files == (), "the virtual NPU holds the memory, to the byte; our interceptor does not know its number"
    given = injected(rated("ascend", model="910B3"), 20_000, missing=(ASCEND_RUNTIME,))
    variables = given.variables()
    assert (variables.get("ASCEND_VNPU_SPECS"), variables[SHARE_VARIABLE]) == (None, "advisory:20")
    assert str(variables[REASON_VARIABLE]).startswith("NoVendorRuntime: ")
    assert given.mount("/etc/ld.so.preload") is not None


def test_an_amount_no_template_has_is_held_by_the_interceptor_and_told_which_sizes_there_are() -> None:
    """A larger template would over-commit a card that the allocations fill."""
    given = injected(rated("ascend", model="910B3"), 20_000, amount=8 * GIB)
    variables = given.variables()
    assert (variables.get("ASCEND_VNPU_SPECS"), variables[SHARE_VARIABLE]) == (None, "advisory:20")
    assert str(variables[REASON_VARIABLE]).endswith("16384Mi with 5 of 20 cores, 32768Mi with 10 of 20 cores")
    assert given.mount("/etc/ld.so.preload") is not None


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
    share = compute_share([(device, Grant(device.id, GIB, 25_000))], frozenset())
    assert share is not None
    given = {variable.name: variable.value for variable in share.env}
    assert given.pop(SHARE_VARIABLE) == "advisory:25"
    assert str(given.pop(REASON_VARIABLE)).startswith(f"{reason}: ")
    assert given == {}


def test_nothing_is_said_where_nothing_is_known_or_all_is_granted() -> None:
    for given in (injected(card("nvidia", 0), 25_000), injected(rated("nvidia"), WHOLE), injected(rated("nvidia"), 0)):
        assert SHARE_VARIABLE not in given.variables()
