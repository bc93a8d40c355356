"""Bytes come once, along the way that delivers them first, and how fast the links are is learnt."""

from pathlib import Path
from typing import Any

import httpx2
import pytest
from tests.cpn.stores import DATA, Depot, digest_of, soon, store_play
from tests.waiting import until

from hcs.cpn.transfers import Mover, Settings
from hcs.wide.jobs import Blob
from hcs.wide.network import Link

BLOB = Blob(digest_of(DATA), len(DATA))
OTHER = Blob(digest_of(b"nowhere"), 7)


def mover(s: Depot, *lines: Link, **more: Any) -> Mover:
    kept: list[bytes] = []

    def stores() -> dict[str, str]:
        return {name: f"http://{name}" for name in s.stores}

    made = Mover(
        stores,
        lambda: lines,
        now=lambda: 0,
        http=s._client,
        keep=kept.append,
        pause=soon,
        settings=Settings(poll=0.01),
        **more,
    )
    made.kept = kept  # type: ignore[attr-defined]
    return made


async def arrived(m: Mover, cluster: str, *blobs: Blob) -> None:
    m.fetch(cluster, blobs)
    await until(lambda: not m._tasks)


def counted(s: Depot) -> int:
    """How often the bytes themselves were asked for."""
    return sum(method == "GET" and "/blobs/" in url for method, url, _ in s.wires.asked)


def test_bytes_come_once_whoever_asks(tmp_path: Path) -> None:
    async def story(s: Depot) -> None:
        await s.open("east")
        await s.open("west")
        await s.put("east", DATA)
        m = mover(s)
        await m.look()
        assert (m.present("east", [BLOB]), m.present("west", [BLOB])) == (True, False)
        m.fetch("west", [BLOB])
        m.fetch("west", [BLOB])
        await arrived(m, "west", BLOB)
        await arrived(m, "west", BLOB)
        assert m.present("west", [BLOB])
        assert (counted(s), m.moved) == (1, len(DATA))

    store_play(tmp_path, story)


def test_where_there_is_no_store_at_all_inputs_hold_nobody_up(tmp_path: Path) -> None:
    async def story(s: Depot) -> None:
        m = mover(s)
        await m.look()
        await arrived(m, "west", BLOB)
        assert m.network(0) is None
        assert (m.present("west", [BLOB]), m.trouble("west", [BLOB])) == (True, "")
        await s.open("east")
        assert not m.present("west", [BLOB])

    store_play(tmp_path, story)


def test_a_way_over_another_cluster_is_taken_where_there_is_no_other(tmp_path: Path) -> None:
    async def story(s: Depot) -> None:
        for name in ("archive", "hub", "edge"):
            await s.open(name)
        await s.put("archive", DATA)
        m = mover(s, Link("archive", "hub", 10**9), Link("hub", "edge", 10**8))
        await m.look()
        await arrived(m, "edge", BLOB)
        assert m.present("edge", [BLOB])
        assert m.present("hub", [BLOB])

    store_play(tmp_path, story)


def test_what_is_on_its_way_is_booked_with_what_is_left_of_it(tmp_path: Path) -> None:
    async def story(s: Depot) -> None:
        await s.open("east")
        await s.open("west")
        await s.put("east", DATA)
        m = mover(s, Link("east", "west", 1_000_000), Link("west", "east", 1_000_000))
        await m.look()
        whole = m.network(0).ready("west", [BLOB], 0)
        assert whole == -(-len(DATA) * 1000 // 1_000_000)
        m.fetch("west", [BLOB])
        m._coming["west", BLOB.digest].got = len(DATA) // 2
        half = m.network(0).ready("west", [BLOB], 0)
        assert half is not None
        assert abs(half - whole / 2) <= 1
        await until(lambda: not m._tasks)

    store_play(tmp_path, story)


def test_links_are_learnt_from_real_transfers_and_kept(tmp_path: Path) -> None:
    async def story(s: Depot) -> None:
        await s.open("east")
        await s.open("west")
        await s.put("east", DATA)
        m = mover(s, Link("east", "west", 17), Link("west", "east", 17))
        await m.look()
        await arrived(m, "west", BLOB)
        [rate] = [link.bytes_per_second for link in m.links() if (link.source, link.target) == ("east", "west")]
        assert rate > 17
        again = mover(s, Link("east", "west", 17), kept=m.kept[-1])  # type: ignore[attr-defined]
        assert Link("east", "west", rate) in again.links()

    store_play(tmp_path, story)


def test_what_cannot_come_says_why_and_is_tried_again_later(tmp_path: Path) -> None:
    async def story(s: Depot) -> None:
        await s.open("east")
        await s.open("west")
        changes: list[int] = []
        m = mover(s, changed=lambda: changes.append(1))
        await m.look()
        await arrived(m, "west", OTHER)
        assert "no store that holds" in m.trouble("west", [OTHER])
        assert changes, "whoever waits for it hears of it"
        before = len(s.wires.asked)
        m.fetch("west", [OTHER])
        assert not m._tasks, "not again at once"
        assert len(s.wires.asked) == before

    store_play(tmp_path, story)


def test_a_store_that_forgot_what_it_was_told_is_told_again(tmp_path: Path) -> None:
    async def story(s: Depot) -> None:
        await s.open("east")
        await s.open("west")
        await s.put("east", DATA)
        m = mover(s)
        await m.look()
        inner = s.wires.handle_async_request
        told: list[str] = []

        async def forgetful(request: httpx2.Request) -> httpx2.Response:
            if request.url.path == "/fetch":
                told.append("west")
                if len(told) == 1:
                    await s.stores["west"].close()
                    return httpx2.Response(202, json={"digest": BLOB.digest, "state": "fetching"}, request=request)
            return await inner(request)

        s.wires.handle_async_request = forgetful  # type: ignore[method-assign]
        await arrived(m, "west", BLOB)
        assert m.present("west", [BLOB])
        assert len(told) == 2

    store_play(tmp_path, story)


def test_a_store_that_does_not_answer_is_believed_to_hold_what_it_held(tmp_path: Path) -> None:
    async def story(s: Depot) -> None:
        await s.open("east")
        await s.put("east", DATA)
        m = mover(s)
        await m.look()

        async def silent(request: httpx2.Request) -> httpx2.Response:
            raise httpx2.ConnectError("refused (on purpose)")

        s.wires.handle_async_request = silent  # type: ignore[method-assign]
        await m.look()
        assert m.present("east", [BLOB])

    store_play(tmp_path, story)


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"[]", id="a-list"),
        pytest.param(b'{"blobs": {"a": null}}', id="no-size"),
        pytest.param(b'{"blobs": {"a": 1e400}}', id="endless"),
        pytest.param(b'{"blobs": {"a": -1}}', id="negative"),
        pytest.param(b'{"blobs": ' + b"[" * 100_000, id="deep"),
        pytest.param(b"\xff", id="no-text"),
        pytest.param(b'{"blobs": {' + b" " * (65 << 20), id="huge"),
    ],
)
def test_a_store_that_answers_nonsense_ends_nothing(tmp_path: Path, body: bytes) -> None:
    """The address may be that of anything; the controller goes on with the other stores."""

    async def story(s: Depot) -> None:
        await s.open("east")
        await s.put("east", DATA)
        inner = s.wires.handle_async_request

        async def odd(request: httpx2.Request) -> httpx2.Response:
            if request.url.host == "odd":
                return httpx2.Response(200, content=body, request=request)
            return await inner(request)

        s.wires.handle_async_request = odd  # type: ignore[method-assign]
        s.stores["odd"] = s.stores["east"]
        m = mover(s)
        await m.look()
        assert m.present("east", [BLOB])
        assert "odd" not in m._there

    store_play(tmp_path, story)


def test_an_address_that_is_none_ends_nothing(tmp_path: Path) -> None:
    async def story(s: Depot) -> None:
        await s.open("east")
        await s.put("east", DATA)
        m = mover(s)
        inner = m._stores
        m._stores = lambda: {**inner(), "west": "http://[::1"}
        await m.look()
        assert m.present("east", [BLOB])
        await arrived(m, "west", BLOB)
        assert "west" in m.trouble("west", [BLOB]) or "Invalid" in m.trouble("west", [BLOB])

    store_play(tmp_path, story)
