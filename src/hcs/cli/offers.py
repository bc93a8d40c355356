"""``hcs offers``: what could I get now? One row for each kind of card that could, or could not, serve."""

from typing import Annotated, Any, Literal

import msgspec
import typer

from hcs.cli.errors import USAGE, CommandError
from hcs.cli.explaining import in_words
from hcs.cli.fleets import FleetFile, SnapshotFile, standing
from hcs.cli.options import Context, Json, Kubeconfig, NoHeaders, Output, chosen_format
from hcs.cli.output import MARK, Column, Table, say, tell, write_data, write_table
from hcs.model import names
from hcs.model.pods import Pod
from hcs.model.quantities import show_acu, show_bytes
from hcs.model.refusals import RefusedError
from hcs.model.requests import ComputeRequest, read_request
from hcs.router.references import reference_rates
from hcs.simulate.offers import KindOffer, offers


class Answer(msgspec.Struct, frozen=True):
    """What was asked, in words, and what each kind of card would give."""

    asks: str
    offers: tuple[KindOffer, ...]


def run(
    vram: Annotated[str | None, typer.Option(help="Memory on each card, like 16Gi.", metavar="BYTES")] = None,
    cards: Annotated[int | None, typer.Option(help="Number of cards.", metavar="N")] = None,
    acu: Annotated[str | None, typer.Option(help="ACU on each card.", metavar="N")] = None,
    fp16_tflops: Annotated[
        str | None, typer.Option("--fp16-tflops", help="In total, rated, dense.", metavar="N")
    ] = None,
    fp32_tflops: Annotated[str | None, typer.Option("--fp32-tflops", help="In total, rated.", metavar="N")] = None,
    int8_tops: Annotated[str | None, typer.Option("--int8-tops", help="In total, rated, dense.", metavar="N")] = None,
    total_acu: Annotated[str | None, typer.Option("--total-acu", help="In total.", metavar="N")] = None,
    vendor: Annotated[list[str] | None, typer.Option("--vendor", help="Preferred vendor; again for more.")] = None,
    model: Annotated[list[str] | None, typer.Option("--model", help="Preferred card; again for more.")] = None,
    workload: Annotated[
        Literal["gemm", "pretrain", "finetune", "prefill", "decode"] | None,
        typer.Option("--workload", help="What the cards will do; rates differ by it."),
    ] = None,
    exclusive: Annotated[bool, typer.Option("--exclusive", help="Whole cards, shared with nobody.")] = False,
    fleet: FleetFile = None,
    snapshot: SnapshotFile = None,
    limit: Annotated[int, typer.Option("--limit", help="Count copies up to this many.", min=1, max=10_000)] = 100,
    output: Output = None,
    json: Json = False,
    no_headers: NoHeaders = False,
    kubeconfig: Kubeconfig = None,
    context: Context = None,
) -> None:
    """What could I get now?

    Places such a pod on each kind of card of the fleet, as often as it fits, and shows the result. Nothing is held:
    an offer is a look, not a promise. Substitutes are shown with their exchange rate.

        hcs offers --vram 16Gi

        hcs offers --fp16-tflops 600 --workload finetune

        hcs offers --model A100-SXM4-80GB --cards 2 --fleet demo
    """
    format = chosen_format(output, json)
    asked = {
        names.VRAM: vram,
        names.CARDS: cards,
        names.ACU: acu,
        names.FP16_TFLOPS: fp16_tflops,
        names.FP32_TFLOPS: fp32_tflops,
        names.INT8_TOPS: int8_tops,
        names.TOTAL_ACU: total_acu,
    }
    notes = {
        names.VENDORS: ",".join(vendor or ()),
        names.MODELS: ",".join(model or ()),
        names.WORKLOAD: workload or "",
        names.SHARING: "exclusive" if exclusive else "",
    }
    request = _request({k: v for k, v in asked.items() if v is not None}, {k: v for k, v in notes.items() if v})
    where = standing(fleet, snapshot, kubeconfig, context)
    answer = Answer(
        in_words(request).removesuffix("; no substitution"),
        offers(where.inventories, where.allocations, request, reference_rates=reference_rates(), limit=limit),
    )
    if write_data(answer, format, names=[f"{row.vendor}/{row.model}" for row in answer.offers if row.copies]):
        return
    if not answer.offers:
        tell("no cards: no ComputeNode has any; does the HCS agent run on the nodes?")
        return
    if not no_headers:
        say(f"for a pod that asks {answer.asks}:")
    write_table(_table(answer.offers, wide=format == "wide"), wide=format == "wide", headers=not no_headers)
    if not no_headers and any(row.emulated for row in answer.offers):
        say()
        say(f"{MARK} emulated")


def _request(asked: dict[str, Any], notes: dict[str, str]) -> ComputeRequest:
    """The request of such a pod, refused as admission would refuse it."""
    from hcs.injector.mutation import mutate
    from hcs.injector.settings import Settings
    from hcs.ura.catalogue import load_catalogue

    if not asked:
        raise CommandError(
            "nothing is asked for", "no amount is given", "hcs offers --vram 16Gi      or --cards 1", code=USAGE
        )
    raw = {
        "metadata": {"name": "offer", "namespace": "default", "annotations": notes},
        "spec": {"containers": [{"name": "main", "image": "any", "resources": {"limits": asked}}]},
    }
    try:
        request = read_request(msgspec.convert(mutate(raw, load_catalogue(), Settings()), Pod))
    except RefusedError as error:
        first = error.refusals[0]
        why = "; ".join(f"{refusal.reason}: {refusal.message}" for refusal in error.refusals)
        raise CommandError(
            "no fleet could serve such a pod" if first.reason.endswith("BeyondAnyCard") else "such a pod is refused",
            why,
            "hcs offers --help",
            code=USAGE,
        ) from error
    assert request is not None  # an amount was given
    return request


def _table(rows: tuple[KindOffer, ...], *, wide: bool) -> Table:
    return Table(
        (
            Column("VENDOR"),
            Column("MODEL"),
            Column("NOW", right=True),
            Column("CARDS", right=True),
            Column("VRAM", right=True),
            Column("ACU", right=True),
            Column("SOURCE"),
            Column("NODES", wide=True, flexible=True),
            Column("NOTE", flexible=True),
        ),
        [
            (
                row.vendor,
                row.model + (MARK if row.emulated else ""),
                f"{row.copies}+" if row.more else str(row.copies),
                str(row.cards) if row.copies else "-",
                show_bytes(row.bytes) if row.bytes else "-",
                show_acu(row.milliacu) if row.milliacu else "-",
                row.source or "unknown",
                ",".join(row.nodes) or "-",
                _note(row, wide),
            )
            for row in rows
        ],
    )


def _note(row: KindOffer, wide: bool) -> str:
    if not row.copies:
        return row.why if wide else row.why.partition(": ")[2] or row.why
    if row.exchange is None:
        return "" if row.named else "not the card that was named"
    hundredths = row.exchange.wanted_milliacu * 100 // max(row.exchange.got_milliacu, 1)
    return (
        f"1 {row.exchange.wanted} = {hundredths // 100}.{hundredths % 100:02d} of it in {row.exchange.workload} "
        f"({row.exchange.source})"
    )
