"""CEL for match conditions, admission policies and custom resource rules, by the ``cel`` library.

Each text is compiled once. Promises: an error in the text or during evaluation is one ``ExpressionError`` that
callers turn into their failure policy. Known gap against a real server: the optional syntax (``a.?b``, ``orValue`` on
fields), ``authorizer`` and the URL, IP and format libraries are missing, so the manifests of this project use
``has()``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction
from functools import lru_cache
from typing import Any

import cel
import cel.stdlib

from hcs.sandbox.apiserver import quantities


class ExpressionError(ValueError):
    """A CEL text that does not compile, or that failed on these values."""


@lru_cache(maxsize=512)
def compile_text(text: str) -> Any:
    """Compile a CEL expression. Raises ExpressionError."""
    try:
        return cel.compile(text)
    except ValueError as error:
        why = str(error).partition("': ")[2].replace("\n| ", "\n | ")
        raise ExpressionError(f"compilation failed: {why}") from None


def evaluate(text: str, scope: Mapping[str, Any]) -> Any:
    """Evaluate an expression over variables. Raises ExpressionError.

    >>> evaluate("object.metadata.name.startsWith('a')", {"object": {"metadata": {"name": "abc"}}})
    True
    """
    program = compile_text(text)
    context = cel.Context(variables=dict(scope), functions=_FUNCTIONS)
    cel.stdlib.add_stdlib_to_context(context)
    try:
        return program.execute(context)
    except KeyError as error:
        raise ExpressionError(f"no such key: {error.args[0] if error.args else ''}") from None
    except (RuntimeError, TypeError, ValueError) as error:
        raise ExpressionError(str(error)) from None


def _is_quantity(text: str) -> bool:
    try:
        quantities.parse(text)
    except quantities.QuantityError:
        return False
    return True


def _compare(left: str, right: str) -> int:
    a, b = Fraction(quantities.value(left)), Fraction(quantities.value(right))
    return (a > b) - (a < b)


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "isQuantity": _is_quantity,
    "quantity": quantities.canonical,
    "compareTo": _compare,
    "isLessThan": lambda left, right: _compare(left, right) < 0,
    "isGreaterThan": lambda left, right: _compare(left, right) > 0,
}
