"""One thread for linear algebra while fitting and predicting.

The matrices are some hundreds wide. Split over threads they gain nothing, and where other programs run the threads wait
for each other: a fit of a second then takes a minute.
"""

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

from threadpoolctl import ThreadpoolController

P = ParamSpec("P")
R = TypeVar("R")


def single_threaded(function: Callable[P, R]) -> Callable[P, R]:
    """The function, with the linear algebra libraries held to one thread while it runs."""

    @wraps(function)
    def held(*arguments: P.args, **named: P.kwargs) -> R:
        with _controller().limit(limits=1, user_api="blas"):
            return function(*arguments, **named)

    return held


_controllers: list[ThreadpoolController] = []


def _controller() -> ThreadpoolController:
    """Found once: looking through the loaded libraries takes a while, and scipy's are loaded by then."""
    if not _controllers:
        _controllers.append(ThreadpoolController())
    return _controllers[0]
