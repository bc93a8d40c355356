"""``hcs ura``: what cards are worth, from results of others."""

import csv
import datetime
import io
import re
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from hcs.cli.errors import USAGE, CommandError
from hcs.cli.output import say, tell
from hcs.model import names
from hcs.model.quantities import show_acu
from hcs.ura.catalogue import load_catalogue
from hcs.ura.imports import COLUMNS, NEEDED, Imported, TableError, rates_of

app = typer.Typer(
    help="What cards are worth: take in measurements of others.", no_args_is_help=True, add_completion=False
)

_MOST_SHOWN = 8


@app.callback()
def ura() -> None:
    """What cards are worth: take in measurements of others."""


@app.command("import")
def import_(
    file: Annotated[Path, typer.Argument(help="A CSV table with a header line; - reads stdin.", metavar="FILE")],
) -> None:
    """Turn a table of results into ExchangeRate objects, on stdout.

    Columns: model, workload, value and unit are needed; vendor, source (measured, benchmark, datasheet), date, suite,
    devices and note may stand beside them. A value is in ACU, or in any unit where more is better; then the table must
    have the A100-SXM4-80GB's value of the same workload, unit and suite as well.

        hcs ura import results.csv | kubectl apply -f -

    The router takes such a rate in the place of the catalogue's from then on.
    """
    try:
        imported = rates_of(_rows(file), load_catalogue(), datetime.datetime.now(datetime.UTC).date())
    except TableError as error:
        shown = [f"{problem}" for problem in error.problems[:_MOST_SHOWN]]
        rest = len(error.problems) - len(shown)
        raise CommandError(
            f"cannot use the table {file}",
            "\n        ".join([*shown, *([f"and {rest} more"] if rest else [])]),
            "hcs ura import --help",
            code=USAGE,
        ) from error
    for one in imported:
        for rate in one.rates:
            before = one.card.rate(rate.workload)
            known = f"; the catalogue says {show_acu(before.milliacu)} ({before.source})" if before else ""
            tell(f"{one.card.key} in {rate.workload}: {show_acu(rate.milliacu)} ACU ({rate.source}){known}")
    say(manifests(imported))


def manifests(imported: tuple[Imported, ...]) -> str:
    """The ExchangeRate objects as YAML."""
    import yaml

    return yaml.safe_dump_all([_manifest(one) for one in imported], sort_keys=False, allow_unicode=True).rstrip()


def _manifest(one: Imported) -> dict[str, Any]:
    name = re.sub(r"[^a-z0-9.-]+", "-", f"{one.card.vendor}-{one.card.model}".lower()).strip("-.")
    rates = []
    for rate in one.rates:
        entry = {"workload": rate.workload, "milliacu": rate.milliacu, "source": rate.source}
        entry |= {"note": rate.note} if rate.note else {}
        rates.append({**entry, "asOf": rate.as_of})
    return {
        "apiVersion": f"{names.GROUP}/{names.VERSION}",
        "kind": "ExchangeRate",
        "metadata": {"name": name},
        "spec": {"vendor": one.card.vendor, "model": one.card.model, "rates": rates},
    }


def _rows(file: Path) -> list[dict[str, str | None]]:
    try:
        text = sys.stdin.read() if str(file) == "-" else file.read_text(encoding="utf-8-sig")
        reader = csv.DictReader(io.StringIO(text), strict=True, restkey="")
        rows = list(reader)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise CommandError(f"cannot read {file}", " ".join(str(error).split()), "a CSV table", code=USAGE) from error
    header = [name.strip() for name in reader.fieldnames or ()]
    missing = [name for name in NEEDED if name not in header]
    unknown = [name for name in header if name not in COLUMNS]
    if missing or unknown:
        found = f"it has {', '.join(header) or 'no header'}"
        lacks = f"it lacks {', '.join(missing)}" if missing else f"there is no column {unknown[0]!r}"
        raise CommandError(
            f"cannot use the table {file}", f"{lacks}; {found}", f"columns are {', '.join(COLUMNS)}", code=USAGE
        )
    if any("" in row for row in rows):
        raise CommandError(
            f"cannot use the table {file}",
            "a row has more cells than the header",
            "quote cells with commas",
            code=USAGE,
        )
    return [{name.strip(): value for name, value in row.items()} for row in rows]
