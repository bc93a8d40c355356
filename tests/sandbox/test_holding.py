"""A sandbox that was left behind is found again, and a note about one that is gone harms nobody."""

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest
import yaml

from hcs.sandbox.holding import Held, Holding, end, notes, recall, remember
from hcs.sandbox.identities import CONTEXT, Identity, kubeconfig, merge_context
from hcs.sandbox.supervisor import StartError


@pytest.fixture(autouse=True)
def own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@contextmanager
def holding(directory: Path) -> Iterator[Held]:
    """A process that stands for a sandbox: its command line names the directory."""
    directory.mkdir()
    script = "import time; time.sleep(60)"
    with subprocess.Popen([sys.executable, "-S", "-c", script, "--directory", str(directory)]) as process:
        found = Held(str(directory), process.pid, str(directory / "admin.yaml"))
        while not found.alive:  # the kernel says that a program runs a moment before it shows its command line
            time.sleep(0.001)
        yield found
        process.kill()


@pytest.fixture
def held(tmp_path: Path) -> Iterator[Held]:
    with holding(tmp_path / "hcs-sandbox-x") as found:
        yield found


@pytest.fixture
def other(tmp_path: Path) -> Iterator[Held]:
    with holding(tmp_path / "hcs-sandbox-y") as found:
        yield found


def patient(_: Held) -> None:
    """Wait for as long as it takes."""


def test_nothing_is_remembered_at_first() -> None:
    assert recall() == []


def test_a_sandbox_that_runs_is_found_again_and_ended(held: Held, tmp_path: Path) -> None:
    remember(held)
    assert [note.parent for note in notes().iterdir()] == [tmp_path / "state" / "hcs"]
    assert recall() == [held]
    end(recall(), poll=patient)
    assert not held.alive
    assert not Path(held.directory).exists()
    assert recall() == []


def contexts(config: Path) -> tuple[str, list[str]]:
    """The current context, and all of them."""
    left = yaml.safe_load(config.read_text())
    return left["current-context"], [context["name"] for context in left["contexts"]]


def changed(config: Path, held: Held, port: int) -> Held:
    """Its context is in the kubeconfig now, and it is remembered with what was there before."""
    identity = Identity("admin", "admin", (), "token")
    if not config.exists():
        merge_context(config, kubeconfig(identity, "https://127.0.0.1:1", b"", "work"))
    before = merge_context(config, kubeconfig(identity, f"https://127.0.0.1:{port}", b""))
    made = msgspec.structs.replace(held, context_before=before, kubeconfig_changed=str(config))
    remember(made)
    return made


@pytest.mark.parametrize("turned", [False, True])
def test_of_two_that_were_started_at_once_both_are_found_and_ended(
    held: Held, other: Held, tmp_path: Path, turned: bool
) -> None:
    config = tmp_path / "config"
    both = [changed(config, one, 2 + place) for place, one in enumerate((other, held) if turned else (held, other))]
    assert sorted(recall(), key=lambda one: one.pid) == sorted(both, key=lambda one: one.pid)
    end(recall(), poll=patient)
    assert not any(one.alive or Path(one.directory).exists() for one in both)
    assert recall() == []
    assert contexts(config) == ("work", ["work"])


@pytest.mark.parametrize("turned", [False, True])
def test_who_stays_when_another_died_brings_the_context_of_before_back(
    held: Held, other: Held, tmp_path: Path, turned: bool
) -> None:
    config = tmp_path / "config"
    for place, one in enumerate((other, held) if turned else (held, other)):
        changed(config, one, 2 + place)
    os.kill(held.pid, signal.SIGKILL)
    os.waitid(os.P_PID, held.pid, os.WEXITED | os.WNOWAIT)
    [left] = recall()
    assert (left.pid, left.context_before) == (other.pid, "work")
    assert contexts(config) == (CONTEXT, ["work", CONTEXT])
    assert not Path(held.directory).exists()
    end(recall(), poll=patient)
    assert contexts(config) == ("work", ["work"])


def test_a_stale_note_is_removed_with_what_the_sandbox_left(held: Held, tmp_path: Path) -> None:
    """As after a restart of the machine: the directory is there, and the person's kubeconfig points to nobody."""
    config = tmp_path / "config"
    changed(config, held, 2)
    os.kill(held.pid, signal.SIGKILL)
    os.waitid(os.P_PID, held.pid, os.WEXITED | os.WNOWAIT)
    assert recall() == []
    assert not Path(held.directory).exists()
    assert list(notes().iterdir()) == []
    assert contexts(config) == ("work", ["work"])
    assert CONTEXT not in config.read_text()


def test_another_process_with_the_same_number_is_not_taken_for_it(held: Held) -> None:
    stranger = msgspec.structs.replace(held, directory=held.directory + "-other")
    remember(stranger)
    assert recall() == []
    end([stranger], poll=lambda _: pytest.fail("nobody to wait for"))
    assert held.alive


@pytest.mark.parametrize("text", ["", "{", '{"pid": "many"}', "[]"])
def test_a_note_that_cannot_be_read_is_no_note(text: str) -> None:
    notes().mkdir(parents=True)
    (notes() / "sandbox-1.json").write_text(text)
    assert recall() == []


@pytest.mark.xdist_group("sandbox")
def test_a_sandbox_that_does_not_come_up_says_why_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    fleet = tmp_path / "fleet.yaml"
    fleet.write_text("nodes: [{name: a, cards: [{vendor: acme, model: X}]}]")
    with pytest.raises(StartError, match="acme"):
        asyncio.run(Holding.start(fleet, leash=True, said=lambda _: None))
    assert list(tmp_path.glob("hcs-sandbox-*")) == []
