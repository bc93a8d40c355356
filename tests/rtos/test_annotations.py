"""Annotations, and the words in them."""

import pytest

from hcs.rtos.annotations import KEYS, PREFIX, full_key, is_infra, read_annotations, sandbox_of
from hcs.rtos.words import read_duration, read_inner_path


def test_every_key_becomes_a_field() -> None:
    for key in KEYS:
        assert hasattr(read_annotations({}), key.rpartition(".")[2])
        assert full_key(key.rpartition(".")[2]) == full_key(key) == PREFIX + key


@pytest.mark.parametrize(
    ("given", "milliseconds"),
    [
        ({}, 30_000),
        ({"auto_close": "false"}, None),
        ({"auto_close": "f", "auto_close_timeout": "5"}, 5_000),
        ({"auto_close_timeout": "0"}, None),
        ({"auto_close_timeout": "1m30s"}, 90_000),
        ({"auto_disconnect_timeout": "500ms"}, 500),
        ({"auto_disconnect_timeout": "7", "auto_close_timeout": "8"}, 8_000),
    ],
)
def test_a_timeout_beats_auto_close(given: dict[str, str], milliseconds: int | None) -> None:
    read = read_annotations({f"{PREFIX}container.{key}": value for key, value in given.items()})
    assert read.close_after == milliseconds


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [("1h", 3_600_000), ("1.5s", 1_500), ("2us", 0), ("-1s", None), ("", None), ("1", 1000), ("s", None), ("1d", None)],
)
def test_durations(text: str, milliseconds: int | None) -> None:
    assert read_duration(text) == milliseconds


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("/a/b.elf", "a/b.elf"),
        ("a/../b.elf", "b.elf"),
        ("a/../../b.elf", None),
        ("/../b.elf", None),
        ("//a/./b", "a/b"),
        ("", None),
        ("a\0b", None),
    ],
)
def test_inner_paths(text: str, path: str | None) -> None:
    assert read_inner_path(text) == path


def test_who_is_who_in_a_pod() -> None:
    assert is_infra({"io.kubernetes.cri.container-type": "sandbox"})
    assert is_infra({"io.kubernetes.cri-o.ContainerType": "sandbox"})
    assert not is_infra({"io.kubernetes.cri.container-type": "container"})
    assert sandbox_of({"io.kubernetes.cri.sandbox-id": "pod"}, "c") == "pod"
    assert sandbox_of({}, "c") == "c"
