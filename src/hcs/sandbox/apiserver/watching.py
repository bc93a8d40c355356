"""Watches: every change of a resource, in order, from any kept version on, through a selector.

Promises: no change is skipped or reordered; an object that enters a selection is ADDED, one that leaves it is DELETED
(with its last selected state); an expired version is answered with 410, as the first event of the stream like a real
server does; bookmarks tell a quiet client how far it has come.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable

import msgspec

from hcs.sandbox.apiserver.cluster import encode
from hcs.sandbox.apiserver.kinds import Resource
from hcs.sandbox.apiserver.selectors import Predicate
from hcs.sandbox.apiserver.status import JsonObject, expired
from hcs.sandbox.apiserver.storage import Change, ExpiredError, Store, Stored

Encoder = Callable[[Stored], bytes]
_MOST_WAITING = 50_000


class WatchRequest(msgspec.Struct, frozen=True):
    """What a client wants to see. ``version`` 0 starts with the present state."""

    resource: Resource
    namespace: str = ""
    test: Predicate | None = None
    version: int = 0
    bookmarks: bool = False
    initial_events: bool = False
    timeout_seconds: float = 0
    encoder: Encoder | None = None


class Watches:
    """All open watches of a server."""

    def __init__(self, store: Store, *, bookmark_seconds: float = 15.0) -> None:
        self._store, self._bookmark_seconds = store, bookmark_seconds
        self._open: set[_Watch] = set()
        self._closing = False
        store.listen(self._deliver)

    def close(self) -> None:
        """End every stream, so that the server can stop at once."""
        self._closing = True
        for watch in self._open:
            watch.wake.set()

    def _deliver(self, change: Change) -> None:
        for watch in self._open:
            if watch.concerns(change):
                watch.waiting.append(change)
                watch.wake.set()

    async def stream(self, request: WatchRequest) -> AsyncIterator[bytes]:
        """Event lines until the client leaves, time is up or the server stops."""
        watch = _Watch(request, self._store)
        try:
            backlog = watch.begin()
        except ExpiredError as error:
            yield _line(b"ERROR", msgspec.json.encode(expired(str(error)).body))
            return
        self._open.add(watch)
        try:
            for line in backlog:
                yield line
            async for line in self._follow(watch):
                yield line
        finally:
            self._open.discard(watch)

    async def _follow(self, watch: _Watch) -> AsyncIterator[bytes]:
        clock = asyncio.get_running_loop().time
        end = clock() + watch.request.timeout_seconds if watch.request.timeout_seconds else None
        bookmark_at = clock() + self._bookmark_seconds
        while not self._closing:
            while watch.waiting:
                if len(watch.waiting) > _MOST_WAITING:
                    return  # too slow a client; it comes back with its last version
                line = watch.event(watch.waiting.popleft())
                if line:
                    yield line
            watch.wake.clear()
            now = clock()
            if end is not None and now >= end:
                if watch.request.bookmarks:
                    yield watch.bookmark(self._store.version)
                return
            if watch.request.bookmarks and now >= bookmark_at:
                bookmark_at = now + self._bookmark_seconds
                yield watch.bookmark(self._store.version)
            times = [end] if end is not None else []
            if watch.request.bookmarks:
                times.append(bookmark_at)
            try:
                async with asyncio.timeout_at(min(times) if times else None):
                    await watch.wake.wait()
            except TimeoutError:
                continue


class _Watch:
    def __init__(self, request: WatchRequest, store: Store) -> None:
        self.request, self._store = request, store
        self.waiting: deque[Change] = deque()
        self.wake = asyncio.Event()

    def concerns(self, change: Change) -> bool:
        stored = change.new
        return stored.resource == self.request.resource.storage_key and (
            not self.request.namespace or stored.namespace == self.request.namespace
        )

    def begin(self) -> Iterable[bytes]:
        """Lines to send first: the present state, or the changes since the version asked for. Raises ExpiredError."""
        request = self.request
        if request.version and not request.initial_events:
            changes = [change for change in self._store.changes_since(request.version) if self.concerns(change)]
            return [line for change in changes if (line := self.event(change))]
        present = self._store.objects(request.resource.storage_key, request.namespace)
        lines = [
            self._encode(b"ADDED", stored) for stored in present if not request.test or request.test(stored.object)
        ]
        if request.initial_events and request.bookmarks:
            lines.append(self.bookmark(self._store.version, {"k8s.io/initial-events-end": "true"}))
        return lines

    def event(self, change: Change) -> bytes:
        """The line for a change, or nothing when neither state is selected."""
        test = self.request.test
        before = change.old is not None and (test is None or test(change.old.object))
        after = change.type != "DELETED" and (test is None or test(change.new.object))
        if after:
            return self._encode(b"MODIFIED" if before else b"ADDED", change.new)
        if not before:
            return b""
        if change.type == "DELETED":
            return self._encode(b"DELETED", change.new)
        assert change.old is not None
        return self._encode(b"DELETED", _at_version(change.old, change.version))

    def _encode(self, kind: bytes, stored: Stored) -> bytes:
        encoder = self.request.encoder
        return _line(kind, encoder(stored) if encoder else encode(self.request.resource, stored))

    def bookmark(self, version: int, annotations: JsonObject | None = None) -> bytes:
        resource = self.request.resource
        meta: JsonObject = {"resourceVersion": str(version), "creationTimestamp": None}
        if annotations:
            meta["annotations"] = annotations
        body = {"kind": resource.kind, "apiVersion": resource.api_version, "metadata": meta}
        if self.request.encoder:
            raw = msgspec.json.encode(body)
            return _line(b"BOOKMARK", self.request.encoder(Stored(resource.storage_key, "", "", version, raw, body)))
        return _line(b"BOOKMARK", msgspec.json.encode(body))


def _at_version(stored: Stored, version: int) -> Stored:
    object = stored.copy()
    object["metadata"]["resourceVersion"] = str(version)
    return Stored(stored.resource, stored.namespace, stored.name, version, msgspec.json.encode(object), object)


def _line(kind: bytes, object: bytes) -> bytes:
    return b'{"type":"' + kind + b'","object":' + object + b"}\n"
