"""The catalogue: what is known about every card model, found under any name a person or a tool uses for it.

All figures of a :class:`CardModel` are those of one *device*, the thing a driver lists, a node publishes and a pod is
given. Some boards hold two devices; their published figures are for the board and are divided when the catalogue is
read, so nothing above this layer has to remember which is which.
"""

import difflib
import re
from collections.abc import Callable, Iterable
from fractions import Fraction
from functools import cache, cached_property

import msgspec

from hcs.model.devices import DEFAULT_WORKLOAD, Device, Link, Rate, Verdict
from hcs.model.quantities import GIB
from hcs.ura import tables
from hcs.ura.naming import begins, either, fold, folds_to, shown, vendor_word
from hcs.ura.rates import REFERENCE, RateBook


class CardError(LookupError):
    """A card name that leads to no single model. ``names`` are models it may have meant, as ``vendor/model``."""

    def __init__(self, message: str, names: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.names = names


class UnknownCardError(CardError):
    """No card is called that."""


class AmbiguousCardError(CardError):
    """Several cards are called that; a vendor, the full model name or the memory decides."""


class CardModel(msgspec.Struct, frozen=True):
    """One card model, per device.

    ``vram`` is marketed memory in bytes (tools print a little less), None where none is published. ``*_mtflops`` and
    ``*_mtops`` are rated, dense, in thousandths of a TFLOPS or TOPS; ``memory_mbps`` in megabytes per second. ``rates``
    holds at most one entry a workload class, the best known; ``others`` what else was found, less trusted, so that
    conflicts stay visible. ``confidence`` is ``datasheet``, ``press`` or
    ``estimate``; ``source`` says where the ratings were read.
    """

    vendor: str
    model: str
    aliases: tuple[str, ...] = ()
    devices_per_board: int = 1
    vram: int | None = None
    fp32_mtflops: int | None = None
    fp16_mtflops: int | None = None
    bf16_mtflops: int | None = None
    int8_mtops: int | None = None
    memory_mbps: int | None = None
    interconnect: str = ""
    rates: tuple[Rate, ...] = ()
    others: tuple[Rate, ...] = ()
    confidence: str = "datasheet"
    source: str = ""

    @property
    def key(self) -> str:
        """``vendor/model``, the name that is never ambiguous."""
        return f"{self.vendor}/{self.model}"

    def rate(self, workload: str = DEFAULT_WORKLOAD) -> Rate | None:
        """What one device does in a workload class, or None when nothing is known about it."""
        return next((rate for rate in self.rates if rate.workload == workload), None)


class Catalogue(msgspec.Struct, frozen=True, dict=True):
    """Every card model known, in the order of the tables."""

    models: tuple[CardModel, ...]

    @cached_property
    def _by_key(self) -> dict[tuple[str, str], CardModel]:
        return {(card.vendor, card.model): card for card in self.models}

    @property
    def reference(self) -> CardModel:
        """The card that is 100 ACU."""
        return self._by_key[REFERENCE]

    @cached_property
    def vendors(self) -> tuple[str, ...]:
        """All vendor words that occur."""
        return tuple(dict.fromkeys(card.vendor for card in self.models))

    def get(self, vendor: str, model: str) -> CardModel | None:
        """The model of exactly this vendor word and name, as devices carry them; None when it is not listed."""
        return self._by_key.get((vendor, model))

    def find(self, name: str, vendor: str | None = None, *, vram: int | None = None) -> CardModel:
        """The one model with this name or alias: exact first, then without regard to case and spaces.

        Args:
            name: a model, an alias as the vendor's tool prints it, or either behind a vendor (``hygon/K100``,
                ``Ascend 910B2``).
            vendor: the vendor word, where known.
            vram: bytes one device reports, where known; decides between models that share a tool's name.

        Raises:
            UnknownCardError: nothing is called that; the message names the closest.
            AmbiguousCardError: several are; the message names them.
        """
        found = self._named(name, vendor)
        if len(found) > 1 and vram is not None:
            found = _nearest(found, vram) or found
        if len(found) == 1:
            return found[0]
        names = tuple(card.key for card in found)
        if names:
            raise AmbiguousCardError(f"{shown(name)} can be {either(names)}; name one of them in full", names)
        family = self.family(name, vendor)
        if family:
            names = tuple(card.key for card in family)
            raise AmbiguousCardError(f"{shown(name)} is a family: {either(names)}; name one of them", names)
        close = self._closest(name)
        hint = f"did you mean {either(close)}?" if close else "`hcs convert '100 ACU'` lists all cards"
        elsewhere = self._named(name, None) if vendor else ()
        if elsewhere:
            hint = f"{either(tuple(card.key for card in elsewhere))} exists"
        raise UnknownCardError(
            f"no card {shown(name)} of vendor {vendor} is known; {hint}"
            if vendor
            else f"no card {shown(name)} is known; {hint}",
            close,
        )

    def family(self, name: str, vendor: str | None = None) -> tuple[CardModel, ...]:
        """All models meant by a name: the ones that bear it, else those it begins (``H100``: PCIe, SXM5, NVL)."""
        found = self._named(name, vendor)
        if found:
            return found
        vendor, name = self._split(name, vendor)
        folded = fold(name)
        if len(folded) < 3:
            return ()
        return self._matching(lambda candidate: begins(fold(candidate), folded), vendor)

    def select(self, vendors: Iterable[str] = (), models: Iterable[str] = ()) -> tuple[CardModel, ...]:
        """The models that a request allows; both filters empty means all.

        Raises:
            CardError: a model name that leads to no single model among these vendors.
        """
        words = tuple(vendors)
        allowed = tuple(card for card in self.models if not words or card.vendor in words)
        names = tuple(models)
        if not names:
            return allowed
        within = Catalogue(allowed) if words else self
        return tuple(dict.fromkeys(within.find(name) for name in names))

    def _named(self, name: str, vendor: str | None) -> tuple[CardModel, ...]:
        for word, text in dict.fromkeys(((vendor, name), self._split(name, vendor))):
            known = vendor_word(word) if word else None
            found = self._matching(text.__eq__, known) or self._matching(folds_to(fold(text)), known)
            if found:
                return found
        return ()

    def _matching(self, same: Callable[[str], bool], vendor: str | None) -> tuple[CardModel, ...]:
        cards = [card for card in self.models if vendor in (None, card.vendor)]
        return tuple(card for card in cards if same(card.model)) or tuple(
            card for card in cards if any(same(alias) for alias in card.aliases)
        )

    def _split(self, name: str, vendor: str | None) -> tuple[str | None, str]:
        """Take a vendor's word off the front of a name."""
        if vendor is not None:
            return vendor_word(vendor), name
        for match in re.finditer(r"[/ ]+", name.strip()):
            head, tail = name.strip()[: match.start()], name.strip()[match.end() :]
            if vendor_word(head) in self.vendors and tail:
                return vendor_word(head), tail
        return None, name

    def _closest(self, name: str) -> tuple[str, ...]:
        vendor, name = self._split(name, None)
        names = {
            fold(text): card.key
            for card in self.models
            for text in (card.model, *card.aliases)
            if vendor in (None, card.vendor)
        }
        close = difflib.get_close_matches(fold(name)[:64], names, n=3, cutoff=0.6)
        return tuple(dict.fromkeys(names[text] for text in close))


def as_device(
    card: CardModel,
    id: str,
    index: int,
    *,
    vram: int | None = None,
    bus_id: str | None = None,
    numa: int | None = None,
    links: tuple[Link, ...] = (),
    verdict: Verdict = "Unknown",
    emulated: bool = False,
) -> Device:
    """A device of this model, with the catalogue's rates and ratings.

    ``vram`` is what the driver reports, in bytes; the marketed figure stands in where it is not given.

    Raises:
        ValueError: neither the driver nor the catalogue says how much memory it has.
    """
    memory = card.vram if vram is None else vram
    if memory is None:
        raise ValueError(f"the memory of {card.key} is not published; pass vram as its driver reports it")
    return Device(
        id=id,
        index=index,
        vendor=card.vendor,
        model=card.model,
        vram=memory,
        rates=card.rates,
        fp16_mtflops=card.fp16_mtflops,
        fp32_mtflops=card.fp32_mtflops,
        int8_mtops=card.int8_mtops,
        bus_id=bus_id,
        numa=numa,
        links=links,
        verdict=verdict,
        emulated=emulated,
    )


def _nearest(cards: tuple[CardModel, ...], vram: int) -> tuple[CardModel, ...]:
    """Those whose memory is within a fifth of ``vram``: tools print less than is marketed, never a different size."""
    return tuple(card for card in cards if card.vram and abs(Fraction(vram, card.vram) - 1) <= Fraction(1, 5))


@cache
def load_catalogue() -> Catalogue:
    """The catalogue of all cards this version knows, read from the tables that come with the package."""
    ratings = tables.rows("ratings")
    book = RateBook(
        map(tables.rating, ratings), tables.measurements(), map(tables.comparison, tables.rows("comparisons"))
    )
    return Catalogue(tuple(_card(row, book) for row in ratings))


def _card(row: tables.Row, book: RateBook) -> CardModel:
    devices = int(row["devices"])
    vram = row["vram_gib"]
    return CardModel(
        vendor=row["vendor"],
        model=row["model"],
        aliases=tables.listed(row["aliases"]),
        devices_per_board=devices,
        vram=int(Fraction(vram) * GIB // devices) if vram else None,
        fp32_mtflops=_thousandths(row["fp32_tflops"], devices),
        fp16_mtflops=_thousandths(row["fp16_tflops"], devices),
        bf16_mtflops=_thousandths(row["bf16_tflops"], devices),
        int8_mtops=_thousandths(row["int8_tops"], devices),
        memory_mbps=_thousandths(row["mem_bandwidth_gbps"], devices),
        interconnect=row["interconnect"],
        rates=book.rates(tables.rating(row)),
        others=book.others(tables.rating(row)),
        confidence=row["confidence"],
        source=row["source"],
    )


def _thousandths(text: str, devices: int) -> int | None:
    return int(Fraction(text) * 1000 // devices) if text else None
