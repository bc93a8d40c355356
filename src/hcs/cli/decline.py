"""``hcs decline``."""

from hcs.cli.asks import decline as run

__all__ = ["run"]
