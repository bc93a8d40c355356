"""A store of bytes beside a cluster: content under the name of its SHA-256, over HTTP.

Whoever asks for a digest gets bytes that have it: what arrives is written beside, hashed, and moved into place in one
step, so nothing half or wrong is ever served. A fetch from another store goes on where it stopped, also after the
process was killed. The disk it may use is bounded; what was not used for longest makes room.

    GET /blobs                     digests and sizes
    GET|HEAD|PUT|DELETE /blobs/D   the bytes; GET takes ranges
    POST /fetch {digest, source}   bring it from another store; GET /fetch/D tells how far it is
"""

import asyncio
import errno
import hmac
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Final

import httpx2
import msgspec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from hcs.cpn.blobfiles import CHUNK, BlobFiles, checked
from hcs.kube.transport import Transport
from hcs.model.refusals import Refusal, RefusedError

log = logging.getLogger(__name__)

__all__ = ["BlobFiles", "BlobStore", "Progress"]

TRIES: Final = 8
_FULL: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class Progress(msgspec.Struct, frozen=True, omit_defaults=True):
    """A fetch: ``state`` is ``fetching``, ``done`` or ``failed``; ``got`` bytes of ``size``, in ``seconds``."""

    digest: str
    state: str
    got: int = 0
    size: int | None = None
    seconds: float = 0.0
    moved: int = 0
    message: str = ""


class _Wanted(msgspec.Struct, frozen=True):
    digest: str
    source: str


class BlobStore:
    """The store: its files, and what is on its way."""

    def __init__(
        self,
        files: BlobFiles,
        *,
        http: Callable[[], httpx2.AsyncClient] = lambda: httpx2.AsyncClient(
            timeout=30.0, transport=Transport(), trust_env=False
        ),
        pause: Callable[[float], Awaitable[Any]] = asyncio.sleep,
        clock: Callable[[], float] = time.monotonic,
        offload: Callable[[Callable[[], Any]], Awaitable[Any]] = asyncio.to_thread,
        sources: tuple[str, ...] = (),
        token: str = "",
    ) -> None:
        """
        Args:
            files: where bytes lie.
            http: makes a client towards other stores.
            pause: how to wait between attempts.
            clock: seconds.
            offload: where large files are hashed.
            sources: beginnings of the addresses it may fetch from; none: any.
            token: what writers must show as a bearer token; empty: nothing.

        Raises:
            RefusedError: a source is no address.
        """
        for source in sources:
            _checked_address(source)
        self.files, self._http, self._pause, self._clock = files, http, pause, clock
        self._offload = offload
        self._sources, self._token = sources, token
        self._progress: dict[str, Progress] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._writing: set[str] = set()

    def application(self) -> Starlette:
        """The HTTP side."""
        return Starlette(
            routes=[
                Route("/healthz", self._healthy),
                Route("/blobs", self._list),
                Route("/blobs/{digest}", self._get, methods=["GET", "HEAD"]),
                Route("/blobs/{digest}", self._put, methods=["PUT"]),
                Route("/blobs/{digest}", self._delete, methods=["DELETE"]),
                Route("/fetch", self._fetch, methods=["POST"]),
                Route("/fetch/{digest}", self._fetching),
            ],
            exception_handlers={RefusedError: _refused},
        )

    async def close(self) -> None:
        """Stop what is on its way; it goes on from there when it is asked for again."""
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    async def _healthy(self, _: Request) -> Response:
        return PlainTextResponse("ok")

    async def _list(self, _: Request) -> Response:
        return JSONResponse({"blobs": self.files.listing()})

    async def _get(self, request: Request) -> Response:
        digest = checked(request.path_params["digest"])
        path = self.files.path(digest)
        if path is None:
            return _no("UnknownBlob", f"{digest} is not in this store", 404)
        self.files.used(digest)
        return FileResponse(path, media_type="application/octet-stream")

    async def _put(self, request: Request) -> Response:
        self._check_writer(request)
        digest = checked(request.path_params["digest"])
        if self.files.path(digest) is not None:
            self.files.used(digest)
            return JSONResponse({"digest": digest, "new": False})
        if digest in self._writing or digest in self._tasks:
            return _no("AlreadyComing", f"{digest} is being written already; ask again when it is there", 409)
        self.files.reserve(digest, int(request.headers.get("content-length") or 0))
        self._writing.add(digest)
        try:
            await self._write(digest, request.stream(), 0)
            size = await self._offload(lambda: self.files.finish(digest))
        except BaseException as error:
            self.files.part(digest).unlink(missing_ok=True)
            if isinstance(error, OSError) and error.errno in _FULL:
                message = f"the disk of this store takes no more ({error.strerror}); make room, or give it a --limit"
                raise RefusedError(Refusal("DiskFull", message)) from error
            raise
        finally:
            self._writing.discard(digest)
            self.files.release(digest)
        return JSONResponse({"digest": digest, "new": True, "size": size}, status_code=201)

    async def _delete(self, request: Request) -> Response:
        self._check_writer(request)
        digest = checked(request.path_params["digest"])
        if not self.files.drop(digest):
            return _no("UnknownBlob", f"{digest} is not in this store", 404)
        return JSONResponse({"digest": digest})

    async def _fetch(self, request: Request) -> Response:
        self._check_writer(request)
        try:
            wanted = msgspec.json.decode(await request.body(), type=_Wanted)
        except msgspec.DecodeError as error:
            return _no("BadRequest", f"a fetch is a JSON object with digest and source: {error}", 400)
        return _told(self.fetch(wanted.digest, wanted.source), 202)

    async def _fetching(self, request: Request) -> Response:
        digest = checked(request.path_params["digest"])
        path, found = self.files.path(digest), self._progress.get(digest)
        # While its task runs, only that knows how long it took and how much really came.
        if path is not None and digest not in self._tasks and (found is None or found.state != "done"):
            size = path.stat().st_size
            found = Progress(digest, "done", size, size)
        if found is None:
            return _no("UnknownFetch", f"{digest} is neither here nor on its way", 404)
        return _told(found, 200)

    def fetch(self, digest: str, source: str) -> Progress:
        """Have a blob brought from another store, unless it is here or on its way.

        Raises:
            RefusedError: no digest, or an address it may not fetch from.
        """
        checked(digest)
        if (path := self.files.path(digest)) is not None:
            self.files.used(digest)
            size = path.stat().st_size
            return Progress(digest, "done", size, size)
        if digest not in self._tasks and digest not in self._writing:
            self._check_source(source)
            self._progress[digest] = Progress(digest, "fetching")
            task = asyncio.get_running_loop().create_task(self._bring(digest, source.rstrip("/")))
            self._tasks[digest] = task
            task.add_done_callback(lambda _: self._tasks.pop(digest, None))
        return self._progress.get(digest) or Progress(digest, "fetching")

    async def _bring(self, digest: str, source: str) -> None:
        fetch = _Fetch(digest, source, self._clock())
        try:
            message = await self._try(fetch)
        finally:
            self.files.release(digest)
        if message:
            log.warning("blob not fetched: digest=%s %s", digest, message)
            seconds = self._clock() - fetch.began
            self._progress[digest] = Progress(digest, "failed", seconds=seconds, message=message)

    async def _try(self, fetch: "_Fetch") -> str:
        """Again and again; why it did not come, empty where it did."""
        digest, message = fetch.digest, ""
        for attempt in range(TRIES):
            try:
                await self._bring_rest(fetch)
                size = await self._offload(lambda: self.files.finish(digest))
            except (httpx2.HTTPError, httpx2.StreamError) as error:
                message = f"{fetch.source}: {error!r}"
            except OSError as error:
                message = f"this store's own disk: {error.strerror or error!r}"
            except RefusedError as error:
                message = str(error)
                if error.refusals[0].reason != "WrongDigest":
                    break
            else:
                seconds = self._clock() - fetch.began
                self._progress[digest] = Progress(digest, "done", size, size, seconds, fetch.moved)
                log.info("blob fetched: digest=%s bytes=%d seconds=%.3f", digest, size, seconds)
                return ""
            await self._pause(min(30.0, 0.25 * 2.0**attempt))
        return message

    async def _bring_rest(self, fetch: "_Fetch") -> None:
        """Everything that is not here yet."""
        digest, source, part = fetch.digest, fetch.source, self.files.part(fetch.digest)
        have = part.stat().st_size if part.exists() else 0
        headers = {"Range": f"bytes={have}-"} if have else {}
        headers["Accept-Encoding"] = "identity"  # ranges and lengths are those of the content
        async with (
            self._http() as http,
            http.stream("GET", f"{source}/blobs/{digest}", headers=headers) as answer,
        ):
            if answer.status_code == 416:  # it is whole, or longer than it should be: the digest will tell
                return
            if answer.status_code == 404:
                raise RefusedError(Refusal("UnknownBlob", f"{source} does not have {digest}"))
            answer.raise_for_status()
            if answer.status_code == 200:
                have = 0
            whole = have + int(answer.headers.get("content-length") or 0)
            self.files.reserve(digest, whole)

            def came(got: int) -> None:
                fetch.moved += got
                fetch.there += got
                seconds = self._clock() - fetch.began
                self._progress[digest] = Progress(digest, "fetching", fetch.there, whole or None, seconds, fetch.moved)

            fetch.there = have
            await self._write(digest, answer.aiter_raw(CHUNK), have, came)

    async def _write(
        self,
        digest: str,
        pieces: AsyncIterator[bytes],
        begin: int,
        came: Callable[[int], None] = lambda got: None,
    ) -> None:
        """Write pieces as they come, whatever length was announced, but not beyond what the store may hold."""
        there = begin
        with self.files.part(digest).open("r+b" if begin else "wb") as file:
            file.seek(begin)
            async for piece in pieces:
                there += len(piece)
                self.files.reserve(digest, there)
                file.write(piece)
                came(len(piece))
            file.truncate()

    def _check_writer(self, request: Request) -> None:
        shown, token = request.headers.get("authorization", ""), f"Bearer {self._token}"
        if self._token and not hmac.compare_digest(shown.encode("utf-8", "replace"), token.encode()):
            raise RefusedError(Refusal("NotAllowed", "this store takes writes only with its bearer token"))

    def _check_source(self, source: str) -> None:
        address = _checked_address(source)
        if self._sources and not any(_below(address, httpx2.URL(allowed)) for allowed in self._sources):
            message = f"this store may not fetch from {source[:200]!r}; it may from {', '.join(self._sources)}"
            raise RefusedError(Refusal("SourceNotAllowed", message))


class _Fetch:
    """A blob on its way: since when, the bytes that came for it in all attempts, and how much of it is there."""

    def __init__(self, digest: str, source: str, began: float) -> None:
        self.digest, self.source, self.began = digest, source, began
        self.moved = self.there = 0


def _checked_address(text: str) -> httpx2.URL:
    """An address that a path can be put behind.

    Raises:
        RefusedError: it is none.
    """
    try:
        found = httpx2.URL(text)
        usable = found.scheme in ("http", "https") and bool(found.host) and not any(sign in text for sign in "?#")
    except (httpx2.InvalidURL, ValueError):
        usable = False
    if not usable:
        raise RefusedError(
            Refusal("BadSource", f"{text[:200]!r} is no http address; write it like http://10.0.0.1:8091")
        )
    return found


def _below(address: httpx2.URL, allowed: httpx2.URL) -> bool:
    """Whether an address is another one, or lies below it. Texts that begin alike may be those of different hosts."""
    if (address.scheme, address.host, address.port) != (allowed.scheme, allowed.host, allowed.port):
        return False
    return f"{address.path.rstrip('/')}/".startswith(f"{allowed.path.rstrip('/')}/")


async def _refused(_: Request, error: Exception) -> Response:
    assert isinstance(error, RefusedError)
    refusal = error.refusals[0]
    code = {
        **dict.fromkeys(("TooLarge", "NoRoom", "DiskFull"), 507),
        "NotAllowed": 403,
        "SourceNotAllowed": 403,
        "WrongDigest": 422,
    }.get(refusal.reason, 400)
    return _no(refusal.reason, refusal.message, code)


def _no(reason: str, message: str, code: int) -> Response:
    return JSONResponse({"reason": reason, "message": message}, status_code=code)


def _told(progress: Progress, code: int) -> Response:
    return Response(msgspec.json.encode(progress), status_code=code, media_type="application/json")
