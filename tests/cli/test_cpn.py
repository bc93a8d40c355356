"""``hcs cpn`` against the real server and store on loopback: what people see, and with which code it ends."""

import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from tests.cpn.desk import NOW, Desk, job, opened, served
from tests.waiting import SECONDS
from typer.testing import CliRunner

from hcs.cli.cpn import COMMANDS
from hcs.cli.cpn_queue import Picture, drawn
from hcs.cli.cpn_words import STYLES
from hcs.cli.errors import FAILED, INTERRUPTED, TIMEOUT, USAGE
from hcs.cli.main import build
from hcs.cpn.server_access import Tokens
from hcs.cpn.service import Expectation, Verdict, Why
from hcs.cpn.views import ClusterView, PoolView, Reading
from hcs.cpn.wire import JobRow, QueueView
from hcs.model.refusals import Refusal
from hcs.wide.entries import Entry, Placement
from hcs.wide.lifecycle import STATES
from hcs.wide.submissions import ANNOTATIONS

HOUR = 3_600_000
PLACE = Placement("east", "v100", NOW, NOW + HOUR, NOW + 2 * HOUR, "cpn-j-0", memory=8 << 30, started=NOW - 60_000)


class Cpn:
    """Calls ``hcs cpn`` on one controller."""

    def __init__(self, desk: Desk, url: str, folder: Path) -> None:
        self.desk, self.url, self.folder = desk, url, folder

    def __call__(self, *arguments: str, stdin: Any = None, columns: int = 100, **environment: str) -> Any:
        given = yaml.safe_dump(stdin) if isinstance(stdin, dict) else stdin
        around = {"HCS_CPN_SERVER": self.url, "COLUMNS": str(columns), **environment}
        return CliRunner().invoke(build(), ["cpn", *arguments], prog_name="hcs", input=given, env=around)

    def text(self, *arguments: str, **options: Any) -> str:
        """What a command that works writes to stdout."""
        result = self(*arguments, **options)
        assert result.exit_code == 0, result.output or result.exception
        return str(result.stdout)

    def data(self, *arguments: str, **options: Any) -> Any:
        """The same, as data."""
        return msgspec.json.decode(self.text(*arguments, "--json", **options))

    def submitted(self, name: str = "train", **annotations: Any) -> Entry:
        """A job that was submitted."""
        id = self.data("submit", "-", stdin=job(name, **annotations))["job"]["id"]
        return self.entry(id)

    def entry(self, id: str) -> Entry:
        found = self.desk.store.get(id)
        assert found is not None
        return found

    def until_there(self, id: str) -> None:
        """Wait until another process has submitted it."""
        end = time.monotonic() + SECONDS
        while self.desk.store.get(id) is None and time.monotonic() < end:
            time.sleep(0.01)

    def moved(self, entry: Entry, *states: Any) -> Entry:
        """The entry, some steps further."""
        for state in states:
            entry = self.desk.store.move(entry, state, now=NOW, reason=state, message=f"to {state}", placement=PLACE)
        return entry

    def file(self, document: Any, name: str = "job.yaml") -> str:
        path = self.folder / name
        path.write_text(document if isinstance(document, str) else yaml.safe_dump(document))
        return str(path)


@pytest.fixture(scope="module")
def serving(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Desk, str]]:
    """One server; each test brings its own store."""
    folder = tmp_path_factory.mktemp("serving")
    with opened(folder / "first.db") as store:
        desk = Desk(store)
        with served(desk, folder) as url:
            yield desk, url


@pytest.fixture
def cpn(serving: tuple[Desk, str], tmp_path: Path) -> Iterator[Cpn]:
    desk, url = serving
    with opened(tmp_path / "queue.db") as store:
        desk.begin(store)
        yield Cpn(desk, url, tmp_path)


def three_lines(result: Any, code: int, *words: str) -> None:
    """The command failed as commands do: three lines, a code, nothing on stdout."""
    assert (result.exit_code, result.stdout) == (code, "")
    lines = result.stderr.splitlines()
    assert [line[:7] for line in lines[:1]] == ["error: "]
    assert any(line.startswith("  why:  ") for line in lines)
    assert lines[-1].startswith("  try:  ")
    for word in words:
        assert word in result.stderr


def test_a_file_is_submitted_once_for_each_key(cpn: Cpn) -> None:
    file = cpn.file(job())
    assert cpn.text("submit", file, "--key", "k") == "job/j0000001 train: Queued\n"
    assert cpn.text("submit", file, "--key", "k") == "job/j0000001 train: Queued, known by its key\n"
    assert cpn.text("submit", file) == "job/j0000002 train: Queued\n"
    three_lines(cpn("submit", cpn.file(job(epoch=11)), "--key", "k"), FAILED, "KeyReused", "another --key")
    assert cpn.desk.store.counts()["Queued"] == 2


def test_stdin_and_several_files(cpn: Cpn) -> None:
    assert cpn.data("submit", "-", stdin=job())["created"] is True
    files = [cpn.file(job(name), f"{name}.yaml") for name in ("a", "b")]
    assert cpn.text("submit", *files).splitlines() == ["job/j0000002 a: Queued", "job/j0000003 b: Queued"]
    three_lines(cpn("submit", *files, "--key", "k"), USAGE, "one key")


@pytest.mark.parametrize("key", ["", " k", "a\nb", "ключ", "k" * 256])
def test_a_key_that_no_header_could_hold_is_refused_before_it_is_sent(cpn: Cpn, key: str) -> None:
    three_lines(cpn("submit", cpn.file(job()), "--key", key), USAGE, "cannot be a key", "idempotency_key")
    assert cpn.desk.store.entries() == []


def test_an_answer_that_was_lost_is_asked_for_again_and_makes_no_second_job(cpn: Cpn) -> None:
    """Between the command and the controller stands something that swallows the first answer."""
    host, port = cpn.url.removeprefix("http://").split(":")
    swallowed = []

    def forward(listener: socket.socket) -> None:
        for _ in range(2):
            client, _ = listener.accept()
            with client, socket.create_connection((host, int(port))) as controller:
                controller.sendall(_message(client))
                answer = _message(controller)
                if swallowed:
                    client.sendall(answer)
                swallowed.append(answer.split(b" ")[1])

    with socket.create_server(("127.0.0.1", 0)) as listener:
        between = threading.Thread(target=forward, args=(listener,))
        between.start()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        result = cpn("submit", cpn.file(job()), "--server", url)
        between.join()
    assert (result.exit_code, result.stdout) == (0, "job/j0000001 train: Queued, known by its key\n")
    assert swallowed == [b"201", b"200"]
    assert len(cpn.desk.store.entries()) == 1


def _message(connection: socket.socket) -> bytes:
    """A whole request or answer, as long as its head says."""
    text = b""
    while b"\r\n\r\n" not in text:
        text += connection.recv(1 << 20)
    head, _, body = text.partition(b"\r\n\r\n")
    lines = head.lower().split(b"\r\n")
    length = next(int(line.split(b":")[1]) for line in lines if line.startswith(b"content-length"))
    while len(body) < length:
        body += connection.recv(1 << 20)
    return head + b"\r\n\r\n" + body


def test_a_key_in_the_manifest_is_kept(cpn: Cpn) -> None:
    file = cpn.file(job(idempotency_key="mine"))
    assert cpn.text("submit", file).endswith("Queued\n")
    assert cpn.text("submit", file).endswith("known by its key\n")
    (entry,) = cpn.desk.store.entries()
    assert entry.key == "mine"


def test_what_is_wrong_with_a_manifest_is_said(cpn: Cpn) -> None:
    three_lines(cpn("submit", "-", stdin="a: b: c"), FAILED, "BrokenYaml", "line 1, column 5")
    three_lines(cpn("submit", "-", stdin=job("Bad", epoch=-1)), FAILED, "2 reasons", "BadName", "BadEpoch")
    three_lines(cpn("submit", str(cpn.folder / "nowhere")), USAGE, "No such file")
    three_lines(cpn("submit"), USAGE, "nothing to submit")
    assert cpn.desk.store.entries() == []


def test_what_a_manifest_leaves_open_is_told_beside_the_data(cpn: Cpn) -> None:
    result = cpn("submit", "-", stdin=job(model_name=None))
    assert result.stdout == "job/j0000001 train: Queued\n"
    assert "model_name is missing" in result.stderr


def test_of_several_files_all_are_read_before_one_is_sent(cpn: Cpn) -> None:
    """Without keys of their own the first would be submitted again when the second is mended."""
    bad = cpn.file({**job("b"), "kind": "Deployment"}, "b")
    refused = cpn("submit", cpn.file(job("a"), "a"), bad)
    three_lines(refused, FAILED, bad, "NotAJob", "apiVersion: batch/v1")
    assert cpn.desk.store.entries() == []


def test_a_dry_run_reads_and_submits_nothing(cpn: Cpn) -> None:
    shown = cpn.text("submit", "--dry-run", cpn.file(job(deadline="6h")))
    assert "steps:        5000.0" in shown
    assert cpn.data("submit", "--dry-run", cpn.file(job()))["submission"]["model"] == "resnet50"
    three_lines(cpn("submit", "--dry-run", cpn.file(job(epoch=-1))), FAILED, "BadEpoch")
    assert cpn.desk.store.entries() == []


def test_a_generated_queue_is_submitted_or_written(cpn: Cpn) -> None:
    assert len(cpn.text("submit", "--generate", "40", "--seed", "0").splitlines()) == 40
    cpn.text("submit", "--generate", "3", "--seed", "0", "--write", str(cpn.folder / "made"))
    written = sorted((cpn.folder / "made").iterdir())
    assert [file.name for file in written] == ["job-00000.yaml", "job-00001.yaml", "job-00002.yaml"]
    cpn.text("submit", *map(str, written))
    entries = cpn.desk.store.entries()
    asked = [entry.submission for entry in entries]
    assert asked[:3] == asked[40:]
    assert all(ask.model and ask.steps and ask.cpu and ask.host_memory and ask.memory and ask.inputs for ask in asked)
    three_lines(cpn("submit", "x", "--generate", "3"), USAGE, "contradict")
    three_lines(cpn("submit", cpn.file(job()), "--write", "x"), USAGE, "--generate")


def ending(cpn: Cpn, *states: Any) -> None:
    """The controller's part, on another thread: takes every job to its end as soon as it is there."""

    def carry(change: Any) -> None:
        if change.entry is not None and change.entry.state == "Queued":
            threading.Thread(target=cpn.moved, args=(change.entry, *states)).start()

    cpn.desk.store.on_change(carry)


def test_waiting_ends_with_the_job(cpn: Cpn) -> None:
    ending(cpn, "Placing", "Created", "Running", "Succeeded")
    result = cpn("submit", cpn.file(job()), "--wait")
    assert (result.exit_code, result.stdout) == (0, "job/j0000001 train: Queued\n")
    assert result.stderr.endswith("job/j0000001 train: Succeeded (to Succeeded)\n")
    assert [
        row["state"]
        for row in msgspec.json.decode(cpn.text("submit", cpn.file(job()), "--wait", "--json").splitlines()[-1])
    ] == ["Succeeded"]


def test_waiting_for_a_job_that_fails_fails(cpn: Cpn) -> None:
    ending(cpn, "Placing", "Failed")
    result = cpn("submit", cpn.file(job()), "--wait")
    assert result.exit_code == FAILED
    assert "job j0000001 Failed" in result.stderr
    several = cpn("submit", cpn.file(job("a"), "a"), cpn.file(job("b"), "b"), "--wait")
    assert "2 of 2 jobs did not succeed" in several.stderr


def test_waiting_tells_of_every_try(cpn: Cpn) -> None:
    command = [sys.executable, "-m", "hcs", "cpn", "submit", cpn.file(job()), "--wait", "--server", cpn.url]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as waiting:
        assert waiting.stderr is not None
        cpn.until_there("j0000001")
        entry = cpn.entry("j0000001")
        for state in ("Placing", "Created", "Running", "Queued", "Placing", "Failed"):
            entry = cpn.moved(entry, state)
            assert waiting.stderr.readline() == f"job/j0000001 train: {state} (to {state})\n"
        assert waiting.stderr.readline() == "error: job j0000001 Failed\n"
    assert waiting.returncode == FAILED


def test_waiting_outlives_the_controller(tmp_path: Path) -> None:
    with opened(tmp_path / "queue.db") as store:
        desk = Desk(store)
        with served(desk, tmp_path) as url:
            cpn = Cpn(desk, url, tmp_path)
            command = [sys.executable, "-m", "hcs", "cpn", "submit", cpn.file(job()), "--wait", "--server", url]
            waiting = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
            assert waiting.stderr is not None
            cpn.until_there("j0000001")
            entry = cpn.moved(cpn.entry("j0000001"), "Placing")
            assert "Placing" in waiting.stderr.readline()
        cpn.moved(entry, "Created", "Running", "Succeeded")
        desk = Desk(store)
        with served(desk, tmp_path, port=int(url.rpartition(":")[2])), waiting:
            assert waiting.stderr.readline() == "job/j0000001 train: Succeeded (to Succeeded)\n"
        assert waiting.returncode == 0


def test_waiting_may_be_bounded(cpn: Cpn) -> None:
    result = cpn("submit", cpn.file(job()), "--wait", "--timeout", "0.2")
    assert result.exit_code == TIMEOUT
    assert "they go on" in result.stderr


def test_the_queue_says_what_runs_where_and_until_when(cpn: Cpn) -> None:
    first, second, _ = (cpn.submitted(name) for name in ("first", "second", "third"))
    cpn.desk.store.amend(cpn.moved(first, "Placing", "Created", "Running"), now=NOW, progress=0.42)
    cpn.desk.expected[second.id] = Expectation(second.id, "west", "a100", NOW + HOUR, NOW + 2 * HOUR, NOW + 3 * HOUR)
    result = cpn("queue")
    rows = [line.split() for line in result.stdout.splitlines()]
    assert rows == [
        ["ID", "NAME", "CARDS", "STATE", "WHERE", "STARTS", "ENDS", "DONE"],
        ["j0000001", "first", "1", "Running", "east/v100", "1m", "ago", "in", "1h", "42%"],
        ["j0000002", "second", "1", "Queued", "west/a100", "in", "1h", "in", "2h", "-"],
        ["j0000003", "third", "1", "Queued", "-", "-", "-", "-"],
    ]
    assert "2 waiting, 1 running; those with a place done in 2h, at the latest in 3h" in result.stderr
    assert "1 waiting job has no expected place" in result.stderr


@pytest.mark.parametrize("columns", [80, 120])
def test_tables_fit_the_terminal(cpn: Cpn, columns: int) -> None:
    entry = cpn.submitted("n" * 63)
    place = msgspec.structs.replace(PLACE, kind="RTX-6000-Ada-48GB", probe=True)
    for state in ("Placing", "Created", "Running"):
        entry = cpn.desk.store.move(entry, state, now=NOW, reason=state, message="m", placement=place)
    assert "* a probe" in cpn("queue").stderr
    cpn.desk.store.put_log(entry.id, 0, "x" * 300)
    cpn.desk.reason = Why("waits " * 40, 1, (Verdict("east", "v100", Refusal("TooFull", "word " * 60)),), ("n " * 99,))
    for command in (("queue",), ("job", entry.id), ("why", entry.id)):
        lines = cpn.text(*command, columns=columns).splitlines()
        assert max(map(len, lines)) <= columns, lines


def test_states_are_chosen_and_the_newest_come_first(cpn: Cpn) -> None:
    for name in ("a", "b", "c"):
        cpn.submitted(name)
    cpn.text("cancel", "b")

    def names(*arguments: str) -> list[str]:
        return [row["name"] for row in cpn.data("queue", *arguments)["jobs"]]

    assert names() == ["a", "c"]
    assert names("--all", "--newest") == ["c", "b", "a"]
    assert names("--state", "cancelled") == ["b"]
    assert cpn.text("queue", "-o", "name", "--limit", "1") == "job/j0000001\n"
    assert "1 more" in cpn("queue", "--limit", "1").stderr
    three_lines(cpn("queue", "--state", "lost"), FAILED, "there is no state 'lost'")
    three_lines(cpn("queue", "--all", "--state", "live"), USAGE, "contradict")


def test_a_job_on_one_screen(cpn: Cpn) -> None:
    entry = cpn.submitted(deadline="2h", inputs="imagenet=150Gi", epoch=None)
    waiting = cpn.text("job", "train")
    assert "job j0000001 train: Queued" in waiting
    assert "note      epoch not said" in waiting
    assert "inputs    150Gi in 1: imagenet" in waiting
    cpn.moved(entry, "Placing", "Created", "Running")
    cpn.desk.store.put_log(entry.id, 0, "epoch 1\nepoch 2\n")
    cpn.desk.reason = Why("PodPending: the image is not there")
    running = cpn.text("job", entry.id)
    assert "now       PodPending: the image is not there" in running
    assert "on        east/v100, as Job cpn-j-0 with 8Gi a card" in running
    assert "started 1m ago, ends in 1h, at the latest in 2h" in running
    assert running.endswith("  epoch 1\n  epoch 2\n")
    assert [step["after"] for step in cpn.data("job", entry.id)["transitions"]] == [
        "Queued",
        "Placing",
        "Created",
        "Running",
    ]
    three_lines(cpn("job", "nothing"), FAILED, "UnknownJob", "hcs cpn queue --all")
    three_lines(cpn("job", "../etc"), USAGE, "is no job")


def test_why_shows_what_each_cluster_would_mean(cpn: Cpn) -> None:
    entry = cpn.submitted()
    cpn.desk.reason = Why(
        "waits for cards",
        2,
        (
            Verdict("west", "k80", Refusal("TooManyCards", "the largest pool it can use has 2")),
            Verdict(
                "east", "v100", start=NOW + HOUR, run=HOUR, transfer=60_000, end=NOW + 2 * HOUR, upper=NOW + 3 * HOUR
            ),
        ),
        ("east has no metrics",),
    )
    assert cpn.text("why", entry.id).splitlines() == [
        "job j0000001: waits for cards",
        "  2 jobs are before it",
        "  east/v100: could start in 1h, runs 1h, its bytes take 1m, ends in 2h, at the latest in 3h",
        "  west/k80: TooManyCards",
        "    the largest pool it can use has 2",
        "  note: east has no metrics",
    ]
    assert cpn.data("why", entry.id)["ahead"] == 2


def test_jobs_are_cancelled_and_logs_shown(cpn: Cpn) -> None:
    waiting, running = cpn.submitted("waiting"), cpn.submitted("running")
    cpn.moved(running, "Placing", "Created", "Running")
    assert cpn.text("cancel", waiting.id, "running").splitlines() == [
        "job/j0000001 waiting: Cancelled",
        "job/j0000002 running: Cancelling",
    ]
    cpn.moved(cpn.entry(running.id), "Succeeded")
    three_lines(cpn("cancel", running.id), FAILED, "AlreadyEnded")
    three_lines(cpn("log", running.id), FAILED, "NoLog")
    cpn.desk.store.put_log(running.id, 1, "said\n")
    assert cpn.text("log", "running") == "said\n"
    three_lines(cpn("log", "running", "--attempt", "0"), FAILED, "NoLog")


KUBECONFIG = {
    "current-context": "c",
    "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}, {"name": "d", "context": {"cluster": "x"}}],
    "clusters": [{"name": "k", "cluster": {"server": "https://10.0.0.1:6443", "certificate-authority": "ca.pem"}}],
    "users": [{"name": "u", "user": {"tokenFile": "token"}}, {"name": "other", "user": {"exec": {"command": "sh"}}}],
}


def test_a_cluster_is_added_with_what_its_kubeconfig_names_in_files(cpn: Cpn) -> None:
    file = cpn.file(KUBECONFIG, "kubeconfig")
    three_lines(cpn("clusters", "add", "east", "--kubeconfig", file), FAILED, "ca.pem", "No such file")
    cpn.file("authority", "ca.pem")
    cpn.file("secret\n", "token")
    assert (
        cpn.text("clusters", "add", "east", "--kubeconfig", file, "--line", "west=125M/s,20ms")
        == "cluster/east is known\n"
    )
    (config,) = cpn.desk.store.clusters()
    sent = yaml.safe_load(config.kubeconfig_text)
    assert sent["clusters"][0]["cluster"]["certificate-authority-data"] == "YXV0aG9yaXR5"
    assert sent["users"] == [{"name": "user", "user": {"token": "secret"}}]
    assert [(line.place, line.bytes_per_second, line.latency) for line in config.lines] == [("west", 125_000_000, 20)]
    cpn.text("clusters", "add", "east", "--kubeconfig", file, "--by-path", "--context", "c")
    (config,) = cpn.desk.store.clusters()
    assert (config.kubeconfig, config.kubeconfig_text, config.context) == (file, "", "c")


def test_a_kubeconfig_that_cannot_be_sent_is_refused(cpn: Cpn) -> None:
    runs = {**KUBECONFIG, "users": [{"name": "u", "user": {"exec": {"command": "sh"}}}]}
    for document, context, words in (
        (runs, "c", "logs in with a program"),
        (KUBECONFIG, "nothing", "no 'nothing' among its contexts; known: c, d"),
        (KUBECONFIG, "d", "no 'x' among its clusters"),
        ("hello", "c", "holds no mapping"),
        ("a: b: c", "c", "mapping values"),
        ({}, "", "no current context"),
    ):
        context_options = ("--context", context) if context else ()
        result = cpn("clusters", "add", "east", "--kubeconfig", cpn.file(document, "k"), *context_options)
        three_lines(result, FAILED, words)
    three_lines(cpn("clusters", "add", "east", "--line", "west"), USAGE, "--line west=125M/s,20ms")
    three_lines(cpn("clusters", "add", "east", "--by-path"), USAGE, "--kubeconfig is missing")
    three_lines(cpn("clusters", "add", "east", "--lost-after", "soon"), USAGE, "--lost-after")
    three_lines(cpn("clusters", "add", "east", "--overlay", cpn.file("[]", "o")), USAGE, "is no mapping")
    three_lines(cpn("clusters", "add", "east", "--prometheus", "nowhere"), FAILED, "is no address")
    assert cpn.desk.store.clusters() == []


def test_clusters_are_listed_with_their_cards_and_what_is_missing(cpn: Cpn) -> None:
    empty = cpn("clusters")
    assert (empty.stdout, empty.exit_code) == ("", 0)
    assert "clusters add NAME" in empty.stderr
    overlay = cpn.file(
        {"spec": {"schedulerName": "hami-scheduler"}, "metadata": {"annotations": {"hami.io/resource-pool": "a"}}}, "o"
    )
    cpn.text("clusters", "add", "east", "--overlay", overlay)
    cpn.text("clusters", "add", "west", "--api", "https://10.0.0.2:6443")
    cpn.desk.seen = [
        ClusterView(
            "east", True, (PoolView("k80", 4, ours=1), PoolView("v100", 8, 2)), Reading(0.3), missing=("no m",)
        ),
        ClusterView("west", False, message="connection refused"),
    ]
    result = cpn("clusters")
    assert [line.split() for line in result.stdout.splitlines()] == [
        ["CLUSTER", "API", "CARDS", "USABLE", "FREE", "OTHERS", "JOBS", "CPU", "METRICS"],
        ["east", "up", "k80", "4", "3", "0", "0", "30%", "1", "missing"],
        ["v100", "8", "6", "2"],
        ["west", "down", "-", "-", "-", "-", "0", "-", "-"],
    ]
    assert "west: connection refused" in result.stderr
    assert "east: no m" in cpn("clusters", "list", "-o", "wide").stderr
    assert [row["config"]["name"] for row in cpn.data("clusters")] == ["east", "west"]
    assert cpn.text("clusters", "remove", "west") == "cluster/west is forgotten\n"
    three_lines(cpn("clusters", "remove", "west"), FAILED, "UnknownCluster")


def test_a_controller_that_is_not_there_is_said(cpn: Cpn) -> None:
    gone = {"HCS_CPN_SERVER": "http://127.0.0.1:1"}
    for command in (("queue",), ("submit", cpn.file(job())), ("job", "a"), ("clusters",), ("queue", "--watch")):
        three_lines(cpn(*command, **gone), FAILED, "http://127.0.0.1:1 does not answer", "hcs cpn run starts one")
    three_lines(cpn("queue", "--server", "nonsense"), USAGE, "is no address of a controller")


def test_something_else_that_answers_is_no_controller(cpn: Cpn) -> None:
    three_lines(cpn("queue", "--server", f"{cpn.url}/elsewhere"), FAILED, "NoSuchRoute")


def test_a_token_is_sent_from_its_file(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("a-long-enough-token")
    with opened(tmp_path / "queue.db") as store:
        desk = Desk(store)
        with served(desk, tmp_path, Tokens(token)) as url:
            cpn = Cpn(desk, url, tmp_path)
            three_lines(cpn("queue"), FAILED, "Unauthorized", "--token-file FILE")
            assert cpn("queue", "--token-file", str(token)).exit_code == 0
            assert cpn("queue", HCS_CPN_TOKEN_FILE=str(token)).exit_code == 0
            three_lines(cpn("queue", "--token-file", str(tmp_path / "x")), USAGE, "cannot read the token")


def test_changes_are_lines_where_nobody_watches_a_screen_until_somebody_has_seen_enough(cpn: Cpn) -> None:
    entry = cpn.submitted()
    command = [sys.executable, "-m", "hcs", "cpn", "queue", "--watch", "--no-headers", "--server", cpn.url]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as watching:
        assert watching.stdout is not None
        assert watching.stderr is not None
        assert watching.stdout.readline().split()[:4] == [entry.id, "train", "1", "Queued"]
        cpn.moved(entry, "Placing")
        assert watching.stdout.readline().split()[:4] == [entry.id, "train", "Placing", "east/v100"]
        watching.send_signal(signal.SIGINT)
        assert "Traceback" not in watching.stderr.read()
    assert watching.returncode == INTERRUPTED


def row(number: int, state: Any = "Queued") -> JobRow:
    return JobRow(f"j{number}", f"job-{number}", state, NOW, NOW, 1, number)


def texts(rows: Sequence[JobRow], height: int, columns: int, trouble: str = "") -> list[str]:
    view = QueueView("q", NOW, {"Queued": len(rows)})
    return str(drawn(Picture(view, tuple(rows), len(rows)), height, columns, trouble)).splitlines()


def test_the_live_picture_is_cut_to_the_terminal_and_says_so() -> None:
    lines = texts([row(number) for number in range(100)], 24, 80)
    assert len(lines) <= 24
    assert lines[0] == "100 waiting"
    assert lines[-1].startswith("80 more; ")
    assert len(texts([row(1)], 24, 80)) == 4
    assert "trying again" in texts([row(1)], 24, 80, "gone; trying again")[1]


def test_every_state_has_its_colour_and_every_command_its_help(cpn: Cpn) -> None:
    assert set(STYLES) == set(STATES)
    shown = cpn.text("--help")
    for command in COMMANDS:
        assert f"  {command.name} " in shown
    for name in ("submit", "queue", "job", "why", "log", "cancel", "clusters"):
        assert cpn(name, "--help").exit_code == 0
    assert all(key in cpn.text("submit", "--help") for key in ANNOTATIONS)
    assert cpn().exit_code == USAGE
    three_lines(cpn("nonsense"), USAGE, "no such command")
