"""``NeuralTask`` objects: the service's calls as Kubernetes people make them. A namespace is a tenant.

Creating an object is TaskCreate, ``spec.desired`` says whether it shall run, deleting it is TaskDestroy: a finalizer
keeps the object until its cores are free. Any node's plugin may take an object that no node has; who writes its name
into the status first has it. What the service refuses stands in the status, and is tried again when something came
free.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Final

import httpx2
import msgspec
from lightkube import ApiError, AsyncClient
from lightkube.core.resource import ApiInfo, NamespacedResourceG, NamespacedSubResource, ResourceDef
from lightkube.types import PatchType

from hcs.kube.informer import Informer
from hcs.model import names
from hcs.model.pods import ObjectMeta
from hcs.model.refusals import RefusedError
from hcs.neuro.packages import read_package
from hcs.neuro.sites import AFFINITIES, Wish
from hcs.neuro.tasks import Task
from hcs.neuroplugin.operator import Operator

log = logging.getLogger(__name__)

FINALIZER: Final = f"{names.DOMAIN}/neural-cores"
LOOK_SECONDS: Final = 5.0


class Metadata(ObjectMeta, frozen=True, omit_defaults=True):
    """``metadata`` with the finalizers, which decide when a deleted object goes."""

    finalizers: list[str] | None = None


class NeuralTask(msgspec.Struct, NamespacedResourceG, frozen=True, kw_only=True, omit_defaults=True):
    """A task as people ask for it."""

    apiVersion: str | None = None  # noqa: N815 - the API's own name
    kind: str | None = None
    metadata: Metadata = Metadata()
    spec: dict[str, Any] = {}
    status: dict[str, Any] = {}
    _api_info = ApiInfo(
        resource=ResourceDef(names.GROUP, names.VERSION, "NeuralTask"),
        plural="neuraltasks",
        verbs=[
            "delete", "deletecollection", "get", "list", "patch", "post", "put", "watch", "global_list", "global_watch",
        ],
    )  # fmt: skip


class NeuralTaskStatus(NeuralTask, NamespacedSubResource, frozen=True, kw_only=True, omit_defaults=True):
    """``neuraltasks/status``."""

    _api_info = ApiInfo(
        resource=ResourceDef(names.GROUP, names.VERSION, "NeuralTask"),
        parent=ResourceDef(names.GROUP, names.VERSION, "NeuralTask"),
        plural="neuraltasks",
        verbs=["get", "patch", "put"],
        action="status",
    )


class NeuralTasks:
    """Keeps the objects and the service in step."""

    def __init__(
        self,
        operator: Operator,
        client: AsyncClient,
        node: str,
        *,
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """Prepare.

        Args:
            operator: who acts.
            client: the connection.
            node: this node's name.
            pause: how to wait.
        """
        self._operator, self._client, self._node, self._pause = operator, client, node, pause
        self.informer: Informer[NeuralTask] = Informer(client, NeuralTask)
        self._numbers: dict[str, tuple[str, int]] = {}
        self._refused: dict[str, tuple[int, str]] = {}
        """By UID: in which room, and for which spec, it found no place; not tried again before one of them changes."""
        self._room = 0
        self._wake = asyncio.Event()
        self.informer.on_change(lambda kind, item, before: self._wake.set())

    def wake(self) -> None:
        """Something came free, or changed on a board."""
        self._room += 1
        self._wake.set()

    async def run(self) -> None:
        """Reconcile whenever something changed, and every few seconds, until cancelled."""
        await self.informer.synced.wait()
        while True:
            self._wake.clear()
            await self.reconcile()
            try:
                async with asyncio.timeout(LOOK_SECONDS):
                    await self._wake.wait()
            except TimeoutError:
                self._room += 1

    async def reconcile(self) -> None:
        """Look at every object once."""
        objects = sorted(
            self.informer.values(),
            key=lambda o: (-int(o.spec.get("priority", 0) or 0), o.metadata.creationTimestamp or "", o.metadata.name),
        )
        for item in objects:
            try:
                await self._one(item)
            except (ApiError, httpx2.HTTPError) as error:
                if not (isinstance(error, ApiError) and error.status.code in (404, 409)):
                    log.warning("neural task not written: %s error=%r", item.metadata.name, error)
        known = {item.metadata.uid for item in self.informer.values()}
        self._refused = {uid: tried for uid, tried in self._refused.items() if uid in known - self._numbers.keys()}
        for uid in [uid for uid in self._numbers if uid not in known]:
            await self._destroy(uid)  # somebody removed the finalizer by hand

    async def _one(self, item: NeuralTask) -> None:
        uid, tenant = item.metadata.uid, item.metadata.namespace or "default"
        mine = item.status.get("node", "") == self._node
        if item.metadata.deletionTimestamp:
            if uid in self._numbers:
                await self._destroy(uid)
            if mine or not item.status.get("node"):
                await self._finalize(item)
            return
        if item.spec.get("node", "") not in ("", self._node) or item.status.get("node", "") not in ("", self._node):
            return
        if uid not in self._numbers:
            if mine and item.status.get("state") == "Failed":
                return
            tried = (self._room, msgspec.json.encode(item.spec, order="deterministic").decode())
            if self._refused.get(uid) == tried:
                return
            self._refused[uid] = tried
            await self._create(item, uid, tenant, mine)
        if uid in self._numbers:
            await self._steer(item, uid)

    async def _create(self, item: NeuralTask, uid: str, tenant: str, mine: bool) -> None:
        spec = item.spec
        wish = Wish(
            str(spec.get("board", "")),
            spec.get("affinity", "any") if spec.get("affinity", "any") in AFFINITIES else "any",
            spec.get("numa"),
        )
        try:
            app = str(spec.get("app", ""))
            if "package" in spec:
                package = read_package(spec["package"])
                await self._operator.install(tenant, package)
                app = package.name
            if not mine:
                await self._claim(item)
            task = await self._operator.create(
                tenant,
                app,
                str(spec.get("model", "")),
                lease=spec.get("lease"),
                wish=wish,
                priority=int(spec.get("priority", 0) or 0),
            )
        except RefusedError as error:
            first = error.refusals[0]
            sentence = "; ".join(refusal.message for refusal in error.refusals)[:1024]
            status = {"state": "Pending", "reason": first.reason, "message": sentence, "node": None}
            await self._write(item, status)
            return
        self._numbers[uid] = (tenant, task.number)

    async def _steer(self, item: NeuralTask, uid: str) -> None:
        """Bring the task into the state its object wishes, and write where it is."""
        tenant, number = self._numbers[uid]
        task = self._operator.service.get(tenant, number)
        desired, state = str(item.spec.get("desired", "Ready")), task.life.state
        if desired == "Running" and state == "Ready":
            task = await self._operator.start(tenant, number)
        elif desired == "Running" and state == "Paused":
            task = await self._operator.resume(tenant, number)
        elif desired == "Paused" and state == "Running":
            task = await self._operator.pause(tenant, number)
        await self._write(item, self._status(task))

    def _status(self, task: Task) -> dict[str, Any]:
        virtual = task.virtual.rectangle
        return {
            "node": self._node,
            "state": task.life.state,
            "task": task.number,
            "board": task.board,
            "grid": f"{virtual.width}x{virtual.height}",
            "streams": list(task.addresses),
            "reason": None,
            "message": None,
        }

    async def _claim(self, item: NeuralTask) -> None:
        """Take the object for this node; a conflict means another was first."""
        finalizers, version = [*(item.metadata.finalizers or []), FINALIZER], item.metadata.resourceVersion
        if FINALIZER not in (item.metadata.finalizers or []):
            written = await self._client.patch(
                NeuralTask,
                item.metadata.name,
                {"metadata": {"finalizers": finalizers, "resourceVersion": version}},
                namespace=item.metadata.namespace,
                patch_type=PatchType.MERGE,
            )
            version = written.metadata.resourceVersion
        await self._client.patch(
            NeuralTaskStatus,
            item.metadata.name,
            {"metadata": {"resourceVersion": version}, "status": {"node": self._node, "state": "Pending"}},
            namespace=item.metadata.namespace,
            patch_type=PatchType.MERGE,
        )

    async def _write(self, item: NeuralTask, status: dict[str, Any]) -> None:
        wanted = {key: value for key, value in status.items() if value is not None}
        now = {key: value for key, value in item.status.items() if key in status}
        if wanted == now:
            return
        await self._client.patch(
            NeuralTaskStatus,
            item.metadata.name,
            {"status": status},
            namespace=item.metadata.namespace,
            patch_type=PatchType.MERGE,
        )

    async def _destroy(self, uid: str) -> None:
        tenant, number = self._numbers.pop(uid)
        try:
            await self._operator.destroy(tenant, number)
        except RefusedError as error:
            log.warning("task was gone already: tenant=%s task=%d reason=%s", tenant, number, error)

    async def _finalize(self, item: NeuralTask) -> None:
        left = [name for name in item.metadata.finalizers or [] if name != FINALIZER]
        if left != (item.metadata.finalizers or []):
            await self._client.patch(
                NeuralTask,
                item.metadata.name,
                {"metadata": {"finalizers": left, "resourceVersion": item.metadata.resourceVersion}},
                namespace=item.metadata.namespace,
                patch_type=PatchType.MERGE,
            )
