"""Carries a pod's bind out: what was promised is looked at once more, committed, written, and then known or doubted.

One bind at a time for each pod. A member of a gang is held until all members have come. When it is not known what
became of a Binding, its devices stay committed until somebody has looked.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from lightkube import ApiError, AsyncClient

from hcs.kube import resources
from hcs.model.pods import Pod
from hcs.router.binder import Outcome, carry_out, carry_out_plainly
from hcs.router.conductor import Conductor
from hcs.router.decisions import Chosen, NotOurs, Refused
from hcs.router.desk import Desk
from hcs.router.images import image_for
from hcs.router.resumption import note_for
from hcs.router.waiting import WaitingRoom
from hcs.router.wire import BindAnswer, BindArguments

log = logging.getLogger(__name__)

MEMBER_TRIES: Final = 3
"""How often the Binding of a gang's member is tried before the whole gang starts again."""
_AGAIN_SECONDS: Final = 0.5


class Bindings:
    """The binds of one router."""

    def __init__(
        self,
        client: AsyncClient,
        desk: Desk,
        conductor: Conductor,
        waiting: WaitingRoom,
        *,
        released: Callable[[str], None],
        stir: Callable[[], None],
    ) -> None:
        """Prepare.

        Args:
            client: the API server.
            desk: the router.
            conductor: leads gangs.
            waiting: whoever is bound leaves it.
            released: called with the UID of a pod that holds nothing any more.
            stir: has what is doubtful looked into soon.
        """
        self._client, self._desk, self._conductor, self._waiting = client, desk, conductor, waiting
        self._released, self._stir = released, stir
        self._under_way: set[str] = set()

    def under_way(self, uid: str) -> bool:
        """Whether a bind of this pod is under way here."""
        return uid in self._under_way

    async def bind(self, arguments: BindArguments) -> BindAnswer:
        """Commit a pod to a node."""
        uid = arguments.poduid
        if uid in self._under_way:
            return self._bound("busy", "a binding of this pod is under way")
        self._under_way.add(uid)
        try:
            return await self._bind(arguments)
        finally:
            self._under_way.discard(uid)

    async def _bind(self, arguments: BindArguments) -> BindAnswer:
        uid, node = arguments.poduid, arguments.node
        held = self._desk.view.allocations.get(uid)
        if held is not None:
            if held.node == node:
                return self._bound("already")
            return self._bound("elsewhere", f"the pod is bound to {held.node} already")
        pod = self._desk.view.pod(uid) or await self._read(arguments)
        if pod is None:
            self._released(uid)
            return self._bound("gone", f"pod {arguments.podnamespace}/{arguments.podname} of UID {uid} is gone")
        if self._conductor.leads(pod):
            return await self._bind_member(pod, node)
        decision = self._desk.confirm(pod, node)
        if isinstance(decision, NotOurs):
            self._desk.guests.expect(pod, node)
            outcome = await carry_out_plainly(self._client, pod, node)
            if outcome.error and not outcome.unsure:
                self._desk.guests.forget(uid)
            return self._bound("refused" if outcome.error else "bound", outcome.error)
        if isinstance(decision, Refused):
            self._released(uid)
            return self._bound("stale", f"{node} cannot take the pod any more: {decision.summary}")
        self._desk.commit(pod, decision.allocation, decision.reason)
        return self._conclude(pod, decision, await self._carry_out(pod, decision))

    async def _bind_member(self, pod: Pod, node: str) -> BindAnswer:
        """Hold a gang's member until all have come, then bind it; a Binding that fails is tried again at once."""
        uid = pod.metadata.uid
        arrived = await self._conductor.arrive(pod, node)
        if isinstance(arrived, str):
            return self._bound("gang", arrived)
        outcome = await self._carry_out(pod, arrived)
        for _ in range(MEMBER_TRIES - 1):
            if outcome.bound is not None or outcome.gone:
                break
            await asyncio.sleep(_AGAIN_SECONDS)
            outcome = await self._carry_out(pod, arrived)
        answer = self._conclude(pod, arrived, outcome)
        if not outcome.unsure:
            self._conductor.concluded(uid, bound=outcome.bound is not None)
        return answer

    async def _carry_out(self, pod: Pod, decision: Chosen) -> Outcome:
        request = self._desk.request_of(pod)
        note = note_for(pod, self._desk.view.noted)
        return await carry_out(
            self._client,
            pod,
            decision.allocation,
            image=image_for(self._desk.view.offers, request, decision.allocation.vendor) if request else "",
            reason=decision.reason,
            resume=note.resume_from if note else "",
        )

    def _conclude(self, pod: Pod, decision: Chosen, outcome: Outcome) -> BindAnswer:
        uid = pod.metadata.uid
        if outcome.unsure:
            self._desk.reservations.doubt(uid, self._desk.now())
            self._stir()
            return self._bound("unsure", outcome.error)
        if outcome.bound is None:
            self._released(uid)
            return self._bound("refused", outcome.error)
        if uid in self._desk.view.allocations:
            self._released(uid)
        else:
            self._desk.reservations.commit(pod.key, outcome.bound, decision.reason, self._desk.now())
        if outcome.error:
            return self._bound("elsewhere", outcome.error)
        self._waiting.leave(uid)
        self._desk.tell(pod, "Substituted" if outcome.bound.exchange else "Placed", decision.reason, warning=False)
        log.info("bound: pod=%s node=%s devices=%s", pod.key, outcome.bound.node, sorted(outcome.bound.devices()))
        return self._bound("bound")

    async def _read(self, arguments: BindArguments) -> Pod | None:
        """Read a pod that the view does not show yet; None when it is gone."""
        try:
            pod: Pod = await self._client.get(resources.Pod, arguments.podname, namespace=arguments.podnamespace)
        except ApiError as error:
            if error.status.code == 404:
                return None
            raise
        return pod if pod.metadata.uid == arguments.poduid else None

    def _bound(self, result: str, error: str = "") -> BindAnswer:
        self._desk.meters.binds.labels(result).inc()
        if error:
            log.warning("bind: result=%s why=%s", result, error)
        return BindAnswer(error=error)
