"""What a measurement leaves behind: figures with date, driver and clocks, and the rates that follow from them.

A rate in ACU needs the reference card measured the same way. For matrix multiplication there is one (the published
torch.mm figure of an A100-SXM4-80GB, whose method ours follows); for memory bandwidth the published copy is of the
40 GB model and is scaled by the two ratings, so the rate is a benchmark and not measured. Other figures are kept and
shown, and become rates once a reference was measured by this very suite.
"""

from collections.abc import Iterable
from datetime import date
from statistics import median
from typing import Final

import msgspec

from hcs.measure.suite import VERSION, Failure, Figure
from hcs.model.devices import Rate

GEMM_FP16_A100: Final = 258.74
"""TFLOPS of an A100-SXM4-80GB, square torch.mm up to 10240 (zzc0721/torch-performence-test-data)."""
COPY_A100: Final = 1328.25 * 2039 / 1555
"""GB/s: FlagPerf's copy on an A100-SXM4-40GB, scaled by the rated bandwidths of the two models."""
SLOW: Final = 0.9
"""A card below this part of its model's median is flagged."""


class Result(msgspec.Struct, frozen=True, rename="camel"):
    """One measurement of one card."""

    device: str
    vendor: str
    model: str
    measured: str
    suite: int
    backend: str
    driver: str
    clocks: dict[str, int]
    figures: tuple[Figure, ...]
    failures: tuple[Failure, ...] = ()
    emulated: bool = False

    def figure(self, metric: str) -> Figure | None:
        """A steady figure by its name."""
        return next((f for f in self.figures if f.metric == metric and f.steady), None)


def result_of(
    outcomes: Iterable[Figure | Failure],
    *,
    device: str,
    vendor: str,
    model: str,
    backend: str,
    driver: str,
    clocks: dict[str, int],
    today: date,
    emulated: bool = False,
) -> Result:
    """Put a measurement together."""
    every = tuple(outcomes)
    return Result(
        device=device,
        vendor=vendor,
        model=model,
        measured=today.isoformat(),
        suite=VERSION,
        backend=backend,
        driver=driver,
        clocks=clocks,
        figures=tuple(outcome for outcome in every if isinstance(outcome, Figure)),
        failures=tuple(outcome for outcome in every if isinstance(outcome, Failure)),
        emulated=emulated,
    )


def rates_of(result: Result) -> tuple[Rate, ...]:
    """The rates of the measured card; only from steady figures."""
    rates = []
    if gemm := result.figure("gemm_fp16"):
        rates.append(
            Rate(
                "gemm",
                int(gemm.value / GEMM_FP16_A100 * 100_000),
                "measured",
                f"on this card: {gemm.value:.4g} against {GEMM_FP16_A100} TFLOPS of A100-SXM4-80GB; {result.backend}",
                result.measured,
            )
        )
    if copy := result.figure("mem_bandwidth"):
        rates.append(
            Rate(
                "decode",
                int(copy.value / COPY_A100 * 100_000),
                "benchmark",
                f"on this card: copies {copy.value:.4g} GB/s; an A100-SXM4-80GB's {COPY_A100:.4g} are scaled from the "
                f"40 GB model; {result.backend}",
                result.measured,
            )
        )
    return tuple(rates)


def merged(known: Iterable[Rate], measured: Iterable[Rate]) -> tuple[Rate, ...]:
    """A card's rates once it was measured: what was found on the card itself wins in its class."""
    rates = {rate.workload: rate for rate in known}
    rates.update({rate.workload: rate for rate in measured})
    return tuple(rates.values())


def model_rate(cards: Iterable[int]) -> int:
    """The rate of a model from those of its cards, in thousandths of an ACU: their median.

    Raises:
        statistics.StatisticsError: there is none.
    """
    return int(median(cards))


def is_slow(milliacu: int, cards: Iterable[int]) -> bool:
    """Whether a card is more than a tenth below the median of its model's cards; one card alone never is."""
    every = tuple(cards)
    return len(every) > 1 and milliacu < SLOW * median(every)
