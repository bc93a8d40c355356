"""What follows from a deletion: dependents, contents of namespaces, objects of withdrawn definitions.

A small garbage collector in the server's own process, fed by every change. Promises: an object whose owners are all
gone is deleted; with foreground deletion the owner waits for blocking dependents; orphans lose only the reference; a
terminating namespace goes when it is empty. It works on live state, so after a restart one sweep is enough to catch
up.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable

from hcs.sandbox.apiserver import quota
from hcs.sandbox.apiserver.cluster import Cluster
from hcs.sandbox.apiserver.deletion import DeleteOptions, carry_out
from hcs.sandbox.apiserver.status import JsonObject
from hcs.sandbox.apiserver.storage import Change, StaleError, Store, Stored

log = logging.getLogger(__name__)
Key = tuple[str, str, str]
_CRDS = "customresourcedefinitions.apiextensions.k8s.io"


class Owners:
    """Which objects are alive, and who depends on whom, by uid."""

    def __init__(self, store: Store) -> None:
        self.alive: dict[str, Key] = {}
        self._dependents: dict[str, set[Key]] = {}
        for resource in store.resources():
            for stored in store.objects(resource):
                self._note(stored)
        store.listen(self._follow)

    def dependents(self, uid: str) -> list[Key]:
        return sorted(self._dependents.get(uid, ()))

    def _follow(self, change: Change) -> None:
        if change.old is not None:
            for owner in references(change.old.object):
                self._dependents.get(owner["uid"], set()).discard(_key(change.old))
        if change.type == "DELETED":
            self.alive.pop(change.new.uid, None)
            if not self._dependents.get(change.new.uid):
                self._dependents.pop(change.new.uid, None)
        else:
            self._note(change.new)

    def _note(self, stored: Stored) -> None:
        self.alive[stored.uid] = _key(stored)
        for owner in references(stored.object):
            self._dependents.setdefault(owner["uid"], set()).add(_key(stored))


def references(object: JsonObject) -> list[JsonObject]:
    return list(object["metadata"].get("ownerReferences") or ())


def _key(stored: Stored) -> Key:
    return stored.resource, stored.namespace, stored.name


class Collector:
    """Carries out the consequences of changes, in order, in one task."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster, self._store = cluster, cluster.store
        self._owners = Owners(cluster.store)
        self._queue: asyncio.Queue[Change] = asyncio.Queue()
        self._store.listen(self._queue.put_nowait)

    async def run(self) -> None:
        """Sweep once, then follow changes until cancelled."""
        for resource in self._store.resources():
            for stored in self._store.objects(resource):
                self._attend(stored)
        for quota_object in self._store.objects("resourcequotas"):
            self._recount(quota_object.namespace)
        while True:
            change = await self._queue.get()
            try:
                self._follow(change)
            except Exception:
                log.exception("garbage collection failed resource=%s name=%s", change.new.resource, change.new.name)

    def _follow(self, change: Change) -> None:
        if change.type == "DELETED":
            self._after_removal(change.new)
        elif current := self._store.get(*_key(change.new)):
            self._attend(current)
        if change.new.namespace and change.new.resource != "events":
            self._recount(change.new.namespace)

    def _after_removal(self, gone: Stored) -> None:
        for key in self._owners.dependents(gone.uid):
            self._collect_if_ownerless(key)
        for owner in references(gone.object):
            if owner["uid"] in self._owners.alive and (stored := self._store.get(*self._owners.alive[owner["uid"]])):
                self._attend(stored)
        if gone.namespace and (holder := self._store.get("namespaces", "", gone.namespace)):
            self._attend(holder)
        if gone.resource == _CRDS:
            for stored in self._store.objects(gone.name):
                self._quietly(lambda stored=stored: self._store.remove(stored))  # type: ignore[misc]

    def _attend(self, stored: Stored) -> None:
        """Do what the present state of one object asks for."""
        owners = references(stored.object)
        if owners and all(owner["uid"] not in self._owners.alive for owner in owners):
            self._collect_if_ownerless(_key(stored))
            return
        meta = stored.object["metadata"]
        if not meta.get("deletionTimestamp"):
            return
        if stored.resource == "namespaces":
            self._empty_namespace(stored)
        if "orphan" in (meta.get("finalizers") or ()):
            for key in self._owners.dependents(stored.uid):
                self._drop_reference(key, stored.uid)
            self._drop_finalizer(stored, "orphan")
        elif "foregroundDeletion" in (meta.get("finalizers") or ()):
            self._delete_dependents_first(stored)

    def _collect_if_ownerless(self, key: Key) -> None:
        stored = self._store.get(*key)
        if stored is None:
            return
        gone = [owner["uid"] for owner in references(stored.object) if owner["uid"] not in self._owners.alive]
        if not gone:
            return
        if len(gone) == len(references(stored.object)):
            self._delete(stored, DeleteOptions())
        else:
            for uid in gone:
                self._drop_reference(key, uid)

    def _delete_dependents_first(self, owner: Stored) -> None:
        for key in self._owners.dependents(owner.uid):
            dependent = self._store.get(*key)
            if dependent is not None and not dependent.object["metadata"].get("deletionTimestamp"):
                self._delete(dependent, DeleteOptions(propagation="Background"))
        blocking = (
            reference
            for key in self._owners.dependents(owner.uid)
            if (dependent := self._store.get(*key))
            for reference in references(dependent.object)
            if reference["uid"] == owner.uid and reference.get("blockOwnerDeletion")
        )
        if not any(blocking):
            self._drop_finalizer(owner, "foregroundDeletion")

    def _empty_namespace(self, namespace: Stored) -> None:
        for resource in self._store.resources():
            for stored in self._store.objects(resource, namespace.name):
                if not stored.object["metadata"].get("deletionTimestamp"):
                    self._delete(stored, DeleteOptions())
        if any(self._store.objects(resource, namespace.name) for resource in self._store.resources()):
            return
        current = self._store.get("namespaces", "", namespace.name)
        if current is not None and not current.object["metadata"].get("finalizers"):
            self._quietly(lambda: self._store.remove(current))

    def _delete(self, stored: Stored, options: DeleteOptions) -> None:
        resource = self._cluster.registry.stored_as(stored.resource)
        if resource is not None:
            self._quietly(lambda: carry_out(self._cluster, resource, stored, options))

    def _drop_reference(self, key: Key, uid: str) -> None:
        stored = self._store.get(*key)
        if stored is not None:
            object = stored.copy()
            kept = [owner for owner in references(object) if owner["uid"] != uid]
            object["metadata"]["ownerReferences"] = kept
            if not kept:
                del object["metadata"]["ownerReferences"]
            self._quietly(lambda: self._store.replace(stored, object))

    def _drop_finalizer(self, stored: Stored, finalizer: str) -> None:
        object = stored.copy()
        kept = [held for held in object["metadata"].get("finalizers") or () if held != finalizer]
        object["metadata"]["finalizers"] = kept
        if not kept:
            del object["metadata"]["finalizers"]
        if kept or object["metadata"].get("deletionGracePeriodSeconds"):
            self._quietly(lambda: self._store.replace(stored, object))
        else:
            self._quietly(lambda: self._store.remove(stored, object))

    def _recount(self, namespace: str) -> None:
        for stored in self._store.objects("resourcequotas", namespace):
            status = quota.status(self._store, namespace, stored.object)
            if status != stored.object.get("status"):
                self._quietly(lambda s=stored, t=status: self._store.replace(s, {**s.copy(), "status": t}))  # type: ignore[misc]

    @staticmethod
    def _quietly(write: Callable[[], object]) -> None:
        """A write that lost a race is dropped: the winner's change brings the object here again."""
        with contextlib.suppress(StaleError):
            write()
