"""Charges: what a request by total costs against a ResourceQuota.

A quota counts ACU whatever card answers, so a total in TFLOPS or TOPS is charged as the share of an A100-SXM4-80GB's
rated dense figure it is, before anybody knows which card it will be. Substitution therefore never changes a charge.
"""

from fractions import Fraction
from math import ceil
from typing import Final

from hcs.model import names
from hcs.model.requests import Total

_REFERENCE_RATING: Final = {
    names.FP16_TFLOPS: Fraction(312),
    names.FP32_TFLOPS: Fraction("19.5"),
    names.INT8_TOPS: Fraction(624),
    names.TOTAL_ACU: Fraction(100),
}
"""Rated dense figures of an A100-SXM4-80GB, in the resource's own unit; each is 100 ACU. Source: ``ratings.csv``."""


def charges_of_total(total: Total) -> int:
    """Whole ACU charged for a total, rounded up.

    Raises:
        KeyError: the resource is not one of :data:`hcs.model.names.TOTALS`.

    >>> charges_of_total(Total("ai.compute/fp16-tflops", 100))
    33
    """
    return ceil(total.amount * 100 / _REFERENCE_RATING[total.resource])
