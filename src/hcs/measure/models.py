"""Three model workloads in plain PyTorch: shapes as published, weights random, the timing loop our own.

They say what a card does with whole models: a convolution network trained (ResNet-50), a detector's forward pass
(YOLOv8-m) and a Llama-style decoder in its two phases, reading a prompt and writing token by token. A figure counts
only where the work gave numbers: results that are not finite, or nothing but zeros, are a failure, not a speed.
"""

from collections.abc import Callable
from typing import Any, Final

import msgspec

from hcs.measure.backends import BackendError
from hcs.measure.decoder import WIDE, Decoder
from hcs.measure.networks import resnet50, yolov8m
from hcs.measure.suite import Failure, Figure, Outcome, Telling, time_repeats
from hcs.measure.torch_backend import TorchBackend


class Sizes(msgspec.Struct, frozen=True):
    """How much is done at once: images in a batch, tokens in a prompt, layers of the decoder; and for how long.

    ``seconds`` bounds the time of each workload, by the backend's clock; the sides of images are in pixels.
    """

    batch: int
    prompt: int
    layers: int
    seconds: float
    resnet_side: int = 224
    yolo_side: int = 640


CARD: Final = Sizes(batch=32, prompt=1024, layers=8, seconds=60.0)
PROCESSOR: Final = Sizes(batch=1, prompt=128, layers=1, seconds=6.0)
"""All four within about a minute on two cores."""

_FAILURES: Final = (RuntimeError, ValueError, MemoryError, AttributeError, TypeError, AssertionError)
"""What PyTorch and its back ends raise where a card, or an older version, cannot do something."""


class Work(msgspec.Struct, frozen=True):
    """A workload that is ready to run: ``run`` gives its result, ``amount`` is how many units it does each time."""

    run: Callable[[], Any]
    amount: float
    detail: str


def measure_models(
    backend: TorchBackend, unit: int, *, sizes: Sizes | None = None, tell: Telling = lambda _: None
) -> tuple[Outcome, ...]:
    """Measure the three on one card.

    Args:
        backend: PyTorch with a back end for the card.
        unit: the card.
        sizes: how much at once; by default what suits cards, or a processor.
        tell: told what is measured next.
    """
    chosen = sizes or (CARD if backend.is_card else PROCESSOR)
    todo: tuple[tuple[str, str, Callable[[], Work]], ...] = (
        ("train_resnet50", "image/s", lambda: _resnet(backend, unit, chosen)),
        ("detect_yolov8m", "image/s", lambda: _yolo(backend, unit, chosen)),
        ("prefill_llama_layer", "token/s/layer", lambda: _prefill(backend, unit, chosen)),
        ("decode_llama_layer", "token/s/layer", lambda: _decode(backend, unit, chosen)),
    )
    outcomes = []
    for metric, word, make in todo:
        tell(metric)
        outcomes.append(attempt(backend, unit, metric, word, make, chosen.seconds))
    return tuple(outcomes)


def attempt(
    backend: TorchBackend, unit: int, metric: str, word: str, make: Callable[[], Work], seconds: float
) -> Outcome:
    """Time one workload; a failure where it cannot be made, cannot run, or gives no numbers."""
    try:
        work = make()
        _check(backend.torch, work.run())
        timing, repeats = time_repeats(lambda r: backend.timed(unit, work.run, r), most_seconds=seconds)
        _check(backend.torch, work.run())
    except _FAILURES as error:
        return Failure(metric, (" ".join(str(error).split()) or type(error).__name__)[:300])
    rate = work.amount * repeats / timing.seconds
    return Figure(metric, rate, word, round(timing.spread, 5), timing.steady, timing.samples, work.detail)


def _check(torch: Any, result: Any) -> None:
    """Whether work gave numbers.

    Raises:
        BackendError: something in the result is not finite, or all of it is zero.
    """
    for part in result if isinstance(result, (list, tuple)) else (result,):
        if not bool(torch.isfinite(part).all()):
            raise BackendError("the result holds values that are not finite: its time says nothing")
        if not bool(part.any()):
            raise BackendError("the result is nothing but zeros: its time says nothing")


def _half(backend: TorchBackend, unit: int) -> str:
    """The half precision for images: BF16 where only that is in hardware, FP32 on a processor with neither."""
    able = backend.precisions(unit)
    if backend.is_card:
        return "float16"
    return "bfloat16" if "bf16" in able else "float32"


def _resnet(backend: TorchBackend, unit: int, sizes: Sizes) -> Work:
    """One training step of ResNet-50 at 224 x 224."""
    torch, device = backend.torch, backend.device(unit)
    model = resnet50(torch).to(device)
    images = torch.randn(sizes.batch, 3, sizes.resnet_side, sizes.resnet_side, device=device)
    labels = torch.randint(0, 1000, (sizes.batch,), device=device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, momentum=0.9)
    loss = torch.nn.CrossEntropyLoss()
    mixed = backend.is_card or "bf16" in backend.precisions(unit)

    def step() -> Any:
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(backend.word, dtype=torch.bfloat16, enabled=mixed):
            value = loss(model(images), labels)
        value.backward()
        optimizer.step()
        return value.detach()

    kind = "BF16 autocast" if mixed else "FP32"
    return Work(step, sizes.batch, f"training step, {_images(sizes.batch, sizes.resnet_side)}, {kind}, random weights")


def _yolo(backend: TorchBackend, unit: int, sizes: Sizes) -> Work:
    """A forward pass through the layers of YOLOv8-m at 640 x 640."""
    torch, device, half = backend.torch, backend.device(unit), _half(backend, unit)
    kind = getattr(torch, half)
    model = yolov8m(torch).eval().to(device=device, dtype=kind)
    images = torch.randn(sizes.batch, 3, sizes.yolo_side, sizes.yolo_side, device=device).to(kind)

    def forward() -> Any:
        with torch.inference_mode():
            return model(images)

    return Work(forward, sizes.batch, f"forward pass, {_images(sizes.batch, sizes.yolo_side)}, {half}, random weights")


def _prefill(backend: TorchBackend, unit: int, sizes: Sizes) -> Work:
    torch, device = backend.torch, backend.device(unit)
    decoder = Decoder(torch, device, layers=sizes.layers, prompt=sizes.prompt)
    tokens = torch.randn(1, sizes.prompt, WIDE, device=device).to(torch.bfloat16)

    def read() -> Any:
        with torch.inference_mode():
            return decoder.read(tokens)

    what = f"{sizes.prompt} tokens through {_layers(sizes)} of Llama 3 8B's shape, BF16, random weights"
    return Work(read, sizes.prompt * sizes.layers, what)


def _decode(backend: TorchBackend, unit: int, sizes: Sizes) -> Work:
    torch, device = backend.torch, backend.device(unit)
    decoder = Decoder(torch, device, layers=sizes.layers, prompt=sizes.prompt)
    token = torch.randn(1, 1, WIDE, device=device).to(torch.bfloat16)

    def write() -> Any:
        with torch.inference_mode():
            return decoder.write(token)

    what = f"one token after {sizes.prompt}, {_layers(sizes)} of Llama 3 8B's shape, BF16, random weights"
    return Work(write, sizes.layers, what)


def _images(batch: int, side: int) -> str:
    return f"batch {batch}, {side} x {side}"


def _layers(sizes: Sizes) -> str:
    return f"{sizes.layers} layer{'s' if sizes.layers > 1 else ''}"
