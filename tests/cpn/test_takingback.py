"""What a Job's cluster says of it now decides whether it is taken back; held against both servers."""

import asyncio
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.clusters import Cluster, sandbox

from hcs.cpn.clusterjobs import ClusterJobs
from hcs.cpn.takingback import take_back
from hcs.kube.connection import connect
from hcs.wide.entries import LABEL_ENTRY, LABEL_QUEUE, Entry, Placement, Submission

JOBS, PODS = "/apis/batch/v1/namespaces/default/jobs", "/api/v1/namespaces/default/pods"
MERGE = {"Content-Type": "application/merge-patch+json"}
LABELS = {LABEL_QUEUE: "q1", LABEL_ENTRY: "e1"}
BEGAN = "2026-01-01T00:00:00Z"
OVER = {
    "startTime": BEGAN,
    "failed": 1,
    "conditions": [
        {"type": kind, "status": "True", "lastTransitionTime": BEGAN} for kind in ("FailureTarget", "Failed")
    ],
}


@pytest.fixture(scope="module", params=["sandbox", pytest.param("real", marks=pytest.mark.real)])
def api(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    if request.param == "real":
        yield request.getfixturevalue("real_cluster")
        return
    with sandbox(tmp_path_factory.mktemp("sandbox")) as cluster:
        yield cluster


class Taken:
    """A Job on a cluster where no controller runs, so that its pods are what the test says."""

    def __init__(self, api: Cluster, folder: Path) -> None:
        self.api, self.name = api, f"cpn-{uuid.uuid4().hex[:8]}-0"
        self.config = api.kubeconfig("admin", folder)
        self.job = self.send("POST", JOBS, self.manifest())

    def manifest(self) -> dict[str, Any]:
        container = {"name": "main", "image": "example.invalid/t:1"}
        return {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"name": self.name, "labels": LABELS},
            "spec": {
                "backoffLimit": 0,
                "suspend": False,
                "template": {
                    "metadata": {"labels": LABELS},
                    "spec": {"containers": [container], "restartPolicy": "Never"},
                },
            },
        }

    def send(self, method: str, path: str, body: Any) -> dict[str, Any]:
        headers = MERGE if method == "PATCH" else {}
        reply = self.api.admin.request(method, path, json=body, headers=headers)
        assert reply.status_code in (200, 201, 202), reply.text
        found: dict[str, Any] = reply.json()
        return found

    def pod(self, phase: str) -> str:
        uid, template = self.job["metadata"]["uid"], self.manifest()["spec"]["template"]
        owner = {"apiVersion": "batch/v1", "kind": "Job", "name": self.name, "uid": uid, "controller": True}
        labels = {**LABELS, "batch.kubernetes.io/controller-uid": uid}
        metadata = {"name": f"{self.name}-{uuid.uuid4().hex[:5]}", "labels": labels, "ownerReferences": [owner]}
        body = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}
        path = f"{PODS}/{self.send('POST', PODS, body)['metadata']['name']}"
        if phase != "Pending":
            self.send("PATCH", f"{path}/status", {"status": {"phase": phase}})
        return path

    def delete(self, path: str) -> None:
        self.send("DELETE", path, {"gracePeriodSeconds": 0, "propagationPolicy": "Background"})

    def now(self) -> dict[str, Any] | None:
        reply = self.api.admin.get(f"{JOBS}/{self.name}")
        return reply.json() if reply.status_code == 200 else None

    def step(self) -> str:
        uid = self.job["metadata"]["uid"]
        placement = Placement("east", "slow", 0, 0, 0, self.name, uid=uid)
        entry = Entry("e1", {}, Submission("job"), "Running", 1, 0, 0, 1, placement=placement)

        async def one() -> str:
            client = connect(str(self.config))
            try:
                return (await take_back(entry, ClusterJobs(client, "q1"))).standing
            finally:
                await client.close()

        return asyncio.run(one())

    def clean(self) -> None:
        for pod in self.api.admin.get(PODS, params={"labelSelector": f"{LABEL_QUEUE}=q1"}).json()["items"]:
            self.delete(f"{PODS}/{pod['metadata']['name']}")
        if (job := self.now()) is not None:
            self.send("PATCH", f"{JOBS}/{self.name}", {"metadata": {"finalizers": None}})
            if job["metadata"].get("deletionTimestamp") is None:
                self.delete(f"{JOBS}/{self.name}")


@pytest.fixture
def taken(api: Cluster, tmp_path: Path) -> Iterator[Taken]:
    made = Taken(api, tmp_path)
    yield made
    made.clean()


def test_one_that_never_began_is_suspended_and_deleted_once_its_pods_are_gone(taken: Taken) -> None:
    pod = taken.pod("Pending")
    assert taken.step() == "Waits"
    assert (job := taken.now()) is not None
    assert job["spec"]["suspend"] is True
    assert taken.step() == "Waits", "its pod may still end well"
    assert (job := taken.now()) is not None
    assert "deletionTimestamp" not in job["metadata"]
    taken.delete(pod)
    assert taken.step() == "Waits"
    job = taken.now()
    assert job is None or job["metadata"]["deletionTimestamp"]


@pytest.mark.parametrize("phase", ["Running", "Succeeded", "Failed"])
def test_one_that_began_is_left_alone(taken: Taken, phase: str) -> None:
    taken.pod(phase)
    before = taken.now()
    assert taken.step() == "Began"
    assert taken.now() == before


def test_one_that_is_over_is_left_alone(taken: Taken) -> None:
    taken.send("PATCH", f"{JOBS}/{taken.name}/status", {"status": OVER})
    assert taken.step() == "Over"


def test_pods_of_one_that_is_gone_are_waited_for(taken: Taken) -> None:
    pod = taken.pod("Running")
    taken.job["metadata"]["uid"], uid = "another", taken.job["metadata"]["uid"]
    assert taken.step() == "Gone", "neither this Job nor its pod are of that one"
    taken.job["metadata"]["uid"] = uid
    taken.send("PATCH", pod, {"metadata": {"ownerReferences": None}})  # as a deletion that orphans leaves it
    taken.delete(f"{JOBS}/{taken.name}")
    assert taken.step() == "Lingers"
    taken.delete(pod)
    assert taken.step() == "Gone"


def test_one_that_changed_since_it_was_read_is_not_suspended(taken: Taken) -> None:
    async def story() -> None:
        client = connect(str(taken.config))
        actions = ClusterJobs(client, "q1")
        job = await actions.get(taken.name, "default")
        assert job is not None
        taken.send("PATCH", f"{JOBS}/{taken.name}", {"metadata": {"annotations": {"x": "1"}}})
        await actions.suspend(job)
        job = await actions.get(taken.name, "default")
        assert job is not None
        assert job.spec["suspend"] is False
        await actions.suspend(job)
        job = await actions.get(taken.name, "default")
        assert job is not None
        assert job.spec["suspend"] is True
        await client.close()

    asyncio.run(story())
