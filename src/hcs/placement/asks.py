"""A request as the engine weighs it: for each kind of card how many, how much of each, and what of the node's columns.

Policies see every card as a thousand thousandths. How much of a card is free is the scarcer of its memory and its
compute, how much is asked the larger of the two, so that a policy needs one number where the ledger keeps two; whether
a request really fits is always decided on the exact amounts.
"""

from collections.abc import Sequence
from functools import cached_property
from typing import Any, Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from hcs.placement.appraisals import Appraisal
from hcs.placement.fleet import Fleet, Integers, Mask

CARD: Final = 1000
"""Thousandths of a card that are the whole of it."""


MOST: Final = 1 << 20


class Ask(msgspec.Struct, frozen=True, eq=False, dict=True):
    """What one pod needs, per kind [K] and per column [X]. Amounts of kinds that do not serve are 0.

    ``bytes`` and ``milliacu`` are exact, on each of ``cards`` cards; ``share`` is how policies see them, in thousandths
    of a card. ``thrift`` says how little capability a kind burns on this ask, from 0 (the fleet's strongest card) to
    100. With several containers the amounts are those of all together, good enough to score with; what fits is decided
    from ``parts``, one ask for each of ``containers``.
    """

    cards: Integers
    bytes: Integers
    milliacu: Integers
    whole: Mask
    serves: Mask
    substitute: Mask
    share: Integers
    needs: Integers
    thrift: Integers
    containers: tuple[Appraisal, ...] = ()
    parts: "tuple[Ask, ...]" = ()
    able: Mask | None = None
    """[D] The devices that can serve, where more than their kind and state decides that: what their nodes' container
    runtimes can do, the pod's rules about links, networks and data."""
    key: int = 0
    """Of its sharing group, see :func:`hcs.placement.snapshot.key_of`."""
    likes: Integers | None = None
    """[N] How much the request prefers each node, from 0 to 100; None where it prefers none."""

    @cached_property
    def by_kind(self) -> "ByKind":
        """The amounts with an entry more, for places where there is no device."""

        def padded(array: NDArray[Any]) -> NDArray[Any]:
            return np.append(array, array.dtype.type(0))

        return ByKind(
            cards=padded(self.cards),
            bytes=padded(self.bytes),
            milliacu=padded(self.milliacu),
            shared=padded(self.serves & ~self.whole),
            whole=padded(self.serves & self.whole),
            single=padded(self.cards < 2),
            named=padded((~self.substitute).astype(np.int64)),
            share=padded(self.share),
            thrift=padded(self.thrift),
            any_shared=bool((self.serves & ~self.whole).any()),
            any_whole=bool((self.serves & self.whole).any()),
            any_needs=bool(self.needs.any()),
        )

    @property
    def compound(self) -> bool:
        """Whether it has several containers, which are packed by a search."""
        return len(self.containers) > 1

    @property
    def cardless(self) -> bool:
        """Whether it asks for columns alone."""
        return not self.cards.any() and not self.containers


class ByKind(msgspec.Struct, frozen=True, eq=False):
    """An ask's amounts [K + 1], the last for "no device"; which kinds serve with a share, which with whole cards."""

    cards: Integers
    bytes: Integers
    milliacu: Integers
    shared: Mask
    whole: Mask
    single: Mask
    named: Integers
    share: Integers
    thrift: Integers
    any_shared: bool
    any_whole: bool
    any_needs: bool


def ask_of(
    fleet: Fleet,
    appraisals: Sequence[Appraisal],
    capacities: Sequence[tuple[str, int]] = (),
    able: Sequence[Mask | None] = (),
    likes: Integers | None = None,
    key: int = 0,
) -> Ask:
    """Lay a request out.

    Args:
        fleet: for its kinds and columns.
        appraisals: one for each container, as :func:`hcs.placement.appraisals.appraise` gives them.
        capacities: what is needed of the node's columns, by name.
        able: for each container, [D] the devices that can serve it as far as anything but what is held decides; None
            where the kinds and the state of the devices say all about it.
        likes: [N] how much each node is preferred, from 0 to 100.
        key: of its sharing group; 0: none.
    """
    columns, masks = dict(capacities), tuple(able) or (None,) * len(appraisals)
    needs = np.array([columns.get(name, 0) for name in fleet.columns], dtype=np.int64)
    kinds = len(fleet.kinds)
    vram = np.array([device.vram for device in fleet.kinds], dtype=np.int64)
    fast = np.array([0 if (r := d.rate()) is None else r.milliacu for d in fleet.kinds], dtype=np.int64)
    everywhere = set(columns) - {name for name, amount in columns.items() if not amount} <= set(fleet.columns)
    serves = np.full(kinds, everywhere)
    cards, shares = np.zeros(kinds, np.int64), np.zeros(kinds, np.int64)
    for one in appraisals:
        serves &= one.serves
        part = np.maximum(_thousandths(one.bytes, vram), _thousandths(one.milliacu, fast))
        cards += np.where(one.whole, one.cards, 0)
        shares += np.where(one.whole, 0, np.clip(part, 1, CARD))
    whole = np.logical_or.reduce([one.whole for one in appraisals]) if appraisals else np.zeros(kinds, np.bool_)
    together = cards + -(-shares // CARD) * (cards > 0) + np.where(cards == 0, np.maximum(1, -(-shares // CARD)), 0)
    first = appraisals[0] if appraisals else None
    nothing = np.zeros(kinds, np.int64)
    return Ask(
        cards=np.where(serves, together, 0) if appraisals else nothing,
        bytes=first.bytes if first is not None else nothing,
        milliacu=first.milliacu if first is not None else nothing,
        whole=whole,
        serves=serves,
        substitute=first.substitute if first is not None else np.zeros(kinds, np.bool_),
        share=np.where(serves, np.where((cards == 0) & (shares <= CARD), shares, CARD), 0) if appraisals else nothing,
        needs=needs,
        thrift=_thrift(np.where(serves, together, 0) if appraisals else nothing, vram, fast),
        containers=tuple(appraisals),
        parts=(
            tuple(
                ask_of(fleet, (one,), capacities, (mask,), key=key) for one, mask in zip(appraisals, masks, strict=True)
            )
            if len(appraisals) > 1
            else ()
        ),
        able=masks[0] if len(masks) == 1 else None,
        likes=likes,
        key=key,
    )


USUAL: Final = ((1, 125, 2), (1, 250, 3), (1, 500, 3), (1, CARD, 6), (2, CARD, 2), (4, CARD, 2), (8, CARD, 2))
"""Cards, thousandths of each and how often, of a mix to expect where nobody has told."""


def usual(fleet: Fleet) -> tuple[tuple[Ask, int], ...]:
    """The usual mix on any hardware."""
    nothing = np.zeros(len(fleet.kinds), np.int64)
    return tuple(
        (
            Ask(
                cards=nothing + cards,
                bytes=nothing,
                milliacu=nothing,
                whole=np.full(len(nothing), share == CARD),
                serves=np.ones(len(nothing), np.bool_),
                substitute=np.zeros(len(nothing), np.bool_),
                share=nothing + share,
                needs=np.zeros(len(fleet.columns), np.int64),
                thrift=nothing,
            ),
            often,
        )
        for cards, share, often in USUAL
    )


def _thrift(cards: Integers, vram: Integers, fast: Integers) -> Integers:
    """How little capability is burnt: the memory and the speed of the cards against the most the ask could take."""
    fewest = max(int(cards[cards > 0].min(initial=MOST)), 1) if cards.any() else 1
    # Shifted before multiplied, so that any hardware stays inside 64 bits.
    memory = (vram >> 10) * 50 // max(int(vram.max(initial=0)) >> 10, 1) * cards // fewest
    speed = fast * 50 // max(int(fast.max(initial=0)), 1) * cards // fewest
    thrift: Integers = 100 - np.minimum(memory, 50) - np.minimum(speed, 50)
    return thrift


def _thousandths(amount: Integers, whole: Integers) -> Integers:
    # Parts above one card are a card: they are refused elsewhere, and the product stays inside 64 bits.
    capped = np.minimum(amount, whole)
    shift = np.where(whole > (1 << 50), 1 << 12, 1)
    capped, whole = capped // shift, whole // shift
    result: Integers = np.where(whole > 0, -(-capped * CARD // np.maximum(whole, 1)), 0)
    return result
