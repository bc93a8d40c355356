"""What the contract tests use to talk to an API server: plain HTTP, so that both servers get identical requests."""

from __future__ import annotations

import contextlib
import itertools
import json
import ssl
import tempfile
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx2
import pytest
from tests.clusters import Object

from hcs.process.certificates import Authority

JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"
_counter = itertools.count()

ON_THE_SANDBOX = pytest.mark.parametrize("api", ["sandbox"], indirect=True)
"""For tests of what a real API server alone cannot show."""


class Api:
    """A client of one server, as one user."""

    def __init__(self, kind: str, url: str, authority: Path, token: str = "admin-token") -> None:
        self.kind, self.url, self.authority = kind, url, authority
        self.compact: Callable[[], None] = lambda: None  # of a server that was started elsewhere
        self._others: dict[str, Api] = {}
        context = ssl.create_default_context(cafile=str(authority))
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        self.http = httpx2.Client(base_url=url, verify=context, headers=headers, timeout=20, trust_env=False)

    @property
    def is_real(self) -> bool:
        return self.kind == "real"

    def as_user(self, token: str) -> Api:
        """The same server seen by another user."""
        if token not in self._others:
            self._others[token] = Api(self.kind, self.url, self.authority, token)
        return self._others[token]

    def close(self) -> None:
        for api in (self, *self._others.values()):
            api.http.close()

    def get(self, path: str, **query: Any) -> httpx2.Response:
        accept = {"Accept": query.pop("accept", "application/json")}
        return self.http.get(path, params=query, headers=accept)

    def post(self, path: str, body: Object, **query: Any) -> httpx2.Response:
        return self.http.post(path, json=body, params=query)

    def put(self, path: str, body: Object, **query: Any) -> httpx2.Response:
        return self.http.put(path, json=body, params=query)

    def patch(self, path: str, body: Any, kind: str = MERGE_PATCH, **query: Any) -> httpx2.Response:
        return self.http.patch(path, content=json.dumps(body), params=query, headers={"Content-Type": kind})

    def delete(self, path: str, body: Object | None = None, **query: Any) -> httpx2.Response:
        return self.http.request("DELETE", path, json=body, params=query)

    def create(self, path: str, body: Object, **query: Any) -> Object:
        return done(self.post(path, body, **query))

    def read(self, path: str, **query: Any) -> Object:
        return done(self.get(path, **query))

    def version(self) -> str:
        """The present resourceVersion."""
        return str(self.read("/api/v1/namespaces", limit=1)["metadata"]["resourceVersion"])

    @contextlib.contextmanager
    def watch(self, path: str, *, accept: str = "application/json", **query: Any) -> Iterator[Iterator[Object]]:
        """Events of a watch, as they come."""
        params = {"watch": "true", **query}
        with self.http.stream("GET", path, params=params, headers={"Accept": accept}) as response:
            if response.status_code != 200:
                response.read()
                done(response)
            yield (json.loads(line) for line in response.iter_lines())

    def events(self, path: str, version: str, count: int, **query: Any) -> list[Object]:
        """The first events of a watch from a version on."""
        with self.watch(path, resourceVersion=version, timeoutSeconds=20, **query) as stream:
            return list(itertools.islice(stream, count))


def done(response: httpx2.Response) -> Object:
    assert response.status_code in (200, 201), f"{response.status_code}: {response.text}"
    body: Object = response.json()
    return body


def refused(response: httpx2.Response, code: int, reason: str) -> Object:
    """The Status object of a refusal, checked for its shape."""
    body: Object = response.json()
    seen = (response.status_code, body.get("kind"), body.get("status"), body.get("reason"), body.get("code"))
    assert seen == (code, "Status", "Failure", reason, code), response.text
    return body


def unique(prefix: str) -> str:
    return f"{prefix}-{next(_counter)}"


def pod(name: str, *, spec: Object | None = None, container: Object | None = None, **metadata: Any) -> Object:
    """A small valid pod."""
    first = {"name": "c", "image": "registry.example/a:1", **(container or {})}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, **metadata} if name else metadata,
        "spec": {"containers": [first], **(spec or {})},
    }


def binding(name: str, node: str, **metadata: Any) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": name, **metadata},
        "target": {"apiVersion": "v1", "kind": "Node", "name": node},
    }


class Webhook:
    """An admission webhook in a thread. ``answer`` turns a request into the fields of a response."""

    def __init__(self, answer: Callable[[Object], Object]) -> None:
        self.answer, self.requests, self.paths = answer, [], []  # type: ignore[var-annotated]
        self.authority = Authority.create("webhook-ca")
        hook = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                review = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                hook.requests.append(review["request"])
                hook.paths.append(self.path)
                response = {"uid": review["request"]["uid"], "allowed": True, **hook.answer(review["request"])}
                body = json.dumps(
                    {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}
                ).encode()
                with contextlib.suppress(OSError):  # the server may have given up already
                    self.send_response(200)
                    self.send_header("Content-Type", "application/json")
                    self.send_header("Content-Length", str(len(body)))
                    self.end_headers()
                    self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                """Tests read ``requests`` instead."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        with tempfile.TemporaryDirectory() as folder:
            context.load_cert_chain(*self.authority.issue(["127.0.0.1", "localhost"]).write(Path(folder), "hook"))
        self.context = context
        self.server.get_request = self._accept  # type: ignore[method-assign]
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True)
        self.thread.start()

    def use(self, context: ssl.SSLContext) -> None:
        """Show another certificate from now on."""
        self.context = context

    def _accept(self) -> tuple[ssl.SSLSocket, Any]:
        connection, address = self.server.socket.accept()
        connection.settimeout(20)
        return self.context.wrap_socket(connection, server_side=True, do_handshake_on_connect=False), address

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.server.server_address[1]}"

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()
        self.thread.join(5)
