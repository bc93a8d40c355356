"""The questions put to a Prometheus, as PromQL. One round asks all at one moment of the server's clock.

Names of metrics are asked for together, by a regular expression, so that a round takes a handful of requests however
many vendors are known. Ages cannot be: arithmetic drops the name, and series of equal labels would collide; each name
is therefore put into a label first.
"""

import re
from collections.abc import Callable, Iterable
from typing import Final

METRIC: Final = "hcs_metric"
"""The label that carries the name of the metric where PromQL drops it."""


def living(matchers: str) -> str:
    """Which targets answered their last scrape."""
    return _select("up", matchers)


def values(metrics: Iterable[str], matchers: str) -> str:
    """All series of some metrics."""
    pattern = "|".join(re.escape(name) for name in sorted(set(metrics)))
    return "{" + ",".join(part for part in (f'__name__=~"{pattern}"', matchers) if part) + "}"


def ages(metrics: Iterable[str], matchers: str) -> str:
    """How many seconds old each series' sample is."""
    return _each(metrics, lambda name: f"time() - timestamp({_select(name, matchers)})")


def changes(metrics: Iterable[str], matchers: str, window: str) -> str:
    """How often each series changed in a window, of those that were there before it began."""

    def one(name: str) -> str:
        series = _select(name, matchers)
        return f"changes({series}[{window}]) and {series} offset {window}"

    return _each(metrics, one)


def busy(idle: str, matchers: str) -> str:
    """The share of each host's CPU in use. A minute where scrapes are frequent enough, else five."""
    series = _select(idle, matchers, 'mode="idle"')
    return f"1 - avg without (cpu, mode) (rate({series}[1m]) or rate({series}[5m]))"


def busy_age(idle: str, matchers: str) -> str:
    """How many seconds old what :func:`busy` is computed from is."""
    series = _select(idle, matchers, 'mode="idle"')
    return f"max without (cpu, mode) (time() - timestamp({series}))"


def _select(name: str, *matchers: str) -> str:
    inside = ",".join(part for part in matchers if part)
    return f"{name}{{{inside}}}" if inside else name


def _each(metrics: Iterable[str], expression: Callable[[str], str]) -> str:
    return " or ".join(
        f'label_replace({expression(name)}, "{METRIC}", "{name}", "", "")' for name in sorted(set(metrics))
    )
