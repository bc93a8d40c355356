"""What the router offers in place of a card that is not free: the JSON in ``ai.compute/substitution-offer``.

The router writes it on a pod that said ``substitution: ask``; its owner answers with ``hcs accept`` or ``hcs decline``,
which write ``ai.compute/substitution-answer``. An offer is made to one pod (its UID is inside) and names its *terms*:
which cards, how many, and at what rate. It holds no device. Only an offer that the router has marked ``accepted`` lets
a pod go to another kind of card, and only to that kind, at most at those terms. Documented in ``docs/substitution.md``.
"""

import hashlib
import re
from typing import Final, Literal

import msgspec

from hcs.model import names
from hcs.model.pods import Pod
from hcs.model.refusals import Refusal, RefusedError

VERSION: Final = "v1"
MAX_ENCODED: Final = 4096
_ID: Final = "[0-9a-f]{12}-[0-9]{1,12}"
_ANSWER: Final = re.compile(rf"\s*(?:accept\s+{_ID}|decline(?:\s+{_ID}){{1,16}})\s*")


class Offer(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """``cards`` of ``model`` instead of ``wanted_cards`` of ``wanted``.

    ``vram`` is bytes on each card; of a whole card all it has. The two rates are those of one whole device in
    ``workload``, in thousandths of an ACU, ``source`` the weaker of their sources. ``expires`` is RFC 3339 in UTC,
    whole seconds. ``reason`` is one sentence for people.
    """

    version: str
    id: str
    pod: str
    vendor: str
    model: str
    cards: int
    wanted: str
    wanted_cards: int
    workload: str
    wanted_milliacu: int
    got_milliacu: int
    source: str
    vram: int
    expires: str
    reason: str = ""
    accepted: bool = False

    @property
    def terms(self) -> str:
        """What stays the same when the offer is made again."""
        return self.id.partition("-")[0]


class Answer(msgspec.Struct, frozen=True):
    """What the owner of a pod says to an offer; of those declined every one that shall not come again."""

    verb: Literal["accept", "decline"]
    offers: tuple[str, ...]

    @property
    def accepted(self) -> str:
        """The id of the accepted offer, or the empty string."""
        return self.offers[0] if self.verb == "accept" else ""

    @property
    def declined(self) -> frozenset[str]:
        """The terms that were declined."""
        return frozenset(offer.partition("-")[0] for offer in self.offers if self.verb == "decline")


def terms_of(pod: str, *terms: object) -> str:
    """The digest of an offer's terms, made to one pod: the first part of its id."""
    return hashlib.sha256("\0".join((pod, *map(str, terms))).encode()).hexdigest()[:12]


def encode_offer(offer: Offer) -> str:
    """Write an offer as the annotation's text."""
    return msgspec.json.encode(offer, order="deterministic").decode()


def offer_on(pod: Pod) -> Offer | None:
    """The offer on a pod; None where there is none, it cannot be read, or it was made to another pod."""
    text = pod.annotations.get(names.SUBSTITUTION_OFFER, "")
    if not text or len(text) > MAX_ENCODED:
        return None
    try:
        offer = msgspec.json.decode(text, type=Offer)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None
    return offer if offer.version == VERSION and offer.pod == pod.metadata.uid else None


def accepted_offer(pod: Pod) -> Offer | None:
    """The offer whose acceptance the router has recorded, or None."""
    offer = offer_on(pod)
    return offer if offer is not None and offer.accepted else None


def answer_on(pod: Pod) -> Answer | None:
    """The answer on a pod, or None where nobody answered.

    Raises:
        RefusedError: there is one that cannot be read.
    """
    text = pod.annotations.get(names.SUBSTITUTION_ANSWER)
    if text is None:
        return None
    if not _ANSWER.fullmatch(text[:1024]):
        raise RefusedError(
            Refusal(
                "MalformedAnswer",
                f"annotation {names.SUBSTITUTION_ANSWER}: {text[:60]!r} is no answer; "
                "write 'accept ID' or 'decline ID' with the id of the offer, or use hcs accept",
            )
        )
    verb, *offers = text.split()
    return Answer("accept" if verb == "accept" else "decline", tuple(offers))


def write_answer(verb: Literal["accept", "decline"], offer: Offer, before: Answer | None = None) -> str:
    """The annotation's text for an answer; what was declined before stays declined.

    Args:
        verb: the answer.
        offer: to which offer.
        before: the pod's last answer.
    """
    earlier = before.offers if verb == "decline" and before is not None and before.verb == "decline" else ()
    return " ".join((verb, *dict.fromkeys((*earlier, offer.id)[-16:])))
