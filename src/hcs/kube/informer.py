"""A local copy of one kind of object, kept fresh by list and watch.

Promises: after ``synced`` the store has held a full list; every change afterwards reaches the handlers in order, also
those that happened while the connection was lost (a new list is compared with the old store); an expired
resourceVersion (410) leads to a new list, never to a gap; a server that is down is asked again with growing pauses of
at most five seconds. Handlers are plain functions and must not block.

One object that cannot be read, such as one written by a later version of ours, is left as it was last read and told in
the log; all others stay fresh. Reading with that care costs time, so it begins with the first such object and ends with
the first list without one.
"""

import asyncio
import contextlib
import functools
import logging
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, Generic, Literal, Protocol, TypeVar

import msgspec
from lightkube import ApiError, AsyncClient
from lightkube.core.resource import GlobalResource, NamespacedResource, NamespacedResourceG

from hcs.kube.connection import NO_ANSWER
from hcs.model.pods import ObjectMeta

log = logging.getLogger(__name__)

ChangeKind = Literal["ADDED", "MODIFIED", "DELETED"]
ALL_NAMESPACES: Final = "*"
WATCH_SECONDS: Final = 290
"""Asked of the server for each watch, just under the five minutes at which many proxies cut connections."""
WATCH_GRACE: Final = 30
"""Seconds after which a watch that did not end by itself is dead: the end was lost with everything before it."""


class Described(Protocol):
    """Any API object."""

    @property
    def metadata(self) -> ObjectMeta: ...


T = TypeVar("T", bound=Described)
Handler = Callable[[ChangeKind, T, T | None], None]
"""Called with the kind of change, the object now (or as last seen, when deleted) and the object before."""


class Unreadable(msgspec.Struct, frozen=True):
    """In place of an object that cannot be read."""

    metadata: ObjectMeta
    why: str


class Informer(Generic[T]):
    """The local copy; read it with :meth:`get` and :meth:`values`."""

    def __init__(
        self,
        client: AsyncClient,
        resource: type[T],
        *,
        namespace: str | None = ALL_NAMESPACES,
        labels: Mapping[str, str] | None = None,
        fields: Mapping[str, str] | None = None,
        pause: Callable[[float], Any] = asyncio.sleep,
    ) -> None:
        """Prepare; nothing is read before :meth:`run`.

        Args:
            client: the connection.
            resource: a class of :mod:`hcs.kube.resources`.
            namespace: one namespace, all of them, or None for cluster-scoped kinds.
            labels: only objects with these labels.
            fields: only objects with these field values.
            pause: how to wait between attempts; tests pass their own.
        """
        self._client, self._resource = client, resource
        self._select: dict[str, Any] = {"labels": labels, "fields": fields}
        if namespace is not None:
            self._select["namespace"] = namespace
        self._pause = pause
        self._careful = False
        self._store: dict[str, T] = {}
        self._handlers: list[Handler[T]] = []
        self.synced = asyncio.Event()
        self.problem: Exception | None = None
        """Why the copy is not fresh: what the last list or watch failed with; None after a list."""

    def on_change(self, handler: Handler[T]) -> None:
        """Call ``handler`` for every change from now on, and for everything already known."""
        self._handlers.append(handler)
        for item in list(self._store.values()):
            handler("ADDED", item, None)

    def get(self, name: str, namespace: str | None = None) -> T | None:
        """One object, or None."""
        return self._store.get(_key(namespace, name))

    def values(self) -> Iterator[T]:
        """All objects, in no particular order."""
        return iter(list(self._store.values()))

    def __len__(self) -> int:
        return len(self._store)

    async def run(self) -> None:
        """Keep the copy fresh until cancelled."""
        failures = 0
        while True:
            try:
                version = await self._list()
                failures, self.problem = 0, None
                await self._watch(version)
            except asyncio.CancelledError:
                raise
            except NO_ANSWER as error:
                if isinstance(error, msgspec.ValidationError) and not self._careful:
                    self._careful = True
                    continue
                gone = isinstance(error, ApiError) and error.status.code == 410
                failures = 0 if gone else failures + 1
                self.problem = None if gone else error
                log.log(
                    logging.WARNING if failures == 2 else logging.DEBUG,  # once an outage, and not for what passes
                    "watch interrupted: kind=%s error=%r attempt=%d",
                    self._resource.__name__,
                    error,
                    failures,
                )
                await self._pause(min(5.0, 0.05 * 2.0 ** min(failures, 8)) if failures else 0.0)

    async def _list(self) -> str:
        listed: Any = self._client.list(self._kind(), **self._select)
        found: dict[str, T | Unreadable] = {}
        async for item in listed:
            found[_key(item.metadata.namespace, item.metadata.name)] = item
        self._careful = any(isinstance(item, Unreadable) for item in found.values())
        for key, item in found.items():
            if isinstance(item, Unreadable):
                self._leave(key, item)
                continue
            before = self._store.get(key)
            if before is not None and before.metadata.uid != item.metadata.uid:
                self._apply("DELETED", before)
                before = None
            if before is None or before.metadata.resourceVersion != item.metadata.resourceVersion:
                self._apply("ADDED" if before is None else "MODIFIED", item)
        for key in [key for key in self._store if key not in found]:
            self._apply("DELETED", self._store[key])
        self.synced.set()
        return str(listed.resourceVersion)

    async def _watch(self, version: str) -> None:
        changes: Any = self._client.watch(
            self._kind(), resource_version=version, server_timeout=WATCH_SECONDS, **self._select
        )
        async with asyncio.timeout(WATCH_SECONDS + WATCH_GRACE), contextlib.aclosing(changes):
            async for kind, item in changes:
                if isinstance(item, Unreadable):
                    key = _key(item.metadata.namespace, item.metadata.name)
                    if kind == "DELETED" and key in self._store:
                        self._apply("DELETED", self._store[key])
                    else:
                        self._leave(key, item)
                elif kind in ("ADDED", "MODIFIED", "DELETED"):
                    self._apply(kind, item)

    def _kind(self) -> type[T]:
        return careful(self._resource) if self._careful else self._resource

    def _leave(self, key: str, item: Unreadable) -> None:
        log.error("object not read: kind=%s object=%s why=%s", self._resource.__name__, key, item.why)

    def _apply(self, kind: ChangeKind, item: T) -> None:
        key = _key(item.metadata.namespace, item.metadata.name)
        before = self._store.get(key)
        if kind == "DELETED":
            self._store.pop(key, None)
        else:
            if before is not None and before.metadata.resourceVersion == item.metadata.resourceVersion:
                return
            self._store[key] = item
            kind = "ADDED" if before is None else "MODIFIED"
        for handler in self._handlers:
            try:
                handler(kind, item, before)
            except Exception:
                log.exception("handler failed: kind=%s object=%s", self._resource.__name__, key)


@functools.cache
def careful(resource: type[T]) -> type[T]:
    """A stand-in for a resource class that makes an :class:`Unreadable` where an object cannot be read as one."""

    def read(_cls: type, raw: Any) -> Any:
        try:
            return msgspec.convert(raw, resource)
        except msgspec.ValidationError as error:
            return Unreadable(msgspec.convert(raw.get("metadata") or {}, ObjectMeta), str(error))

    scope = next(
        base for base in (NamespacedResourceG, NamespacedResource, GlobalResource) if issubclass(resource, base)
    )
    api: Any = resource
    return type(f"Careful{resource.__name__}", (scope,), {"_api_info": api._api_info, "__new__": read})


def _key(namespace: str | None, name: str) -> str:
    return f"{namespace}/{name}" if namespace else name
