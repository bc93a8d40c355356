"""When a pod is tried again: the habits of the real queue, one test for each."""

import msgspec
import pytest

from hcs.model.pods import ObjectMeta
from hcs.sandbox.scheduler.objects import WholePod
from hcs.sandbox.scheduler.queue import Entry, SchedulingQueue


def pod(name: str, version: int = 1, *, priority: int = 0) -> WholePod:
    return WholePod(metadata=ObjectMeta(name, uid=name, resourceVersion=str(version)), spec={"priority": priority})


def tried(queue: SchedulingQueue, now: float) -> Entry:
    entry = queue.pop(now)
    assert entry is not None, queue.places()
    return entry


def test_first_come_first_served_but_priority_goes_first() -> None:
    queue = SchedulingQueue()
    for number, one in enumerate([pod("a"), pod("b"), pod("urgent", priority=10)]):
        queue.put(one, float(number))
    assert [tried(queue, 9).pod.metadata.name for _ in range(3)] == ["urgent", "a", "b"]
    assert queue.pop(9) is None


def test_a_refused_pod_waits_for_an_event_not_for_time() -> None:
    queue = SchedulingQueue()
    queue.put(pod("a"), 0)
    queue.refused(tried(queue, 0), 0)
    assert queue.pop(299) is None
    assert queue.next_wake(0) == 300
    assert tried(queue, 300).pod.metadata.name == "a"


def test_any_update_of_the_pod_wakes_it_and_no_update_does_not() -> None:
    queue = SchedulingQueue()
    queue.put(pod("a"), 0)
    queue.refused(tried(queue, 0), 0)
    queue.put(pod("a", 1), 1)
    assert queue.pop(1) is None
    queue.put(pod("a", 2), 1)
    assert tried(queue, 1).attempts == 2


def test_a_lone_pod_does_not_wait_out_its_backoff() -> None:
    """The back-off queue is popped early when nothing else is ready: a changing text makes a busy loop of this."""
    queue, calls = SchedulingQueue(), 0
    queue.put(pod("a"), 0)
    for version in range(2, 52):
        queue.refused(tried(queue, 0), 0)
        queue.put(pod("a", version), 0)
        calls += 1
    assert calls == 50


def test_beside_others_a_woken_pod_waits_its_turn() -> None:
    queue = SchedulingQueue()
    queue.put(pod("a"), 0)
    queue.refused(tried(queue, 0), 0)
    queue.put(pod("a", 2), 0)
    queue.put(pod("b"), 0.5)
    assert tried(queue, 0.5).pod.metadata.name == "b"
    assert tried(queue, 0.5).pod.metadata.name == "a"


def test_once_the_backoff_is_over_a_woken_pod_is_ready_like_any_other() -> None:
    queue = SchedulingQueue()
    queue.put(pod("a"), 0)
    queue.refused(tried(queue, 0), 0)
    queue.wake_all(5)
    assert queue.places() == {"default/a": "active"}


def test_errors_wait_out_their_backoff_which_doubles_to_ten_seconds() -> None:
    queue, now, pauses = SchedulingQueue(), 0.0, []
    queue.put(pod("a"), now)
    for _ in range(7):
        queue.failed(tried(queue, now), now)
        queue.put(pod("a", int(now) + 100), now)  # its own condition; an error is not hurried by it
        pause = queue.next_wake(now)
        assert pause is not None
        assert queue.pop(now + pause - 0.001) is None
        pauses.append(pause)
        now += pause
    assert pauses == [1, 2, 4, 8, 10, 10, 10]


def test_an_event_during_the_try_counts_after_it() -> None:
    queue = SchedulingQueue()
    queue.put(pod("a"), 0)
    entry = tried(queue, 0)
    queue.wake_all(0)
    queue.refused(entry, 0)
    assert queue.places() == {"default/a": "backoff"}


def test_a_pod_that_left_the_queue_during_the_try_does_not_come_back() -> None:
    queue = SchedulingQueue()
    queue.put(pod("a"), 0)
    entry = tried(queue, 0)
    queue.remove("a")
    queue.refused(entry, 0)
    queue.failed(entry, 0)
    assert queue.pop(1000) is None
    assert len(queue) == 0


@pytest.mark.parametrize("besides", ["a", "b"])
def test_a_failed_bind_wakes_everybody_else(besides: str) -> None:
    queue = SchedulingQueue()
    for name in ("a", "b"):
        queue.put(pod(name), 0)
        queue.refused(tried(queue, 0), 0)
    queue.wake_all(100, besides=besides)
    (woken,) = {"a", "b"} - {besides}
    assert tried(queue, 100).pod.metadata.name == woken
    assert queue.pop(100) is None


def test_the_newest_state_of_the_pod_is_tried() -> None:
    queue = SchedulingQueue()
    queue.put(pod("a"), 0)
    queue.put(msgspec.structs.replace(pod("a", 2), status={"nominatedNodeName": "n1"}), 0)
    assert tried(queue, 0).pod.nominated == "n1"
