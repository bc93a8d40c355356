"""One step of an offer, decided purely."""

import datetime
from typing import Any

import msgspec
from tests.placement.fleets import node, rates, whole
from tests.router.scene import pod_manifest

from hcs.model import names
from hcs.model.offers import Answer, Offer
from hcs.model.pods import Pod
from hcs.model.requests import ComputeRequest
from hcs.placement.alternatives import Alternative, alternatives
from hcs.placement.snapshot import Snapshot
from hcs.router.asking import Keep, Open, Put, Take, Withdraw, step

TODAY = datetime.datetime(2026, 3, 1, tzinfo=datetime.UTC)
REQUEST = ComputeRequest(
    (whole(1, 40),), models=("A100-SXM4-80GB",), workload="finetune", sharing="exclusive", substitution="ask"
)
REFERENCE = {"A100-SXM4-80GB": rates(gemm=100, finetune=100)}
FLEET = Snapshot.build([node("npu", *["910b"] * 4)])


def pod(*, gated: bool = True) -> Pod:
    spec = {"schedulingGates": [{"name": names.ASK_GATE}]} if gated else {}
    return msgspec.convert(pod_manifest("p", spec=spec, uid="u"), Pod)


def found() -> tuple[Alternative, ...]:
    return alternatives(FLEET, REQUEST, reference_rates=REFERENCE)


def take(**changes: Any) -> Any:
    given: dict[str, Any] = {
        "exact": None,
        "alternatives": found(),
        "standing": None,
        "answer": None,
        "today": TODAY,
        **changes,
    }
    return step(given.pop("pod", pod()), given.pop("request", REQUEST), **given)


def offered() -> Offer:
    put = take()
    assert isinstance(put, Put)
    offer: Offer = put.offer
    return offer


def accept(offer: Offer) -> Answer:
    return Answer("accept", (offer.id,))


def test_the_rate_of_the_class_decides_how_many() -> None:
    offer = offered()
    assert (offer.cards, offer.model, offer.wanted_cards, offer.source) == (3, "910B2", 1, "benchmark")
    gemm = msgspec.structs.replace(REQUEST, workload="gemm")
    (one,) = alternatives(FLEET, gemm, reference_rates=REFERENCE)
    assert one.cards == 1


def test_an_offer_that_still_holds_is_kept_as_it_is() -> None:
    assert take(standing=offered()) == Keep()


def test_an_expired_one_is_made_again_under_another_id() -> None:
    old = offered()
    again = take(standing=old, today=TODAY + datetime.timedelta(seconds=600))
    assert isinstance(again, Put)
    assert (again.offer.terms, again.offer.id != old.id) == (old.terms, True)


def test_an_acceptance_in_time_is_taken_with_the_devices() -> None:
    offer = offered()
    taken = take(standing=offer, answer=accept(offer))
    assert isinstance(taken, Take)
    assert (taken.offer.accepted, len(taken.allocation.devices())) == (True, 3)


def test_an_acceptance_after_the_time_is_not() -> None:
    offer = offered()
    late = take(standing=offer, answer=accept(offer), today=TODAY + datetime.timedelta(seconds=600))
    assert isinstance(late, Put)
    assert late.say is not None
    assert late.say[0] == "OfferExpired"


def test_an_acceptance_of_what_is_gone_is_told() -> None:
    offer = offered()
    gone = take(standing=offer, answer=accept(offer), alternatives=())
    assert isinstance(gone, Withdraw)
    assert gone.say is not None
    assert gone.say[0] == "OfferGone"


def test_an_answer_to_another_offer_changes_nothing() -> None:
    other = take(standing=offered(), answer=Answer("accept", ("0123456789ab-1",)))
    assert isinstance(other, Keep)
    assert other.say is not None
    assert other.say[0] == "AnswerNotUsed"


def test_declined_terms_are_not_offered() -> None:
    offer = offered()
    assert isinstance(take(standing=offer, answer=Answer("decline", (offer.id,))), Withdraw)
    assert take(answer=Answer("decline", (offer.id,))) == Keep()


def test_what_was_named_opens_the_gate_at_once() -> None:
    exact = found()[0].placement.allocation("u")
    assert take(exact=exact, standing=offered()) == Open("a card that it names is free", exact)
    assert take(exact=exact, pod=pod(gated=False)) == Keep()


def test_who_does_not_want_to_be_asked_any_more_is_let_go() -> None:
    willing = msgspec.structs.replace(REQUEST, substitution="auto")
    assert isinstance(take(request=willing), Open)


def test_an_offer_made_to_one_pod_has_another_id_for_another() -> None:
    other = msgspec.structs.replace(pod(), metadata=msgspec.structs.replace(pod().metadata, uid="v"))
    put = take(pod=other)
    assert isinstance(put, Put)
    assert put.offer.terms != offered().terms
