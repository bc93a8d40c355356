"""The log a runtime's caller reads: containerd takes the sentence it shows to people from the last error in it."""

import datetime
import os
from typing import Literal

import msgspec

Level = Literal["debug", "info", "warning", "error"]


class Journal:
    """Appends lines to a file, or to stderr where none was named; JSON as runc writes it, or plain text."""

    def __init__(self, path: str = "", *, json: bool = False, debug: bool = False) -> None:
        """Prepare; nothing is opened before there is something to say."""
        self._path, self._json, self._debug = path, json, debug

    @property
    def on_stderr(self) -> bool:
        """Whether errors are told on stderr already."""
        return not self._path

    def note(self, level: Level, message: str, *, quiet: bool = False) -> None:
        """Write one line.

        Args:
            level: how grave it is; ``debug`` is left out unless asked for.
            message: what happened.
            quiet: leave it out where the log is stderr.
        """
        if (level == "debug" and not self._debug) or (quiet and not self._path):
            return
        stamp = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        line = (
            msgspec.json.encode({"level": level, "msg": message, "time": stamp}).decode()
            if self._json
            else f'time="{stamp}" level={level} msg={msgspec.json.encode(message).decode()}'
        )
        try:
            handle = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644) if self._path else 2
        except OSError:
            return
        try:
            os.write(handle, line.encode() + b"\n")
        except OSError:
            return
        finally:
            if handle != 2:
                os.close(handle)
