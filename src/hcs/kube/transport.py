"""The way requests travel, with a connection let go of when its TLS handshake is given up.

The HTTP library closes a connection whose handshake fails, but not one whose handshake is cancelled: the event loop
then keeps the socket until the other side hangs up. Whoever asks with a deadline of his own, or stops while a server is
slow to greet, would leave one behind each time.
"""

import contextlib
import ssl
from typing import Any, Final

import httpx2

__all__ = ["Transport"]

_CONNECTIONS: Final = httpx2.Limits(max_connections=100, max_keepalive_connections=20)


class Transport(httpx2.AsyncBaseTransport):
    """Requests over the network; the environment's proxies are not looked at."""

    def __init__(
        self,
        *,
        verify: ssl.SSLContext | bool = True,
        proxy: str | None = None,
        limits: httpx2.Limits = _CONNECTIONS,
        inner: httpx2.AsyncBaseTransport | None = None,
    ) -> None:
        """
        Args:
            verify: how servers prove who they are; False asks for no proof.
            proxy: URL of the proxy to go through.
            limits: how many connections are open, and how many of them idle.
            inner: what carries the requests in the end.
        """
        self._inner = inner or httpx2.AsyncHTTPTransport(verify=verify, proxy=proxy, limits=limits, trust_env=False)

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        request.extensions = {"trace": _Handshake().follow, **request.extensions}
        return await self._inner.handle_async_request(request)

    async def aclose(self) -> None:
        await self._inner.aclose()


class _Handshake:
    """Follows how one request gets its connection."""

    def __init__(self) -> None:
        self._raw: Any = None

    async def follow(self, event: str, info: dict[str, Any]) -> None:
        """Told of each step by the library, before and after."""
        step = event.partition(".")[2]
        if step == "connect_tcp.complete":
            self._raw = info["return_value"]
        elif step == "start_tls.complete":
            self._raw = None
        elif step == "start_tls.failed" and self._raw is not None:
            raw, self._raw = self._raw, None
            with contextlib.suppress(OSError, httpx2.HTTPError):
                await raw.aclose()
