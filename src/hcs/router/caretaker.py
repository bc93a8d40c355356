"""Looks after what the router holds: lapsed promises, Bindings whose fate is unknown, and pods to wake.

One loop, stirred whenever something changed. In it the controllers of gangs, offers and preemption take their turns, so
none of them needs a clock or a task of its own, and what one frees the next sees at once.
"""

import asyncio
import contextlib
from typing import TYPE_CHECKING, Final

import httpx2
from lightkube import ApiError

from hcs.kube import resources
from hcs.model.allocations import Allocation
from hcs.model.pods import Pod
from hcs.router.decisions import Chosen, NotOurs
from hcs.router.reservations import Reservation
from hcs.router.volcano import erase, is_volcano
from hcs.router.waiting import LATE_SECONDS, Waiting

if TYPE_CHECKING:
    from hcs.router.extender import Extender

TEND_SECONDS: Final = 5.0
"""How often lapsed promises and unseen bindings are looked for when nothing else happens."""


class Caretaker:
    """The loop of one router."""

    def __init__(self, router: "Extender", stirred: asyncio.Event) -> None:
        """Prepare; ``stirred`` is set whenever there may be something to do."""
        self._router, self._stirred = router, stirred
        self._fitting: tuple[int, list[Allocation]] = (-1, [])
        self._tidy_at = 0.0

    async def run(self) -> None:
        """Look after what is held, and wake whom it would serve, until cancelled."""
        router = self._router
        await router.view.wait_synced()
        _ = router.view.placer  # laid out before the first pod asks
        while True:
            self._stirred.clear()
            now = self._router.desk.now()
            if self._router.reservations.lapse(now):
                self._router.grown()
            if now >= self._tidy_at:
                self._tidy_at = now + LATE_SECONDS
                router.waiting.forget(lambda uid: router.view.pod(uid) is not None, now)
            for held in self._router.reservations.doubtful(now):
                await self._look_after(held)
            times = [
                await self._router.conductor.tend(),
                await self._poke(now),
                await self._router.offers.tend(),
                await self._router.preemption.tend(),
            ]
            again = min((time for time in times if time is not None), default=now + TEND_SECONDS)
            pause = min(
                TEND_SECONDS, max(0.0, again - self._router.desk.now()) + 0.001
            )  # a timer may ring a hair too early
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):  # wait_for of Python 3.11 can lose a cancellation
                    await self._stirred.wait()

    async def _look_after(self, held: Reservation) -> None:
        """A binding was sent and its pod never seen bound: ask the API server what became of it."""
        uid = held.allocation.pod
        if self._router.is_binding(uid):
            return
        namespace, _, name = held.pod_key.partition("/")
        try:
            pod: Pod | None = await self._router.desk.client.get(resources.Pod, name, namespace=namespace)
        except ApiError as error:
            if error.status.code != 404:
                return
            pod = None
        except httpx2.HTTPError:
            return
        if pod is not None and is_volcano(pod) and not pod.spec.nodeName and not await erase(self._router.desk, pod):
            return
        gone = pod is None or pod.metadata.uid != uid or pod.finished
        if gone or (pod is not None and not pod.spec.nodeName):
            self._router.released(uid)
            self._router.conductor.concluded(uid, bound=False)

    async def _poke(self, now: float) -> float | None:
        if self._fitting[0] != self._router.waiting.round:
            self._fitting = (self._router.waiting.round, [])
        found = self._fitting[1]

        def fits(uid: str, waiting: Waiting) -> bool:
            pod = self._router.view.pod(uid)
            if pod is None or self._router.reservations.get(uid, now) is not None or self._router.conductor.leads(pod):
                return False
            nodes = waiting.nodes if waiting.nodes is not None else tuple(n.name for n in self._router.view.inventories)
            decision = self._router.desk.decide(pod, nodes, found)
            if isinstance(decision, Chosen):
                found.append(decision.allocation)
            return isinstance(decision, Chosen | NotOurs)

        poke, again = self._router.waiting.due(fits, now)
        for uid in poke:
            pod = self._router.view.pod(uid)
            if pod is not None:
                await self._router.desk.wake(pod)
        return again
