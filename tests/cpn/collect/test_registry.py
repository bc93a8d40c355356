"""Clusters come, change and go while everything runs, and none of them keeps another waiting."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterable
from pathlib import Path

import pytest
from lightkube import AsyncClient
from tests.cpn.collect.sites import Silent, moment
from tests.router.scene import Scene, card, scene, virtual

from hcs.cpn.collect.connection import Site
from hcs.cpn.collect.registry import Registry
from hcs.store.clusters import ClusterConfig

site = ClusterConfig


class Room:
    """A registry over one API, and the clients it made."""

    def __init__(self, s: Scene) -> None:
        self.s, self.made, self.told = s, dict[str, list[AsyncClient]](), list[str]()
        self.silent = Silent(s.api)
        self.silent.deaf = True
        self.registry = Registry(queue="q1", connect=self.connect, now=lambda: moment(s))
        self.registry.on_change(self.told.append)

    def connect(self, entry: Site) -> AsyncClient:
        client = self.s.connect(self.silent if entry.server == "silent" else self.s.api)
        self.made.setdefault(entry.name, []).append(client)
        return client

    async def reached(self, *names: str) -> None:
        def all_reached() -> bool:
            clusters = self.registry.clusters()
            return all(name in clusters and clusters[name].view().reachable for name in names)

        await self.s.until(all_reached)


@contextlib.asynccontextmanager
async def room(folder: Path) -> AsyncIterator[Room]:
    async with scene(folder) as s:
        await s.add_node("n1", card(0))
        made = Room(s)
        async with made.registry:
            yield made


def closed(client: AsyncClient) -> bool:
    return bool(client._client._client.is_closed)  # no public way to ask


@virtual
async def test_clusters_are_added_changed_and_removed_without_a_restart(tmp_path: Path) -> None:
    async with room(tmp_path) as r:
        await r.registry.apply([site("east"), site("west")])
        assert list(r.registry.clusters()) == ["east", "west"]
        await r.reached("east", "west")
        east = r.registry.clusters()["east"]
        await r.registry.apply([site("east"), site("west", namespace="other"), site("north")])
        await r.reached("east", "west", "north")
        assert r.registry.clusters()["east"] is east  # what did not change goes on undisturbed
        assert [len(r.made[name]) for name in ("east", "west", "north")] == [1, 2, 1]
        assert [closed(client) for client in r.made["west"]] == [True, False]
        r.told.clear()
        await r.registry.apply([site("east")])
        assert list(r.registry.clusters()) == ["east"]
        assert sorted(r.told) == ["north", "west"]
        assert closed(r.made["north"][0])
    assert closed(r.made["east"][0])
    assert r.registry.clusters() == {}


@virtual
async def test_one_that_hangs_keeps_no_other_waiting(tmp_path: Path) -> None:
    async with room(tmp_path) as r:
        began = r.s.loop.time()
        await r.registry.apply([site("silent", server="silent"), site("east")])
        await r.reached("east")
        assert r.s.loop.time() - began < 1
        await asyncio.sleep(20)
        message = r.registry.clusters()["silent"].view().message
        assert message == "cluster silent at http://kubernetes cannot be used: no answer in time"
        await r.registry.apply([site("east")])
        assert list(r.registry.clusters()) == ["east"]


@virtual
async def test_a_list_is_followed_and_one_that_cannot_be_read_changes_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with room(tmp_path) as r:
        listed: Callable[[], Iterable[Site]] = lambda: [site("east")]  # noqa: E731
        r.s.spawn(r.registry.follow(lambda: listed()))
        await r.reached("east")

        def broken() -> Iterable[Site]:
            raise OSError("disk gone")

        listed = broken
        await asyncio.sleep(10)
        assert list(r.registry.clusters()) == ["east"]
        assert caplog.text.count("disk gone") == 1
        listed = lambda: [site("west")]  # noqa: E731
        await r.reached("west")
        assert list(r.registry.clusters()) == ["west"]


@virtual
async def test_a_handler_that_fails_does_not_stop_the_others(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with room(tmp_path) as r:
        seen: list[str] = []

        def fail(_: str) -> None:
            raise ValueError("oh")

        r.registry.on_change(fail)
        r.registry.on_change(seen.append)
        await r.registry.apply([site("east")])
        await r.reached("east")
        await r.s.until(lambda: len(seen) >= 2)
        assert "handler failed" in caplog.text
