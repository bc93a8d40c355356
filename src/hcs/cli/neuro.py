"""``hcs neuro``: boards of spiking hardware, seen and tried out."""

import typer

from hcs.cli import neuro_boards, neuro_check, neuro_live

app = typer.Typer(
    add_completion=False,
    rich_markup_mode=None,
    no_args_is_help=True,
    help="Spiking hardware: boards, placements, leases and tasks.",
    epilog="Try: hcs neuro board darwin3, or hcs neuro place 10x10 8x6 12x4",
)
app.command("board")(neuro_boards.board)
app.command("place")(neuro_boards.place)
app.command("check")(neuro_check.check)
app.command("lease")(neuro_live.lease)
app.command("tasks")(neuro_live.tasks)
app.command("top")(neuro_live.top)
