"""Cards exchanged for cards of other models, by rates that are given: what a task gets where its own are not free.

A share of a card is compute here and nothing else, for the trace knows no memory of cards. On a stronger card the share
is smaller; on a weaker one larger, and above one card it becomes whole cards. Amounts are rounded up, so nobody is
given less than was asked for. A task that names several models is owed the compute of the strongest of them.
"""

from collections.abc import Mapping
from fractions import Fraction
from math import ceil

from benchmarks.openb.trace import CARD, Task, TraceError


class Exchange:
    """What amounts of another model do the work of what a task asks for."""

    def __init__(self, rates: Mapping[str, float]) -> None:
        """Prepare.

        Args:
            rates: model → what one card does, in any unit that is the same for all.
        """
        self._rates = {model: Fraction(rate).limit_denominator(10**6) for model, rate in rates.items()}

    def owed(self, task: Task) -> Fraction:
        """What the task would do on what it asks for, in the unit of the rates."""
        return max(self._rates[model] for model in task.models if model in self._rates) * task.demand / CARD

    def amounts(self, task: Task, model: str) -> tuple[int, int]:
        """How many cards of a model the task it does not name stand in, and how many thousandths of each; (0, 0) when
        nothing is known to exchange by."""
        if model not in self._rates or not any(named in self._rates for named in task.models):
            return 0, 0
        cards = self.owed(task) / self._rates[model]
        if task.milli < CARD and cards <= 1:
            return 1, ceil(cards * CARD)
        return ceil(cards), CARD

    def delivered(self, task: Task, model: str, thousandths: int) -> float:
        """What so many thousandths of cards do, of what the task is owed; 1 is all of it."""
        return float(self._rates[model] * thousandths / CARD / self.owed(task))


def check(rates: Mapping[str, float], tasks: tuple[Task, ...]) -> None:
    """Refuse rates that no constraint of the list could be exchanged by.

    Raises:
        TraceError: there are constraints, and none of the models named has a rate.
    """
    named = {model for task in tasks for model in task.models}
    if named and not named & rates.keys():
        raise TraceError(f"the tasks name {', '.join(sorted(named))}; the rates are of {', '.join(sorted(rates))}")
