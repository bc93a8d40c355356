"""What was let start survives the agent, whole or not at all."""

import os
from pathlib import Path

import pytest
from tests.inject.node import UID, allocation, card

from hcs.agent.admissions import Admission, Admissions, plain, write_host_files
from hcs.inject.adjustments import HostFile

ADMITTED = Admission("default", "one", allocation(card("nvidia", 0)), frozenset({"main"}))


def keep(state: Path) -> Admissions:
    admissions = Admissions(state)
    admissions.hold(ADMITTED)
    admissions.write()()
    return admissions


def test_what_could_not_be_written_is_written_later(tmp_path: Path) -> None:
    admissions = Admissions(tmp_path)
    admissions.hold(ADMITTED)
    in_the_way = tmp_path / "admitted" / f".{UID}.json.{os.getpid()}"
    in_the_way.mkdir()
    with pytest.raises(OSError):  # noqa: PT011 - which one is the file system's affair
        admissions.write()()
    assert len(Admissions(tmp_path)) == 0
    in_the_way.rmdir()
    admissions.write()()
    assert Admissions(tmp_path).get(UID) == ADMITTED


def test_it_is_read_back_by_the_next_run(tmp_path: Path) -> None:
    keep(tmp_path)
    again = Admissions(tmp_path)
    assert again.get(UID) == ADMITTED
    again.drop(UID)
    again.write()()
    assert len(Admissions(tmp_path)) == 0


def test_an_unreadable_file_is_set_aside_not_believed(tmp_path: Path) -> None:
    keep(tmp_path)
    (tmp_path / "admitted" / f"{UID}.json").write_text('{"namespace": "default"')
    again = Admissions(tmp_path)
    assert len(again) == 0
    assert (tmp_path / "admitted" / f"{UID}.unreadable").exists()


def test_files_without_an_admission_are_removed(tmp_path: Path) -> None:
    admissions = keep(tmp_path)
    for name in (UID, "stray"):
        (tmp_path / "containers" / name).mkdir()
    admissions.drop_strays()
    assert [path.name for path in (tmp_path / "containers").iterdir()] == [UID]


def test_host_files_have_exactly_their_mode_and_content(tmp_path: Path) -> None:
    path = tmp_path / "a" / "quota"
    write_host_files((HostFile(str(path), "one", 0o444),))
    assert (path.read_text(), path.stat().st_mode & 0o777) == ("one", 0o444)
    inode = path.stat().st_ino
    write_host_files((HostFile(str(path), "one", 0o444),))
    assert path.stat().st_ino == inode, "an unchanged file is not written again: containers have it mounted"
    write_host_files((HostFile(str(path), "two", 0o444),))
    assert path.read_text() == "two"
    assert list(path.parent.iterdir()) == [path]


def test_a_kept_file_is_never_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    ledger = HostFile(str(path), "", 0o666, keep=True)
    write_host_files((ledger,))
    path.write_text("counted")
    write_host_files((ledger,))
    assert path.read_text() == "counted"


@pytest.mark.parametrize("text", ["", "..", ".", "a/b", "../x", "a\n", "a" * 300])
def test_names_that_are_no_file_names_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is no name of a pod or container"):
        plain(text)
