"""PodGroups of scheduler-plugins and Volcano, where the cluster has them.

Neither API need be installed, so nothing waits for them: a kind that is not there is asked for again once a minute,
and a gang whose PodGroup nobody has seen waits for it.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Final

import httpx2
import msgspec
from lightkube import ApiError, AsyncClient

from hcs.kube.informer import ChangeKind, Informer
from hcs.kube.resources import CoschedulingGroup, VolcanoGroup
from hcs.model.gangs import Membership, Origin, PodGroup, read_pod_group
from hcs.model.refusals import RefusedError

log = logging.getLogger(__name__)

ASK_AGAIN_SECONDS: Final = 60.0
_APIS: Final = {
    CoschedulingGroup: "scheduling.x-k8s.io/v1alpha1",
    VolcanoGroup: "scheduling.volcano.sh/v1beta1",
}
_ORIGINS: Final[dict[type[CoschedulingGroup] | type[VolcanoGroup], Origin]] = {
    CoschedulingGroup: "scheduler-plugins",
    VolcanoGroup: "volcano",
}


class PodGroups:
    """Watches both kinds and hands over what can be read, and why the rest cannot."""

    def __init__(
        self,
        client: AsyncClient,
        changed: Callable[[ChangeKind, PodGroup], None],
        refused: Callable[[str, str], None],
    ) -> None:
        """Prepare.

        Args:
            client: the API server.
            changed: called for each change.
            refused: called with the key of a group that cannot be read, and why; the empty string: it is gone.
        """
        self._client, self._changed, self._refused = client, changed, refused

    async def run(self) -> None:
        """Watch until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._watch(CoschedulingGroup))
            group.create_task(self._watch(VolcanoGroup))

    async def _watch(self, kind: type[CoschedulingGroup] | type[VolcanoGroup]) -> None:
        while True:
            if await self._served(kind):
                break
            await asyncio.sleep(ASK_AGAIN_SECONDS)
        informer: Informer[CoschedulingGroup | VolcanoGroup] = Informer(self._client, kind)

        def seen(change: ChangeKind, item: CoschedulingGroup | VolcanoGroup, _before: object) -> None:
            raw = {"apiVersion": _APIS[kind], "metadata": msgspec.to_builtins(item.metadata), "spec": item.spec}
            key = Membership(item.metadata.namespace or "default", item.metadata.name, _ORIGINS[kind]).key
            try:
                group = read_pod_group(raw)
            except RefusedError as error:
                log.warning("PodGroup not read: group=%s why=%s", key, error)
                self._refused(key, "" if change == "DELETED" else str(error))
                return
            self._refused(key, "")
            self._changed(change, group)

        informer.on_change(seen)
        await informer.run()

    async def _served(self, kind: type[CoschedulingGroup] | type[VolcanoGroup]) -> bool:
        try:
            async for _ in self._client.list(kind, namespace="*", chunk_size=1):
                break
        except (ApiError, httpx2.HTTPError) as error:
            log.debug("PodGroups not served: api=%s error=%r", _APIS[kind], error)
            return False
        return True
