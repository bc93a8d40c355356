"""Timed work through CuPy, where it is installed and PyTorch is not. Not verified on a card."""

import importlib
from collections.abc import Callable, Sequence
from typing import Any

from hcs.measure.backends import BackendError, Precision, Unit


def find_cupy(tell: Callable[[str], None] = lambda _: None) -> list["CupyBackend"]:
    """CuPy, where it is installed and sees a card.

    Args:
        tell: told why there is none, in a sentence.
    """
    try:
        cupy = importlib.import_module("cupy")
    except ModuleNotFoundError as error:
        tell("CuPy is not installed" if error.name == "cupy" else f"CuPy cannot be loaded: {error}")
        return []
    except (ImportError, OSError, RuntimeError) as error:
        tell(f"CuPy cannot be loaded: {error}")
        return []
    try:
        if cupy.cuda.runtime.getDeviceCount():
            return [CupyBackend(cupy)]
        tell(f"CuPy {cupy.__version__} sees no card")
    except Exception as error:  # CuPy raises errors of its own, which cannot be named before it is imported
        tell(f"CuPy {cupy.__version__} sees no card: {error}")
    return []


class CupyBackend:
    """Cards by CuPy."""

    is_card = True
    vendors = frozenset({"nvidia", "amd", "hygon"})

    def __init__(self, cupy: Any) -> None:
        """Take the module."""
        self.cupy = cupy

    @property
    def name(self) -> str:
        """Framework and version."""
        return f"cupy {self.cupy.__version__}"

    def units(self) -> Sequence[Unit]:
        """The cards CuPy lists."""
        runtime = self.cupy.cuda.runtime
        units = []
        for index in range(runtime.getDeviceCount()):
            properties = runtime.getDeviceProperties(index)
            raw = properties.get("uuid", b"")
            digits = raw.hex() if isinstance(raw, bytes) and len(raw) == 16 else ""
            uuid = "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:])) if digits else ""
            units.append(Unit(index, properties["name"].decode(), f"GPU-{uuid}" if uuid else ""))
        return units

    def precisions(self, unit: int) -> Sequence[Precision]:
        """FP16 and FP32: the others have no type or no fast product in CuPy."""
        return ["fp16", "fp32"]

    def multiply(self, unit: int, size: int, precision: Precision, repeats: int) -> float:
        """See :class:`hcs.measure.backends.Backend`."""
        cupy = self.cupy
        kind = {"fp16": cupy.float16, "fp32": cupy.float32}.get(precision)
        if kind is None:
            raise BackendError(f"CuPy has no fast product in {precision}")
        with cupy.cuda.Device(unit):
            # Not all alike: a card that multiplies ones runs cooler and faster than one at work.
            one = cupy.sin(cupy.arange(size * size, dtype=cupy.float32)).reshape(size, size).astype(kind)
            out = cupy.empty_like(one)
            return self._timed(lambda: cupy.matmul(one, one, out=out), repeats)

    def copy(self, unit: int, amount: int, repeats: int) -> float:
        """See :class:`hcs.measure.backends.Backend`."""
        with self.cupy.cuda.Device(unit):
            source = self.cupy.empty(amount, dtype=self.cupy.uint8)
            target = self.cupy.empty_like(source)
            return self._timed(lambda: self.cupy.copyto(target, source), repeats)

    def copy_to(self, unit: int, other: int, amount: int, repeats: int) -> float | None:
        """See :class:`hcs.measure.backends.Backend`."""
        cupy = self.cupy
        if not cupy.cuda.runtime.deviceCanAccessPeer(unit, other):
            return None
        with cupy.cuda.Device(other):
            target = cupy.empty(amount, dtype=cupy.uint8)
        with cupy.cuda.Device(unit):
            source = cupy.empty(amount, dtype=cupy.uint8)
            return self._timed(
                lambda: cupy.cuda.runtime.memcpyPeerAsync(
                    target.data.ptr, other, source.data.ptr, unit, amount, cupy.cuda.get_current_stream().ptr
                ),
                repeats,
            )

    def clocks(self, unit: int) -> dict[str, int]:
        """Nobody tells."""
        return {}

    def driver(self) -> str:
        """The CUDA driver's version."""
        return str(self.cupy.cuda.runtime.driverGetVersion())

    def _timed(self, work: Any, repeats: int) -> float:
        begin, end = self.cupy.cuda.Event(), self.cupy.cuda.Event()
        self.cupy.cuda.get_current_stream().synchronize()
        begin.record()
        for _ in range(repeats):
            work()
        end.record()
        end.synchronize()
        return float(self.cupy.cuda.get_elapsed_time(begin, end)) / 1000
