"""``hcs measure``: what the cards of this machine really do."""

import datetime
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from hcs.cli.errors import USAGE, CommandError
from hcs.cli.options import Json, NoHeaders, Output, chosen_format
from hcs.cli.output import Column, Table, say, tell, write_data, write_table
from hcs.measure.backends import Backend, BackendError, Unit
from hcs.measure.choice import backends, find_unit
from hcs.measure.results import Result, rates_of, result_of
from hcs.measure.suite import COPY_BYTES, SIZES, SMALL_COPY_BYTES, SMALL_SECONDS, SMALL_SIZES, Failure, Outcome, measure
from hcs.model.quantities import show_acu


def run(
    device: Annotated[str | None, typer.Option("--device", help="UUID of the one card to measure.")] = None,
    peer: Annotated[
        list[str] | None,
        typer.Option("--peer", help="With --device: UUID of a card to copy to and from; several times for several."),
    ] = None,
    ways: Annotated[
        bool, typer.Option("--ways", help="With --peer: only the copies, and not the card itself.")
    ] = False,
    visible: Annotated[
        list[str] | None,
        typer.Option(help="The cards that this process sees, in order; where the framework tells no UUIDs."),
    ] = None,
    vendor: Annotated[str, typer.Option("--vendor", help="The vendor's word, for the result.")] = "",
    model: Annotated[str, typer.Option("--model", help="The model's name, for the result.")] = "",
    driver: Annotated[str, typer.Option("--driver", help="The driver's version, for the result.")] = "",
    models: Annotated[bool, typer.Option("--models", help="Whole models as well; needs PyTorch.")] = False,
    quick: Annotated[
        bool, typer.Option("--quick", help="Small matrices: to see that it works, not to measure.")
    ] = False,
    emulated_cards: Annotated[
        Path | None, typer.Option("--emulated-cards", help="Measure emulated cards of this directory instead.")
    ] = None,
    output: Output = None,
    json: Json = False,
    no_headers: NoHeaders = False,
) -> None:
    """What do the cards of this machine really do?

    Times matrix multiplication, memory and card-to-card copies through PyTorch or CuPy; where neither sees a card, the
    processor through PyTorch or NumPy. Uses the cards: run it where nobody else does. The agent runs it by itself under
    a reservation.

        hcs measure

        hcs measure --device GPU-5a3f... --peer GPU-91cc... --models --json
    """
    format = chosen_format(output, json)
    reasons: list[str] = []
    found = backends(emulated_cards, reasons.append)
    todo = _chosen(found, device, vendor, visible or (), reasons)
    if not todo[0][0].is_card:
        tell(f"no card is measured: {'; '.join(reasons)}")
    results = []
    for backend, unit in todo:
        tell(f"{unit.name} by {backend.name}")
        full = backend.is_card and not quick
        peers, absent = _peers(backend, unit, device is not None, peer or (), visible or ())
        outcomes = measure(
            backend,
            unit.index,
            peers=peers,
            own=not ways,
            sizes=SIZES if full else SMALL_SIZES,
            copied=COPY_BYTES if full else SMALL_COPY_BYTES,
            most_seconds=math.inf if full else SMALL_SECONDS,
            tell=lambda what: tell(f"  {what}"),
        )
        outcomes += absent
        if models:
            outcomes += _models(backend, unit)
        results.append(
            result_of(
                outcomes,
                device=unit.uuid or str(unit.index),
                vendor=vendor,
                model=model or unit.name,
                backend=backend.name,
                driver=driver or backend.driver(),
                clocks=backend.clocks(unit.index),
                today=datetime.datetime.now(datetime.UTC).date(),
                emulated=emulated_cards is not None,
            )
        )
    data: Any = results[0] if device is not None else results
    if write_data(data, format, names=[result.device for result in results]):
        return
    for result in results:
        if not no_headers:
            say(f"{result.model}, {result.backend}{f', driver {result.driver}' if result.driver else ''}:")
        write_table(_table(result), wide=format == "wide", headers=not no_headers)
        rates = rates_of(result) if todo[0][0].is_card else ()
        for rate in rates:
            say(f"{show_acu(rate.milliacu)} ACU in {rate.workload} ({rate.source})")
        for failure in result.failures:
            tell(f"not measured: {failure.metric}: {failure.why}")


def _chosen(
    found: list[Backend], device: str | None, vendor: str, visible: Sequence[str], reasons: list[str]
) -> list[tuple[Backend, Unit]]:
    if device is None:
        first = next((backend for backend in found if backend.units()), None)
        if first is None:
            raise CommandError(
                "there is nothing to measure", "no emulated card there has a speed", "another --emulated-cards"
            )
        return [(first, unit) for unit in first.units()]
    try:
        one = find_unit(found, device, vendor=vendor, visible=visible)
    except BackendError as error:
        raise CommandError(f"cannot tell which card is {device}", str(error), "CUDA_VISIBLE_DEVICES=…") from error
    if one is None:
        listed = [unit.uuid or unit.name for backend in found for unit in backend.units()]
        raise CommandError(
            f"no framework here lists card {device}",
            "; ".join([f"listed are {', '.join(listed)}", *reasons]),
            "install PyTorch with the vendor's back end      or another --device",
            code=USAGE,
        )
    return [one]


def _peers(
    backend: Backend, unit: Unit, one: bool, named: Sequence[str], visible: Sequence[str]
) -> tuple[list[Unit], tuple[Outcome, ...]]:
    """The cards to copy to and from: all others, or with one card to measure those that are named and no other.

    Others may be in use. What is named and not there becomes a failure.
    """
    if not backend.is_card:
        return [], ()
    if not one:
        return [other for other in backend.units() if other.index != unit.index], ()
    peers: list[Unit] = []
    absent: list[Outcome] = []
    for name in named:
        try:
            found = find_unit([backend], name, visible=visible)
        except BackendError as error:
            found, why = None, str(error)
        else:
            why = f"{backend.name} lists no card {name}"
        if found is None or found[1].index == unit.index:
            absent.append(Failure("p2p", why, name))
        else:
            peers.append(found[1])
    return peers, tuple(absent)


def _models(backend: Backend, unit: Unit) -> tuple[Any, ...]:
    from hcs.measure.models import measure_models
    from hcs.measure.torch_backend import TorchBackend

    if not isinstance(backend, TorchBackend):
        tell(f"  whole models need PyTorch; {backend.name} has none")
        return ()
    return measure_models(backend, unit.index, tell=lambda what: tell(f"  {what}"))


def _table(result: Result) -> Table:
    return Table(
        (
            Column("METRIC"),
            Column("VALUE", right=True),
            Column("UNIT"),
            Column("SPREAD", right=True),
            Column("STEADY"),
            Column("DETAIL", flexible=True),
        ),
        [
            (
                figure.metric,
                f"{figure.value:.4g}",
                figure.unit,
                f"{figure.spread:.1%}" if figure.spread < 1 else "> 100%",
                "yes" if figure.steady else "no, unused",
                figure.detail,
            )
            for figure in result.figures
        ],
    )
