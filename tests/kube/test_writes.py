"""The few writes: what each means when it succeeds, and when the server says no."""

import asyncio
import datetime
from pathlib import Path

import httpx2
import pytest
from lightkube import ApiError
from tests.router.scene import Scene, scene, virtual

from hcs.kube.resources import Event, ObjectReference
from hcs.kube.writes import MESSAGE_LIMIT, EventRecorder, annotate, bind, evict, reference
from hcs.model import names

NOW = datetime.datetime(2026, 3, 1, 12, 0, 0, tzinfo=datetime.UTC)


async def told(s: Scene) -> list[Event]:
    return [event async for event in s.client.list(Event, namespace="default")]


@virtual
async def test_node_and_annotations_arrive_in_one_write(tmp_path: Path) -> None:
    async with scene(tmp_path) as s:
        pod = await s.add_pod("p", annotations={"note": "old", "kept": "yes"})
        await bind(
            s.client, namespace="default", name="p", uid=pod.metadata.uid, node="n1", annotations={"note": "new"}
        )
        bound = await s.get_pod("p")
        assert bound.spec.nodeName == "n1"
        assert bound.annotations == {"note": "new", "kept": "yes"}
        assert int(bound.metadata.resourceVersion) == int(pod.metadata.resourceVersion) + 1


@pytest.mark.parametrize("why", ["bound", "another", "gone"])
@virtual
async def test_a_bind_that_comes_too_late_says_why(tmp_path: Path, why: str) -> None:
    async with scene(tmp_path) as s:
        pod = await s.add_pod("p")
        if why == "bound":
            await bind(s.client, namespace="default", name="p", uid=pod.metadata.uid, node="n1", annotations={})
        else:
            await s.delete_pod("p")
            if why == "another":
                await s.add_pod("p")
        with pytest.raises(ApiError) as refused:
            await bind(s.client, namespace="default", name="p", uid=pod.metadata.uid, node="n1", annotations={})
        assert refused.value.status.code == (404 if why == "gone" else 409)


@virtual
async def test_annotations_are_set_and_removed_on_the_very_pod(tmp_path: Path) -> None:
    async with scene(tmp_path) as s:
        pod = await s.add_pod("p", annotations={"a": "1", "b": "2"})
        await annotate(s.client, pod, {"a": None, names.POKE: "1"})
        assert (await s.get_pod("p")).annotations == {"b": "2", names.POKE: "1"}
        await s.delete_pod("p")
        await s.add_pod("p")
        with pytest.raises(ApiError) as refused:
            await annotate(s.client, pod, {"a": "3"})
        assert refused.value.status.code in (409, 422)
        assert (await s.get_pod("p")).annotations == {}


@virtual
async def test_evictions_end_in_one_of_three_words(tmp_path: Path) -> None:
    async with scene(tmp_path) as s:
        pod = await s.add_pod("p")
        assert await evict(s.client, pod, grace_seconds=0) == "evicted"
        assert await evict(s.client, pod) == "gone"
        await s.add_pod("p")
        assert await evict(s.client, pod) == "gone"
        assert (await s.get_pod("p")).metadata.deletionTimestamp is None


@virtual
async def test_the_same_event_again_only_raises_its_count(tmp_path: Path) -> None:
    async with scene(tmp_path) as s:
        pod = await s.add_pod("p")
        recorder = EventRecorder(s.client, "router")
        for minutes in range(3):
            await recorder.tell(
                reference(pod), reason="Placed", message="on n1", now=NOW + datetime.timedelta(minutes=minutes)
            )
        await recorder.tell(reference(pod), reason="Placed", message="on n2", now=NOW, warning=True)
        first, second = sorted(await told(s), key=lambda event: event.message)
        assert (first.message, first.count, first.type) == ("on n1", 3, "Normal")
        assert (first.firstTimestamp, first.lastTimestamp) == ("2026-03-01T12:00:00Z", "2026-03-01T12:02:00Z")
        assert (second.message, second.count, second.type) == ("on n2", 1, "Warning")
        assert first.involvedObject.uid == pod.metadata.uid


@virtual
async def test_long_words_are_cut_and_cluster_objects_told_about_in_default(tmp_path: Path) -> None:
    async with scene(tmp_path) as s:
        about = ObjectReference(apiVersion="v1", kind="Node", name="n1")
        await EventRecorder(s.client, "healer").tell(about, reason="Quarantined", message="x" * 5000, now=NOW)
        (event,) = await told(s)
        assert len(event.message) == MESSAGE_LIMIT
        assert event.metadata.namespace == "default"


@virtual
async def test_an_object_of_the_longest_name_is_told_about_too(tmp_path: Path) -> None:
    async with scene(tmp_path) as s:
        about = ObjectReference(apiVersion="v1", kind="Pod", name="p" * 235 + "." + "q" * 17, namespace="default")
        await EventRecorder(s.client, "router").tell(about, reason="Placed", message="here", now=NOW)
        (event,) = await told(s)
        assert event.involvedObject.name == about.name


@virtual
async def test_telling_never_fails_its_caller(tmp_path: Path) -> None:
    async with scene(tmp_path) as s:
        pod = await s.add_pod("p")
        down = EventRecorder(s.connect(s.faulty(lambda _: "refuse")), "router")
        await down.tell(reference(pod), reason="Placed", message="on n1", now=NOW)
        restarted = [EventRecorder(s.client, "router") for _ in range(2)]
        for recorder in restarted:
            await recorder.tell(reference(pod), reason="Placed", message="on n1", now=NOW)
        assert len(await told(s)) == 1
        await asyncio.sleep(0)


@virtual
async def test_an_event_that_expired_is_told_anew(tmp_path: Path) -> None:
    async with scene(tmp_path) as s:
        pod = await s.add_pod("p")
        recorder = EventRecorder(s.client, "router")
        await recorder.tell(reference(pod), reason="Placed", message="on n1", now=NOW)
        (event,) = await told(s)
        await s.client.delete(Event, event.metadata.name, namespace="default")
        await recorder.tell(reference(pod), reason="Placed", message="on n1", now=NOW)
        assert len(await told(s)) == 1


@virtual
async def test_a_connection_error_is_an_error_of_writes_that_matter(tmp_path: Path) -> None:
    async with scene(tmp_path) as s:
        pod = await s.add_pod("p")
        with pytest.raises(httpx2.ConnectError):
            await annotate(s.connect(s.faulty(lambda _: "refuse")), pod, {"a": "b"})
