"""Offers to pods with ``substitution: ask``: weighed when something changed, written on the pod, opened when answered.

What is done is decided in :mod:`hcs.router.asking`; here it is carried out. Everything that must outlive the router
stands on the pod: the gate, the offer, the answer, and the record that the answer was accepted in time. Offers are
weighed a few at a time, so that a long list of undecided owners never keeps kube-scheduler waiting.
"""

import asyncio
import datetime
import logging
from collections.abc import Callable, Mapping
from typing import Any, Final

import httpx2
from lightkube import ApiError, AsyncClient
from lightkube.types import PatchType
from prometheus_client import Counter

from hcs.kube import resources
from hcs.kube.informer import ChangeKind
from hcs.model import names
from hcs.model.offers import Offer, answer_on, encode_offer, offer_on
from hcs.model.pods import Pod
from hcs.model.refusals import RefusedError
from hcs.router.asking import OFFER_SECONDS, STAMP, Keep, Open, Put, Step, Take, Withdraw, is_gated, step
from hcs.router.desk import Desk

log = logging.getLogger(__name__)

BATCH: Final = 8
SETTLE_SECONDS: Final = 2.0
"""How long after a change that took cards away the standing offers are looked at again."""
RETRY_SECONDS: Final = 1.0
_FAR: Final = float("inf")


class Offers:
    """The offers of one router."""

    def __init__(
        self,
        client: AsyncClient,
        desk: Desk,
        *,
        now: Callable[[], float],
        today: Callable[[], datetime.datetime],
        count: Counter,
        seconds: float = OFFER_SECONDS,
    ) -> None:
        """Prepare.

        Args:
            client: the API server.
            desk: the router's books, which offers are made from.
            now: seconds on a clock that only goes forward.
            today: the wall clock.
            count: offers by what became of them.
            seconds: how long an offer stands.
        """
        self._client, self._desk, self._now, self._today = client, desk, now, today
        self._count, self._seconds = count, seconds
        self._pods: dict[str, Pod] = {}
        self._due: dict[str, float] = {}
        self._told: dict[str, tuple[str, str]] = {}

    def __len__(self) -> int:
        return len(self._pods)

    def pod_changed(self, kind: ChangeKind, pod: Pod) -> bool:
        """A pod of our scheduler changed; tells whether it is one that waits for an offer."""
        uid = pod.metadata.uid
        waits = kind != "DELETED" and not pod.finished and not pod.spec.nodeName and not pod.metadata.deletionTimestamp
        if not waits or not (is_gated(pod) or pod.annotations.get(names.SUBSTITUTION) == "ask"):
            for book in (self._pods, self._due, self._told):
                book.pop(uid, None)
            return False
        before = self._pods.get(uid)
        self._pods[uid] = pod
        if before is None or _matters(before) != _matters(pod):
            self._due[uid] = self._now()
        return True

    def grown(self) -> None:
        """More may be free than before."""
        self._due = dict.fromkeys(self._due, self._now())

    def shrunk(self) -> None:
        """Less may be free than before: standing offers may have nothing behind them."""
        soon = self._now() + SETTLE_SECONDS
        self._due = {uid: min(due, soon) for uid, due in self._due.items()}

    async def tend(self) -> float | None:
        """Take the next steps of the pods that are due; returns when to be called again, None: after a change."""
        now = self._now()
        due = sorted((when, uid) for uid, when in self._due.items() if when <= now)
        for _, uid in due[:BATCH]:
            pod = self._pods.get(uid)
            if pod is not None:
                await self._tend(pod)
            await asyncio.sleep(0)
        return None if not self._due else (low if (low := min(self._due.values())) < _FAR else None)

    async def _tend(self, pod: Pod) -> None:
        uid = pod.metadata.uid
        self._due[uid] = _FAR
        decided = self._decide(pod)
        try:
            await self._carry_out(pod, decided)
        except (ApiError, httpx2.HTTPError) as error:
            log.info("offer not written: pod=%s error=%r", pod.key, error)
            if uid in self._pods:
                self._due[uid] = self._now() + RETRY_SECONDS
            return
        standing = decided.offer if isinstance(decided, Put | Take) else offer_on(pod)
        if uid in self._pods and standing is not None and not standing.accepted and not isinstance(decided, Withdraw):
            self._due[uid] = min(self._due[uid], self._now() + self._left(standing))

    def _decide(self, pod: Pod) -> Step:
        try:
            request = self._desk.request_of(pod)
        except RefusedError as error:
            return Open(str(error)) if is_gated(pod) else Keep()
        if request is None:
            return Open("it asks for nothing of ours") if is_gated(pod) else Keep()
        say = None
        try:
            answer = answer_on(pod)
        except RefusedError as error:
            answer, say = None, (error.refusals[0].reason, error.refusals[0].message)
        exact = self._desk.exact_place(pod)
        decided = step(
            pod,
            request,
            exact=exact.allocation if exact is not None else None,
            alternatives=self._desk.alternatives(pod, request) if exact is None else (),
            standing=offer_on(pod),
            answer=answer,
            today=self._today(),
            seconds=self._seconds,
        )
        return Keep(say) if say is not None and isinstance(decided, Keep) else decided

    async def _carry_out(self, pod: Pod, decided: Step) -> None:
        match decided:
            case Open(why, allocation):
                if allocation is not None:
                    self._desk.hold(pod, allocation, why)
                await self._write(pod, None, opening=True)
                self._tally("opened")
                log.info("gate opened: pod=%s why=%s", pod.key, why)
            case Take(offer, allocation):
                self._desk.hold(pod, allocation, offer.reason)
                await self._write(pod, offer, opening=is_gated(pod))
                self._tally("accepted")
                self._desk.tell(pod, "SubstitutionAccepted", offer.reason, warning=False)
            case Put(offer, say):
                before = offer_on(pod)
                await self._write(pod, offer, opening=False)
                self._tally("made" if before is None or before.terms != offer.terms else "renewed")
                namespace = pod.metadata.namespace or "default"
                message = f"{offer.reason}; accept with: hcs accept {pod.metadata.name} -n {namespace}"
                self._desk.tell(pod, "SubstitutionOffered", message, warning=False)
                self._say(pod, say)
            case Withdraw(why, say):
                await self._write(pod, None, opening=False)
                self._tally("withdrawn")
                self._desk.tell(pod, "OfferWithdrawn", why, warning=False)
                self._say(pod, say)
            case Keep(say):
                self._say(pod, say)

    async def _write(self, pod: Pod, offer: Offer | None, *, opening: bool) -> None:
        """One patch: the offer, or its removal, and the gate."""
        text = encode_offer(offer) if offer is not None else None
        body: dict[str, Any] = {"metadata": {"uid": pod.metadata.uid}}
        if text != pod.annotations.get(names.SUBSTITUTION_OFFER):
            body["metadata"]["annotations"] = {names.SUBSTITUTION_OFFER: text}
        if opening:
            body["spec"] = without_gate(names.ASK_GATE)
        if len(body) > 1 or len(body["metadata"]) > 1:
            written = await self._client.patch(
                resources.Pod,
                pod.metadata.name,
                body,
                namespace=pod.metadata.namespace,
                patch_type=PatchType.STRATEGIC,
            )
            if pod.metadata.uid in self._pods:
                self._pods[pod.metadata.uid] = written  # the watch shows it later; until then nobody offers twice

    def _say(self, pod: Pod, say: tuple[str, str] | None) -> None:
        """Warn the owner, once about each thing."""
        if say is not None and self._told.get(pod.metadata.uid) != say:
            self._told[pod.metadata.uid] = say
            self._tally("unused-answer")
            self._desk.tell(pod, *say, warning=True)

    def _tally(self, result: str) -> None:
        self._count.labels(result).inc()

    def _left(self, offer: Offer) -> float:
        try:
            until = datetime.datetime.strptime(offer.expires, STAMP).replace(tzinfo=datetime.UTC)
        except ValueError:
            return 0.0
        return max(0.0, (until - self._today()).total_seconds())


def without_gate(gate: str) -> Mapping[str, Any]:
    """The part of a strategic merge patch of a pod's spec that opens one gate and leaves those of others."""
    return {"schedulingGates": [{"$patch": "delete", "name": gate}]}


def _matters(pod: Pod) -> tuple[object, ...]:
    """What of a pod a step depends on, besides the fleet. Our own offer is not among it."""
    others = {key: text for key, text in pod.annotations.items() if key not in names.OUR_ANNOTATIONS}
    return others, is_gated(pod), pod.spec.nodeSelector
