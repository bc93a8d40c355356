"""Agents that fall silent, judged by our own clock."""

import asyncio
import datetime
from pathlib import Path
from typing import Any

from lightkube import ApiError
from tests.router.scene import START, Scene, card, scene, virtual

from hcs.kube.resources import Lease
from hcs.model import names
from hcs.model.pods import ObjectMeta
from hcs.router.heartbeats import Heartbeats, silent_by_wall_clock


def lease(seconds_ago: float = 0, of: datetime.datetime = START) -> dict[str, Any]:
    moment = of - datetime.timedelta(seconds=seconds_ago)
    return {"renewTime": moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ"), "leaseDurationSeconds": 40}


def test_a_node_is_silent_when_its_lease_has_not_changed_for_its_length() -> None:
    beats = Heartbeats()
    beats.seen("n", lease(), 0, START)
    assert (dict(beats.silent(39.9)), list(beats.silent(40.1))) == ({}, ["n"])
    assert beats.silent(40.1)["n"].reason == "AgentSilent"


def test_a_clock_that_is_wrong_by_an_hour_takes_no_node_out() -> None:
    beats = Heartbeats()
    beats.seen("n", lease(3600), 0, START)
    for now in range(10, 200, 10):
        beats.seen("n", lease(3600 - now), now, START)
        assert not beats.silent(now), "it renews, whatever time it writes"


def test_an_agent_that_died_long_before_we_started_is_silent_at_once() -> None:
    beats = Heartbeats()
    beats.seen("n", lease(300), 0, START)
    assert list(beats.silent(0)) == ["n"]


def test_the_same_lease_seen_again_is_no_heartbeat() -> None:
    beats = Heartbeats()
    beats.seen("n", lease(), 0, START)
    beats.seen("n", lease(), 30, START)
    assert list(beats.silent(41)) == ["n"]


def test_who_speaks_again_is_told_apart_from_who_never_stopped() -> None:
    beats = Heartbeats()
    beats.seen("n", lease(), 0, START)
    beats.silent(50)
    assert beats.seen("n", lease(-50), 50, START)
    assert not beats.seen("n", lease(-60), 60, START)
    assert not beats.silent(60)


def test_a_node_whose_lease_is_deleted_is_not_judged() -> None:
    beats = Heartbeats()
    beats.seen("n", lease(), 0, START)
    beats.silent(50)
    assert beats.gone("n")
    assert not beats.silent(100)


def test_a_lease_without_a_readable_time_is_judged_by_what_we_see() -> None:
    beats = Heartbeats()
    beats.seen("n", {"renewTime": "yesterday"}, 0, START)
    assert (dict(beats.silent(39)), list(beats.silent(41))) == ({}, ["n"])


def test_one_look_goes_by_the_written_time() -> None:
    assert list(silent_by_wall_clock({"old": lease(41), "new": lease(39)}, START)) == ["old"]


async def beat(s: Scene, node: str) -> None:
    spec = lease(of=s.today())
    kind = Lease(
        apiVersion="coordination.k8s.io/v1",
        kind="Lease",
        metadata=ObjectMeta(name=node, namespace=names.NAMESPACE),
        spec=spec,
    )
    try:
        await s.client.create(kind)
    except ApiError:
        await s.client.patch(Lease, node, {"spec": spec}, namespace=names.NAMESPACE)


@virtual
async def test_a_silent_node_takes_no_new_pod_and_its_return_wakes_who_waits(tmp_path: Path) -> None:
    async with scene(tmp_path) as s:
        await s.add_node("n1", card(0), card(1))
        await beat(s, "n1")
        extender = await s.start_extender()
        await s.start_driver(s.http(extender))
        await s.add_pod("before")
        await s.bound("before")
        await asyncio.sleep(60)
        await s.add_pod("after")
        assert "AgentSilent" in await s.waiting("after")
        await asyncio.sleep(100)
        assert s.count("filter", "after") == 2
        await beat(s, "n1")
        await s.bound("after", seconds=5)


@virtual
async def test_another_node_serves_meanwhile(tmp_path: Path) -> None:
    async with scene(tmp_path) as s:
        await s.add_node("n1", card(0))
        await s.add_node("n2", card(0))
        await beat(s, "n1")
        await s.start_driver(s.http(await s.start_extender()))
        await asyncio.sleep(60)
        await s.add_pod("p")
        assert (await s.bound("p", seconds=5)).spec.nodeName == "n2"
