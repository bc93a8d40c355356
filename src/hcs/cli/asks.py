"""``hcs asks``, ``hcs accept`` and ``hcs decline``: what pods are offered instead of what they named, and the answer.

The answer is an annotation that anybody who may change the pod may write; it names one offer, so that nobody accepts
what they have not read. The router judges it once more; here is only checked what would plainly be in vain.
"""

import datetime
from typing import Annotated, Literal

import httpx2
import msgspec
import typer
from lightkube import ApiError, AsyncClient

from hcs.cli.cluster import call
from hcs.cli.errors import CommandError
from hcs.cli.options import AllNamespaces, Context, Json, Kubeconfig, Namespace, NoHeaders, Output, chosen_format
from hcs.cli.output import Column, Table, say, tell, write_data, write_table
from hcs.kube import resources
from hcs.kube.writes import annotate
from hcs.model import names
from hcs.model.offers import Offer, answer_on, offer_on, write_answer
from hcs.model.pods import Pod
from hcs.model.quantities import show_bytes
from hcs.model.refusals import RefusedError
from hcs.router.asking import STAMP, expired

PodName = Annotated[str, typer.Argument(help="Name of the pod.", metavar="POD")]


class Ask(msgspec.Struct, frozen=True, rename="camel"):
    """One pod that is offered something else than it named; ``expires_seconds`` is what is left, never negative."""

    namespace: str
    pod: str
    offer: Offer
    expires_seconds: int
    answer: str = ""


def run(
    namespace: Namespace = None,
    all_namespaces: AllNamespaces = False,
    output: Output = None,
    json: Json = False,
    no_headers: NoHeaders = False,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> None:
    """Which pods are offered other cards than they named?

    A pod with annotation ai.compute/substitution: ask waits until a card that it names is free, or until its owner
    accepts what could stand in. Answer with 'hcs accept POD' or 'hcs decline POD'. No card is held for an offer.

    Example: hcs asks -A
    """
    format = chosen_format(output, json)

    async def look(client: AsyncClient) -> list[Pod]:
        where = "*" if all_namespaces else namespace or client.namespace
        return [pod async for pod in client.list(resources.Pod, namespace=where)]

    asks = asks_of(call(kubeconfig, context, look), datetime.datetime.now(datetime.UTC))
    if write_data(asks, format, names=[f"pod/{ask.pod}" for ask in asks]):
        return
    if not asks:
        tell("no pod is offered anything" + ("" if all_namespaces else "; -A looks in all namespaces"))
        return
    write_table(_table(asks, all_namespaces), wide=format == "wide", headers=not no_headers)


def asks_of(pods: list[Pod], today: datetime.datetime) -> list[Ask]:
    """The offers on pods that are not bound and not accepted yet, in the order of names."""
    found = []
    for pod in sorted(pods, key=lambda pod: pod.key):
        offer = offer_on(pod)
        if offer is None or offer.accepted or pod.spec.nodeName or pod.finished:
            continue
        found.append(
            Ask(
                namespace=pod.metadata.namespace or "default",
                pod=pod.metadata.name,
                offer=offer,
                expires_seconds=_left(offer, today),
                answer=pod.annotations.get(names.SUBSTITUTION_ANSWER, ""),
            )
        )
    return found


def _left(offer: Offer, today: datetime.datetime) -> int:
    if expired(offer, today):
        return 0
    until = datetime.datetime.strptime(offer.expires, STAMP).replace(tzinfo=datetime.UTC)
    return int((until - today).total_seconds())


def _table(asks: list[Ask], namespaces: bool) -> Table:
    columns = (
        Column("NAMESPACE", wide=not namespaces),
        Column("POD"),
        Column("WANTED"),
        Column("OFFERED"),
        Column("RATE", flexible=True),
        Column("EXPIRES IN", right=True),
        Column("OFFER", wide=True),
        Column("ANSWER", wide=True),
    )
    rows: list[tuple[str, ...]] = []
    for ask in asks:
        offer = ask.offer
        hundredths = offer.wanted_milliacu * 100 // max(offer.got_milliacu, 1)
        rows.append(
            (
                ask.namespace,
                ask.pod,
                f"{offer.wanted_cards} x {offer.wanted}",
                f"{offer.cards} x {offer.model}, {show_bytes(offer.vram)} each",
                f"1 = {hundredths // 100}.{hundredths % 100:02d} in {offer.workload} ({offer.source})",
                _span(ask.expires_seconds),
                offer.id,
                ask.answer or "-",
            )
        )
    return Table(columns, rows)


def _span(seconds: int) -> str:
    """A duration as kubectl shows ages.

    >>> _span(0), _span(59), _span(599)
    ('expired', '59s', '9m59s')
    """
    if seconds <= 0:
        return "expired"
    minutes, rest = divmod(seconds, 60)
    return f"{minutes}m{rest}s" if minutes else f"{rest}s"


def accept(
    pod: PodName,
    namespace: Namespace = None,
    json: Json = False,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> None:
    """Accept what a pod is offered instead of the cards it named.

    The router looks once more whether the offered cards are still free, and lets the pod go there; if others took them
    meanwhile, the pod is told so and gets another offer. See 'hcs asks'.

    Example: hcs accept train-1 -n research
    """
    _answer("accept", pod, namespace, json, kubeconfig, context)


def decline(
    pod: PodName,
    namespace: Namespace = None,
    json: Json = False,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> None:
    """Decline what a pod is offered; it waits for the cards it named, or for another offer.

    The same cards at the same rate are not offered to this pod again.

    Example: hcs decline train-1 -n research
    """
    _answer("decline", pod, namespace, json, kubeconfig, context)


class Answered(msgspec.Struct, frozen=True):
    """What ``--json`` says: the answer, and the offer it was given to."""

    namespace: str
    pod: str
    answer: str
    offer: Offer


def _answer(
    verb: Literal["accept", "decline"],
    name: str,
    namespace: str | None,
    json: bool,
    kubeconfig: str | None,
    context: str | None,
) -> None:
    name = name.removeprefix("pod/").removeprefix("pods/")

    async def answer(client: AsyncClient) -> Answered:
        where = namespace or client.namespace or "default"
        try:
            pod: Pod = await client.get(resources.Pod, name, namespace=where)
        except ApiError as error:
            if error.status.code == 404:
                raise CommandError(
                    f"there is no pod {name} in namespace {where}", "nothing can be answered", "hcs asks -A"
                ) from error
            raise
        offer = _standing(pod, verb)
        try:
            before = answer_on(pod)
        except RefusedError:
            before = None
        text = write_answer(verb, offer, before)
        try:
            await annotate(client, pod, {names.SUBSTITUTION_ANSWER: text})
        except ApiError as error:
            if error.status.code in (401, 403):
                raise CommandError(
                    f"you may not {verb} for this pod",
                    error.status.message or "the API server refused the annotation",
                    f"kubectl auth can-i patch pods -n {where}",
                ) from error
            raise
        except httpx2.HTTPStatusError as error:
            raise CommandError(f"could not {verb}", str(error), "the same once more") from error
        return Answered(where, name, text, offer)

    done = call(kubeconfig, context, answer)
    if write_data(done, chosen_format(None, json)):
        return
    if verb == "accept":
        say(f"pod {done.namespace}/{done.pod}: accepted {done.offer.reason}")
        tell(f"see where it goes: hcs why {done.pod} -n {done.namespace}")
    else:
        say(f"pod {done.namespace}/{done.pod}: declined {done.offer.reason}")


def _standing(pod: Pod, verb: str) -> Offer:
    """The offer to answer.

    Raises:
        CommandError: there is none, or an answer to it would be in vain.
    """
    where = pod.metadata.namespace or "default"
    offer = offer_on(pod)
    why = f"hcs why {pod.metadata.name} -n {where}"
    if pod.spec.nodeName:
        raise CommandError(f"pod {pod.key} has its place already", f"it is bound to {pod.spec.nodeName}", why)
    if offer is None:
        seen = pod.annotations.get(names.SUBSTITUTION, "never")
        raise CommandError(
            f"pod {pod.key} has no offer",
            "nothing free could stand in now" if seen == "ask" else f"its {names.SUBSTITUTION} is {seen}, not ask",
            why,
        )
    if offer.accepted:
        raise CommandError(f"the offer to pod {pod.key} is accepted already", f"it is offer {offer.id}", why)
    if verb == "accept" and expired(offer, datetime.datetime.now(datetime.UTC)):
        raise CommandError(
            f"the offer to pod {pod.key} has expired",
            f"it stood until {offer.expires}; the router makes a new one",
            f"hcs asks -n {where}, then the same once more",
        )
    return offer
