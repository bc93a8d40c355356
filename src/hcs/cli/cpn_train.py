"""``hcs cpn train``: from measurements and runs that ended to the file a controller begins with."""

import os
import tempfile
from pathlib import Path
from typing import Annotated, Literal

import msgspec
import typer

from hcs.cli.cpn_history import read_history
from hcs.cli.errors import FAILED, USAGE, CommandError
from hcs.cli.options import Json
from hcs.cli.output import Column, Table, say, tell, write_data, write_table
from hcs.predict.jobs import JobPredictor, Settings
from hcs.predict.runs import sane, timed
from hcs.predict.trees import DEFAULT, Kind
from hcs.predict.validation import Level, Validation, validated

_MOST_ROWS = 200_000

EPILOG = """A table of runs that ended is enough, for instance of these lines:

\b
model,kind,batch,cards,steps,seconds,peak_memory
resnet50,A100-SXM4-80GB,128,1,5000,1260,21Gi
bert-base,V100-SXM2-32GB,,1,,3400,

Needed are model, kind (of card, as hcs cpn clusters names it; --rename changes it), cards and seconds. Where known:
batch (samples a card and step), steps (epochs x samples / batch), peak_memory (on one card; bytes, or with a unit),
outcome (succeeded, accelerator-oom, host-oom, failed), nodes, probe, shared_with, finished. JSON has the same names,
one run a line.

Measured rates have gpu, model, batch_size, num_gpus, consolidated, steps_per_s; measured steps gpu, model, local_batch,
nodes, gpus, layout, step_s.

Examples: hcs cpn train runs.csv; hcs cpn train rates.csv runs.jsonl -o site.model --rename v100=V100-SXM2-32GB.
Then: hcs cpn run --model site.model. docs/prediction.md tells the rest."""


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
    read = [read_history(path) for path in history]
    runs = [msgspec.structs.replace(run, kind=names.get(run.kind, run.kind)) for file in read for run in file.runs]
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
    for note in (note for file in read for note in file.notes):
        tell(note)
    for name in sorted(names.keys() - {run.kind for file in read for run in file.runs}):
        tell(f"--rename {name}={names[name]} changed nothing: no row has the kind {name}")


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
    say(f"wrote {learnt.file} ({learnt.bytes} bytes); hcs cpn run --model {learnt.file} begins with it")


def _list(names: list[str], most: int = 6) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return f"{len(names)}: {', '.join(names[:most])}{more}"


def _renamed(text: str) -> tuple[str, str]:
    old, equals, new = text.partition("=")
    if not equals or not old.strip() or not new.strip():
        raise CommandError(f"cannot rename {text!r}", "FROM=TO is expected", "--rename v100=V100-SXM2", code=USAGE)
    return old.strip(), new.strip()


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
