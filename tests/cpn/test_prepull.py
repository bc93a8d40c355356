"""Images come before the jobs do, from kubelets that were asked with a small Job, and nothing depends on it."""

from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from tests.clusters import Cluster
from tests.cpn.world import Place, Pool, World, job_file, world

from hcs.cpn.controller import Settings
from hcs.cpn.jobmanifest import Overlay
from hcs.cpn.limits import Settings as Dispatching
from hcs.cpn.orphans import Graces
from hcs.cpn.prepull import Settings as Prefetching
from hcs.cpn.pullmanifest import images_of, normal, pull_manifest, sent_template
from hcs.kube.resources import Job, Node
from hcs.model.pods import ObjectMeta
from hcs.sandbox.scheduler.virtualtime import run_virtual
from hcs.store.clusters import ClusterConfig
from hcs.wide.entries import LABEL_PULL, LABEL_QUEUE, Entry, Submission

IMAGE = "example.invalid/train:1"
"""The image of every job of the world."""


def play(folder: Path, story: Callable[[World], Coroutine[Any, Any, None]], **prefetch: Any) -> None:
    """Run a story; no two jobs share a card, so the second waits."""
    graces = Graces(suspended=20_000, leftover=20_000, unknown=30_000, finished=60_000)
    chosen = Prefetching(**{"gap": 1.0, "again": 10.0, "keep": 120, **prefetch})
    dispatching = Dispatching(progress_seconds=60)
    settings = Settings(sharing=False, dispatching=dispatching, graces=graces, sweep=5, prefetch=chosen)

    async def whole() -> None:
        async with world(folder, settings=settings) as w:
            await story(w)

    run_virtual(whole())


def pulls(place: Place) -> list[Job]:
    return [job for job in place.jobs() if LABEL_PULL in (job.metadata.labels or {})]


def submit(w: World, seconds: float, **pod: Any) -> Entry:
    """A job whose pods have more in their spec, or other annotations."""
    manifest = job_file(f"job-{len(w.store.entries())}", seconds)
    template = manifest["spec"]["template"]
    template["metadata"] = {"annotations": pod.pop("annotations", {})}
    image = pod.pop("image", IMAGE)
    template["spec"]["containers"][0]["image"] = image
    template["spec"] |= pod
    submission = Submission(manifest["metadata"]["name"], model=f"m-{seconds}")
    return w.store.submit(manifest, submission, key=None, now=w.now())[0]


async def busy(w: World, seconds: float = 100) -> Entry:
    """The only card is taken."""
    first = w.submit(seconds, priority=9)
    w.start()
    await w.until(lambda: w.state(first.id) == "Running")
    return first


def test_a_job_that_waits_finds_its_image_where_it_is_expected(tmp_path: Path) -> None:
    async def story(w: World) -> None:
        east, west = w.add("east", Pool("fast", 1)), w.add("west", Pool("slow", 0))
        await east.add_node("a", "fast", pool="x")
        await east.add_node("b", "slow")
        await west.add_node("c", "fast")
        await busy(w)
        assert east.pulled == []
        waiting = submit(
            w,
            20,
            nodeSelector={"pool": "x"},
            imagePullSecrets=[{"name": "registry"}],
            tolerations=[{"key": "gpu", "operator": "Exists"}],
        )
        await w.until(lambda: east.pulled)
        assert w.state(waiting.id) == "Queued"
        [job] = pulls(east)
        assert not job.spec["suspend"]
        assert LABEL_QUEUE not in (job.metadata.labels or {})
        pod = job.spec["template"]["spec"]
        assert pod["imagePullSecrets"] == [{"name": "registry"}]
        assert [one["key"] for one in pod["tolerations"]] == ["gpu", "ai.compute/managed"]
        assert not any("ai.compute" in name for name in pod["containers"][0]["resources"]["limits"])
        await w.until(lambda: w.state(waiting.id) == "Succeeded")
        assert (east.pulled, west.pulled) == ([("a", IMAGE)], [])

    play(tmp_path, story)


def test_a_job_that_starts_at_once_pulls_for_itself(tmp_path: Path) -> None:
    async def story(w: World) -> None:
        east = w.add("east", Pool("slow", 1))
        await east.add_node("a", "slow")
        first = await busy(w)
        await w.until(lambda: w.state(first.id) == "Succeeded")
        assert pulls(east) == []

    play(tmp_path, story)


@pytest.mark.parametrize(
    ("there", "image"),
    [(IMAGE, IMAGE), ("docker.io/library/train:1", "train:1"), ("docker.io/library/train:latest", "train")],
)
def test_an_image_that_is_there_is_not_pulled(tmp_path: Path, there: str, image: str) -> None:
    async def story(w: World) -> None:
        east = w.add("east", Pool("slow", 1))
        await east.add_node("a", "slow", [there])
        await busy(w)
        waiting = submit(w, 20, image=image)
        await w.until(lambda: w.state(waiting.id) == "Succeeded")
        assert east.pulled == []

    play(tmp_path, story)


def test_an_image_that_many_wait_for_is_pulled_once_a_node_and_on_few_nodes(tmp_path: Path) -> None:
    async def story(w: World) -> None:
        east = w.add("east", Pool("slow", 1))
        for number in range(6):
            await east.add_node(f"n{number}", "slow")
        await busy(w)
        waiting = [w.submit(5) for _ in range(4)]
        await w.until(lambda: all(w.state(entry.id) == "Succeeded" for entry in waiting))
        assert sorted(east.pulled) == [("n0", IMAGE), ("n1", IMAGE)]

    play(tmp_path, story)


def test_only_so_many_pulls_are_under_way_at_once(tmp_path: Path) -> None:
    async def story(w: World) -> None:
        east = w.add("east", Pool("slow", 1))
        await east.add_node("a", "slow")
        most = []

        def seen(_: Any) -> None:
            most.append(sum(not job.status.get("conditions") for job in pulls(east)))

        east.server.cluster.store.listen(seen)
        await busy(w)
        for number in range(7):
            submit(w, 20, image=f"example.invalid/train:{number}")
        await w.until(lambda: len(east.pulled) == 7)
        assert max(most) == 2

    play(tmp_path, story, at_once=2)


def test_a_registry_that_is_away_is_asked_once_in_a_while_and_the_job_runs(tmp_path: Path) -> None:
    async def story(w: World) -> None:
        east = w.add("east", Pool("slow", 1))
        east.registry = "away"
        await east.add_node("a", "slow")
        await busy(w)
        waiting = w.submit(20)
        await w.until(lambda: w.state(waiting.id) == "Succeeded")
        assert len(east.pulled) == 1
        assert w.store.get(waiting.id).attempts == 0  # type: ignore[union-attr]

    play(tmp_path, story)


def test_a_cluster_that_refuses_pulls_gets_its_jobs_all_the_same(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def story(w: World) -> None:
        east = w.add("east", Pool("slow", 1))
        await east.add_node("a", "slow")
        created = []

        def no_pulls(request: Any) -> str | None:
            if request.method == "POST" and b"cpn-pull" in request.content:
                created.append(1)
                return "refuse"
            return None

        east.fault = no_pulls
        await busy(w)
        waiting = w.submit(20)
        await w.until(lambda: w.state(waiting.id) == "Succeeded")
        assert len(created) > 1
        assert pulls(east) == []

    play(tmp_path, story)
    assert caplog.text.count("images are not pulled in advance") == 1


def test_what_a_cluster_will_not_have_is_not_asked_again_soon(tmp_path: Path) -> None:
    async def story(w: World) -> None:
        east = w.add("east", Pool("slow", 1))
        await east.add_node("a", "slow")
        asked = []

        def count(request: Any) -> str | None:
            if request.method == "POST" and b"cpn-pull" in request.content:
                asked.append(w.loop.time())
            return None

        east.fault = count
        await busy(w, 500)
        manifest = job_file("lost", 20)
        w.store.submit(manifest, Submission("lost", model="m-20", namespace="nowhere"), key=None, now=w.now())
        await w.until(lambda: len(asked) == 2)
        assert asked[1] - asked[0] >= 120
        assert pulls(east) == []

    play(tmp_path, story)


def test_pulls_are_no_orphans_and_go_when_they_are_over(tmp_path: Path) -> None:
    """The cluster of this world removes nothing by itself; the first controller is killed while they are there."""

    async def story(w: World) -> None:
        east = w.add("east", Pool("slow", 1))
        await east.add_node("a", "slow")
        first = await busy(w, 500)
        w.submit(5)
        await w.until(lambda: any(job.status.get("conditions") for job in pulls(east)))
        began = w.loop.time()
        await w.until(lambda: w.loop.time() > began + 60)
        assert len(pulls(east)) == 1, "what nobody claims is removed after half a minute here; this is no such Job"
        await w.again()
        await w.until(lambda: not pulls(east))
        assert w.loop.time() > began + 120
        assert w.state(first.id) == "Running"
        assert len(east.pulled) == 1

    play(tmp_path, story)


def test_a_pull_that_never_ends_is_taken_away(tmp_path: Path) -> None:
    """The Job controller of this world knows no deadline, as if nothing there kept to it."""

    async def story(w: World) -> None:
        east = w.add("east", Pool("slow", 1))
        east.registry = "silent"
        await east.add_node("a", "slow")
        first = await busy(w, 1000)
        w.submit(5)
        await w.until(lambda: pulls(east))
        began = w.loop.time()
        await w.until(lambda: not pulls(east))
        assert w.loop.time() >= began + 200 + 120
        assert w.state(first.id) == "Running"

    play(tmp_path, story, deadline=200)


def test_nothing_is_pulled_where_that_is_switched_off(tmp_path: Path) -> None:
    async def story(w: World) -> None:
        east = w.add("east", Pool("slow", 1))
        await east.add_node("a", "slow")
        await busy(w)
        waiting = w.submit(20)
        await w.until(lambda: w.state(waiting.id) == "Succeeded")
        assert east.pulled == []

    play(tmp_path, story, images=False)


def test_an_overlays_image_is_the_one_that_is_pulled(tmp_path: Path) -> None:
    async def story(w: World) -> None:
        east = w.add("east", Pool("slow", 1))
        starting = [{"name": "site", "image": "site.invalid/setup@sha256:12"}]
        w.store.put_cluster(ClusterConfig("east", overlay={"spec": {"initContainers": starting}}))
        await east.add_node("a", "slow", [IMAGE])
        await busy(w)
        w.submit(20)
        await w.until(lambda: east.pulled)
        assert east.pulled == [("a", "site.invalid/setup@sha256:12")]

    play(tmp_path, story)


@pytest.mark.parametrize("annotation", ["ai.compute/runtime", "ai.compute/code-image"])
def test_images_that_are_put_together_on_the_cluster_are_not_known(annotation: str) -> None:
    manifest = job_file("bound", 1)
    assert list(images_of(sent_template(manifest, Overlay()))) == [IMAGE]
    manifest["spec"]["template"]["metadata"] = {"annotations": {annotation: "pytorch-2.6"}}
    assert list(images_of(sent_template(manifest, Overlay()))) == []


@pytest.mark.parametrize(
    ("image", "whole"),
    [
        ("train", "docker.io/library/train:latest"),
        ("me/train:1", "docker.io/me/train:1"),
        ("docker.io/train:1", "docker.io/library/train:1"),
        ("index.docker.io/me/train", "docker.io/me/train:latest"),
        ("localhost/train", "localhost/train:latest"),
        ("registry:5000/a/b", "registry:5000/a/b:latest"),
        ("ghcr.io/a/b:2", "ghcr.io/a/b:2"),
        ("ghcr.io/a/b:2@sha256:ab", "ghcr.io/a/b@sha256:ab"),
    ],
)
def test_image_names_are_compared_in_full(image: str, whole: str) -> None:
    assert normal(image) == whole
    assert normal(whole) == whole


@pytest.mark.real
def test_a_real_server_takes_the_job_also_where_pods_may_do_nothing(real_cluster: Cluster) -> None:
    """Its defaults, its strict reading of fields, and the strictest of its standards for pods."""
    node = Node(metadata=ObjectMeta(name="a", labels={"kubernetes.io/hostname": "a"}))
    strict = {"pod-security.kubernetes.io/enforce": "restricted"}
    space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "prepull", "labels": strict}}
    made = pull_manifest("q", IMAGE, node, {"imagePullSecrets": [{"name": "registry"}]}, "prepull", deadline=9, keep=9)
    pod = {"apiVersion": "v1", "kind": "Pod", **made["spec"]["template"]}
    pod["metadata"] = {**pod["metadata"], "name": "pull"}
    free = {**pod, "spec": {**pod["spec"], "hostNetwork": True}}
    try:
        assert real_cluster.admin.post("/api/v1/namespaces", json=space).status_code == 201
        account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}}
        path = "/api/v1/namespaces/prepull"
        assert real_cluster.admin.post(f"{path}/serviceaccounts", json=account).status_code in (201, 409)
        only = {"dryRun": "All", "fieldValidation": "Strict"}
        for where, body, code in (
            ("/apis/batch/v1/namespaces/prepull/jobs", made, 201),
            (f"{path}/pods", pod, 201),
            (f"{path}/pods", free, 403),
        ):
            reply = real_cluster.admin.post(where, json=body, params=only)
            assert reply.status_code == code, reply.text
    finally:
        real_cluster.admin.delete("/api/v1/namespaces/prepull")
