"""A store of bytes beside a cluster: content under the name of its SHA-256, over HTTP.

Whoever asks for a digest gets bytes that have it: what arrives is written beside, hashed, and moved into place in one
step, so nothing half or wrong is ever served. A fetch from another store goes on where it stopped, also after the
process was killed. The disk it may use is bounded; what was not used for longest makes room.

    GET /blobs                     digests and sizes
    GET|HEAD|PUT|DELETE /blobs/D   the bytes; GET takes ranges
    POST /fetch {digest, source}   bring it from another store; GET /fetch/D tells how far it is
"""

import asyncio
import contextlib
import hashlib
import logging
import os
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, Final

import httpx2
import msgspec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from hcs.model.refusals import Refusal, RefusedError

log = logging.getLogger(__name__)

_DIGEST: Final = re.compile(r"sha256:[0-9a-f]{64}")
_CHUNK: Final = 1 << 18
TRIES: Final = 8


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


def checked(digest: str) -> str:
    """A digest as it may be a name.

    Raises:
        RefusedError: it is none.
    """
    if _DIGEST.fullmatch(digest) is None:
        raise RefusedError(
            Refusal("BadDigest", f"{digest[:100]!r} is no digest; write sha256: and 64 lower-case hexadecimal digits")
        )
    return digest


class BlobFiles:
    """The files of a store."""

    def __init__(self, directory: Path, *, limit: int | None = None) -> None:
        """``limit`` is in bytes; None: as much as the disk holds. What was being fetched before is kept."""
        self._whole, self._parts, self._limit = directory / "blobs", directory / "partial", limit
        for folder in (self._whole, self._parts):
            folder.mkdir(parents=True, exist_ok=True)

    def path(self, digest: str) -> Path | None:
        """Where a blob lies; None: not here."""
        path = self._whole / checked(digest).removeprefix("sha256:")
        return path if path.exists() else None

    def part(self, digest: str) -> Path:
        """Where it is written while it is not whole."""
        return self._parts / checked(digest).removeprefix("sha256:")

    def listing(self) -> dict[str, int]:
        """What is here, with sizes."""
        found = {}
        for path in self._whole.iterdir():
            with contextlib.suppress(FileNotFoundError):
                found[f"sha256:{path.name}"] = path.stat().st_size
        return found

    def used(self, digest: str) -> None:
        """It was asked for just now."""
        if (path := self.path(digest)) is not None:
            with contextlib.suppress(FileNotFoundError):
                os.utime(path)

    def make_room(self, size: int) -> None:
        """Drop what was not used for longest until so many bytes more are allowed.

        Raises:
            RefusedError: it could never hold that.
        """
        if self._limit is None:
            return
        if size > self._limit:
            message = f"{size} bytes are more than the {self._limit} this store may hold; raise its --limit"
            raise RefusedError(Refusal("TooLarge", message))
        known = []
        for path in (*self._whole.iterdir(), *self._parts.iterdir()):
            with contextlib.suppress(FileNotFoundError):
                found = path.stat()
                known.append((path.parent == self._parts, found.st_mtime, found.st_size, path))
        total = sum(length for _, _, length, _ in known)
        for partial, _, length, path in sorted(known, key=lambda one: one[:2]):
            if total + size <= self._limit:
                return
            if not partial:
                path.unlink(missing_ok=True)
                total -= length
                log.info("blob dropped to make room: digest=sha256:%s bytes=%d", path.name, length)

    def finish(self, digest: str) -> int:
        """Move what was written into place if it is what it should be; the number of bytes.

        Raises:
            RefusedError: it is something else; it is thrown away.
        """
        part = self.part(digest)
        hasher, size = hashlib.sha256(), 0
        with part.open("rb") as file:
            while piece := file.read(_CHUNK):
                hasher.update(piece)
                size += len(piece)
            right = f"sha256:{hasher.hexdigest()}" == digest
            if right:
                os.fsync(file.fileno())
        if not right:
            part.unlink(missing_ok=True)
            message = f"what came for {digest} has the digest sha256:{hasher.hexdigest()}; it was thrown away"
            raise RefusedError(Refusal("WrongDigest", message))
        part.replace(self._whole / part.name)
        return size

    def drop(self, digest: str) -> bool:
        """Forget a blob; whether it was here."""
        path = self.path(digest)
        if path is None:
            return False
        path.unlink(missing_ok=True)
        return True


class BlobStore:
    """The store: its files, and what is on its way."""

    def __init__(
        self,
        files: BlobFiles,
        *,
        http: Callable[[], httpx2.AsyncClient] = lambda: httpx2.AsyncClient(timeout=30.0, trust_env=False),
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
        """
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
            return JSONResponse({"digest": digest, "new": False})
        if digest in self._writing or digest in self._tasks:
            return _no("AlreadyComing", f"{digest} is being written already; ask again when it is there", 409)
        self.files.make_room(int(request.headers.get("content-length") or 0))
        self._writing.add(digest)
        try:
            await self._write(digest, request.stream(), 0)
            size = await self._offload(lambda: self.files.finish(digest))
        except BaseException:
            self.files.part(digest).unlink(missing_ok=True)
            raise
        finally:
            self._writing.discard(digest)
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
        began, moved, message = self._clock(), 0, ""
        for attempt in range(TRIES):
            try:
                moved += await self._bring_rest(digest, source, began)
                size = await self._offload(lambda: self.files.finish(digest))
            except (httpx2.HTTPError, httpx2.StreamError, OSError) as error:
                message = f"{source}: {error!r}"
                await self._pause(min(30.0, 0.25 * 2.0**attempt))
                continue
            except RefusedError as error:
                message = str(error)
                if error.refusals[0].reason != "WrongDigest":
                    break
                await self._pause(min(30.0, 0.25 * 2.0**attempt))
                continue
            self._progress[digest] = Progress(digest, "done", size, size, self._clock() - began, moved)
            log.info("blob fetched: digest=%s bytes=%d seconds=%.3f", digest, size, self._clock() - began)
            return
        log.warning("blob not fetched: digest=%s %s", digest, message)
        self._progress[digest] = Progress(digest, "failed", seconds=self._clock() - began, message=message)

    async def _bring_rest(self, digest: str, source: str, began: float) -> int:
        """Everything that is not here yet; the number of bytes that came."""
        part = self.files.part(digest)
        have = part.stat().st_size if part.exists() else 0
        headers = {"Range": f"bytes={have}-"} if have else {}
        async with (
            self._http() as http,
            http.stream("GET", f"{source}/blobs/{digest}", headers=headers) as answer,
        ):
            if answer.status_code == 416:  # it is whole, or longer than it should be: the digest will tell
                return 0
            if answer.status_code == 404:
                raise RefusedError(Refusal("UnknownBlob", f"{source} does not have {digest}"))
            answer.raise_for_status()
            if answer.status_code == 200:
                have = 0
            rest = int(answer.headers.get("content-length") or 0)
            self.files.make_room(rest)

            def told(got: int) -> None:
                seconds = self._clock() - began
                self._progress[digest] = Progress(digest, "fetching", have + got, have + rest or None, seconds, got)

            return await self._write(digest, answer.aiter_bytes(_CHUNK), have, told)

    async def _write(
        self,
        digest: str,
        pieces: AsyncIterator[bytes],
        begin: int,
        told: Callable[[int], None] = lambda got: None,
    ) -> int:
        got = 0
        with self.files.part(digest).open("r+b" if begin else "wb") as file:
            file.seek(begin)
            async for piece in pieces:
                file.write(piece)
                got += len(piece)
                told(got)
            file.truncate()
        return got

    def _check_writer(self, request: Request) -> None:
        if self._token and request.headers.get("authorization") != f"Bearer {self._token}":
            raise RefusedError(Refusal("NotAllowed", "this store takes writes only with its bearer token"))

    def _check_source(self, source: str) -> None:
        if not source.startswith(("http://", "https://")):
            raise RefusedError(Refusal("BadSource", f"{source[:200]!r} is no http address"))
        if self._sources and not source.startswith(self._sources):
            message = f"this store may not fetch from {source[:200]!r}; it may from {', '.join(self._sources)}"
            raise RefusedError(Refusal("SourceNotAllowed", message))


async def _refused(_: Request, error: Exception) -> Response:
    assert isinstance(error, RefusedError)
    refusal = error.refusals[0]
    code = {"TooLarge": 507, "NotAllowed": 403, "SourceNotAllowed": 403, "WrongDigest": 422}.get(refusal.reason, 400)
    return _no(refusal.reason, refusal.message, code)


def _no(reason: str, message: str, code: int) -> Response:
    return JSONResponse({"reason": reason, "message": message}, status_code=code)


def _told(progress: Progress, code: int) -> Response:
    return Response(msgspec.json.encode(progress), status_code=code, media_type="application/json")
