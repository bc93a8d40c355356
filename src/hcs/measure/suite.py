"""The suite: which work is timed, and what its times say.

Matrix multiplication follows the method of the published measurements it is compared with: square matrices up to
10240, the best size counts. Memory bandwidth counts a copy's bytes twice, read and written. Copies grow until one takes
long against the cost of a launch, and runs are repeated until they take long against a clock's tick. A figure that does
not hold still is measured again.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Final

import msgspec

from hcs.measure.backends import Backend, BackendError, Precision, Unit
from hcs.measure.timing import Timing, time_work

VERSION: Final = 2
"""Of the method: figures of different versions are not compared."""

SIZES: Final = (4096, 8192, 10240)
SMALL_SIZES: Final = (256, 512, 1024)
"""For processors, where the large ones would take minutes."""
COPY_BYTES: Final = 1 << 30
SMALL_COPY_BYTES: Final = 64 << 20
SMALL_SECONDS: Final = 3.0
"""For processors, which others use as well, so that their times may never hold still."""
PEER_BYTES: Final = 256 << 20
MOST_GROWTH: Final = 8
"""How many times larger a copy may become."""
LONG_SECONDS: Final = 1e-3
"""How long one copy should take: a launch is some microseconds."""
ATTEMPTS: Final = 3
"""How often a figure is measured that does not hold still; once, where the time is bounded."""
AIM_SECONDS: Final = 0.05
"""How long one timed run should take at least."""
MOST_REPEATS: Final = 10_000

_UNITS: Final[dict[Precision, str]] = {"fp16": "TFLOPS", "bf16": "TFLOPS", "fp32": "TFLOPS", "int8": "TOPS"}


class Figure(msgspec.Struct, frozen=True):
    """One measured figure: ``metric`` like ``gemm_fp16``, in ``unit``; ``spread`` is a part of the value.

    ``detail`` says what exactly ran; ``peer`` is the other card's id where there is another. A figure that is not
    ``steady`` is shown and never used.
    """

    metric: str
    value: float
    unit: str
    spread: float
    steady: bool
    samples: int
    detail: str = ""
    peer: str = ""


class Failure(msgspec.Struct, frozen=True):
    """A metric that could not be measured, and why."""

    metric: str
    why: str
    peer: str = ""


Outcome = Figure | Failure
Telling = Callable[[str], None]
TimeIt = Callable[[Callable[[int], float]], tuple[Timing, int]]


def measure(
    backend: Backend,
    unit: int,
    *,
    peers: Sequence[Unit] = (),
    own: bool = True,
    sizes: Sequence[int] = SIZES,
    copied: int = COPY_BYTES,
    most_seconds: float = math.inf,
    tell: Telling | None = None,
) -> tuple[Outcome, ...]:
    """Measure one card with all that its backend can do.

    Args:
        backend: drives the card.
        unit: the backend's number of the card.
        peers: other cards, to copy to and from.
        own: whether the card itself is measured too.
        sizes: sides of the matrices.
        copied: bytes of a copy.
        most_seconds: bounds each metric's time, and each size's, by the backend's clock.
        tell: told what is measured next.
    """

    def time_it(work: Callable[[int], float]) -> tuple[Timing, int]:
        return time_repeats(work, most_seconds=most_seconds)

    told = tell or (lambda _: None)
    alone = _own(backend, unit, sizes, copied, time_it, told) if own else ()
    return (*alone, *_ways(backend, unit, peers, time_it, told))


def _own(
    backend: Backend, unit: int, sizes: Sequence[int], copied: int, time_it: TimeIt, tell: Telling
) -> Iterator[Outcome]:
    for precision in backend.precisions(unit):
        tell(f"matrix multiplication in {precision}")
        yield _attempt(f"gemm_{precision}", lambda p=precision: _multiplication(backend, unit, p, sizes, time_it))  # type: ignore[misc]
    tell("memory bandwidth")
    yield _attempt("mem_bandwidth", lambda: _bandwidth(backend, unit, copied, time_it))


def _ways(backend: Backend, unit: int, peers: Sequence[Unit], time_it: TimeIt, tell: Telling) -> Iterator[Outcome]:
    for peer in peers:
        tell(f"copying to and from card {peer.index}")
        yield _attempt(f"p2p_to_{peer.index}", lambda p=peer: _peer(backend, unit, p.index, time_it), peer.uuid)  # type: ignore[misc]
        yield _attempt(f"p2p_from_{peer.index}", lambda p=peer: _peer(backend, p.index, unit, time_it), peer.uuid)  # type: ignore[misc]


def _attempt(metric: str, work: Callable[[], Figure], peer: str = "") -> Outcome:
    try:
        return msgspec.structs.replace(work(), metric=metric, peer=peer)
    except (BackendError, ValueError, MemoryError) as error:
        return Failure(metric, " ".join(str(error).split())[:300], peer)


def _multiplication(backend: Backend, unit: int, precision: Precision, sizes: Sequence[int], time_it: TimeIt) -> Figure:
    best: tuple[float, int, Timing] | None = None
    for size in sizes:
        timing, repeats = time_it(lambda r, n=size: backend.multiply(unit, n, precision, r))  # type: ignore[misc]
        rate = 2 * size**3 * repeats / timing.seconds / 1e12
        if best is None or rate > best[0]:
            best = (rate, size, timing)
    assert best is not None  # there is at least one size
    rate, size, timing = best
    return _figure(f"gemm_{precision}", rate, _UNITS[precision], timing, f"best of {_list(sizes)}: {size}")


def _bandwidth(backend: Backend, unit: int, copied: int, time_it: TimeIt) -> Figure:
    amount = _long(lambda amount: backend.copy(unit, amount, 1), copied)
    timing, repeats = time_it(lambda r: backend.copy(unit, amount, r))
    rate = 2 * amount * repeats / timing.seconds / 1e9
    return _figure("mem_bandwidth", rate, "GB/s", timing, f"copy of {amount >> 20} MiB, read and written")


def _peer(backend: Backend, unit: int, peer: int, time_it: TimeIt) -> Figure:
    if backend.copy_to(unit, peer, 1 << 20, 1) is None:
        raise BackendError(f"card {unit} cannot copy to card {peer} directly")
    amount = _long(lambda amount: backend.copy_to(unit, peer, amount, 1) or 0.0, PEER_BYTES)
    timing, repeats = time_it(lambda r: backend.copy_to(unit, peer, amount, r) or 0.0)
    rate = amount * repeats / timing.seconds / 1e9
    return _figure("p2p", rate, "GB/s", timing, f"copy of {amount >> 20} MiB, one direction")


def _long(copy: Callable[[int], float], amount: int) -> int:
    """Bytes of a copy that takes long against its launch; fewer where the card has no room for them."""
    copy(amount)  # the first one pays for the allocation
    most = amount * MOST_GROWTH
    while amount < most and copy(amount) < LONG_SECONDS:
        try:
            copy(2 * amount)
        except (BackendError, MemoryError):
            break
        amount *= 2
    return amount


def time_repeats(work: Callable[[int], float], *, most_seconds: float = math.inf) -> tuple[Timing, int]:
    """Find how many repeats make a run long enough, then time such runs.

    Args:
        work: does the given number of repeats and tells the seconds.
        most_seconds: bounds the runs together; see :func:`~hcs.measure.timing.time_work`.

    Returns:
        The time of a run, and the repeats in it.

    Raises:
        ValueError: as ``time_work``.
    """
    repeats, seconds = 1, work(1)
    while seconds < AIM_SECONDS and repeats < MOST_REPEATS:
        repeats = min(MOST_REPEATS, max(repeats * 2, int(repeats * AIM_SECONDS / max(seconds, 1e-9)) + 1))
        seconds = work(repeats)
    for _ in range(ATTEMPTS if math.isinf(most_seconds) else 1):
        timing = time_work(lambda: work(repeats), most_seconds=most_seconds)
        if timing.steady:
            break
    return timing, repeats


def _figure(metric: str, value: float, unit: str, timing: Timing, detail: str) -> Figure:
    return Figure(metric, value, unit, round(timing.spread, 5), timing.steady, timing.samples, detail)


def _list(sizes: Sequence[int]) -> str:
    return ", ".join(map(str, sizes))
