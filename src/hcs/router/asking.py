"""What to do about a pod that wants to be asked before another kind of card stands in: one step, decided purely.

No device is held for an open offer. An offer that held cards would let anyone who never answers keep them from the
others; so an acceptance is weighed against the fleet once more, and only then are devices promised, for as long as any
promise. What the owner risks is that the cards are gone, and a new offer is there.

The step is the same whether the pod still waits behind the gate that admission gave it or came through and was refused.
"""

import datetime
from collections.abc import Sequence
from typing import Final

import msgspec

from hcs.model import names
from hcs.model.allocations import Allocation
from hcs.model.offers import VERSION, Answer, Offer, terms_of
from hcs.model.pods import Pod
from hcs.model.quantities import show_bytes
from hcs.model.requests import ComputeRequest
from hcs.placement.alternatives import Alternative
from hcs.ura.exchange import in_words

OFFER_SECONDS: Final = 600.0
STAMP: Final = "%Y-%m-%dT%H:%M:%SZ"


class Keep(msgspec.Struct, frozen=True):
    """Nothing to do; ``say`` is a warning for the owner, told once (reason, sentence)."""

    say: tuple[str, str] | None = None


class Open(msgspec.Struct, frozen=True):
    """Open the gate, without asking: what the pod named is free, or it does not want to be asked any more.

    ``allocation`` is promised to it.
    """

    why: str
    allocation: Allocation | None = None


class Put(msgspec.Struct, frozen=True):
    """Write this offer on the pod."""

    offer: Offer
    say: tuple[str, str] | None = None


class Withdraw(msgspec.Struct, frozen=True):
    """Take the offer off the pod: nothing stands behind it any more, or it was declined."""

    why: str
    say: tuple[str, str] | None = None


class Take(msgspec.Struct, frozen=True):
    """The acceptance holds: promise the allocation, record the acceptance, open the gate."""

    offer: Offer
    allocation: Allocation


Step = Keep | Open | Put | Withdraw | Take


def step(
    pod: Pod,
    request: ComputeRequest,
    *,
    exact: Allocation | None,
    alternatives: Sequence[Alternative],
    standing: Offer | None,
    answer: Answer | None,
    today: datetime.datetime,
    seconds: float = OFFER_SECONDS,
) -> Step:
    """Decide the next step.

    Args:
        pod: as it is now; it is not bound.
        request: what it asks for.
        exact: where it would go now on cards that it names, or that its owner accepted.
        alternatives: what could stand in now, the fairest first.
        standing: the offer on the pod.
        answer: its owner's last word.
        today: the wall clock.
        seconds: how long an offer stands.
    """
    if exact is not None:
        return Open("a card that it names is free", exact) if is_gated(pod) else Keep()
    if request.substitution != "ask":
        return Open(f"its substitution is {request.substitution} now") if is_gated(pod) else Keep()
    if standing is not None and standing.accepted:
        return Keep()  # the accepted cards were taken by others; it waits for such cards, or for those it names
    offers = [_offer(pod, one, today, seconds) for one in alternatives]
    say = None
    if answer is not None and answer.verb == "accept":
        taken, say = _accepted(answer, standing, list(zip(offers, alternatives, strict=True)), pod, today)
        if taken is not None:
            return taken
    if answer is not None:
        offers = [one for one in offers if one.terms not in answer.declined]
    if not offers:
        if standing is not None:
            return Withdraw("nothing can stand in for what it names now", say)
        return Keep(say)
    best = offers[0]
    same = next((one for one in offers if standing is not None and one.terms == standing.terms), None)
    if standing is not None and same is not None and not expired(standing, today):
        return Keep(say)  # it still holds; a fairer one waits until it has expired, for its owner may be reading it
    return Put(best, say)


def is_gated(pod: Pod) -> bool:
    """Whether our gate holds the pod."""
    return any(gate.name == names.ASK_GATE for gate in pod.spec.schedulingGates or ())


def expired(offer: Offer, today: datetime.datetime) -> bool:
    """Whether an offer stands no longer; one whose time cannot be read never did."""
    try:
        return today >= datetime.datetime.strptime(offer.expires, STAMP).replace(tzinfo=datetime.UTC)
    except ValueError:
        return True


def _offer(pod: Pod, one: Alternative, today: datetime.datetime, seconds: float) -> Offer:
    place = one.placement
    exchange = place.exchange
    assert exchange is not None
    uid = pod.metadata.uid
    vram = min(grant.bytes for grants in place.containers.values() for grant in grants)
    rates = exchange.wanted, exchange.wanted_milliacu, exchange.got_milliacu, exchange.source, exchange.workload
    terms = terms_of(uid, place.vendor, place.model, one.cards, one.wanted_cards, vram, *rates)
    until = today + datetime.timedelta(seconds=seconds)
    amount = (
        f"{one.cards} {place.model} instead of {one.wanted_cards} {exchange.wanted}"
        if place.exclusive
        else f"{show_bytes(vram)} of one {place.model} instead of one {exchange.wanted}"
    )
    return Offer(
        version=VERSION,
        id=f"{terms}-{int(until.timestamp())}",
        pod=uid,
        vendor=place.vendor,
        model=place.model,
        cards=one.cards,
        wanted=exchange.wanted,
        wanted_cards=one.wanted_cards,
        workload=exchange.workload,
        wanted_milliacu=exchange.wanted_milliacu,
        got_milliacu=exchange.got_milliacu,
        source=exchange.source,
        vram=vram,
        expires=until.strftime(STAMP),
        reason=f"{amount}; {in_words(exchange.wanted, exchange.wanted_milliacu, place.model, exchange.got_milliacu)} "
        f"in {exchange.workload} ({exchange.source})",
    )


def _accepted(
    answer: Answer,
    standing: Offer | None,
    offers: Sequence[tuple[Offer, Alternative]],
    pod: Pod,
    today: datetime.datetime,
) -> tuple[Take | None, tuple[str, str] | None]:
    if standing is None or answer.accepted != standing.id:
        return None, (
            "AnswerNotUsed",
            f"offer {answer.accepted} was accepted and does not stand on this pod any more; accept the present one",
        )
    if expired(standing, today):
        return None, ("OfferExpired", f"offer {standing.id} was accepted after it expired; a new one follows")
    for offer, one in offers:
        if offer.terms == standing.terms:
            return Take(
                msgspec.structs.replace(standing, accepted=True), one.placement.allocation(pod.metadata.uid)
            ), None
    return None, (
        "OfferGone",
        f"offer {standing.id} was accepted, but others took those cards meanwhile; wait for another offer",
    )
