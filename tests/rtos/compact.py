"""The compact form as the tests write it: amounts with ``Mi`` are bytes."""

from pathlib import Path
from typing import Any

import yaml

from hcs.rtos.configuration import Config
from hcs.rtos.documents import Asked, read_document
from hcs.rtos.hosts import Host


def load(name: str) -> Any:
    """A data file beside the tests."""
    return yaml.safe_load((Path(__file__).parent / name).read_text())


def document(raw: dict[str, Any]) -> dict[str, Any]:
    """The compact form with bytes for ``Mi``."""
    memory = {
        key: int(value[:-2]) << 20 if isinstance(value, str) and value.endswith("Mi") else value
        for key, value in raw.get("mem", {}).items()
    }
    return {**raw, "mem": memory}


def asked(raw: dict[str, Any]) -> Asked:
    """One guest as asked for."""
    (one,) = read_document(document(raw), Config(), Host())
    return one
