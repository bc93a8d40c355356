"""Parts of cards: nobody's units are another's, and shares that fit on a card fit in its units."""

import msgspec
import pytest
from hypothesis import assume, example
from hypothesis import given as for_all
from hypothesis import strategies as st
from tests.inject.node import GIB, allocation, card, node, profile

from hcs.inject.adjustments import DeviceNode, Mount, Variable
from hcs.inject.compute import SHARE_VARIABLE
from hcs.inject.injection import ContainerFacts, inject
from hcs.inject.instances import Instance, Part, choose, in_pairs, lowest_free, ranges, units_of
from hcs.inject.profiles import Profile
from hcs.inject.vdcu import VdcuRecord, VdcuRecordError, parse_vdcu, render_vdcu
from hcs.model.allocations import Grant
from hcs.model.devices import Device, Rate
from hcs.model.refusals import Refusal, RefusedError

WHOLE = 100_000


def rated(vendor: str = "hygon", **changes: object) -> Device:
    return card(vendor, 0, rates=(Rate("gemm", WHOLE, "datasheet"),), **changes)


@for_all(
    units=st.integers(4, 128),
    shares=st.lists(st.integers(0, WHOLE), max_size=12),
    leaving=st.lists(st.integers(0, 11), max_size=12),
)
def test_masks_never_overlap_and_sums_never_exceed(units: int, shares: list[int], leaving: list[int]) -> None:
    """Containers come and go; whoever gets a part has units and a place that nobody else has."""
    device, held = rated(), {}
    for number, milliacu in enumerate(shares):
        count = units_of(device, Grant(device.id, GIB, milliacu), units)
        found = choose(held.values(), device, units, count, 64)
        if isinstance(found, Part):
            assert found.mask.bit_count() == count
            held[number] = found
        if number < len(leaving):
            held.pop(leaving[number], None)
        together = 0
        for part in held.values():
            assert together & part.mask == 0
            together |= part.mask
        assert together < 1 << units
        assert len({part.slot for part in held.values()}) == len(held)


@for_all(units=st.integers(16, 128), parts=st.lists(st.integers(1, 100), min_size=1, max_size=8))
def test_shares_that_fit_on_the_card_fit_in_its_units_whoever_comes_first(units: int, parts: list[int]) -> None:
    """As long as no share is smaller than a unit."""
    device = rated()
    shares = [part * WHOLE // sum(parts) for part in parts]
    assume(all(share * units >= WHOLE for share in shares))
    held: list[Part] = []
    for milliacu in shares:
        count = units_of(device, Grant(device.id, GIB, milliacu), units)
        assert count * WHOLE <= milliacu * units < (count + 1) * WHOLE
        found = choose(held, device, units, count, 64)
        assert isinstance(found, Part)
        held.append(found)


@for_all(taken=st.integers(0, 2**64), units=st.integers(1, 64), count=st.integers(1, 64))
def test_the_lowest_free_units(taken: int, units: int, count: int) -> None:
    found = lowest_free(taken, units, count)
    free = [unit for unit in range(units) if not taken >> unit & 1]
    if found is None:
        assert len(free) < count
    else:
        assert found == sum(1 << unit for unit in free[:count])


@for_all(mask=st.integers(1, 2**40))
def test_pairs_are_adjacent_and_ranges_name_each_unit_once(mask: int) -> None:
    paired = in_pairs(mask)
    assert paired.bit_count() == 2 * mask.bit_count()
    bits = {bit for bit in range(paired.bit_length()) if paired >> bit & 1}
    assert {bit ^ 1 for bit in bits} == bits
    parts = [part.split("-") for part in ranges(paired).split(",")]
    assert [bit for first, last in parts for bit in range(int(first), int(last) + 1)] == sorted(bits)


def test_without_acu_the_part_is_as_large_as_the_part_of_the_memory() -> None:
    device = rated()
    assert units_of(device, Grant(device.id, 16 * GIB, 0), 60) == 15
    assert units_of(device, Grant(device.id, 1, 0), 60) == 1
    assert units_of(device, Grant(device.id, 16 * GIB, WHOLE // 2), 60) == 30


def test_a_card_without_room_says_what_was_seen() -> None:
    device = rated()
    held = [Part(device.id, 0b0111, 0)]
    refusal = choose(held, device, 4, 2, 4)
    assert isinstance(refusal, Refusal)
    assert refusal.reason == "NoComputeLeft"
    assert "2 of the 4 parts" in refusal.message
    assert "1 are free" in refusal.message
    full = [Part(device.id, 1 << slot, slot) for slot in range(4)]
    refusal = choose(full, device, 60, 2, 4)
    assert isinstance(refusal, Refusal)
    assert refusal.reason == "TooManyInstances"


# ---- the record ---------------------------------------------------------------------------------------------------

RECORD = VdcuRecord("0000:9b:00.0", 0xFFFF, 1024, 3, 2)


def test_the_record_is_what_hygons_runtime_reads() -> None:
    assert render_vdcu(RECORD) == (
        "PciBusId: 0000:9B:00.0\n"
        "cu_mask: 0x000000000000ffff\n"
        "cu_mask: 0x0000000000000000\n"
        "cu_count: 16\n"
        "mem: 1024 MiB\n"
        "device_id: 3\n"
        "vdev_id: 0\n"
        "pipe_id: 2\n"
        "enable: 1\n"
    )


@example(mask=1 << 100 | 1, mebibytes=1, device=0, pipe=0)
@for_all(
    mask=st.integers(1, 2**128 - 1),
    mebibytes=st.integers(1, 2**20),
    device=st.integers(0, 63),
    pipe=st.integers(0, 3),
)
def test_a_record_reads_back(mask: int, mebibytes: int, device: int, pipe: int) -> None:
    record = VdcuRecord("0000:9B:00.0", mask, mebibytes, device, pipe)
    assert parse_vdcu(render_vdcu(record)) == record


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("cu_count: 16", "cu_count: 15"),
        ("vdev_id: 0", "vdev_id: 1"),
        ("enable: 1\n", ""),
        ("mem: 1024 MiB", "mem: much"),
        ("enable: 1", "enable: 0"),
    ],
)
def test_what_the_runtime_would_not_take_is_no_record(old: str, new: str) -> None:
    with pytest.raises(VdcuRecordError):
        parse_vdcu(render_vdcu(RECORD).replace(old, new))


@pytest.mark.parametrize(
    "record",
    [
        msgspec.structs.replace(RECORD, mask=0),
        msgspec.structs.replace(RECORD, mask=1 << 128),
        msgspec.structs.replace(RECORD, mebibytes=0),
    ],
)
def test_a_record_without_units_or_memory_is_not_written(record: VdcuRecord) -> None:
    with pytest.raises(VdcuRecordError):
        render_vdcu(record)


# ---- in a container -----------------------------------------------------------------------------------------------


def shared(
    device: Device, instance: Instance | None, by: Profile | None = None, name: str = "main"
) -> dict[str, object]:
    facts = node(device)
    facts = msgspec.structs.replace(facts, instances={"main": instance} if instance else {})
    granted = allocation(device, exclusive=False, reuses={"setup": "main"})
    given = inject(granted, by or profile(device.vendor), ContainerFacts(name), facts)
    return {
        "env": given.variables(),
        "files": given.files,
        "mounts": {mount.destination for mount in given.mounts},
        "devices": [each.path for each in given.devices],
        "cdi": given.cdi,
    }


def test_a_virtual_dcu_needs_neither_interceptor_nor_variable() -> None:
    instance = Instance("vdcu", 25, True, mounts=(Mount("/state/vdcu", "/etc/vdev/docker", ("rbind", "ro")),))
    given = shared(rated(), instance)
    assert given["env"][SHARE_VARIABLE] == "vdcu:25"  # type: ignore[index]
    assert given["files"] == ()
    assert given["mounts"] == {"/etc/vdev/docker", "/opt/hyhal"}
    assert shared(rated(), instance, name="setup") == given, "an init container has the main one's part, before it"


def test_an_smlu_takes_the_place_of_the_cards_own_nodes() -> None:
    nodes = tuple(DeviceNode(path, path) for path in ("/dev/cambricon_dev0", "/dev/cambricon-caps/cap_dev0_mi1"))
    instance = Instance("smlu", 25, True, env=(Variable("VIRTUAL_DEVICES", "x"),), devices=nodes)
    given = shared(rated("cambricon"), instance)
    assert given["devices"] == ["/dev/cambricon_dev0", "/dev/cambricon-caps/cap_dev0_mi1"]
    assert given["env"]["VIRTUAL_DEVICES"] == "x", "the profile takes the image's away, not ours"  # type: ignore[index]
    assert given["cdi"] == ()


def test_amds_mask_holds_compute_beside_the_interceptor() -> None:
    """A profile of the cluster's own may allow shares of AMD's cards."""
    allowed = msgspec.structs.replace(profile("amd"), quota="interceptor")
    instance = Instance("cu-mask", 25, False, env=(Variable("HSA_CU_MASK", "0:0-25"),))
    given = shared(rated("amd"), instance, allowed)
    assert given["env"][SHARE_VARIABLE] == "cu-mask:25"  # type: ignore[index]
    assert given["env"]["HSA_CU_MASK"] == "0:0-25"  # type: ignore[index]
    assert "/etc/ld.so.preload" in given["mounts"]  # type: ignore[operator]


@pytest.mark.parametrize("vendor", ["hygon", "cambricon"])
def test_a_share_that_no_instance_holds_is_refused(vendor: str) -> None:
    with pytest.raises(RefusedError) as refused:
        shared(rated(vendor), None)
    assert refused.value.refusals[0].reason == "ShareNotEnforceable"


def test_an_instance_is_of_one_card() -> None:
    cards = [rated(), msgspec.structs.replace(rated(), id="hygon-uuid-01", index=1)]
    with pytest.raises(RefusedError) as refused:
        inject(allocation(*cards, exclusive=False), profile("hygon"), ContainerFacts("main"), node(*cards))
    assert refused.value.refusals[0].reason == "SeveralCards"
