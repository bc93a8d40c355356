"""``hcs accept``."""

from hcs.cli.asks import accept as run

__all__ = ["run"]
