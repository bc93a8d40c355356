"""A sandbox says early, and in a sentence, why it cannot start."""

import asyncio
from pathlib import Path

import pytest

from hcs.sandbox.cluster import Sandbox
from hcs.sandbox.fleet import DEMO, load_fleet
from hcs.sandbox.supervisor import StartError


def test_a_directory_too_deep_for_sockets_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    deep = tmp_path / ("d" * 100)
    with pytest.raises(StartError, match=r"Linux allows 107; use a temporary directory with a shorter name"):
        asyncio.run(Sandbox(deep, load_fleet(DEMO)).start(lambda _: None))
    assert not deep.exists()
