"""A sandbox that was left behind is found again, and a note about one that is gone harms nobody."""

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
import yaml

from hcs.sandbox.holding import Held, Holding, end, recall, remember, state_file
from hcs.sandbox.identities import CONTEXT, Identity, kubeconfig, merge_context
from hcs.sandbox.supervisor import StartError


@pytest.fixture(autouse=True)
def own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.fixture
def held(tmp_path: Path) -> Iterator[Held]:
    """A process that stands for a sandbox: its command line names the directory."""
    directory = tmp_path / "hcs-sandbox-x"
    directory.mkdir()
    script = "import time; time.sleep(60)"
    with subprocess.Popen([sys.executable, "-S", "-c", script, "--directory", str(directory)]) as process:
        found = Held(str(directory), process.pid, str(directory / "admin.yaml"))
        while not found.alive:  # the kernel says that a program runs a moment before it shows its command line
            time.sleep(0.001)
        yield found
        process.kill()


def test_nothing_is_remembered_at_first() -> None:
    assert recall() is None


def test_a_sandbox_that_runs_is_found_again_and_ended(held: Held, tmp_path: Path) -> None:
    remember(held)
    assert state_file() == tmp_path / "state" / "hcs" / "sandbox.json"
    assert recall() == held
    end(held, poll=lambda: None)
    assert not held.alive
    assert not Path(held.directory).exists()
    assert recall() is None


def test_a_stale_note_is_removed_with_what_the_sandbox_left(held: Held, tmp_path: Path) -> None:
    """As after a restart of the machine: the directory is there, and the person's kubeconfig points to nobody."""
    config = tmp_path / "config"
    identity = Identity("admin", "admin", (), "token")
    merge_context(config, kubeconfig(identity, "https://127.0.0.1:1", b"", "work"))
    before = merge_context(config, kubeconfig(identity, "https://127.0.0.1:2", b""))
    remember(msgspec.structs.replace(held, context_before=before, kubeconfig_changed=str(config)))
    os.kill(held.pid, signal.SIGKILL)
    os.waitid(os.P_PID, held.pid, os.WEXITED | os.WNOWAIT)
    assert recall() is None
    assert not Path(held.directory).exists()
    assert not state_file().exists()
    left = yaml.safe_load(config.read_text())
    assert (left["current-context"], [context["name"] for context in left["contexts"]]) == ("work", ["work"])
    assert CONTEXT not in config.read_text()


def test_another_process_with_the_same_number_is_not_taken_for_it(held: Held) -> None:
    stranger = msgspec.structs.replace(held, directory=held.directory + "-other")
    remember(stranger)
    assert recall() is None
    end(stranger, poll=lambda: pytest.fail("nobody to wait for"))
    assert held.alive


@pytest.mark.parametrize("text", ["", "{", '{"pid": "many"}', "[]"])
def test_a_note_that_cannot_be_read_is_no_note(text: str) -> None:
    state_file().parent.mkdir(parents=True)
    state_file().write_text(text)
    assert recall() is None


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
