"""Node resources in thousandths of their unit, exactly, rounded up as Kubernetes does.

CPU is asked in ``500m``, memory even in ``100m`` bytes; one integer scale for all keeps every comparison exact. A pod
asks for the sum of its containers and sidecars, or for its hungriest init container, whichever is more.
"""

import math
import re
from collections.abc import Mapping
from decimal import Decimal
from fractions import Fraction
from typing import Any, Final

_QUANTITY: Final = re.compile(r"([+-]?[0-9.]+)(?:([eE][+-]?[0-9]{1,3})|(n|u|m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei)?)")
_SCALE: Final[Mapping[str, Fraction]] = {
    **{suffix: Fraction(10) ** power for suffix, power in zip(("n", "u", "m", ""), (-9, -6, -3, 0), strict=True)},
    **{suffix: Fraction(1000) ** power for power, suffix in enumerate("kMGTPE", 1)},
    **{f"{suffix}i": Fraction(1024) ** power for power, suffix in enumerate("KMGTPE", 1)},
}

Amounts = Mapping[str, int]
"""Resource name → thousandths of its unit."""


def parse_thousandths(text: str | int | float) -> int:
    """Read a Kubernetes quantity into thousandths.

    >>> parse_thousandths("500m"), parse_thousandths("1Ki"), parse_thousandths(2)
    (500, 1024000, 2000)

    Raises:
        ValueError: not a quantity.
    """
    match = _QUANTITY.fullmatch(str(text).strip())
    if match is None:
        raise ValueError(f"cannot read {text!r} as a quantity")
    number, exponent, suffix = match.groups()
    scale = Fraction(10) ** int(exponent[1:]) if exponent else _SCALE[suffix or ""]
    return math.ceil(Fraction(Decimal(number)) * scale * 1000)


def read_amounts(amounts: Mapping[str, str | int | float] | None) -> dict[str, int]:
    """Read a resource list."""
    return {name: parse_thousandths(text) for name, text in (amounts or {}).items()}


def requested(spec: Mapping[str, Any]) -> dict[str, int]:
    """What a pod with this spec asks of its node, one ``pods`` included.

    Sidecars (init containers with ``restartPolicy: Always``) run beside everything that starts after them.
    """
    main = _summed(*(_requests(container) for container in spec.get("containers") or ()))
    sidecars: dict[str, int] = {}
    starting: dict[str, int] = {}
    for container in spec.get("initContainers") or ():
        if container.get("restartPolicy") == "Always":
            sidecars = _summed(sidecars, _requests(container))
            starting = _largest(starting, sidecars)
        else:
            starting = _largest(starting, _summed(sidecars, _requests(container)))
    return {"pods": 1000, **_summed(_largest(_summed(main, sidecars), starting), read_amounts(spec.get("overhead")))}


def _requests(container: Mapping[str, Any]) -> dict[str, int]:
    return read_amounts((container.get("resources") or {}).get("requests"))


def _summed(*amounts: Amounts) -> dict[str, int]:
    total: dict[str, int] = {}
    for one in amounts:
        for name, amount in one.items():
            total[name] = total.get(name, 0) + amount
    return total


def _largest(one: Amounts, other: Amounts) -> dict[str, int]:
    return {name: max(one.get(name, 0), other.get(name, 0)) for name in (*one, *other)}
