"""Errors as people read them: what happened, why, and what to try, in three lines on stderr."""

from typing import Final

import typer

FAILED: Final = 1
USAGE: Final = 2
TIMEOUT: Final = 124
INTERRUPTED: Final = 130


class CommandError(Exception):
    """A command cannot do what was asked.

    Args:
        what: what happened, without a full stop.
        why: the reason, with what was seen and what was expected.
        try_: what to do next: a command, or a change to what was asked.
        code: the exit code, one of this module's constants.
    """

    def __init__(self, what: str, why: str, try_: str, *, code: int = FAILED) -> None:
        super().__init__(what)
        self.what, self.why, self.try_, self.code = what, why, try_, code

    def __str__(self) -> str:
        return f"error: {self.what}\n  why:  {self.why}\n  try:  {self.try_}"


class HelpWantedError(CommandError):
    """A group of commands was called without one: its help is the answer, and the usage is still wrong."""

    def __init__(self, help: str) -> None:
        super().__init__("no command", "one is needed", "one of these", code=USAGE)
        self.help = help

    def __str__(self) -> str:
        return self.help


def usage_error(error: typer.TyperException) -> CommandError:
    """A mistake on the command line, as the parser saw it, in our three lines."""
    context: typer.Context | None = getattr(error, "ctx", None)
    if error.message.startswith("Usage:"):
        return HelpWantedError(error.message)
    message = " ".join(error.format_message().split()).rstrip(".")
    what = message[:1].lower() + message[1:]
    if context is None:
        return CommandError(what, "the command line cannot be read", "hcs --help", code=USAGE)
    usage = " ".join(context.get_usage().split()).removeprefix("Usage: ")
    return CommandError(what, f"usage is {usage}", f"{context.command_path} --help", code=USAGE)
