"""Who may speak to the API: whoever knows the token, or, where there is none, programs of this machine.

Without a token the server only listens on loopback, and still a web page that somebody opens here could reach it. So a
request that a browser sent for another site (it says so in ``Origin``), or that came by a name which is not loopback's,
is turned away. Health is told to everybody.
"""

import contextlib
import hmac
import ipaddress
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import msgspec
from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from hcs.cpn.wire import Problem
from hcs.model.refusals import Refusal, RefusedError

OPEN: Final = frozenset(("/healthz", "/readyz"))
LEAST_TOKEN: Final = 16


class Tokens:
    """The token in a file, read again when the file changes, so that it can be replaced while running."""

    def __init__(self, path: Path) -> None:
        """
        Raises:
            RefusedError: the file cannot be read, or holds too little.
        """
        self._path = path
        self._seen: tuple[int, int] | None = None
        self._token = b""
        self._read()

    def admits(self, given: str) -> bool:
        """Whether this is the token. A file that cannot be read any more admits whom it did before."""
        with contextlib.suppress(RefusedError):
            self._read()
        return hmac.compare_digest(given.encode("utf-8", "replace"), self._token)

    def _read(self) -> None:
        try:
            found = self._path.stat()
            if (stamp := (found.st_mtime_ns, found.st_size)) == self._seen:
                return
            token = self._path.read_bytes().strip()
        except OSError as error:
            raise RefusedError(
                Refusal("NoToken", f"cannot read the token file {self._path}: {error.strerror}; name one that exists")
            ) from error
        if len(token) < LEAST_TOKEN:
            raise RefusedError(
                Refusal(
                    "WeakToken",
                    f"{self._path} holds {len(token)} bytes, a token needs at least {LEAST_TOKEN}: "
                    "openssl rand -hex 32 makes one",
                )
            )
        self._token, self._seen = token, stamp


def check_exposure(host: str, tokens: Tokens | None) -> None:
    """Check that a server that others can reach asks for a token.

    Raises:
        RefusedError: it would not.
    """
    if tokens is None and not is_loopback(host):
        raise RefusedError(
            Refusal(
                "TokenRequired",
                f"{host} can be reached from other machines, and whoever reaches the queue can run programs on every "
                "cluster; give --token-file, or listen on 127.0.0.1",
            )
        )


def is_loopback(host: str) -> bool:
    """Whether a host name or address is this machine, seen from itself.

    >>> is_loopback("127.0.0.1"), is_loopback("localhost"), is_loopback("0.0.0.0")
    (True, True, False)
    """
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


class Access:
    """The gate in front of all routes."""

    def __init__(self, app: ASGIApp, tokens: Tokens | None) -> None:
        self._app, self._tokens = app, tokens
        self._refuse: Callable[[Headers], tuple[int, str, str] | None] = (
            self._without_token if tokens is not None else self._foreign
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request through, or answer it."""
        if scope["type"] != "http" or scope["path"] in OPEN:
            await self._app(scope, receive, send)
            return
        no = self._refuse(Headers(scope=scope))
        if no is None:
            await self._app(scope, receive, send)
            return
        status, reason, message = no
        headers: dict[str, Any] = {"www-authenticate": "Bearer"} if status == 401 else {}
        body = msgspec.json.encode(Problem(reason, message))
        await Response(body, status, headers, media_type="application/json")(scope, receive, send)

    def _without_token(self, headers: Headers) -> tuple[int, str, str] | None:
        kind, _, given = headers.get("authorization", "").partition(" ")
        if kind.lower() == "bearer" and self._tokens is not None and self._tokens.admits(given.strip()):
            return None
        seen = "no token was sent" if not given else "the token is another one"
        return 401, "Unauthorized", f"{seen}; send the controller's as 'Authorization: Bearer TOKEN'"

    def _foreign(self, headers: Headers) -> tuple[int, str, str] | None:
        host = headers.get("host", "").rsplit(":", 1)[0] if "]" not in headers.get("host", "") else "[::1]"
        if "origin" in headers:
            return 403, "ForeignOrigin", "a web page may not speak to a controller without a token; give it one"
        if host and not is_loopback(host):
            return 403, "ForeignHost", f"{host[:80]!r} is not this machine's own name for itself; use 127.0.0.1"
        return None
