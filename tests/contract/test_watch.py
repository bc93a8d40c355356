"""Watches and lists: what informers lean on."""

import itertools

import pytest
from tests.clusters import Object
from tests.contract.harness import ON_THE_SANDBOX, Api, done, pod, refused, unique


def names(events: list[Object]) -> list[tuple[str, str]]:
    return [(event["type"], event["object"]["metadata"].get("name", "")) for event in events]


def test_a_watch_continues_from_a_version(api: Api, pods: str) -> None:
    start = api.read(pods)["metadata"]["resourceVersion"]
    api.create(pods, pod("a"))
    done(api.patch(f"{pods}/a", {"metadata": {"labels": {"x": "1"}}}))
    api.delete(f"{pods}/a")
    events = api.events(pods, start, 4)
    assert names(events) == [("ADDED", "a"), ("MODIFIED", "a"), ("MODIFIED", "a"), ("DELETED", "a")]
    assert "deletionTimestamp" in events[2]["object"]["metadata"], "a pod is marked before it goes"
    versions = [int(event["object"]["metadata"]["resourceVersion"]) for event in events]
    assert versions == sorted(set(versions))
    assert names(api.events(pods, str(versions[1]), 2)) == [("MODIFIED", "a"), ("DELETED", "a")]
    assert events[0]["object"]["kind"] == "Pod"
    assert events[0]["object"]["apiVersion"] == "v1"


@pytest.mark.parametrize("version", ["", "0"])
def test_a_watch_without_a_version_begins_with_what_is_there(api: Api, pods: str, version: str) -> None:
    api.create(pods, pod("a"))
    query = {"resourceVersion": version} if version else {}
    with api.watch(pods, timeoutSeconds=20, **query) as stream:
        assert names([next(stream)]) == [("ADDED", "a")]
        api.create(pods, pod("b"))
        assert names([next(stream)]) == [("ADDED", "b")]


def test_selection_is_entered_and_left(api: Api, pods: str) -> None:
    start = api.version()
    api.create(pods, pod("a"))
    done(api.patch(f"{pods}/a", {"metadata": {"labels": {"team": "x"}}}))
    done(api.patch(f"{pods}/a", {"metadata": {"labels": {"other": "1"}}}))
    done(api.patch(f"{pods}/a", {"metadata": {"labels": {"team": "y"}}}))
    events = api.events(pods, start, 3, labelSelector="team=x")
    assert names(events) == [("ADDED", "a"), ("MODIFIED", "a"), ("DELETED", "a")]
    left = events[-1]["object"]["metadata"]
    assert left["labels"]["team"] == "x", "the last selected state is reported"
    assert int(left["resourceVersion"]) > int(events[1]["object"]["metadata"]["resourceVersion"])


def test_pods_without_a_node_leave_the_selection_when_bound(api: Api, pods: str) -> None:
    start = api.version()
    api.create(pods, pod("a", spec={"schedulerName": "hcs-scheduler"}))
    api.create(pods, pod("b"))
    assert api.post(
        f"{pods}/a/binding", {"target": {"kind": "Node", "name": "n"}, "metadata": {"name": "a"}}
    ).is_success
    selector = "spec.schedulerName=hcs-scheduler,spec.nodeName="
    events = api.events(pods, start, 2, fieldSelector=selector)
    assert names(events) == [("ADDED", "a"), ("DELETED", "a")]
    listed = api.read(pods, fieldSelector="spec.nodeName=n")["items"]
    assert [item["metadata"]["name"] for item in listed] == ["a"]


@ON_THE_SANDBOX  # a real server sends bookmarks about once a minute
def test_bookmarks_say_how_far_a_quiet_client_has_come(api: Api, pods: str) -> None:
    api.create(pods, pod("a"))
    start = api.version()
    with api.watch(pods, resourceVersion=start, allowWatchBookmarks="true", timeoutSeconds=1) as stream:
        events = list(stream)
    assert events, "a bookmark comes before the watch ends"
    assert {event["type"] for event in events} == {"BOOKMARK"}
    assert int(events[-1]["object"]["metadata"]["resourceVersion"]) >= int(start)
    assert events[-1]["object"]["kind"] == "Pod"


def test_without_asking_there_are_no_bookmarks(api: Api, pods: str) -> None:
    with api.watch(pods, resourceVersion=api.version(), timeoutSeconds=1) as stream:
        assert list(stream) == []


def test_streaming_list_ends_with_a_marked_bookmark(api: Api, pods: str) -> None:
    api.create(pods, pod("a"))
    query = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan", "allowWatchBookmarks": "true"}
    with api.watch(pods, timeoutSeconds=20, **query) as stream:
        first, second = itertools.islice(stream, 2)
    assert names([first]) == [("ADDED", "a")]
    assert second["type"] == "BOOKMARK"
    assert second["object"]["metadata"]["annotations"]["k8s.io/initial-events-end"] == "true"


def test_what_was_compacted_is_expired(api: Api, space: str) -> None:
    """Secrets are read from storage itself on the real server: its cache is off for them."""
    secrets = f"{space}/secrets"
    for name in "abc":
        api.create(secrets, {"metadata": {"name": name}})
    first = api.read(secrets, limit=1)
    old = first["metadata"]["resourceVersion"]
    for later in "12":  # the watch would begin with the first of them, and the last is never forgotten
        done(api.patch(f"{secrets}/c", {"metadata": {"labels": {"later": later}}}))
    api.compact()
    token = {"continue": first["metadata"]["continue"]}
    page = api.get(secrets, limit=1, **token)
    assert refused(page, 410, "Expired")["message"].startswith("The provided continue parameter is too old")
    with api.watch(secrets, resourceVersion=old, timeoutSeconds=5) as stream:
        event = next(stream)
    assert event["type"] == "ERROR"
    status = event["object"]
    assert (status["kind"], status["code"], status["reason"]) == ("Status", 410, "Expired")


def test_a_version_from_the_future_is_refused(api: Api, pods: str) -> None:
    body = refused(api.get(pods, resourceVersion="99999999"), 504, "Timeout")
    assert body["message"].startswith("Timeout: Too large resource version: 99999999, current: ")


def test_pages_show_one_version(api: Api, pods: str) -> None:
    for name in "abcd":
        api.create(pods, pod(name))
    first = api.read(pods, limit=2)
    api.create(pods, pod("aa"))
    api.delete(f"{pods}/c")
    second = api.read(pods, limit=2, **{"continue": first["metadata"]["continue"]})
    shown = [item["metadata"]["name"] for item in first["items"] + second["items"]]
    assert shown == ["a", "b", "c", "d"]
    assert first["metadata"]["remainingItemCount"] == 2
    assert "continue" not in second["metadata"]
    assert second["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]


def test_a_page_token_that_means_nothing(api: Api, pods: str) -> None:
    refused(api.get(pods, limit=2, **{"continue": "bm9uc2Vuc2U"}), 400, "BadRequest")


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ("app=a", ["one"]),
        ("app==a,tier", ["one"]),
        ("app!=a", ["three", "two"]),
        ("app in (a,b)", ["one", "two"]),
        ("app notin (a)", ["three", "two"]),
        ("!app", ["three"]),
        ("app", ["one", "two"]),
    ],
)
def test_label_selectors(api: Api, pods: str, selector: str, expected: list[str]) -> None:
    for name, labels in (("one", {"app": "a", "tier": "1"}), ("two", {"app": "b"}), ("three", {})):
        api.create(pods, pod(name, labels=labels))
    assert sorted(i["metadata"]["name"] for i in api.read(pods, labelSelector=selector)["items"]) == expected


def test_field_selectors(api: Api, pods: str, space: str) -> None:
    api.create(pods, pod("one", spec={"nodeName": "n1"}))
    api.create(pods, pod("two"))
    for selector, expected in (
        ("metadata.name=one", ["one"]),
        ("metadata.name!=one", ["two"]),
        ("spec.nodeName=n1", ["one"]),
        ("status.phase=Pending,spec.nodeName=", ["two"]),
    ):
        listed = api.read(pods, fieldSelector=selector)["items"]
        assert [item["metadata"]["name"] for item in listed] == expected
    everywhere = api.read("/api/v1/pods", fieldSelector=f"metadata.namespace={space.rpartition('/')[2]}")
    assert len(everywhere["items"]) == 2
    refused(api.get(pods, fieldSelector="spec.image=x"), 400, "BadRequest")


def test_list_items_carry_no_kind(api: Api, pods: str) -> None:
    api.create(pods, pod("a"))
    body = api.read(pods)
    assert (body["kind"], body["apiVersion"]) == ("PodList", "v1")
    assert "kind" not in body["items"][0]
    assert "apiVersion" not in body["items"][0]


def test_events_of_one_object_are_found_by_field(api: Api, space: str) -> None:
    event = {
        "metadata": {"generateName": "e-"},
        "involvedObject": {"kind": "Pod", "name": "a", "namespace": space.rpartition("/")[2], "uid": "u-1"},
        "reason": "Placed",
        "message": "on f1",
        "type": "Normal",
    }
    made = api.create(f"{space}/events", event)
    api.create(f"{space}/events", {**event, "involvedObject": {**event["involvedObject"], "name": "b"}})
    selector = "involvedObject.kind=Pod,involvedObject.name=a"
    (found,) = api.read(f"{space}/events", fieldSelector=selector)["items"]
    assert found["metadata"]["name"] == made["metadata"]["name"]
    new_path = f"/apis/events.k8s.io/v1/namespaces/{space.rpartition('/')[2]}/events"
    seen = api.read(f"{new_path}/{made['metadata']['name']}")
    assert (seen["apiVersion"], seen["note"], seen["regarding"]["name"]) == ("events.k8s.io/v1", "on f1", "a")


def test_an_event_of_the_new_kind_is_seen_as_one_of_the_old(api: Api, space: str) -> None:
    name = unique("ev")
    new_path = f"/apis/events.k8s.io/v1/namespaces/{space.rpartition('/')[2]}/events"
    event = {
        "metadata": {"name": name},
        "regarding": {"kind": "Pod", "name": "a", "namespace": space.rpartition("/")[2]},
        "reason": "Placed",
        "action": "Bind",
        "note": "on f1",
        "type": "Normal",
        "eventTime": "2026-01-01T00:00:00.000000Z",
        "reportingController": "ai.compute/router",
        "reportingInstance": "router-0",
    }
    api.create(new_path, event)
    old = api.read(f"{space}/events/{name}")
    assert (old["message"], old["involvedObject"]["name"]) == ("on f1", "a")
    assert old["reportingComponent"] == "ai.compute/router"
