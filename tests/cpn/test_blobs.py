"""A store of bytes: only what has its digest is ever served, and a fetch goes on where it stopped."""

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.cpn.stores import DATA, Depot, digest_of
from tests.cpn.stores import store_play as play
from tests.waiting import until


def test_what_is_put_is_served_whole_and_in_parts(tmp_path: Path) -> None:
    async def story(s: Depot) -> None:
        await s.open("east")
        await s.put("east", DATA)
        url = f"http://east/blobs/{digest_of(DATA)}"
        assert (await s.http.get(url)).content == DATA
        assert (await s.http.get(url, headers={"Range": "bytes=5-9"})).content == DATA[5:10]
        assert (await s.http.head(url)).headers["content-length"] == str(len(DATA))
        assert (await s.http.get("http://east/blobs")).json() == {"blobs": {digest_of(DATA): len(DATA)}}

    play(tmp_path, story)


@pytest.mark.parametrize(
    ("method", "path", "code", "reason"),
    [
        pytest.param("GET", "/blobs/sha256:xyz", 400, "BadDigest", id="no-digest"),
        pytest.param("GET", "/blobs/..%2f..%2fetc%2fpasswd", 404, None, id="a-path"),
        pytest.param("GET", f"/blobs/{digest_of(b'?')}", 404, "UnknownBlob", id="unknown"),
        pytest.param("PUT", f"/blobs/{digest_of(b'?')}", 422, "WrongDigest", id="other-bytes"),
        pytest.param("POST", "/fetch", 400, "BadRequest", id="no-json"),
        pytest.param("GET", f"/fetch/{digest_of(b'?')}", 404, "UnknownFetch", id="never-asked"),
    ],
)
def test_nonsense_gets_a_reason(tmp_path: Path, method: str, path: str, code: int, reason: str | None) -> None:
    async def story(s: Depot) -> None:
        await s.open("east")
        answer = await s.http.request(method, f"http://east{path}", content=b"not it")
        assert answer.status_code == code
        if reason is not None:
            assert answer.json()["reason"] == reason
        assert (await s.http.get("http://east/blobs")).json() == {"blobs": {}}

    play(tmp_path, story)


def test_a_fetch_goes_on_where_the_line_broke(tmp_path: Path) -> None:
    async def story(s: Depot) -> None:
        await s.open("east")
        west = await s.open("west")
        await s.put("east", DATA)
        s.wires.cuts = [800_000, 300_000]
        found = await s.fetched("west", DATA, "east")
        assert found.state == "done"
        assert west.files.listing() == {digest_of(DATA): len(DATA)}
        ranges = [asked for method, _, asked in s.wires.asked if method == "GET"]
        assert ranges[0] == ""
        assert all(asked.startswith("bytes=") and asked != "bytes=0-" for asked in ranges[1:])

    play(tmp_path, story)


def test_a_killed_store_goes_on_from_what_it_has(tmp_path: Path) -> None:
    async def story(s: Depot) -> None:
        await s.open("east")
        west = await s.open("west")
        await s.put("east", DATA)
        part = west.files.part(digest_of(DATA))
        part.write_bytes(DATA[:1_000_000])  # as the process left it
        await s.open("west")
        assert (await s.fetched("west", DATA, "east")).state == "done"
        assert [asked for *_, asked in s.wires.asked][-1] == "bytes=1000000-"

    play(tmp_path, story)


def test_a_damaged_part_is_noticed_and_fetched_anew(tmp_path: Path) -> None:
    async def story(s: Depot) -> None:
        await s.open("east")
        west = await s.open("west")
        await s.put("east", DATA)
        west.files.part(digest_of(DATA)).write_bytes(b"x" * 1000)
        assert (await s.fetched("west", DATA, "east")).state == "done"
        path = west.files.path(digest_of(DATA))
        assert path is not None
        assert path.read_bytes() == DATA

    play(tmp_path, story)


def test_a_source_that_serves_something_else_is_not_believed(tmp_path: Path) -> None:
    async def story(s: Depot) -> None:
        east = await s.open("east")
        west = await s.open("west")
        await s.put("east", DATA)
        path = east.files.path(digest_of(DATA))
        assert path is not None
        path.write_bytes(DATA[:-1] + b"!")
        found = await s.fetched("west", DATA, "east")
        assert found.state == "failed"
        assert "WrongDigest" in found.message
        assert west.files.listing() == {}

    play(tmp_path, story)


def test_two_who_ask_wait_for_one_transfer(tmp_path: Path) -> None:
    async def story(s: Depot) -> None:
        await s.open("east")
        west = await s.open("west")
        await s.put("east", DATA)
        for _ in range(3):
            west.fetch(digest_of(DATA), "http://east")
        assert (await s.fetched("west", DATA, "east")).state == "done"
        assert sum(method == "GET" for method, *_ in s.wires.asked) == 1

    play(tmp_path, story)


def test_the_disk_is_bounded_and_what_was_not_used_goes_first(tmp_path: Path) -> None:
    async def story(s: Depot) -> None:
        store = await s.open("east", limit=2500)
        one, two, three = (bytes([number]) * 1000 for number in range(3))
        for at, data in enumerate((one, two)):
            await s.put("east", data)
            path = store.files.path(digest_of(data))
            assert path is not None
            os.utime(path, (at, at))
        await s.http.get(f"http://east/blobs/{digest_of(one)}")
        await s.put("east", three)
        assert set(store.files.listing()) == {digest_of(one), digest_of(three)}
        answer = await s.http.put(f"http://east/blobs/{digest_of(DATA)}", content=DATA)
        assert (answer.status_code, answer.json()["reason"]) == (507, "TooLarge")
        assert len(store.files.listing()) == 2, "and nothing was dropped for what could never fit"

    play(tmp_path, story)


def test_writers_show_a_token_and_sources_are_those_allowed(tmp_path: Path) -> None:
    async def story(s: Depot) -> None:
        await s.open("east", token="t0ken", sources=("http://east/",))
        url = f"http://east/blobs/{digest_of(DATA)}"
        assert (await s.http.put(url, content=DATA)).json()["reason"] == "NotAllowed"
        bearer = {"Authorization": "Bearer t0ken"}
        assert (await s.http.put(url, content=DATA, headers=bearer)).status_code == 201
        for source, reason in (("http://metadata/", "SourceNotAllowed"), ("file:///etc", "BadSource")):
            body = {"digest": digest_of(b"other"), "source": source}
            answer = await s.http.post("http://east/fetch", json=body, headers=bearer)
            assert answer.json()["reason"] == reason

    play(tmp_path, story)


def test_bytes_of_attempts_that_broke_count_as_moved(tmp_path: Path) -> None:
    """Else a line that breaks now and then is learnt to be slower than it is by the ratio of the whole to the rest."""

    async def story(s: Depot) -> None:
        await s.open("east")
        west = await s.open("west")
        await s.put("east", DATA)
        s.wires.cuts = [800_000, 300_000]
        west.fetch(digest_of(DATA), "http://east")
        await until(lambda: not west._tasks)
        found = west._progress[digest_of(DATA)]
        assert (found.state, found.moved) == ("done", len(DATA))

    play(tmp_path, story)


def test_nothing_is_a_blob_as_well(tmp_path: Path) -> None:
    async def story(s: Depot) -> None:
        await s.open("east")
        west = await s.open("west")
        await s.put("east", b"")
        found = await s.fetched("west", b"", "east")
        assert (found.state, found.size) == ("done", 0)
        assert west.files.listing() == {digest_of(b""): 0}

    play(tmp_path, story)


def test_an_upload_that_does_not_say_how_long_it_is_stays_within_the_limit(tmp_path: Path) -> None:
    async def pieces(data: bytes) -> AsyncIterator[bytes]:
        for at in range(0, len(data), 1000):
            yield data[at : at + 1000]

    async def story(s: Depot) -> None:
        store = await s.open("east", limit=5000)
        await s.put("east", b"a" * 3000)
        large, fitting = b"b" * 9000, b"c" * 4000
        answer = await s.http.put(f"http://east/blobs/{digest_of(large)}", content=pieces(large))
        assert (answer.status_code, answer.json()["reason"]) == (507, "TooLarge")
        answer = await s.http.put(f"http://east/blobs/{digest_of(fitting)}", content=pieces(fitting))
        assert answer.status_code == 201
        assert store.files.listing() == {digest_of(fitting): 4000}
        assert not any((tmp_path / "east" / "partial").iterdir())

    play(tmp_path, story)


def test_parts_that_nobody_goes_on_with_make_room_as_well(tmp_path: Path) -> None:
    async def story(s: Depot) -> None:
        store = await s.open("east", limit=2500)
        left = store.files.part(digest_of(b"?"))
        left.write_bytes(b"x" * 2000)
        await s.put("east", b"a" * 1000)
        assert not left.exists()

    play(tmp_path, story)


def test_what_two_bring_together_stays_within_the_limit(tmp_path: Path) -> None:
    """Each alone would fit. The second is told so before any of it comes, and the first is not disturbed."""

    async def story(s: Depot) -> None:
        store = await s.open("east", limit=2500)
        answers: list[tuple[int, str]] = []

        async def slowly() -> AsyncIterator[bytes]:
            yield b"a" * 1000
            answer = await s.http.put(f"http://east/blobs/{digest_of(b'b' * 2000)}", content=b"b" * 2000)
            answers.append((answer.status_code, answer.json()["reason"]))
            yield b"a" * 1000

        length = {"Content-Length": "2000"}
        first = await s.http.put(f"http://east/blobs/{digest_of(b'a' * 2000)}", content=slowly(), headers=length)
        assert first.status_code == 201
        assert answers == [(507, "NoRoom")]
        assert store.files.listing() == {digest_of(b"a" * 2000): 2000}

    play(tmp_path, story)


def test_a_full_disk_is_said(tmp_path: Path) -> None:
    async def story(s: Depot) -> None:
        store = await s.open("east")
        store.files.part(digest_of(DATA)).symlink_to("/dev/full")
        answer = await s.http.put(f"http://east/blobs/{digest_of(DATA)}", content=DATA)
        assert (answer.status_code, answer.json()["reason"]) == (507, "DiskFull")
        assert "No space left" in answer.json()["message"]

    play(tmp_path, story)


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        pytest.param("http://east", "", id="itself"),
        pytest.param("http://east/mirror", "", id="below"),
        pytest.param("http://east.example.com", "SourceNotAllowed", id="longer-name"),
        pytest.param("http://east@example.com", "SourceNotAllowed", id="a-user-of-another"),
        pytest.param("http://east:99", "SourceNotAllowed", id="another-port"),
        pytest.param("https://east", "SourceNotAllowed", id="another-scheme"),
        pytest.param("http://east/path?", "BadSource", id="a-query-that-swallows-the-rest"),
        pytest.param("http://east/path#", "BadSource", id="a-fragment"),
        pytest.param("http://[::1", "BadSource", id="no-address"),
    ],
)
def test_a_source_is_compared_as_an_address_and_not_as_text(tmp_path: Path, source: str, reason: str) -> None:
    async def story(s: Depot) -> None:
        await s.open("west", sources=("http://east",))
        body = {"digest": digest_of(DATA), "source": source}
        answer = await s.http.post("http://west/fetch", json=body)
        assert answer.json().get("reason", "") == reason

    play(tmp_path, story)
