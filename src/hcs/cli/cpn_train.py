"""``hcs cpn train``: from measurements and runs that ended to the file a controller begins with."""

import csv
import os
import tempfile
from pathlib import Path
from typing import Annotated, Literal

import msgspec
import typer

from hcs.cli.errors import FAILED, USAGE, CommandError
from hcs.cli.options import Json
from hcs.cli.output import Column, Table, say, write_data, write_table
from hcs.predict.jobs import JobPredictor, Run, Settings
from hcs.predict.measurements import MeasurementError, history, measured, shape_of
from hcs.predict.runs import sane, timed
from hcs.predict.trees import DEFAULT, Kind
from hcs.predict.validation import Level, Validation, validated

_MOST_BYTES = 256 << 20
_MOST_ROWS = 200_000
_STEADY_STEPS = 1000.0  # a measured rate counts as so many steps; any number says the same

EPILOG = """Columns of a CSV of runs: model, kind, cards, seconds, and where known batch, steps, peak_memory (bytes),
outcome (succeeded, accelerator-oom, host-oom, failed), nodes, probe, shared_with, finished. Measured rates have gpu,
model, batch_size, num_gpus, consolidated, steps_per_s; measured steps gpu, model, local_batch, nodes, gpus, layout,
step_s. Examples: hcs cpn train runs.jsonl; hcs cpn train rates.csv runs.csv -o site.model --rename v100=V100-SXM2"""


class Learnt(msgspec.Struct, frozen=True, rename="camel"):
    """What ``--json`` says."""

    file: str
    bytes: int
    rows: int
    unusable: int
    models: list[str]
    kinds: list[str]
    memory_of: list[str]
    shared: int
    trees: Kind
    trees_mape_pct: dict[str, float]
    levels: list[Level]
    startup_seconds: float
    seed: int


def train(
    history: Annotated[
        list[Path], typer.Argument(help="CSV or JSON-lines files of measurements and ended runs.", metavar="FILE...")
    ],
    output: Annotated[Path, typer.Option("-o", "--output", help="The file to write.", metavar="FILE")] = Path(
        "cpn.model"
    ),
    trees: Annotated[
        Literal["auto", "forest", "boosted"], typer.Option("--trees", help="auto: those that cross-validate better.")
    ] = "auto",
    rename: Annotated[
        list[str] | None, typer.Option("--rename", help="Another name for a kind of card.", metavar="FROM=TO")
    ] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, max=10_000, help="Different jobs to condition on.")] = 240,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Chooses folds and draws.")] = 0,
    check: Annotated[bool, typer.Option("--check/--no-check", help="Cross-validate, which takes most time.")] = True,
    json: Json = False,
) -> None:
    """Learn run time, memory and sharing from measurements and ended runs, and write them to one file."""
    names = dict(_renamed(text) for text in rename or ())
    runs = [msgspec.structs.replace(run, kind=names.get(run.kind, run.kind)) for path in history for run in _read(path)]
    if len(runs) > _MOST_ROWS:
        raise CommandError(
            "too many rows", f"{len(runs)} rows; a model file holds {_MOST_ROWS}", "the newest of them", code=FAILED
        )
    useful = [run for run in map(sane, runs) if run is not None]
    if not timed(useful):
        raise CommandError(
            "nothing to learn from",
            f"none of {len(runs)} rows ended well, alone on its cards, with a finite, positive time",
            "adding runs with outcome succeeded, or measured rates",
            code=FAILED,
        )
    settings = Settings(trees=DEFAULT if trees == "auto" else trees, limit=limit)
    found = validated(useful, seed=seed, settings=settings) if check else Validation((), {}, settings.trees)
    if trees == "auto":
        settings = msgspec.structs.replace(settings, trees=found.chosen)
    predictor = JobPredictor.fitted(useful, seed=seed, settings=settings)
    data = predictor.encode()
    _write(output, data)
    learnt = Learnt(
        str(output),
        len(data),
        len(useful),
        len(runs) - len(useful),
        sorted({run.model for run in useful}),
        sorted({run.kind for run in useful}),
        sorted({run.model for run in useful if run.peak_memory is not None}),
        sum(run.shared_with is not None for run in useful),
        settings.trees,
        found.trees,
        list(found.levels),
        round(predictor.durations.before, 3),
        seed,
    )
    if json:
        write_data(learnt, "line")
    else:
        _show(learnt)


def _show(learnt: Learnt) -> None:
    say(f"rows     {learnt.rows}" + (f", {learnt.unusable} left out as unusable" if learnt.unusable else ""))
    say(f"models   {_list(learnt.models)}")
    say(f"kinds    {_list(learnt.kinds)}")
    say(f"memory   {'of ' + _list(learnt.memory_of) if learnt.memory_of else 'of none: no run told its peak'}")
    say(f"sharing  {learnt.shared} runs that shared a card")
    compared = ", ".join(f"{kind} {error:.2f} %" for kind, error in learnt.trees_mape_pct.items())
    say(f"trees    {learnt.trees}" + (f" (error on unseen jobs: {compared})" if compared else ""))
    if learnt.levels:
        say()
        columns = (Column("LEVEL"), *(Column(title, right=True) for title in ("RUNS", "MEAN %", "MEDIAN %", "IN 90 %")))
        rows: list[tuple[str, ...]] = [
            (
                level.level,
                str(level.runs),
                f"{level.mape_pct:.2f}",
                f"{level.median_ape_pct:.2f}",
                f"{level.coverage_90_pct:.1f}",
            )
            for level in learnt.levels
        ]
        write_table(Table(columns, rows))
        say()
    say(f"wrote {learnt.file} ({learnt.bytes} bytes)")


def _list(names: list[str], most: int = 6) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return f"{len(names)}: {', '.join(names[:most])}{more}"


def _renamed(text: str) -> tuple[str, str]:
    old, equals, new = text.partition("=")
    if not equals or not old.strip() or not new.strip():
        raise CommandError(f"cannot rename {text!r}", "FROM=TO is expected", "--rename v100=V100-SXM2", code=USAGE)
    return old.strip(), new.strip()


def _read(path: Path) -> list[Run]:
    """The runs of a file; whole files only, so a broken row leaves no half-trained model."""
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise _broken(path, f"it has {path.stat().st_size} bytes; {_MOST_BYTES} are read at most")
        data = path.read_bytes()
    except OSError as error:
        raise CommandError(
            f"cannot read {path}", error.strerror or str(error), "a CSV or JSON-lines file", code=FAILED
        ) from error
    if data.lstrip()[:1] == b"{":
        return _lines(path, data)
    try:
        text = data.decode("utf-8-sig")
        rows = list(csv.DictReader(text.splitlines(), strict=True))
    except (UnicodeDecodeError, csv.Error) as error:
        raise _broken(path, str(error)) from error
    for number, row in enumerate(rows, start=1):
        if None in row or None in row.values():
            raise _broken(path, f"row {number} has more or fewer fields than the header")
    if not rows:
        raise _broken(path, "it has no rows")
    try:
        return history(rows) if shape_of(list(rows[0])) == "runs" else _steady(rows)
    except MeasurementError as error:
        raise _broken(path, str(error)) from error


def _lines(path: Path, data: bytes) -> list[Run]:
    runs = []
    for number, line in enumerate(data.splitlines(), start=1):
        if not line.strip():
            continue
        try:
            runs.append(msgspec.json.decode(line, type=Run))
        except msgspec.DecodeError as error:
            raise _broken(path, f"line {number} is no run: {error}") from error
    return runs


def _steady(rows: list[dict[str, str]]) -> list[Run]:
    """Measured rates or steps as runs of so many steps each; those that did not run tell nothing."""
    found = measured(rows)
    table = found.rows
    return [
        Run(
            str(table.model[i]),
            str(table.card[i]),
            float(table.batch[i]) or None,
            int(table.cards[i]),
            _STEADY_STEPS,
            float(found.seconds[i]) * _STEADY_STEPS,
            None,
            "succeeded",
            nodes=int(table.nodes[i]),
            steady=True,
        )
        for i in range(len(table))
        if found.seconds[i] > 0
    ]


def _write(path: Path, data: bytes) -> None:
    """All or nothing: a controller may be reading the old file."""
    try:
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
            os.chmod(name, 0o644)
            os.replace(name, path)
        except BaseException:
            os.unlink(name)
            raise
    except OSError as error:
        raise CommandError(
            f"cannot write {path}", error.strerror or str(error), "another --output", code=FAILED
        ) from error


def _broken(path: Path, why: str) -> CommandError:
    return CommandError(f"cannot learn from {path}", why, "hcs cpn train --help, which lists the columns", code=FAILED)
