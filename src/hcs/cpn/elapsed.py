"""How much time has gone by, whatever somebody does to the clock."""

import asyncio

from hcs.wide.jobs import Milliseconds


def elapsed() -> Milliseconds:
    """Milliseconds since some beginning of this process's own; only differences mean something."""
    return round(asyncio.get_running_loop().time() * 1000)
