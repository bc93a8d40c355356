"""What the healer tells as events and in its log: about cards once a step, about pods each thing once."""

import datetime
import logging
from typing import Final

from hcs.health.cards import Instruction
from hcs.kube import resources
from hcs.kube.writes import EventRecorder, reference
from hcs.model import names
from hcs.model.devices import Device
from hcs.model.pods import Pod

log = logging.getLogger(__name__)

_WARNINGS: Final = frozenset({"CardQuarantined", "CardSubHealthy", "CardFailedAgain"})
_MOST_REMEMBERED: Final = 4096


class Teller:
    """Tells about cards and pods."""

    def __init__(self, recorder: EventRecorder) -> None:
        self._recorder = recorder
        self._told: set[str] = set()

    async def card(
        self, node: resources.ComputeNode, device: Device, order: Instruction, moment: datetime.datetime
    ) -> None:
        """Tell what became of a card, about its ComputeNode."""
        about = resources.ObjectReference(
            apiVersion=f"{names.GROUP}/{names.VERSION}",
            kind="ComputeNode",
            name=node.metadata.name,
            uid=node.metadata.uid,
        )
        log.info(
            "card: node=%s device=%s reason=%s message=%s", node.metadata.name, device.id, order.reason, order.message
        )
        message = f"{device.model} {device.id}: {order.message}"
        warning = order.reason in _WARNINGS
        await self._recorder.tell(about, reason=order.reason, message=message, now=moment, warning=warning)

    async def pod(self, pod: Pod, reason: str, message: str, moment: datetime.datetime) -> None:
        """Tell what became of a pod; the same thing is told once."""
        key = f"{pod.metadata.uid}/{reason}/{message}"
        if key in self._told:
            return
        if len(self._told) >= _MOST_REMEMBERED:
            self._told.clear()
        self._told.add(key)
        log.info("pod: pod=%s reason=%s message=%s", pod.key, reason, message)
        await self._recorder.tell(reference(pod), reason=reason, message=message, now=moment, warning=True)
