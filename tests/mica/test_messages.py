"""Messages byte by byte, written out from the protocol's description and not from the code."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hcs.mica.messages import (
    LAYOUTS,
    CreateMessage,
    Status,
    encode_control,
    encode_create,
    encode_set,
    layout_named,
    read_reply,
    read_status,
)
from hcs.model.refusals import RefusedError

MESSAGE = CreateMessage(
    name="rt1",
    path="/fw/app.elf",
    ped="xen",
    ped_cfg="/fw/image.bin",
    debug=True,
    cpu_str="0-2,4",
    vcpu_num=1,
    max_vcpu_num=8,
    cpu_weight=256,
    cpu_capacity=75,
    memory=128,
    max_memory=256,
    iomem="0xfee00",
    network="br0",
)


def golden() -> bytes:
    """The message above, field by field at its offset."""
    raw = bytearray(1772)
    for offset, value in (
        (0, b"rt1"),
        (66, b"/fw/app.elf"),
        (322, b"xen"),
        (338, b"/fw/image.bin"),
        (594, b"\x01"),
        (595, b"0-2,4"),
        (724, (1).to_bytes(4, "little")),
        (728, (8).to_bytes(4, "little")),
        (732, (256).to_bytes(4, "little")),
        (736, (75).to_bytes(4, "little")),
        (740, (128).to_bytes(4, "little")),
        (744, (256).to_bytes(4, "little")),
        (748, b"0xfee00"),
        (1260, b"br0"),
    ):
        raw[offset : offset + len(value)] = value
    return bytes(raw)


def test_a_create_message_is_these_1772_bytes() -> None:
    assert encode_create(MESSAGE) == golden()


def test_the_layout_of_september_2025_is_these_980_bytes() -> None:
    raw = encode_create(CreateMessage("a", "/b", memory=64, network="n"), layout_named("2025-09"))
    assert len(raw) == 980
    assert raw[:2] == b"a\0"
    assert raw[32:35] == b"/b\0"
    assert raw[160:163] == b"xen"
    assert raw[452:468] == struct.pack("=iiii", -1, -1, -1, 64)
    assert raw[468:470] == b"n\0"


def test_what_is_not_given_is_minus_one() -> None:
    raw = encode_create(CreateMessage("a", "/b"))
    assert raw[724:748] == b"\xff" * 24


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        pytest.param({"name": "a" * 66}, "TooLong", id="name-of-66"),
        pytest.param({"name": "ä" * 33}, "MalformedName", id="name-of-letters-beyond-ascii"),
        pytest.param({"name": ""}, "MalformedName", id="empty-name"),
        pytest.param({"name": "a/b"}, "MalformedName", id="slash"),
        pytest.param({"name": ".."}, "MalformedName", id="dots"),
        pytest.param({"name": "mica-create"}, "MalformedName", id="the-daemons-own-socket"),
        pytest.param({"path": "/" * 256}, "TooLong", id="path-of-256"),
        pytest.param({"path": "/a\0b"}, "MalformedText", id="nul-inside"),
        pytest.param({"ped": "x" * 16}, "TooLong", id="pedestal-of-16"),
        pytest.param({"cpu_str": "1," * 64}, "TooLong", id="cpus-of-128"),
        pytest.param({"cpu_capacity": 2**31}, "TooLarge", id="beyond-32-bits"),
        pytest.param({"memory": -2}, "TooLarge", id="below-not-given"),
    ],
)
def test_what_does_not_fit_is_refused_and_never_cut(change: dict[str, object], reason: str) -> None:
    message = CreateMessage(**{"name": "a", "path": "/b", **change})  # type: ignore[arg-type]
    with pytest.raises(RefusedError) as refused:
        encode_create(message)
    assert refused.value.refusals[0].reason == reason


def test_what_just_fits_is_sent_whole() -> None:
    raw = encode_create(CreateMessage("a" * 65, "/" + "b" * 254, cpu_str="1" * 127))
    assert raw[:66] == b"a" * 65 + b"\0"
    assert raw[66:322] == b"/" + b"b" * 254 + b"\0"
    assert raw[595:723] == b"1" * 127 + b"\0"


def test_control_messages_are_bare_words() -> None:
    assert encode_control("start") == b"start"
    assert encode_set("cpucapacity", "200") == b"set cpucapacity 200"
    assert encode_set("cpu", "0,2,4,6,8-10,12,14,16,9") == b"set cpu 0,2,4,6,8-10,12,14,16,9"


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("cpu", "0,2,4,6,8,10,12,14,16,18"),
        ("cpu", "0, 1"),
        ("cpu", ""),
        ("cpu", "0\n"),
        ("CPUCpacity", "5"),
        ("MaxMem", "5"),
        ("maxvcpu", "5"),
    ],
)
def test_a_set_that_micad_would_cut_or_not_know_is_refused(key: str, value: str) -> None:
    with pytest.raises(RefusedError):
        encode_set(key, value)


@pytest.mark.parametrize(
    ("received", "reply"),
    [
        pytest.param(b"", None, id="nothing"),
        pytest.param(b"MICA-SUCC", None, id="half-a-marker"),
        pytest.param(b"MICA-SUCCESS", (True, ""), id="plain-yes"),
        pytest.param(b"rt1 is already createdMICA-FAILED", (False, "rt1 is already created"), id="glued-reason"),
        pytest.param(b"about MICA-FAILED thingsMICA-SUCCESS", (True, "about MICA-FAILED things"), id="marker-in-text"),
        pytest.param(b"MICA-SUCCESS\n", None, id="something-behind"),
    ],
)
def test_replies_end_with_their_marker(received: bytes, reply: tuple[bool, str] | None) -> None:
    found = read_reply(received)
    assert (None if found is None else (found.success, found.text)) == reply


@pytest.mark.parametrize(
    ("text", "name", "status"),
    [
        pytest.param(
            "c                                                 Offline             ",
            "c",
            Status("", "Offline"),
            id="seen",
        ),
        pytest.param(
            f"{'rt1':<30}{'0-2,4':<20}{'Running':<20}rpmsg-tty(/dev/ttyRPMSG0) rpmsg-rpc ",
            "rt1",
            Status("0-2,4", "Running", (("rpmsg-tty", "/dev/ttyRPMSG0"), ("rpmsg-rpc", ""))),
            id="services",
        ),
        pytest.param(
            f"{'rt1':<30}{'0,2,4,6,8,10,12,14,16,18':<20}{'Running':<20}",
            "rt1",
            Status("0,2,4,6,8,10,12,14,16,18", "Running"),
            id="long-cpus-run-into-the-state",
        ),
        pytest.param(
            f"{'a' * 12 + '...z':<30}{'':<20}{'Ready':<20}", "a" * 40 + "z", Status("", "Ready"), id="shortened-name"
        ),
        pytest.param(
            f"{'Running' * 4 + 'abc':<30}{'1':<20}{'Error':<20}", "Running" * 4 + "abc", Status("1", "Error"), id="31"
        ),
        pytest.param("nonsense", "c", None, id="nonsense"),
    ],
)
def test_a_status_is_cut_by_columns(text: str, name: str, status: Status | None) -> None:
    assert read_status(text, name) == status


@given(st.integers(-1, 2**31 - 1), st.text("abc-_.", max_size=60))
def test_the_compiler_agrees_with_the_offsets(number: int, rest: str) -> None:
    """The client packs by a format, the emulator reads by C types: neither knows of the other."""
    from hcs.sandbox.micad import layout

    assert layout.SIZE == struct.calcsize(LAYOUTS["current"].format) == 1772
    message = CreateMessage(f"a{rest}", f"/{rest}", cpu_weight=number, max_memory=number, network=rest)
    read = layout.read(encode_create(message))
    assert {key: read[key] for key in message.__struct_fields__} == {
        key: getattr(message, key) for key in message.__struct_fields__
    }
