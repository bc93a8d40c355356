"""What goes wrong on purpose: read anew before each request, so that a test can change its mind in the middle."""

from pathlib import Path
from typing import Literal

import msgspec

Fault = Literal["no-reply", "split", "late", "fail", "die", "die-after", "close"]


class Rule(msgspec.Struct, frozen=True):
    """One fault.

    Attributes:
        fault: ``no-reply`` keeps silent and the connection open; ``split`` sends single bytes; ``late`` waits
            ``seconds`` before it replies; ``fail`` says no and does nothing; ``close`` closes without a reply;
            ``die`` ends the daemon before it acts, ``die-after`` after it acted and before it replies.
        request: only requests that begin with this; ``create`` for creations.
        nth: only the n-th such request since the rules were written, counted from 1; 0 for each.
        seconds: how long.
        text: what stands before the failure marker.
    """

    fault: Fault
    request: str = ""
    nth: int = 0
    seconds: float = 0.5
    text: str = ""


class Faults:
    """The rules in a file; none while there is no file."""

    def __init__(self, file: Path) -> None:
        """Prepare; the file is read before each request."""
        self._file = file
        self._stamp: tuple[int, int] | None = None
        self._rules: list[Rule] = []
        self._counts: dict[int, int] = {}

    def of(self, request: str) -> Rule | None:
        """The fault of this request, if any; asking counts it."""
        self._reload()
        chosen = None
        for index, rule in enumerate(self._rules):
            if not request.startswith(rule.request):
                continue
            self._counts[index] = self._counts.get(index, 0) + 1
            if chosen is None and rule.nth in (0, self._counts[index]):
                chosen = rule
        return chosen

    def _reload(self) -> None:
        try:
            stat = self._file.stat()
            stamp = (stat.st_mtime_ns, stat.st_ino)
            if stamp != self._stamp:
                self._rules = msgspec.json.decode(self._file.read_bytes(), type=list[Rule])
                self._stamp, self._counts = stamp, {}
        except FileNotFoundError:
            self._rules, self._stamp = [], None
