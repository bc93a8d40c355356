"""The command group: loads a command when it is called, and turns every way to fail into three lines and a code."""

import importlib
import sys
from collections.abc import MutableMapping, Sequence
from typing import Any, Final

import typer
from typer.core import TyperGroup
from typer.main import get_command

from hcs.cli.commands import COMMANDS, Registered
from hcs.cli.errors import INTERRUPTED, TIMEOUT, CommandError, usage_error
from hcs.model.refusals import RefusedError

_BY_NAME: Final = {command.name: command for command in COMMANDS}


class LazyGroup(TyperGroup):
    """All commands of :data:`hcs.cli.commands.COMMANDS`, none of them loaded before its time."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.commands = _Lazily(self.commands)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the overview from the list alone."""
        for title, program in (("Commands", False), ("Parts that run in a cluster", True)):
            with formatter.section(title):
                formatter.write_dl([(c.name, c.summary) for c in COMMANDS if c.program == program])

    def shell_complete(self, ctx: Any, incomplete: str) -> list[Any]:
        """Complete command names from the list alone."""
        from typer._click.shell_completion import CompletionItem  # its type has no public name

        names = [CompletionItem(c.name, help=c.summary) for c in COMMANDS if c.name.startswith(incomplete)]
        return names if not incomplete.startswith("-") else super().shell_complete(ctx, incomplete)

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> Any:
        """Run a command line; with ``standalone_mode`` exit with its code."""
        try:
            result = super().main(args, prog_name, complete_var, False, windows_expand_args, **extra)
            sys.stdout.flush()
            code = result if isinstance(result, int) else 0
        except CommandError as error:
            code = _tell(error)
        except RefusedError as error:  # of a program, before it began
            first = error.refusals[0]
            why, _, hint = first.message.rpartition("; ")
            code = _tell(CommandError(f"refused: {first.reason}", why or hint, hint if why else "--help"))
        except typer.TyperException as error:
            code = _tell(usage_error(error))
        except (typer.Abort, KeyboardInterrupt):
            code = INTERRUPTED
        except TimeoutError as error:
            code = _tell(
                CommandError("no answer in time", str(error) or "the server is slow or gone", "again", code=TIMEOUT)
            )
        if standalone_mode:
            sys.exit(code)
        return code


class _Lazily(MutableMapping[str, Any]):
    """Command name → command, loaded when it is asked for."""

    def __init__(self, known: MutableMapping[str, Any]) -> None:
        self._loaded = dict(known)

    def __getitem__(self, name: str) -> Any:
        if name not in self._loaded:
            self._loaded[name] = load(_BY_NAME[name])
        return self._loaded[name]

    def __setitem__(self, name: str, command: Any) -> None:
        self._loaded[name] = command

    def __delitem__(self, name: str) -> None:
        del self._loaded[name]

    def __iter__(self) -> Any:
        return iter(dict.fromkeys([*_BY_NAME, *self._loaded]))

    def __len__(self) -> int:
        return len(list(iter(self)))

    def __contains__(self, name: object) -> bool:
        return name in _BY_NAME or name in self._loaded


def load(registered: Registered, *, parent: str = "hcs", function: str = "run") -> Any:
    """Import a command.

    Args:
        registered: which.
        parent: what is typed before its name.
        function: the one to call, where its module has no application of its own. ``EPILOG`` of the module, or its
            entry in ``EPILOGS``, stands below the help.

    Raises:
        CommandError: its module, or something it needs, is not installed.
    """
    try:
        module = importlib.import_module(registered.module)
    except ModuleNotFoundError as error:
        extra = f"[{registered.extra}]" if registered.extra else ""
        raise CommandError(
            f"{parent} {registered.name} is not available here",
            f"module {error.name} is not installed",
            f"pip install 'hetero-compute-router{extra}'",
        ) from error
    target = getattr(module, "app", None)
    if not isinstance(target, typer.Typer):
        target = typer.Typer(add_completion=False, rich_markup_mode=None)
        epilog = getattr(module, "EPILOGS", {}).get(registered.name) or getattr(module, "EPILOG", None)
        target.command(registered.name, epilog=epilog)(getattr(module, function))
    command = get_command(target)
    command.name = registered.name
    return command


def _tell(error: CommandError) -> int:
    sys.stdout.flush()
    print(error, file=sys.stderr)  # noqa: T201 - this is the command line's own voice
    return error.code
