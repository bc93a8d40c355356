"""``hcs convert``: what is a card, or an amount of compute, worth in other cards?

The answer always says how well it is known. Rates are per device, the thing a driver lists and a pod is given; some
boards hold two.
"""

from collections.abc import Sequence
from fractions import Fraction
from math import ceil
from typing import Annotated, Any, Literal

import msgspec
import typer

from hcs.cli.amounts import AcuAmount, Amount, AmountError, CardsAmount, RatedAmount, read_amount
from hcs.cli.errors import USAGE, CommandError
from hcs.cli.options import Json, NoHeaders, Output, chosen_format
from hcs.cli.output import Column, Table, tell, write_data, write_table
from hcs.model.devices import DEFAULT_WORKLOAD, WORKLOADS, Rate, Source
from hcs.model.quantities import show_acu, show_bytes
from hcs.ura.catalogue import CardError, CardModel, Catalogue, load_catalogue
from hcs.ura.exchange import NoRateError, rate_of, rated_for, rated_source, weaker
from hcs.ura.naming import vendor_word
from hcs.ura.tables import READ
from hcs.ura.uncertainty import range_of_exchange, ranges


class Answer(msgspec.Struct, frozen=True, rename="camel"):
    """One card's answer: ``count`` devices do it, ``exact`` is that before rounding up.

    ``rate`` is what one device does, in ``unit``; ``source`` is the weakest of all figures that went into the count.
    ``low`` and ``high`` are where ``exact`` may turn out to lie, null where nothing allows to say. ``as_of`` is when
    the card's figure was measured or read.
    """

    vendor: str
    model: str
    vram: int | None
    rate: float
    unit: str
    source: str
    count: int
    exact: float
    low: float | None = None
    high: float | None = None
    note: str = ""
    as_of: str = ""
    devices_per_board: int = 1


def run(
    amount: Annotated[
        str | None, typer.Argument(help="'2 x 910B2', '250 ACU', '100 TFLOPS FP16', or a card's name.")
    ] = None,
    from_: Annotated[str | None, typer.Option("--from", help="The same as AMOUNT, spelled as an option.")] = None,
    to: Annotated[list[str] | None, typer.Option("--to", help="Answer in this card or family; again for more.")] = None,
    vendor: Annotated[list[str] | None, typer.Option("--vendor", help="Answer in cards of this vendor only.")] = None,
    workload: Annotated[
        Literal["gemm", "pretrain", "finetune", "prefill", "decode"],
        typer.Option("--workload", help="What the cards will do; rates differ by it."),
    ] = DEFAULT_WORKLOAD,
    output: Output = None,
    json: Json = False,
    no_headers: NoHeaders = False,
) -> None:
    """What is a card, or an amount of compute, worth in other cards?

    1 ACU is 1 % of an A100-SXM4-80GB in the workload class. A rate is measured, taken from a benchmark with a caveat,
    from a data sheet, or derived from another class; the last should not be relied on before it is measured. RANGE is
    where the exact count may turn out to lie, by what such figures were worth on other cards.

        hcs convert "100 TFLOPS fp16"

        hcs convert --from A100-SXM4-80GB --to 910B3 --workload decode
    """
    format = chosen_format(output, json)
    if (amount is None) == (from_ is None):
        raise CommandError(
            "nothing to convert" if amount is None else "two amounts at once",
            "one amount is needed, as the argument or with --from",
            "hcs convert '2 x 910B2' --to A100-SXM4-80GB",
            code=USAGE,
        )
    amount = amount or from_ or ""
    catalogue = load_catalogue()
    asked = _read(amount)
    given = _find(catalogue, asked.name) if isinstance(asked, CardsAmount) else None
    if given and isinstance(asked, CardsAmount) and asked.count is None and not to and not vendor:
        _tell_warnings([rate.source for rate in _rates_of(given)], "not measured in this class")
        _tell_boards([given.devices_per_board])
        data, table = _own_rates(given)
        if not write_data(data, format, names=[given.key]):
            write_table(table, wide=format == "wide", headers=not no_headers)
        return
    targets = _targets(catalogue, to or [], vendor or [])
    answers, unknown = _convert(asked, given, targets, workload)
    if not answers:
        raise CommandError(
            f"cannot express {amount} in {' or '.join(to or vendor or ['any card'])}",
            _unknown_reason(asked, unknown, workload),
            "another unit or --workload; nothing but a measurement can tell",
        )
    _tell_basis(asked, given, workload)
    _tell_warnings(
        [answer.source for answer in answers],
        "from an estimated rating" if isinstance(asked, RatedAmount) else "not measured in this class",
    )
    _tell_boards([card.devices_per_board for card in (*targets, *([given] if given else []))])
    if unknown:
        tell(f"left out, no figure known: {_listed([card.key for card in unknown])}")
    data = {
        "asked": _asked_data(asked, given, workload),
        "workload": workload,
        "answers": answers,
        "unknown": [card.key for card in unknown],
    }
    if not write_data(data, format, names=[f"{answer.vendor}/{answer.model}" for answer in answers]):
        write_table(_table(answers), wide=format == "wide", headers=not no_headers)


def _read(text: str) -> Amount:
    try:
        return read_amount(text)
    except AmountError as error:
        what, _, why = str(error).partition("; ")
        raise CommandError(f"cannot convert: {what}", why, "hcs convert --help", code=USAGE) from error


def _find(catalogue: Catalogue, name: str) -> CardModel:
    try:
        return catalogue.find(name)
    except CardError as error:
        what, _, hint = str(error).partition("; ")
        best = f"hcs convert {error.names[0]!r}" if error.names else "hcs convert '100 ACU'      lists all cards"
        raise CommandError(what, hint, best, code=USAGE) from error


def _targets(catalogue: Catalogue, names: Sequence[str], vendors: Sequence[str]) -> tuple[CardModel, ...]:
    words = [vendor_word(vendor) for vendor in vendors]
    for word in words:
        if word not in catalogue.vendors:
            raise CommandError(
                f"no vendor {word!r} is known",
                f"known vendors are {', '.join(catalogue.vendors)}",
                "leave --vendor out",
                code=USAGE,
            )
    cards = catalogue.models
    if names:
        cards = tuple(dict.fromkeys(card for name in names for card in _family(catalogue, name)))
    return tuple(card for card in cards if not words or card.vendor in words)


def _family(catalogue: Catalogue, name: str) -> tuple[CardModel, ...]:
    """The card of this name, or the family; names of several vendors' cards stay an error."""
    family = catalogue.family(name)
    return family if len({card.vendor for card in family}) == 1 else (_find(catalogue, name),)


def _rates_of(card: CardModel) -> tuple[Rate, ...]:
    if not card.rates:
        raise CommandError(
            f"no rate of {card.key} is known",
            "nobody published a figure that can be stood behind",
            f"ask for it by memory or count: ai.compute/vram, ai.compute/cards, ai.compute/models: {card.model}",
        )
    return card.rates


def _own_rates(card: CardModel) -> tuple[dict[str, Any], Table]:
    table = Table(
        (Column("WORKLOAD"), Column("ACU", right=True), Column("SOURCE"), Column("FROM", flexible=True)),
        [
            (rate.workload if rate in card.rates else "  also", show_acu(rate.milliacu), _dated(rate), rate.note)
            for workload in WORKLOADS
            for rate in (*card.rates, *card.others)
            if rate.workload == workload
        ],
    )
    return msgspec.to_builtins(card), table


_Found = tuple[int, Fraction, Source, str, tuple[Fraction, Fraction] | None]
"""What one device does, how many it takes, the source, a note, and factors on the count."""


def _convert(
    asked: Amount, given: CardModel | None, targets: Sequence[CardModel], workload: str
) -> tuple[list[Answer], list[CardModel]]:
    """All answers, and the cards about which too little is known."""
    answers, unknown = [], []
    known = ranges(load_catalogue().models)
    needed = Fraction(0)
    if isinstance(asked, CardsAmount):
        assert given is not None
        needed = Fraction((asked.count or 1) * _rate(given, workload).milliacu)
    elif isinstance(asked, AcuAmount):
        needed = asked.milliacu
    for card in targets:
        found: _Found | None
        if isinstance(asked, RatedAmount):
            rated = rated_for(asked.resource, card)
            note = f"{card.confidence}: {card.source}"
            found = (rated, asked.thousandths / rated, rated_source(card), note, None) if rated else None
        else:
            rate = card.rate(workload)
            base = _rate(given, workload) if given else None
            if rate:
                source = weaker(rate.source, base.source) if base else rate.source
                # A card is worth exactly itself, however little is known about it.
                span = (Fraction(1), Fraction(1)) if card == given else range_of_exchange(base, rate, known)
                found = (rate.milliacu, needed / rate.milliacu, source, rate.note, span)
            else:
                found = None
        if not found:
            unknown.append(card)
            continue
        amount, exact, source, note, span = found
        stated = card.rate(workload)
        unit = asked.label if isinstance(asked, RatedAmount) else "ACU"
        answers.append(
            Answer(
                vendor=card.vendor,
                model=card.model,
                vram=card.vram,
                rate=amount / 1000,
                unit=unit,
                source=source,
                count=ceil(exact),
                exact=round(float(exact), 4),
                low=round(float(exact * span[0]), 4) if span else None,
                high=round(float(exact * span[1]), 4) if span else None,
                note=note,
                as_of=READ if stated is None or isinstance(asked, RatedAmount) else stated.as_of,
                devices_per_board=card.devices_per_board,
            )
        )
    return answers, unknown


def _rate(card: CardModel, workload: str) -> Rate:
    try:
        return rate_of(card, workload)
    except NoRateError as error:
        what, _, _ = str(error).partition("; ")
        raise CommandError(
            f"cannot convert {card.key}", what, "another --workload; nothing but a measurement can tell"
        ) from error


def _unknown_reason(asked: Amount, unknown: Sequence[CardModel], workload: str) -> str:
    names = _listed([card.key for card in unknown]) or "no card"
    if not unknown:
        return "no card is both of that name and of that vendor"
    if isinstance(asked, RatedAmount):
        return f"no {asked.label} rating is published for {names}"
    return f"no rate in workload class {workload} is known for {names}"


def _asked_data(asked: Amount, given: CardModel | None, workload: str) -> dict[str, Any]:
    if isinstance(asked, RatedAmount):
        return {"resource": asked.resource, "amount": float(asked.thousandths / 1000), "unit": asked.label}
    if isinstance(asked, AcuAmount):
        return {"acu": float(asked.milliacu / 1000)}
    assert given is not None
    rate, count = _rate(given, workload), asked.count or 1
    return {
        "vendor": given.vendor,
        "model": given.model,
        "count": count,
        "acu": count * rate.milliacu / 1000,
        "source": rate.source,
        "note": rate.note,
    }


def _tell_basis(asked: Amount, given: CardModel | None, workload: str) -> None:
    if given and isinstance(asked, CardsAmount):
        rate, count = _rate(given, workload), asked.count or 1
        tell(
            f"{count} x {given.key} = {show_acu(count * rate.milliacu)} ACU in {workload} ({rate.source}: {rate.note})"
        )
    elif isinstance(asked, RatedAmount):
        tell(f"by the rated, dense {asked.label} of data sheets; what cards reach is another matter: ask in ACU")


def _tell_warnings(sources: Sequence[str], why: str) -> None:
    derived = sum(source == "derived" for source in sources)
    if derived:
        which = "this figure is" if len(sources) == 1 else f"{derived} of {len(sources)} figures are"
        tell(f"warning: {which} derived, {why}; measure before relying on it, nothing is substituted by it alone")


def _tell_boards(devices: Sequence[int]) -> None:
    if max(devices, default=1) > 1:
        tell("some of these boards hold two devices; figures and counts are per device, as a driver lists them")


def _table(answers: Sequence[Answer]) -> Table:
    unit = answers[0].unit
    return Table(
        (
            Column("VENDOR"),
            Column("MODEL"),
            Column("VRAM", right=True),
            Column(unit, right=True),
            Column("SOURCE"),
            Column("EXACT", right=True),
            Column("RANGE", right=True),
            Column("COUNT", right=True),
            Column("DEVICES/BOARD", right=True, wide=True),
            Column("FROM", wide=True, flexible=True),
        ),
        [
            (
                answer.vendor,
                answer.model,
                "-" if answer.vram is None else show_bytes(answer.vram),
                f"{answer.rate:.1f}".removesuffix(".0"),
                answer.source,
                f"{answer.exact:.2f}",
                _range(answer),
                str(answer.count),
                str(answer.devices_per_board),
                answer.note,
            )
            for answer in answers
        ],
    )


def _range(answer: Answer) -> str:
    """Where the exact count may turn out to lie; a question mark where nothing allows to say."""
    if answer.low is None or answer.high is None:
        return "-" if answer.unit != "ACU" else "?"
    return f"{answer.low:.2f}-{answer.high:.2f}"


def _dated(rate: Rate) -> str:
    return f"{rate.source}, {rate.as_of}" if rate.as_of else rate.source


def _listed(names: Sequence[str], most: int = 6) -> str:
    rest = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + rest
