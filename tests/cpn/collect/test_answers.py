"""Nothing that a server in the place of a Prometheus says crashes us, hangs us, fills memory, or becomes a number."""

import asyncio
import gzip
import json
import math
import ssl
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx2
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.cpn.collect.answering import Answering, Reply, refusal, vector
from tests.router.scene import virtual

from hcs.cpn.collect.figures import MANY, Bounds, ask
from hcs.cpn.collect.inventory import Card, Inventory
from hcs.cpn.collect.joining import join
from hcs.cpn.collect.prometheus import Address, Answer, Prometheus, QueryError, read_number
from hcs.cpn.collect.queries import METRIC
from hcs.cpn.collect.sources import Source, Utilization, load_sources
from hcs.cpn.views import PoolView
from hcs.process.certificates import Authority

SOURCES = load_sources()
NAMES = sorted({name for source in SOURCES for name in source.metrics()})


DATA = b'{"status":"success","data":{"resultType":"vector","result":%b}}'


def query(reply: Reply, **settings: Any) -> Answer:
    async def main() -> Answer:
        client = Answering(lambda _: reply).client(**settings)
        try:
            return await client.query("up")
        finally:
            await client.close()

    return asyncio.run(main())


def refused(reply: Reply, **settings: Any) -> QueryError:
    with pytest.raises(QueryError) as caught:
        query(reply, **settings)
    return caught.value


@pytest.mark.parametrize(
    ("reply", "reason", "words"),
    [
        pytest.param((404, b"404 page not found\n"), "NotPrometheus", "check the path prefix", id="404-in-plain-text"),
        pytest.param((200, b"<html>Login</html>"), "NotPrometheus", "something else", id="a-page"),
        pytest.param((200, b""), "NotPrometheus", "something else", id="nothing"),
        pytest.param((200, b"[]"), "NotPrometheus", "something else", id="a-list"),
        pytest.param((200, b'{"status":"success"}'), "BadAnswer", "gives no data", id="no-data"),
        pytest.param((503, b"Service Unavailable"), "PrometheusUnavailable", "starting", id="503-while-starting"),
        pytest.param(refusal(503, "timeout", "too slow"), "PrometheusUnavailable", "too slow", id="503-timeout"),
        pytest.param(refusal(400, "bad_data", "parse error"), "BadQuery", "parse error", id="400"),
        pytest.param(refusal(422, "execution", "many-to-many"), "QueryFailed", "many-to-many", id="422"),
        pytest.param(refusal(200, "execution", "odd"), "QueryFailed", "odd", id="an-error-with-200"),
        pytest.param((401, b"no"), "NotPermitted", "token", id="401"),
        pytest.param((403, b""), "NotPermitted", "token", id="403"),
        pytest.param((302, b""), "Redirected", "redirects", id="a-redirect"),
        pytest.param((500, b"oops"), "PrometheusFailed", "HTTP 500", id="500"),
        pytest.param((200, DATA % b'[{"metric":{},"value":[1,2]}]'), "BadAnswer", "another shape", id="no-text"),
        pytest.param((200, DATA % b'{"metric":{}}'), "BadAnswer", "another shape", id="no-list"),
        pytest.param((200, b"[" * 100_000), "NotPrometheus", "something else", id="deep"),
        pytest.param((200, DATA % (b"[" * 100_000)), "NotPrometheus", "something else", id="deep-inside"),
        pytest.param((200, b'\xff\xfe{"status"'), "NotPrometheus", "", id="no-utf-8"),
        pytest.param(refusal(400, "bad_data", f"\x1b[2J{'x' * 9999}"), "BadQuery", "?[2J", id="clears-the-screen"),
    ],
)
def test_a_bad_answer_becomes_a_reason_and_one_line(reply: Reply, reason: str, words: str) -> None:
    error = refused(reply)
    assert error.refusal.reason == reason
    assert words in error.refusal.message
    assert error.refusal.message.isprintable()
    assert len(error.refusal.message) < 400


def test_warnings_come_with_the_samples() -> None:
    answer = query(vector(({"a": "b"}, "1"), warnings=["a store is\nmissing"] * 9))
    assert answer.warnings == ("a store is missing",) * 5
    assert answer.samples[0].value == 1.0


def test_an_endless_answer_is_given_up() -> None:
    class Endless(httpx2.AsyncByteStream):
        sent = 0

        async def __aiter__(self) -> Any:
            while True:
                self.sent += 65536
                yield b" " * 65536

    stream = Endless()
    assert refused(httpx2.Response(200, stream=stream), max_bytes=1 << 20).refusal.reason == "AnswerTooLarge"
    assert stream.sent <= (1 << 20) + 65536


def test_what_would_grow_when_unpacked_is_not_unpacked() -> None:
    bomb = gzip.compress(bytes(10 << 20))
    reply = httpx2.Response(200, headers={"Content-Encoding": "gzip"}, stream=httpx2.ByteStream(bomb))
    assert refused(reply).refusal.reason == "BadAnswer"


@virtual
async def test_one_that_drips_or_hangs_is_given_up_in_time(tmp_path: Path) -> None:
    class Dripping(httpx2.AsyncByteStream):
        async def __aiter__(self) -> Any:
            while True:
                await asyncio.sleep(1)
                yield b" "

    for reply in (None, httpx2.Response(200, stream=Dripping())):
        began = asyncio.get_running_loop().time()
        client = Answering(lambda _, reply=reply: reply).client(deadline=5)  # type: ignore[misc]
        with pytest.raises(QueryError) as caught:
            await client.query("up")
        await client.close()
        assert caught.value.refusal.reason == "PrometheusTimeout"
        assert asyncio.get_running_loop().time() - began == 5


def test_a_token_goes_with_every_query_and_is_read_anew(tmp_path: Path) -> None:
    token = tmp_path / "token"
    seen = []

    class Noting(httpx2.AsyncBaseTransport):
        async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
            seen.append(request.headers.get("Authorization"))
            return httpx2.Response(302, headers={"Location": "http://elsewhere/"}, stream=httpx2.ByteStream(b""))

    async def main() -> None:
        client = Prometheus(Address("http://prometheus", token_file=str(token)), transport=Noting())
        reasons = []
        for text in ("one", "two\n", "", None):
            token.unlink(missing_ok=True) if text is None else token.write_text(text)
            with pytest.raises(QueryError) as caught:
                await client.query("up")
            reasons.append(caught.value.refusal.reason)
        await client.close()
        assert reasons == ["Redirected", "Redirected", "BadToken", "BadToken"]

    asyncio.run(main())
    assert seen == ["Bearer one", "Bearer two"]  # and nobody it was redirected to


def test_an_authority_that_is_none_is_named(tmp_path: Path) -> None:
    (tmp_path / "ca").write_text("no certificate")
    with pytest.raises(QueryError, match=r"BadAuthority: cannot use .*/ca as the authority of https://prometheus"):
        Prometheus(Address("https://user:secret@prometheus", ca_file=str(tmp_path / "ca")))


class Guarded(BaseHTTPRequestHandler):
    """Behind TLS and a path prefix, for those with the token."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        known = self.headers.get("Authorization") == "Bearer secret" and self.path == "/prom/api/v1/query"
        status, body = vector(({}, "1")) if known else (401, b"no")
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Nobody reads it."""


class Quiet(ThreadingHTTPServer):
    """Says nothing about clients that do not trust it."""

    def handle_error(self, *_: Any) -> None:
        """They are the point of the test."""


def test_a_certificate_and_a_token_are_checked(tmp_path: Path) -> None:
    authority = Authority.load_or_create(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*authority.issue(["127.0.0.1"]).write(tmp_path, "server"))
    (tmp_path / "token").write_text("secret")
    (tmp_path / "other").mkdir()
    Authority.load_or_create(tmp_path / "other")
    own, other, token = (str(tmp_path / name) for name in ("ca.crt", "other/ca.crt", "token"))

    async def asked(url: str, ca_file: str, token_file: str = "") -> str:
        client = Prometheus(Address(url, token_file, ca_file), deadline=20)
        try:
            return str((await client.query("up")).samples[0].value)
        except QueryError as error:
            return str(error)
        finally:
            await client.close()

    async def main(url: str) -> None:
        assert await asked(url, own, token) == "1.0"
        assert (await asked(url, own)).startswith("NotPermitted: ")
        said = await asked(url, other, token)
        assert said.startswith("PrometheusUnreachable: ")
        assert "its certificate is not accepted" in said

    with Quiet(("127.0.0.1", 0), Guarded) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            asyncio.run(main(f"https://127.0.0.1:{server.server_port}/prom/"))
        finally:
            server.shutdown()
            thread.join()


@given(
    st.text(max_size=40) | st.floats().map(str) | st.sampled_from(["NaN", "+Inf", "1_0", "١", " 1", "0x10", "1e999"])
)
def test_only_plain_numbers_are_read(text: str) -> None:
    number = read_number(text)
    if number is not None:
        assert number == float(text)
        assert math.isfinite(number)
        assert abs(number) <= 2**62
        assert text.isascii()
        assert "_" not in text


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(["success", "vector"]),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(["status", "data", "resultType", "result", "metric", "value", "error", "x"]),
            inner,
            max_size=5,
        )
    ),
    max_leaves=20,
)


@given(JSON, st.sampled_from([200, 400, 422, 503]))
def test_any_json_is_an_answer_or_a_reason(document: Any, status: int) -> None:
    """Numbers that come out stood there as text."""
    said = ""
    answer = Answer()
    try:
        answer = query((status, json.dumps(document).encode()))
    except QueryError as error:
        said = error.refusal.message
    assert said.isprintable()
    if answer.samples:
        result = document["data"]["result"]
        texts = [one["value"][1] for one in result] if document["data"]["resultType"] == "vector" else [result[1]]
        assert [sample.value for sample in answer.samples] == [read_number(text) for text in texts]


LABELS = st.fixed_dictionaries(
    {"__name__": st.sampled_from(NAMES)},
    optional={
        "UUID": st.sampled_from(["GPU-1", "GPU-2", "", "\x1b[1m"]),
        "gpu": st.sampled_from(["0", "1", "x", "99999999999999999999"]),
        "GPU_I_ID": st.sampled_from(["1", "2"]),
        "id": st.sampled_from(["0", "1"]),
        "uuid": st.sampled_from(["u1", "u2"]),
        "device": st.sampled_from(["GPU-1", "d"]),
        "vendor": st.sampled_from(["nvidia", "ascend", "nobody"]),
        "modelName": st.sampled_from(["NVIDIA A100-SXM4-80GB", "?" * 300]),
        "Hostname": st.sampled_from(["n1", "n2"]),
        "instance": st.sampled_from(["10.0.0.1:9400", "[::1]:9", ":::"]),
        "job": st.sampled_from(["a", "b"]),
        "mode": st.just("idle"),
    },
)
VALUES = st.sampled_from(
    ["0", "1", "50", "100", "101", "-1", "NaN", "+Inf", "81920", "1e18", "4e18", "9e18", "85899345920"]
)
SERIES = st.lists(st.tuples(LABELS, VALUES), max_size=12)
AGES = st.sampled_from(["0", "1.5", "-3", "60", "1e9", "NaN", "179.9"])
STOCK = Inventory(
    pools=(PoolView("A100-SXM4-80GB", 2, memory=80 << 30), PoolView("910B3", 1)),
    cards=(Card("n1", "GPU-1", 0, "nvidia", "A100-SXM4-80GB", 80 << 30, usable=True),),
    vendors={"A100-SXM4-80GB": "nvidia", "910B3": "ascend"},
    by_node={("n1", "A100-SXM4-80GB"): 2, ("n2", "910B3"): 1},
)


@given(SERIES, st.lists(AGES, min_size=12, max_size=12), SERIES, st.sampled_from(["0", "1", "NaN"]))
def test_no_figures_are_invented(
    series: list[tuple[dict[str, str], str]], ages: list[str], others: list[tuple[dict[str, str], str]], up: str
) -> None:
    """Whatever is said: shares are shares, what is used is no more than there is, and everything has a sample."""

    def reply(form: Any) -> Reply:
        text = form["query"]
        if text == "up":
            return vector(({"__name__": "up", "job": "a", "instance": "10.0.0.1:9400"}, up))
        if text.startswith("{"):
            return vector(*series)
        if "timestamp(" in text and text.startswith("label_replace"):
            renamed = [
                (
                    {METRIC: labels["__name__"], **{key: value for key, value in labels.items() if key != "__name__"}},
                    age,
                )
                for (labels, _), age in zip(series, ages, strict=False)
            ]
            return vector(*renamed)
        return vector(*others)

    async def main() -> None:
        client = Answering(reply).client()
        try:
            figures = await ask(client, SOURCES, Bounds())
        finally:
            await client.close()
        joined = join(figures, STOCK, {}, SOURCES, settled=True)
        numbers = {read_number(value) for _, value in series} - {None}
        assert len(figures.cards) <= len(series)
        for card in (*figures.cards, *joined.cards):
            assert card.utilization is None or (0 <= card.utilization <= 1 and card.utilization * 100 in numbers)
            assert card.used is None or (card.used >= 0 and (card.total is None or card.used <= card.total * 1.001))
            assert 0 <= card.age <= 180_000
        for busy, used, beside in joined.pools.values():
            assert beside is None or 0 <= beside.value <= 1
            assert busy is None or 0 <= busy.value <= 1
            assert used is None or used.value >= 0
        for sentence in (*joined.missing, *joined.doubts):
            assert sentence.isprintable()
            assert len(sentence) <= 300
        assert len(joined.missing) <= 24
        assert len(joined.doubts) <= 16

    asyncio.run(main())


class Noting(Source, frozen=True):
    """A table that notes who reads it."""

    def metrics(self) -> Iterator[str]:
        READERS.add(threading.get_ident())
        return Source.metrics(self)


READERS = set[int]()


def test_figures_of_thousands_of_cards_are_read_beside_the_event_loop() -> None:
    """Other clusters are looked after there meanwhile."""
    metric = "DCGM_FI_DEV_GPU_UTIL"
    source = Noting("few", "nvidia", identity=("UUID",), utilization=Utilization((metric,)))

    def cards(count: int) -> int:
        labels = [{"UUID": f"GPU-{number}", "instance": "n1:9400", "job": "dcgm"} for number in range(count)]
        values = vector(*(({**one, "__name__": metric}, "50") for one in labels))
        ages = vector(*(({**one, METRIC: metric}, "2") for one in labels))

        def reply(form: Any) -> Reply:
            return values if form["query"].startswith("{") else ages if "timestamp(" in form["query"] else vector()

        async def main() -> int:
            client = Answering(reply).client()
            figures = await ask(client, [source], Bounds())
            await client.close()
            assert {card.utilization for card in figures.cards} == {0.5}
            return len(figures.cards)

        READERS.clear()
        return asyncio.run(main())

    assert cards(100) == 100
    assert {threading.get_ident()} == READERS  # few are read in place
    assert cards(MANY + 1) == MANY + 1
    assert len(READERS) == 2


def test_a_question_about_one_moment(tmp_path: Path) -> None:
    """All queries of a round carry the moment of the first answer, so that they fit together."""
    answering = Answering(lambda form: vector(({"__name__": "up", "job": "a", "instance": "i"}, "1"), at=1234.5678))

    async def main() -> None:
        client = answering.client()
        await ask(client, SOURCES, Bounds())
        await client.close()

    asyncio.run(main())
    assert "time" not in answering.asked[0]
    assert {form["time"] for form in answering.asked[1:]} == {"1234.568"}
    assert msgspec.json.encode(len(answering.asked)) == b"4"
