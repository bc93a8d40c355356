"""What was recorded from a real cluster: files under ``reference/samples`` in ``../shared``, or in ``HCS_SHARED``."""

import os
from pathlib import Path
from typing import Any

import msgspec
import pytest

SAMPLES = Path(os.environ.get("HCS_SHARED") or Path(__file__).parents[2] / "shared") / "reference" / "samples"

recorded = pytest.mark.skipif(not SAMPLES.is_dir(), reason=f"no recorded samples in {SAMPLES}; set HCS_SHARED")


def sample(name: str) -> Any:
    """The content of a JSON file."""
    return msgspec.json.decode((SAMPLES / name).read_bytes())
