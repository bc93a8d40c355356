"""How a guest tells its exit code: micad has no word for it, so the guest says it on its console, in a sequence that
terminals ignore: ``ESC ] 7770 ; exit=N BEL``. The relay takes it out of the stream, also where reads cut it in two.
"""

import re
from typing import Final

_SEQUENCE: Final = re.compile(rb"\x1b\]7770;exit=([0-9]{1,3})\x07")
_LONGEST: Final = len(b"\x1b]7770;exit=255\x07")
_BEGINNING: Final = re.compile(rb"\x1b(?:\](?:7(?:7(?:7(?:0(?:;(?:e(?:x(?:i(?:t(?:=[0-9]{0,3})?)?)?)?)?)?)?)?)?)?)?\Z")


class Endings:
    """Takes the sequence out of a stream and keeps the last code it told."""

    def __init__(self) -> None:
        self.code: int | None = None
        self._held = b""

    def feed(self, raw: bytes) -> bytes:
        """What of the stream is for people; a beginning that may yet become the sequence is held back."""
        raw = self._held + raw
        for match in _SEQUENCE.finditer(raw):
            self.code = min(int(match[1]), 255)
        raw = _SEQUENCE.sub(b"", raw)
        beginning = _BEGINNING.search(raw, max(0, len(raw) - _LONGEST))
        self._held = raw[beginning.start() :] if beginning else b""
        return raw[: beginning.start()] if beginning else raw

    def rest(self) -> bytes:
        """What was held back, at the end of the stream."""
        held, self._held = self._held, b""
        return held
