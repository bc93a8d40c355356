"""A Prometheus asked over HTTP, with everything it may answer turned into samples or into one sentence.

No answer is trusted: it may be larger than memory, slower than patience, of another shape, or no JSON at all. Numbers
are read strictly; what is not a plain finite number is a missing one. An empty result is no error: Prometheus says
success for a metric that nobody exports. Redirects are not followed, so that a token goes to nobody else.

Source: the HTTP API of Prometheus 2.42, https://prometheus.io/docs/prometheus/latest/querying/api/.
"""

import asyncio
import re
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Literal

import httpx2
import msgspec

from hcs.cpn.collect.failures import explain_http, tidy
from hcs.kube.transport import Transport
from hcs.model.refusals import Refusal, RefusedError

MAX_BYTES: Final = 32 << 20
"""Bytes of one answer: the figures of some ten thousand cards."""
LARGE: Final = 1 << 20
"""Bytes of an answer beyond which it is read beside the event loop, for others wait there."""
MAX_TOKEN: Final = 64 << 10
BEYOND: Final = float(1 << 62)
"""Larger values mean that an exporter could not read the field; DCGM's markers begin there."""
CONNECTIONS: Final = httpx2.Limits(max_connections=8, max_keepalive_connections=4)

_LAST_MOMENT: Final = 1e11
"""Seconds since 1970 beyond which nobody's clock stands."""
_NUMBER: Final = re.compile(r"[+-]?[0-9]{1,400}(\.[0-9]{0,400})?([eE][+-]?[0-9]{1,4})?")
_LABEL: Final = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")

Metric = dict[str, str]


class QueryError(RefusedError):
    """Nothing could be learned from a query; carries one refusal."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(Refusal(reason, message))

    @property
    def refusal(self) -> Refusal:
        """Why."""
        return self.refusals[0]


class Sample(msgspec.Struct, frozen=True):
    """One series at the time of the query; ``value`` is None for what is not a number that anybody measured."""

    labels: Metric
    value: float | None


class Answer(msgspec.Struct, frozen=True):
    """What a query gave. ``at`` is the server's time of it in seconds since 1970, None where it gave nothing."""

    samples: tuple[Sample, ...] = ()
    at: float | None = None
    warnings: tuple[str, ...] = ()


class Address(msgspec.Struct, frozen=True):
    """Where a Prometheus is: its base URL with any path prefix, who we are there, whom we believe, and which series.

    ``token_file`` holds a bearer token and is read for each query, for tokens are renewed. ``ca_file`` is the authority
    of its certificate; empty takes the system's. ``labels`` narrow every query, where one server knows many clusters.
    """

    url: str
    token_file: str = ""
    ca_file: str = ""
    labels: dict[str, str] = {}


class _Data(msgspec.Struct, frozen=True, rename="camel"):
    result_type: str
    result: msgspec.Raw


class _Envelope(msgspec.Struct, frozen=True, rename="camel"):
    status: Literal["success", "error"]
    data: _Data | None = None
    error_type: str = ""
    error: str = ""
    warnings: tuple[str, ...] = ()


class _Series(msgspec.Struct, frozen=True):
    metric: Metric
    value: tuple[float, str]


_ENVELOPE: Final = msgspec.json.Decoder(_Envelope)
_VECTOR: Final = msgspec.json.Decoder(tuple[_Series, ...])
_SCALAR: Final = msgspec.json.Decoder(tuple[float, str])


class Prometheus:
    """One server. Close it at the end."""

    def __init__(
        self,
        address: Address,
        *,
        deadline: float = 10.0,
        max_bytes: int = MAX_BYTES,
        transport: httpx2.AsyncBaseTransport | None = None,
    ) -> None:
        """Prepare; nothing is asked yet.

        Args:
            address: where it is.
            deadline: seconds until a query is given up, everything included.
            max_bytes: of one answer.
            transport: how requests travel; None over the network.

        Raises:
            QueryError: ``BadAddress`` or ``BadAuthority``.
        """
        self.address, self._deadline, self._max_bytes = address, deadline, max_bytes
        self._url = query_url(address.url)
        self._matchers = matchers(address.labels)
        secure = self._url.scheme == "https"
        self._http = httpx2.AsyncClient(
            timeout=httpx2.Timeout(deadline),
            transport=transport or Transport(verify=_trust(address) if secure else False, limits=CONNECTIONS),
            trust_env=False,
        )

    @property
    def matchers(self) -> str:
        """The label matchers of every selector, such as ``cluster="east"``; may be empty."""
        return self._matchers

    @property
    def shown(self) -> str:
        """The address without a password, for sentences."""
        return shown_url(self.address.url)

    async def query(self, expression: str, *, at: float | None = None) -> Answer:
        """The value of an expression: a vector or a scalar.

        Args:
            expression: PromQL.
            at: seconds since 1970; None: now, by the server's clock.

        Raises:
            QueryError: there is no answer; the reason and the sentence say why.
        """
        form = {"query": expression, "timeout": f"{self._deadline:g}s"}
        if at is not None:
            form["time"] = f"{at:.3f}"
        try:
            async with asyncio.timeout(self._deadline):
                status, content = await self._post(form)
        except TimeoutError:
            raise self._no("PrometheusTimeout", f"gave no answer within {self._deadline:g} s") from None
        except (httpx2.HTTPError, OSError, ValueError) as error:
            if isinstance(error, QueryError):
                raise
            timed_out = isinstance(error, httpx2.TimeoutException)
            reason = "PrometheusTimeout" if timed_out else "PrometheusUnreachable"
            raise self._no(reason, f"cannot be reached: {explain_http(error)}") from error
        if len(content) > LARGE:
            return await asyncio.to_thread(self._read, status, content)
        return self._read(status, content)

    async def close(self) -> None:
        """Close all connections."""
        await self._http.aclose()

    async def _post(self, form: Mapping[str, str]) -> tuple[int, bytes]:
        headers = {"Accept": "application/json", "Accept-Encoding": "identity", **self._authorization()}
        async with self._http.stream("POST", self._url, data=dict(form), headers=headers) as answer:
            if answer.headers.get("Content-Encoding", "identity").lower() not in ("", "identity"):
                raise self._no("BadAnswer", "answered in an encoding that it was not asked for")
            pieces, size = [], 0
            async for piece in answer.aiter_raw():
                size += len(piece)
                if size > self._max_bytes:
                    raise self._no(
                        "AnswerTooLarge",
                        f"answers with more than {self._max_bytes >> 20} MiB; narrow it with labels of the cluster",
                    )
                pieces.append(piece)
            return answer.status_code, b"".join(pieces)

    def _authorization(self) -> dict[str, str]:
        path = self.address.token_file
        if not path:
            return {}
        try:
            with Path(path).expanduser().open("rb") as file:
                token = file.read(MAX_TOKEN).decode("ascii").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise self._no("BadToken", f"cannot be asked: token file {path}: {tidy(str(error))}") from error
        if not token or not token.isprintable():
            raise self._no("BadToken", f"cannot be asked: token file {path} holds no token")
        return {"Authorization": f"Bearer {token}"}

    def _read(self, status: int, content: bytes) -> Answer:
        envelope: _Envelope | None = None
        try:
            envelope = _ENVELOPE.decode(content)
        except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
            if status == 200:
                raise self._no("NotPrometheus", f"answers with something else: {tidy(str(error))}") from error
        if envelope is None or status != 200 or envelope.status == "error":
            raise self._refused(status, envelope)
        if envelope.data is None:
            raise self._no("BadAnswer", "says success and gives no data")
        try:
            return _answer(envelope.data, envelope.warnings)
        except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
            raise self._no("BadAnswer", f"gives data of another shape: {tidy(str(error))}") from error

    def _refused(self, status: int, envelope: _Envelope | None) -> QueryError:
        said = tidy(envelope.error) if envelope is not None and envelope.error else "no reason given"
        kind = envelope.error_type if envelope is not None else ""
        if status in (401, 403):
            return self._no("NotPermitted", f"answered HTTP {status}; check the token or the password")
        if 300 <= status < 400:
            return self._no("Redirected", f"answered HTTP {status}; use the address it redirects to")
        if kind == "bad_data":
            return self._no("BadQuery", f"does not understand the query: {said}")
        if kind == "execution":
            return self._no("QueryFailed", f"could not carry out the query: {said}")
        if kind in ("timeout", "canceled") or status == 503:
            return self._no("PrometheusUnavailable", f"is starting, stopping or overloaded: {said}")
        if status == 404:
            return self._no("NotPrometheus", "has no query API under this address; check the path prefix")
        return self._no("PrometheusFailed", f"answered HTTP {status}: {tidy(kind) + ': ' if kind else ''}{said}")

    def _no(self, reason: str, what: str) -> QueryError:
        return QueryError(reason, f"Prometheus at {self.shown} {what}")


def query_url(url: str) -> httpx2.URL:
    """Where queries go.

    >>> str(query_url("http://10.0.0.1:9090/prom/"))
    'http://10.0.0.1:9090/prom/api/v1/query'

    Raises:
        QueryError: ``BadAddress``.
    """
    try:
        base = httpx2.URL(url)
        usable = base.scheme in ("http", "https") and bool(base.host) and not base.query and not base.fragment
    except (httpx2.InvalidURL, ValueError, TypeError):
        usable = False
    if not usable:
        raise QueryError(
            "BadAddress",
            f"cannot use {tidy(shown_url(url))!r} as a Prometheus; write it like http://10.0.0.1:9090/prefix",
        )
    return base.copy_with(path=base.path.rstrip("/") + "/api/v1/query")


def shown_url(url: str) -> str:
    """An address as it may be shown: without user and password."""
    return re.sub(r"(?<=//)[^/@]*@", "", url)


def matchers(labels: Mapping[str, str]) -> str:
    """Label matchers of a selector.

    >>> matchers({"cluster": 'a"b'})
    'cluster="a\\\\"b"'

    Raises:
        QueryError: ``BadAddress``: a name that is no label.
    """
    for name in labels:
        if not _LABEL.fullmatch(name):
            raise QueryError("BadAddress", f"{tidy(name)!r} is no name of a Prometheus label")
    return ",".join(f"{name}={quoted(value)}" for name, value in sorted(labels.items()))


def quoted(text: str) -> str:
    """A string of PromQL."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'


def read_number(text: str) -> float | None:
    """A value as Prometheus writes it; None for NaN, infinity, markers of the unreadable, and what is no number.

    >>> read_number("41.5"), read_number("NaN"), read_number("9223372036854775794")
    (41.5, None, None)
    """
    if not _NUMBER.fullmatch(text):
        return None
    number = float(text)
    return number if abs(number) <= BEYOND else None


def _answer(data: _Data, warnings: tuple[str, ...]) -> Answer:
    told = tuple(tidy(warning) for warning in warnings[:5])
    if data.result_type == "vector":
        series = _VECTOR.decode(data.result)
        samples = tuple(Sample(one.metric, read_number(one.value[1])) for one in series)
        return Answer(samples, _moment(series[0].value[0]) if series else None, told)
    if data.result_type == "scalar":
        at, value = _SCALAR.decode(data.result)
        return Answer((Sample({}, read_number(value)),), _moment(at), told)
    raise msgspec.ValidationError(f"a result of type {tidy(data.result_type)!r}, not a vector")


def _moment(at: float) -> float | None:
    return at if 0 < at < _LAST_MOMENT else None


def _trust(address: Address) -> Any:
    try:
        return ssl.create_default_context(cafile=str(Path(address.ca_file).expanduser()) if address.ca_file else None)
    except (OSError, ssl.SSLError) as error:
        raise QueryError(
            "BadAuthority", f"cannot use {address.ca_file} as the authority of {shown_url(address.url)}: {error}"
        ) from error
