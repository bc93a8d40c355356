"""The API server as a process: killed and restarted nothing is lost, and it ends when told to."""

from __future__ import annotations

import itertools
import json
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from tests.clusters import eventually
from tests.contract.harness import Api, binding, done, pod

PODS = "/api/v1/namespaces/default/pods"


class Process:
    """A server process that can be killed and started again on its data."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.port = folder, 0
        self.start()

    def start(self) -> None:
        """Start, and wait until it serves."""
        ready = self.folder / "ready.json"
        ready.unlink(missing_ok=True)
        command = [
            sys.executable,
            "-m",
            "hcs.sandbox.apiserver",
            "--data",
            str(self.folder),
            "--ready-file",
            str(ready),
        ]
        self.child = subprocess.Popen([*command, "--port", str(self.port)], stdout=subprocess.PIPE, text=True)
        assert self.child.stdout is not None
        facts = json.loads(self.child.stdout.readline())
        assert json.loads(ready.read_text()) == facts
        self.port = facts["port"]
        self.api = Api("sandbox", facts["url"], Path(facts["ca"]))

    def end(self, number: signal.Signals) -> int:
        self.child.send_signal(number)
        code = self.child.wait(60)
        assert self.child.stdout is not None
        self.child.stdout.close()
        self.api.close()
        return code


@pytest.fixture
def process(tmp_path: Path) -> Iterator[Process]:
    made = Process(tmp_path)
    yield made
    if made.child.poll() is None:
        made.end(signal.SIGTERM)


def test_killed_and_restarted_nothing_is_lost(process: Process) -> None:
    process.api.create(PODS, pod("kept"))
    done(process.api.post(f"{PODS}/kept/binding", binding("kept", "n1", annotations={"a": "b"})))
    process.api.create(PODS, pod("gone"))
    before = process.api.read(PODS)["metadata"]["resourceVersion"]
    process.api.delete(f"{PODS}/gone")
    kept = process.api.read(f"{PODS}/kept")
    process.end(signal.SIGKILL)
    process.start()
    assert process.api.read(f"{PODS}/kept") == kept
    assert process.api.get(f"{PODS}/gone").status_code == 404
    later = process.api.create(PODS, pod("later"))
    assert int(later["metadata"]["resourceVersion"]) > int(before)
    events = process.api.events(PODS, before, 3)
    assert [event["type"] for event in events] == ["MODIFIED", "DELETED", "ADDED"], "a watch goes on across the restart"


def test_definitions_are_served_again(process: Process) -> None:
    from tests.contract.test_custom_resources import CARDS, DEFINITION, DEFINITIONS, card

    process.api.create(DEFINITIONS, DEFINITION)
    process.api.create(CARDS, card("a", size=1))
    process.end(signal.SIGKILL)
    process.start()
    assert process.api.read(f"{CARDS}/a")["spec"]["size"] == 1


def test_it_ends_when_told_even_with_open_watches(process: Process) -> None:
    events: list[Any] = []

    def follow() -> None:
        with process.api.watch(PODS) as stream:
            events.extend(stream)

    thread = threading.Thread(target=follow)
    thread.start()
    process.api.create(PODS, pod("a"))
    eventually(lambda: events)
    assert process.end(signal.SIGTERM) == 0
    thread.join(60)
    assert not thread.is_alive(), "the stream ended instead of hanging"


def test_writes_that_were_answered_survive_a_kill_in_the_middle(process: Process) -> None:
    answered: list[str] = []

    def write() -> None:
        for number in itertools.count():
            try:
                response = process.api.post(PODS, pod(f"p{number}"))
            except httpx2.HTTPError:
                return
            if response.status_code == 201:
                answered.append(f"p{number}")

    thread = threading.Thread(target=write)
    thread.start()
    eventually(lambda: len(answered) > 20)
    process.child.kill()
    thread.join(60)
    process.end(signal.SIGKILL)
    process.start()
    names = {item["metadata"]["name"] for item in process.api.read(PODS)["items"]}
    assert set(answered) <= names


@pytest.mark.parametrize("option", ["hcs-system/x=http://127.0.0.1:1", "nonsense"])
def test_a_wrong_service_override_is_explained(tmp_path: Path, option: str) -> None:
    command = [sys.executable, "-m", "hcs.sandbox.apiserver", "--data", str(tmp_path), "--service-override", option]
    result = subprocess.run(command, capture_output=True, text=True, timeout=30)
    assert result.returncode == 1
    assert "write it like hcs-system/hcs-injector=https://127.0.0.1:9443" in result.stderr
