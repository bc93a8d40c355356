"""A pod's requests and limits as the kubelet hands them to a runtime: shares, quota and period, memory limit.

The kubelet's own conversion (``pkg/kubelet/cm``): 1024 shares a CPU, at least 2 and at most 262144; a period of 100 ms
and a quota of at least 1 ms; a request that is missing is the limit. It passes no memory request to a runtime.
"""

import re
from collections.abc import Mapping
from fractions import Fraction
from math import ceil
from typing import Any, Final

from hcs.model.refusals import Refusal, RefusedError
from hcs.rtos.resources import Resources, malformed

PERIOD: Final = 100_000
LEAST_QUOTA: Final = 1_000
LEAST_SHARES: Final = 2
MOST_SHARES: Final = 262_144
_QUANTITY: Final = re.compile(
    r"\+?([0-9]{1,30}\.?[0-9]{0,30}|\.[0-9]{1,30})([KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]{1,2})?"
)
_BINARY: Final = {"Ki": 1, "Mi": 2, "Gi": 3, "Ti": 4, "Pi": 5, "Ei": 6}
_DECIMAL: Final = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}


def resources_of(container: Mapping[str, Any], name: str) -> Resources:
    """What the kubelet makes of one container's ``resources``.

    Raises:
        RefusedError: ``MalformedQuantity`` or ``MalformedValue``.
    """
    resources = container.get("resources") or {}
    if not isinstance(resources, Mapping):
        raise RefusedError(malformed(f"container {name}: resources", resources, "an object"))
    limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
    for what, amounts in (("limits", limits), ("requests", requests)):
        if not isinstance(amounts, Mapping):
            raise RefusedError(malformed(f"container {name}: {what}", amounts, "an object"))
    limit = _amount(limits, "cpu", name)
    request = _amount(requests, "cpu", name)
    milli_limit = ceil(limit * 1000) if limit is not None else 0
    milli_request = ceil(request * 1000) if request is not None else milli_limit
    memory = _amount(limits, "memory", name)
    return Resources(
        shares=min(max(milli_request * 1024 // 1000, LEAST_SHARES), MOST_SHARES),
        quota=max(milli_limit * PERIOD // 1000, LEAST_QUOTA) if milli_limit else None,
        period=PERIOD if milli_limit else None,
        limit=ceil(memory) if memory else None,
    )


def _amount(amounts: Mapping[str, Any], key: str, name: str) -> Fraction | None:
    value = amounts.get(key)
    if value is None:
        return None
    match = _QUANTITY.fullmatch(str(value)) if isinstance(value, str | int | float) else None
    if match is None or isinstance(value, bool):
        raise RefusedError(
            Refusal(
                "MalformedQuantity",
                f"container {name[:60]}, {key}: cannot read {value!r:.40}; write it like "
                f"{'500m or 2' if key == 'cpu' else '512Mi'}",
            )
        )
    number, unit = Fraction(match[1]), match[2] or ""
    if unit in _BINARY:
        return number * (1 << 10 * _BINARY[unit])
    power = _DECIMAL[unit] if unit in _DECIMAL else int(unit[1:])
    return number * Fraction(f"1e{power}")
