"""The API over a real socket and a real store: what is acknowledged is on disk, and every no is a sentence."""

import resource
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import msgspec
import pytest
import yaml
from tests.cpn.desk import NOW, Desk, job, opened, served

from hcs.cpn.server_access import Tokens, check_exposure
from hcs.cpn.service import Expectation, Verdict, Why
from hcs.cpn.views import ClusterView, PoolView
from hcs.cpn.wire import ClusterList, ClusterRow, JobDetail, JobList, Problem, QueueView, Submitted
from hcs.model.refusals import Refusal, RefusedError
from hcs.wide.entries import Entry, Placement
from hcs.wide.lifecycle import STATES
from hcs.wide.manifests import MAX_BYTES

PLACE = Placement("east", "v100", decided=NOW, expected=NOW + 60_000, upper=NOW + 90_000, job="cpn-j-0")
KUBECONFIG = yaml.safe_dump({"clusters": [{"name": "c", "cluster": {"server": "https://10.0.0.1:6443"}}], "users": []})

CHANGED = b"{prometheus: 'http://10.0.0.2:9090', lines: [{place: archive, bytes_per_second: 5}]}"


@pytest.fixture(scope="module")
def serving(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Desk, httpx2.Client]]:
    """One server; each test brings its own store."""
    folder = tmp_path_factory.mktemp("serving")
    with opened(folder / "first.db") as store:
        desk = Desk(store)
        with served(desk, folder) as url, httpx2.Client(base_url=url, trust_env=False, verify=False) as client:
            yield desk, client


@pytest.fixture
def desk(serving: tuple[Desk, httpx2.Client], tmp_path: Path) -> Iterator[Desk]:
    with opened(tmp_path / "queue.db") as store:
        serving[0].begin(store)
        yield serving[0]


@pytest.fixture
def http(desk: Desk, serving: tuple[Desk, httpx2.Client]) -> httpx2.Client:
    return serving[1]


def counted(http: httpx2.Client, result: str) -> float:
    """Submissions of this result so far."""
    lines = http.get("/metrics").text.splitlines()
    found = [line for line in lines if line.startswith(f'hcs_cpn_submissions_total{{result="{result}"}}')]
    return float(found[0].split()[1]) if found else 0.0


def problem(answer: httpx2.Response, status: int) -> Problem:
    assert answer.status_code == status, answer.text
    return msgspec.json.decode(answer.content, type=Problem)


def submitted(http: httpx2.Client, manifest: dict[str, Any] | None = None, **headers: str) -> Submitted:
    answer = http.post("/jobs", content=yaml.safe_dump(manifest or job()), headers=headers)
    assert answer.status_code in (200, 201), answer.text
    return msgspec.json.decode(answer.content, type=Submitted)


def running(desk: Desk, id: str) -> Entry:
    entry = desk.store.get(id)
    assert entry is not None
    for state in ("Placing", "Created", "Running"):
        entry = desk.store.move(entry, state, now=NOW, reason=state, message="m", placement=PLACE)
    return entry


def test_a_job_is_taken_in_as_yaml_or_json_and_the_controller_is_woken(http: httpx2.Client, desk: Desk) -> None:
    first = http.post("/jobs", content=yaml.safe_dump(job(epoch="10")))
    second = http.post("/jobs", content=msgspec.json.encode(job()))
    assert (first.status_code, second.status_code) == (201, 201)
    made = msgspec.json.decode(first.content, type=Submitted)
    assert first.headers["location"] == f"/jobs/{made.job.id}"
    assert (made.created, made.job.state, made.job.name, made.cautions) == (True, "Queued", "train", ())
    assert [entry.submission.steps for entry in desk.store.entries()] == [5000.0, 5000.0]
    assert desk.woken == 2


def test_the_same_key_never_makes_a_second_job(http: httpx2.Client, desk: Desk) -> None:
    manifest = job(deadline="2030-03-18T00:00:00Z")
    first = http.post("/jobs", content=yaml.safe_dump(manifest), headers={"Idempotency-Key": "k"})
    desk.moment += 10 * 86_400_000  # by now its deadline has passed; it was taken in all the same
    again = http.post("/jobs", content=yaml.safe_dump(manifest), headers={"Idempotency-Key": "k"})
    assert (first.status_code, again.status_code) == (201, 200)
    assert again.json()["job"]["id"] == first.json()["job"]["id"]
    assert again.json()["created"] is False
    other = problem(http.post("/jobs", content=yaml.safe_dump(job()), headers={"Idempotency-Key": "k"}), 409)
    assert other.reason == "KeyReused"
    assert desk.store.counts()["Queued"] == 1


def test_a_key_may_be_an_annotation(http: httpx2.Client, desk: Desk) -> None:
    manifest = job(idempotency_key="mine")
    assert submitted(http, manifest).job.id == submitted(http, manifest).job.id
    contradicted = http.post("/jobs", content=yaml.safe_dump(manifest), headers={"Idempotency-Key": "yours"})
    assert problem(contradicted, 400).reason == "BadKey"
    assert problem(http.post("/jobs", content=b"{}", headers={"Idempotency-Key": "k" * 300}), 400).reason == "BadKey"


def test_a_hundred_clients_at_once_with_ten_keys_make_ten_jobs(http: httpx2.Client, desk: Desk) -> None:
    def client(number: int) -> None:
        submitted(http, job(f"job-{number % 10}"), **{"Idempotency-Key": f"k{number % 10}"})

    threads = [threading.Thread(target=client, args=(number,)) for number in range(100)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(entry.key or "" for entry in desk.store.entries()) == [f"k{number}" for number in range(10)]


@pytest.mark.parametrize(
    ("body", "status", "reason"),
    [
        pytest.param(b"a: b: c", 400, "BrokenYaml", id="broken"),
        pytest.param(b"\xff\xfe", 400, "NotText", id="no-text"),
        pytest.param(b"a: &x 1\nb: *x", 400, "YamlAlias", id="alias"),
        pytest.param(b"a: 1\n---\nb: 1", 400, "SeveralDocuments", id="two-documents"),
        pytest.param(b"", 422, "NotAJob", id="empty"),
        pytest.param(b"kind: Pod", 422, "NotAJob", id="pod"),
        pytest.param(b"#" * (MAX_BYTES + 1), 413, "TooLarge", id="large"),
        pytest.param(msgspec.json.encode(job(epoch=-1)), 422, "BadEpoch", id="negative"),
        pytest.param(msgspec.json.encode(job(limits={"ai.compute/cards": 10**9})), 422, "TooManyCards", id="cards"),
    ],
)
def test_bad_submissions_are_refused_with_a_reason(
    http: httpx2.Client, desk: Desk, body: bytes, status: int, reason: str
) -> None:
    said = problem(http.post("/jobs", content=body), status)
    assert said.reason == reason
    assert len(said.message.split()) > 4
    assert (desk.store.entries(), desk.woken) == ([], 0)


def test_all_mistakes_come_in_one_answer(http: httpx2.Client) -> None:
    said = problem(http.post("/jobs", content=msgspec.json.encode(job("Bad", epoch=-1))), 422)
    assert [refusal.reason for refusal in said.refusals] == ["BadName", "BadEpoch"]


def test_what_a_manifest_leaves_open_is_told(http: httpx2.Client) -> None:
    answer = submitted(http, job(model_name=None, epoch=None))
    assert [caution.reason for caution in answer.cautions] == ["NoModelName", "UnknownWork"]
    detail = msgspec.json.decode(http.get(f"/jobs/{answer.job.id}").content, type=JobDetail)
    assert detail.cautions == answer.cautions


def test_a_job_is_shown_with_its_history_what_is_expected_and_the_end_of_its_log(
    http: httpx2.Client, desk: Desk
) -> None:
    id = submitted(http).job.id
    desk.expected[id] = Expectation(id, "east", "v100", NOW + 1000, NOW + 61_000, NOW + 91_000, promised=True)
    waiting = msgspec.json.decode(http.get(f"/jobs/{id}").content, type=JobDetail)
    assert (waiting.job.cluster, waiting.job.end, waiting.job.promised) == ("east", NOW + 61_000, True)
    entry = desk.store.amend(running(desk, id), now=NOW + 5, progress=0.25)
    desk.store.put_log(id, 0, "x" * 10_000 + "the end\n")
    shown = msgspec.json.decode(http.get("/jobs/train").content, type=JobDetail)
    assert [step.after for step in shown.transitions] == ["Queued", "Placing", "Created", "Running"]
    assert (shown.job.progress, shown.job.end, shown.placement) == (0.25, PLACE.expected, PLACE)
    assert shown.manifest == entry.manifest
    assert shown.log.endswith("the end\n")
    assert len(shown.log) <= 4096
    log = http.get(f"/jobs/{id}/log")
    assert (len(log.text), log.headers["hcs-attempt"]) == (10_008, "0")
    assert problem(http.get(f"/jobs/{id}/log?attempt=3"), 404).reason == "NoLog"


def test_jobs_are_found_by_name_or_by_the_beginning_of_an_id(http: httpx2.Client) -> None:
    ids = [submitted(http, job(name)).job.id for name in ("first", "same", "same")]
    assert http.get("/jobs/same").json()["job"]["id"] == ids[2]
    assert http.get(f"/jobs/{ids[0]}").json()["job"]["name"] == "first"
    assert problem(http.get("/jobs/j0000"), 409).reason == "AmbiguousJob"
    assert problem(http.get("/jobs/nothing"), 404).reason == "UnknownJob"
    assert problem(http.delete("/jobs/nothing"), 404).reason == "UnknownJob"


def test_the_list_is_cut_and_filtered_and_says_how_many_there_are(http: httpx2.Client, desk: Desk) -> None:
    ids = [submitted(http, job(f"job-{number}")).job.id for number in range(5)]
    http.delete(f"/jobs/{ids[1]}")

    def listed(query: str) -> tuple[list[str], int]:
        found = msgspec.json.decode(http.get(f"/jobs{query}").content, type=JobList)
        return [row.name for row in found.jobs], found.total

    assert listed("?limit=2&offset=1") == (["job-1", "job-2"], 5)
    assert listed("?newest=true&limit=1") == (["job-4"], 5)
    assert listed("?state=live") == (["job-0", "job-2", "job-3", "job-4"], 4)
    assert listed("?state=cancelled,Failed") == (["job-1"], 1)
    assert listed("?state=ended&state=Queued&limit=0") == ([], 5)
    for query in ("?state=lost", "?limit=-1", "?limit=lots", "?limit=99999999", "?offset=x"):
        assert problem(http.get(f"/jobs{query}"), 400).reason == "BadQuery"


def test_a_job_is_cancelled_wherever_it_is(http: httpx2.Client, desk: Desk) -> None:
    waiting, there = submitted(http).job.id, submitted(http).job.id
    running(desk, there)
    woken = desk.woken
    assert http.delete(f"/jobs/{waiting}").json()["state"] == "Cancelled"
    assert http.delete(f"/jobs/{there}").json()["state"] == "Cancelling"
    assert http.delete(f"/jobs/{there}").json()["state"] == "Cancelling"
    assert desk.woken == woken + 2
    entry = desk.store.get(there)
    assert entry is not None
    desk.store.move(entry, "Succeeded", now=NOW, reason="Completed", message="it was quicker")
    assert problem(http.delete(f"/jobs/{there}"), 409).reason == "AlreadyEnded"


def test_why_is_the_controllers_answer_until_the_end(http: httpx2.Client, desk: Desk) -> None:
    desk.reason = Why("waits for cards", 2, (Verdict("east", "v100", Refusal("TooFull", "no card is free")),))
    id = submitted(http).job.id
    assert msgspec.json.decode(http.get(f"/jobs/{id}/why").content, type=Why) == desk.reason
    http.delete(f"/jobs/{id}")
    assert http.get(f"/jobs/{id}/why").json() == {"headline": "Cancelled: on request, before it had a place"}


def test_a_job_with_a_place_tells_what_stands_in_its_way(http: httpx2.Client, desk: Desk) -> None:
    id = submitted(http).job.id

    def note() -> str:
        return msgspec.json.decode(http.get(f"/jobs/{id}").content, type=JobDetail).note

    assert note() == "", "one that waits tells what is expected"
    running(desk, id)
    desk.reason = Why("PodPending: container main waits (ImagePullBackOff)")
    assert note() == desk.reason.headline
    desk.reason = Why("Running: m")
    assert note() == "", "its last step is told anyway"


def test_the_queue_at_a_glance(http: httpx2.Client, desk: Desk) -> None:
    first, _ = (submitted(http, job(deadline="1h")).job.id for _ in range(2))
    desk.expected[first] = Expectation(first, "east", "v100", NOW, NOW + 7_200_000, NOW + 9_000_000)
    desk.trouble = Refusal("NoCluster", "no cluster is reachable; add one")
    seen = msgspec.json.decode(http.get("/queue").content, type=QueueView)
    assert (seen.end, seen.upper, seen.unplanned, seen.late) == (NOW + 7_200_000, NOW + 9_000_000, 1, 1)
    assert seen.counts == {**dict.fromkeys(STATES, 0), "Queued": 2}
    assert (seen.queue, seen.refusal) == (desk.store.queue_id, desk.trouble)


def test_clusters_come_and_go_and_their_access_is_never_shown(http: httpx2.Client, desk: Desk) -> None:
    desk.seen = [ClusterView("east", True, (PoolView("v100", 8),))]
    made = http.put("/clusters/east", content=msgspec.json.encode({"kubeconfig_text": KUBECONFIG}))
    assert made.status_code == 201
    row = msgspec.json.decode(made.content, type=ClusterRow)
    assert (row.config.kubeconfig_text, row.kubeconfig_stored, row.view) == ("", True, desk.seen[0])
    changed = http.put(
        "/clusters/east", content=b"prometheus: http://10.0.0.2:9090\nlines: [{place: archive, bytes_per_second: 5}]"
    )
    assert changed.status_code == 200
    (stored,) = desk.store.clusters()
    assert (stored.kubeconfig_text, stored.prometheus) == (KUBECONFIG, "http://10.0.0.2:9090")
    running(desk, submitted(http).job.id)
    (listed,) = msgspec.json.decode(http.get("/clusters").content, type=ClusterList).clusters
    assert (listed.jobs, listed.config.lines[0].place) == (1, "archive")
    assert KUBECONFIG not in http.get("/clusters/east").text
    assert http.delete("/clusters/east").status_code == 200
    assert problem(http.delete("/clusters/east"), 404).reason == "UnknownCluster"
    assert problem(http.get("/clusters/east"), 404).reason == "UnknownCluster"
    assert desk.store.clusters() == []
    assert desk.woken == 4


def test_a_cluster_that_answers_cannot_be_called_gone(http: httpx2.Client, desk: Desk) -> None:
    desk.seen = [ClusterView("east", True)]
    assert http.put("/clusters/east", content=b"").status_code == 201
    assert problem(http.put("/clusters/east", content=b"gone: true"), 409).reason == "ClusterAnswers"
    assert [cluster.gone for cluster in desk.store.clusters()] == [False]
    desk.seen = [ClusterView("east", False)]
    assert http.put("/clusters/east", content=b"gone: true").status_code == 200
    assert [cluster.gone for cluster in desk.store.clusters()] == [True]


@pytest.mark.parametrize(
    ("name", "document", "words"),
    [
        ("East", {}, "is no name"),
        ("east", {"prometheus": "10.0.0.1:9090"}, "is no address"),
        ("east", {"kubeconfig": "relative"}, "no absolute path"),
        ("east", {"kubeconfig": "/a", "kubeconfig_text": KUBECONFIG}, "both given"),
        ("east", {"kubeconfig_text": "hello"}, "is no kubeconfig"),
        ("east", {"kubeconfig_text": "clusters: []\nusers: [{name: a, user: {exec: {command: sh}}}]"}, "has exec"),
        ("east", {"kubeconfig_text": "clusters: [{cluster: {certificate-authority: /etc/x}}]"}, "has certificate-auth"),
        ("east", {"name": "west"}, "was sent as"),
        ("east", {"colour": "red"}, "there is no field"),
        ("east", {"lines": [{"place": "a", "bytes_per_second": 0}]}, "at least 1 byte"),
        ("east", {"lines": 5}, "array"),
        ("east", {"lost_after": 1}, "lost_after"),
        ("east", {"overlay": {"nodeName": "a"}}, "overlay"),
        ("east", {"overlay": {"spec": []}}, "overlay"),
    ],
)
def test_cluster_objects_nobody_could_use_are_refused(
    http: httpx2.Client, desk: Desk, name: str, document: dict[str, Any], words: str
) -> None:
    said = problem(http.put(f"/clusters/{name}", content=msgspec.json.encode(document)), 400)
    assert said.reason == "MalformedCluster"
    assert words in said.message
    assert desk.store.clusters() == []


def test_changes_are_told_as_they_happen(http: httpx2.Client, desk: Desk) -> None:
    told = []
    with http.stream("GET", "/events") as stream:
        lines = stream.iter_lines()
        assert next(lines) == "event: hello"
        id = submitted(http).job.id
        desk.store.amend(running(desk, id), now=NOW, progress=0.5)
        http.put("/clusters/east", content=b"")
        for line in lines:
            if line.startswith("data: ") and "queue" not in line:
                told.append(msgspec.json.decode(line[6:]))
                if "name" in told[-1] and "id" not in told[-1]:
                    break
    assert [row.get("state") for row in told] == ["Queued", "Placing", "Created", "Running", "Running", None]
    assert told[4]["progress"] == 0.5
    assert told[5] == {"name": "east"}


def test_changes_of_one_job_alone_may_be_followed(http: httpx2.Client, desk: Desk) -> None:
    wanted = submitted(http).job.id
    with http.stream("GET", f"/events?job={wanted}") as stream:
        lines = stream.iter_lines()
        assert next(lines) == "event: hello"
        submitted(http)
        http.delete(f"/jobs/{wanted}")
        told = next(line for line in lines if line.startswith("data: ") and "state" in line)
    assert msgspec.json.decode(told[6:])["id"] == wanted


def test_a_store_that_cannot_be_written_is_said_and_the_job_not_taken(http: httpx2.Client, desk: Desk) -> None:
    desk.store.close()
    assert problem(http.post("/jobs", content=msgspec.json.encode(job())), 503).reason == "QueueClosed"
    assert problem(http.get("/readyz"), 503).reason == "QueueClosed"


def test_a_full_disk_is_said_and_nothing_half_taken(http: httpx2.Client, desk: Desk) -> None:
    """A limit on the size of files stands in for the disk."""
    kept = submitted(http).job.id
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (30_000, before[1]))
    try:
        answers = [http.post("/jobs", content=msgspec.json.encode(job(f"job-{number}"))) for number in range(30)]
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    taken = [msgspec.json.decode(answer.content, type=Submitted).id for answer in answers if answer.is_success]
    refused = [problem(answer, 503).reason for answer in answers if not answer.is_success]
    assert set(refused) == {"QueueNotWritable"}
    assert [entry.id for entry in desk.store.entries()] == [kept, *taken]
    assert submitted(http).created


def test_health_readiness_and_figures(http: httpx2.Client, desk: Desk) -> None:
    created, refused = counted(http, "created"), counted(http, "refused")
    submitted(http)
    http.post("/jobs", content=b"")
    assert (http.get("/healthz").text, http.get("/readyz").text) == ("ok", "ok")
    desk.trouble = Refusal("NoLease", "another controller leads")
    assert problem(http.get("/readyz"), 503).reason == "NoLease"
    assert http.get("/healthz").status_code == 200
    assert 'hcs_cpn_jobs{state="Queued"} 1.0' in http.get("/metrics").text
    assert (counted(http, "created"), counted(http, "refused")) == (created + 1, refused + 1)


def test_a_path_that_does_not_exist_is_a_sentence_too(http: httpx2.Client) -> None:
    assert problem(http.get("/nowhere"), 404).reason == "NoSuchRoute"
    assert problem(http.patch("/jobs"), 405).reason == "NoSuchRoute"


def test_a_token_is_asked_for_and_may_be_replaced(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("a-long-enough-token\n")
    with (
        opened(tmp_path / "queue.db") as store,
        served(Desk(store), tmp_path, Tokens(file)) as url,
        httpx2.Client(base_url=url, trust_env=False, verify=False) as http,
    ):
        assert problem(http.get("/jobs"), 401).reason == "Unauthorized"
        assert http.get("/jobs").headers["www-authenticate"] == "Bearer"
        assert http.get("/healthz").status_code == 200
        old = {"Authorization": "Bearer a-long-enough-token"}
        assert http.get("/jobs", headers=old).status_code == 200
        file.write_text("another-long-enough-token\n")
        assert problem(http.get("/jobs", headers=old), 401).message.startswith("the token is another one")
        file.unlink()
        assert http.get("/jobs", headers={"Authorization": "Bearer another-long-enough-token"}).status_code == 200


def test_a_web_page_cannot_speak_to_a_server_without_a_token(http: httpx2.Client) -> None:
    assert problem(http.get("/jobs", headers={"Origin": "https://evil.example"}), 403).reason == "ForeignOrigin"
    assert problem(http.get("/jobs", headers={"Host": "evil.example:80"}), 403).reason == "ForeignHost"


def test_others_are_only_let_in_with_a_token(tmp_path: Path) -> None:
    check_exposure("127.0.0.1", None)
    check_exposure("::1", None)
    for host in ("0.0.0.0", "::", "10.0.0.1", "queue.example"):
        with pytest.raises(RefusedError, match="TokenRequired"):
            check_exposure(host, None)
    (tmp_path / "token").write_text("short")
    with pytest.raises(RefusedError, match="WeakToken"):
        Tokens(tmp_path / "token")
    with pytest.raises(RefusedError, match="NoToken"):
        Tokens(tmp_path / "nothing")
