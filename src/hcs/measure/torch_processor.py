"""Timed work on the processor through PyTorch: whole models run where there is no card, and no card is measured.

A processor has no events that tell when work ended: its times are those of the wall clock around the work, which
PyTorch does before it returns. The name says so, wherever a figure goes.
"""

import importlib
import platform
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from hcs.measure.backends import BackendError, Precision, Unit
from hcs.measure.torch_backend import TorchBackend

CPUINFO: Final = Path("/proc/cpuinfo")

_HARDWARE: Final[dict[Precision, frozenset[str]]] = {
    "fp16": frozenset({"avx512_fp16", "amx_fp16", "asimdhp"}),
    "bf16": frozenset({"avx512_bf16", "amx_bf16", "bf16"}),
}
"""The kernel's words for what multiplies in a precision. FP32 all do; INT8 PyTorch multiplies without hardware here."""


def find_torch_processor() -> list["TorchProcessor"]:
    """The processor by PyTorch; empty where it is not installed."""
    try:
        torch = importlib.import_module("torch")
    except (ImportError, OSError):  # OSError: a library of its own is missing
        return []
    return [TorchProcessor(torch)]


class TorchProcessor(TorchBackend):
    """The machine's own processor by PyTorch."""

    is_card = False

    def __init__(self, torch: Any, *, cpuinfo: Path = CPUINFO, clock: Callable[[], float] = time.perf_counter) -> None:
        """Prepare.

        Args:
            torch: the module.
            cpuinfo: where the kernel describes the processor.
            clock: seconds.
        """
        super().__init__(torch, "cpu")
        self._clock = clock
        try:
            self._facts = read_cpuinfo(cpuinfo.read_text(errors="replace"))
        except OSError:
            self._facts = {}

    @property
    def name(self) -> str:
        """Framework, version, and whose clock it is."""
        return f"torch {self.torch.__version__} on the processor, wall clock"

    def units(self) -> Sequence[Unit]:
        """The one processor, by the name that the kernel knows."""
        return [Unit(0, self._facts.get("model name") or platform.processor() or "processor")]

    def precisions(self, unit: int) -> Sequence[Precision]:
        """FP32, and what the kernel lists among the processor's abilities."""
        abilities = frozenset((self._facts.get("flags") or self._facts.get("Features") or "").split())
        return [*(word for word, any_of in _HARDWARE.items() if abilities & any_of), "fp32"]

    def device(self, unit: int) -> str:
        """PyTorch's word."""
        if unit != 0:
            raise BackendError(f"there is one processor, 0; {unit} is none")
        return "cpu"

    def copy_to(self, unit: int, other: int, amount: int, repeats: int) -> float | None:
        """There is no other."""
        return None

    def clocks(self, unit: int) -> dict[str, int]:
        """Nobody tells what the clock was while the work ran."""
        return {}

    def driver(self) -> str:
        """There is none."""
        return ""

    def timed(self, unit: int, work: Any, repeats: int) -> float:
        """Seconds for ``repeats`` calls by the wall clock; each has done its work when it returns."""
        start = self._clock()
        for _ in range(repeats):
            work()
        return self._clock() - start


def read_cpuinfo(text: str) -> dict[str, str]:
    """The first processor's facts.

    >>> read_cpuinfo("processor\\t: 0\\nmodel name\\t: Some CPU\\n\\nprocessor\\t: 1\\n")["model name"]
    'Some CPU'
    """
    lines = (line.partition(":") for line in text.partition("\n\n")[0].splitlines())
    return {name.strip(): value.strip() for name, _, value in lines}
