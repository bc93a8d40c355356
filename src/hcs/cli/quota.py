"""``hcs quota run|top|verify``: the interceptor by hand, on a machine without Kubernetes."""

from typing import Annotated

import typer

from hcs.cli.options import Json
from hcs.cli.quota_run import run_with_quota
from hcs.cli.quota_top import show_top
from hcs.cli.quota_verify import verify_books

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    add_completion=False,
    help="Hold a program to a share of a card's memory, and see what shares hold.",
)

Cards = Annotated[
    list[str] | None,
    typer.Option(
        "--card",
        metavar="[VENDOR:]CARD=AMOUNT",
        help="A card and how much of it, like GPU-5f3c…=8Gi; may be repeated. CARD is the UUID, the PCI address, or "
        "for Ascend the number of /dev/davinciN.",
    ),
]
Name = Annotated[str, typer.Option("--name", help="What `hcs quota top` calls it.", metavar="NAME")]
Context = Annotated[
    str,
    typer.Option("--context", help="Memory of each context, where it is known; measured otherwise.", metavar="AMOUNT"),
]
Emulated = Annotated[
    bool, typer.Option("--emulated", help="Emulate the cards: for machines without one. Runs of one card share it.")
]
Command = Annotated[
    list[str] | None,
    typer.Argument(help="The program and its arguments, after --.", metavar="-- COMMAND [ARGUMENT]..."),
]


@app.command("run")
def run_program(
    command: Command = None,
    card: Cards = None,
    name: Name = "run",
    context: Context = "0",
    emulated: Emulated = False,
) -> None:
    """Run a program that can take no more than its quota of each card.

    The program and all it starts count together. What would exceed the quota gets the driver's own "out of memory". The
    exit code is the program's; 2 where the quota cannot be read, 127 where the program is not found.

    hcs quota run --card GPU-5f3c9a1e-0b1d-4c5e-9f00-0123456789ab=8Gi -- python train.py

    hcs quota run --card ascend:0=16Gi -- python train.py

    hcs quota run --emulated --card GPU-00000000-0000-4000-8000-000000000000=2Gi -- python examples/train.py
    """
    raise typer.Exit(run_with_quota(card or [], command or [], name=name, context=context, emulated=emulated))


@app.command()
def top(
    json: Json = False,
    once: Annotated[bool, typer.Option("--once", help="Show it once, also on a terminal.")] = False,
    interval: Annotated[float, typer.Option("--interval", help="Seconds between two looks.", min=0.1)] = 1.0,
    state: Annotated[
        str, typer.Option("--state", help="Directory of a node's agent, for its containers.", metavar="DIR")
    ] = "/var/lib/hcs",
) -> None:
    """What every share holds now, by container, card and process.

    Reads the ledgers; changes nothing. On a terminal it goes on until Ctrl-C; elsewhere it prints once.

    hcs quota top

    hcs quota top --once --json
    """
    show_top(json=json, once=once, interval=interval, state=state)


@app.command()
def verify(
    command: Command = None,
    card: Cards = None,
    name: Name = "verify",
    context: Context = "0",
    emulated: Emulated = False,
    tolerance: Annotated[float, typer.Option("--tolerance", help="Percent by which they may differ.", min=0)] = 1.0,
    json: Json = False,
) -> None:
    """Compare the ledger with the driver while a program runs.

    Looks many times a second at what the driver says the program's processes hold; where it does not tell processes
    apart (inside a container), at what the whole card holds more than before. Exit code 1 where they differ by more
    than the tolerance; otherwise the program's.

    hcs quota verify --card GPU-5f3c9a1e-0b1d-4c5e-9f00-0123456789ab=8Gi -- python train.py

    hcs quota verify --emulated --card GPU-1=2Gi -- python examples/train.py
    """
    raise typer.Exit(
        verify_books(
            card or [], command or [], name=name, context=context, emulated=emulated, tolerance=tolerance, json=json
        )
    )
