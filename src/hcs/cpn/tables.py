"""Reads this package's data files."""

from importlib import resources

import msgspec

from hcs.cpn.endings import Messages, Pattern


def load_messages() -> Messages:
    """How frameworks say that memory ran out."""
    raw = resources.files("hcs.cpn").joinpath("data", "memory_messages.yaml").read_bytes()
    return Messages(msgspec.yaml.decode(raw, type=list[Pattern]))
