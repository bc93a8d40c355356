"""Timed work through PyTorch: NVIDIA and AMD by its own back ends, other vendors by the plug-ins they publish.

Every back end has the same shape (``torch.cuda``, ``torch.npu`` …): devices, streams, events with timing. Times are the
card's own events. Not verified on any card but those named in docs/verified.md.
"""

import importlib
from collections.abc import Callable, Sequence
from typing import Any, Final

from hcs.measure.backends import BackendError, Precision, Unit

PLUGINS: Final = {
    "cuda": "",
    "npu": "torch_npu",
    "mlu": "torch_mlu",
    "musa": "torch_musa",
    "gcu": "torch_gcu",
    "xpu": "",
}
"""PyTorch's word for the device, and the module that brings it; those without one come with PyTorch itself."""


_CUDA_LIKE: Final = frozenset({"nvidia", "amd", "hygon", "iluvatar", "metax", "kunlunxin"})
"""Whose builds of PyTorch speak NVIDIA's word."""
VENDORS: Final = {
    "cuda": _CUDA_LIKE,
    "npu": frozenset({"ascend"}),
    "mlu": frozenset({"cambricon"}),
    "musa": frozenset({"mthreads"}),
    "gcu": frozenset({"enflame"}),
    "xpu": frozenset({"intel", "kunlunxin"}),
}


def find_torch(tell: Callable[[str], None] = lambda _: None) -> list["TorchBackend"]:
    """The back ends that are installed and see a card; empty where PyTorch is not installed.

    Args:
        tell: told why there is none, in a sentence each.
    """
    try:
        torch = importlib.import_module("torch")
    except ModuleNotFoundError as error:
        tell("PyTorch is not installed" if error.name == "torch" else f"PyTorch cannot be loaded: {error}")
        return []
    except (ImportError, OSError) as error:  # OSError: a library of its own is missing
        tell(f"PyTorch cannot be loaded: {error}")
        return []
    found = []
    for word, plugin in PLUGINS.items():
        try:
            if plugin:
                importlib.import_module(plugin)
            runtime = getattr(torch, word, None)
            if runtime is not None and runtime.is_available() and runtime.device_count():
                found.append(TorchBackend(torch, word))
        except ModuleNotFoundError as error:
            if error.name != plugin:
                tell(f"{plugin} cannot be loaded: {error}")
        except (ImportError, RuntimeError, OSError, AttributeError) as error:  # a plug-in without its driver
            tell(f"{plugin or word} cannot be used: {error}")
    if not found:
        tell(f"PyTorch {torch.__version__} sees no card")
    return found


class TorchBackend:
    """Cards of one PyTorch back end."""

    is_card: bool = True

    def __init__(self, torch: Any, word: str) -> None:
        """Prepare.

        Args:
            torch: the module.
            word: the device word, a key of :data:`PLUGINS`.
        """
        self.torch, self.word = torch, word
        self.runtime: Any = getattr(torch, word, None)

    @property
    def name(self) -> str:
        """Framework, version and back end."""
        return f"torch {self.torch.__version__} {self.word}"

    @property
    def vendors(self) -> frozenset[str]:
        """Those whose back end this is."""
        return VENDORS.get(self.word, frozenset())

    def units(self) -> Sequence[Unit]:
        """The cards PyTorch lists; it tells the UUID of some."""
        units = []
        for index in range(self.runtime.device_count()):
            properties = self.runtime.get_device_properties(index)
            uuid = str(getattr(properties, "uuid", "") or "")
            prefixed = f"GPU-{uuid}" if uuid and self.word == "cuda" and not uuid.startswith("GPU-") else uuid
            units.append(Unit(index, str(properties.name), prefixed))
        return units

    def precisions(self, unit: int) -> Sequence[Precision]:
        """What this back end multiplies; INT8 only where PyTorch has the product for it."""
        found: list[Precision] = ["fp16", "bf16", "fp32"]
        if self.word == "cuda" and hasattr(self.torch, "_int_mm"):
            found.append("int8")
        return found

    def multiply(self, unit: int, size: int, precision: Precision, repeats: int) -> float:
        """See :class:`hcs.measure.backends.Backend`."""
        torch, device = self.torch, self.device(unit)
        try:
            if precision == "int8":
                left = torch.randint(-64, 64, (size, size), dtype=torch.int8, device=device)
                right = torch.randint(-64, 64, (size, size), dtype=torch.int8, device=device).t()
                return self.timed(unit, lambda: torch._int_mm(left, right), repeats)
            kind = {"fp16": torch.float16, "bf16": torch.bfloat16, "fp32": torch.float32}[precision]
            one = torch.randn(size, size, device=device).to(kind)
            other = torch.randn(size, size, device=device).to(kind)
            out = torch.empty_like(one)
            return self.timed(unit, lambda: torch.mm(one, other, out=out), repeats)
        except (RuntimeError, TypeError) as error:
            raise BackendError(f"{self.name}, {precision}: {error}") from error

    def copy(self, unit: int, amount: int, repeats: int) -> float:
        """See :class:`hcs.measure.backends.Backend`."""
        return self._copied(unit, unit, amount, repeats)

    def copy_to(self, unit: int, other: int, amount: int, repeats: int) -> float | None:
        """See :class:`hcs.measure.backends.Backend`."""
        can = getattr(self.runtime, "can_device_access_peer", None)
        try:
            if can is not None and not can(unit, other):
                return None
        except (RuntimeError, AssertionError):
            return None
        return self._copied(unit, other, amount, repeats)

    def clocks(self, unit: int) -> dict[str, int]:
        """What the back end tells of the clocks, in MHz."""
        read = getattr(self.runtime, "clock_rate", None)
        try:
            return {"sm": int(read(unit))} if read is not None else {}
        except (RuntimeError, ModuleNotFoundError, NotImplementedError, AttributeError):
            return {}

    def driver(self) -> str:
        """The version of the runtime PyTorch was built for; AMD's comes under NVIDIA's word."""
        version = self.torch.version
        built_for = getattr(version, self.word, None) or (
            getattr(version, "hip", None) if self.word == "cuda" else None
        )
        return str(built_for or "")

    def device(self, unit: int) -> str:
        """PyTorch's word for a card."""
        return f"{self.word}:{unit}"

    def timed(self, unit: int, work: Any, repeats: int) -> float:
        """Seconds for ``repeats`` calls, by the card's events."""
        runtime = self.runtime
        with runtime.device(unit):
            begin, end = runtime.Event(enable_timing=True), runtime.Event(enable_timing=True)
            runtime.synchronize(unit)
            begin.record()
            for _ in range(repeats):
                work()
            end.record()
            runtime.synchronize(unit)
            return float(begin.elapsed_time(end)) / 1000

    def _copied(self, unit: int, other: int, amount: int, repeats: int) -> float:
        torch = self.torch
        try:
            source = torch.empty(amount, dtype=torch.uint8, device=self.device(unit))
            target = torch.empty(amount, dtype=torch.uint8, device=self.device(other))
            return self.timed(unit, lambda: target.copy_(source, non_blocking=True), repeats)
        except RuntimeError as error:
            raise BackendError(f"{self.name}, copy: {error}") from error
