"""Three model workloads in plain PyTorch: shapes as published, weights random, the timing loop our own.

They say what a card does with whole models: a convolution network trained (ResNet-50), a detector's forward pass (the
layers of YOLOv8-m) and a Llama-style decoder in its two phases, reading a prompt and writing token by token. Shapes:
He et al. 2016 (ResNet-50); the medium scale of YOLOv8 (depth 0.67, width 0.75, at most 576 channels), detection head
included; Llama 3 8B's layer (4096 wide, 32 heads, 8 key-value heads, 14336 inside), as many layers as fit.
"""

from collections.abc import Callable
from typing import Any, Final

from hcs.measure.backends import BackendError
from hcs.measure.suite import Failure, Figure, Outcome
from hcs.measure.timing import time_work
from hcs.measure.torch_backend import TorchBackend

BATCH: Final = 32
PROMPT: Final = 1024
LAYERS: Final = 8


def measure_models(backend: TorchBackend, unit: int, *, scale: float = 1.0) -> tuple[Outcome, ...]:
    """Measure the three on one card.

    Args:
        backend: PyTorch with a back end for the card.
        unit: the card.
        scale: shrinks batch, prompt and layers, for trying the code on a processor.
    """
    batch, prompt = max(1, int(BATCH * scale)), max(8, int(PROMPT * scale))
    layers = max(1, int(LAYERS * scale))
    device = f"{backend.word}:{unit}" if backend.word != "cpu" else "cpu"
    todo: tuple[tuple[str, str, Callable[[], tuple[Callable[[], Any], float, str]]], ...] = (
        ("train_resnet50", "image/s", lambda: _resnet(backend.torch, device, batch)),
        ("detect_yolov8m", "image/s", lambda: _yolo(backend.torch, device, batch)),
        ("prefill_llama_layer", "token/s/layer", lambda: _prefill(backend.torch, device, prompt, layers)),
        ("decode_llama_layer", "token/s/layer", lambda: _decode(backend.torch, device, prompt, layers)),
    )
    return tuple(_attempt(backend, unit, metric, word, make) for metric, word, make in todo)


def _attempt(backend: TorchBackend, unit: int, metric: str, word: str, make: Callable[[], Any]) -> Outcome:
    try:
        work, amount, detail = make()
        timing = time_work(lambda: backend.timed(unit, work, 1), most_runs=60)
    except (RuntimeError, ValueError, BackendError, MemoryError) as error:
        return Failure(metric, " ".join(str(error).split())[:300])
    return Figure(metric, amount / timing.seconds, word, round(timing.spread, 5), timing.steady, timing.samples, detail)


def _resnet(torch: Any, device: str, batch: int) -> tuple[Callable[[], Any], float, str]:
    """One training step of ResNet-50 at 224 x 224."""
    nn = torch.nn

    def bottleneck(inside: int, width: int, stride: int) -> Any:
        out = width * 4
        main = nn.Sequential(
            nn.Conv2d(inside, width, 1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
            nn.Conv2d(width, width, 3, stride, 1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
            nn.Conv2d(width, out, 1, bias=False),
            nn.BatchNorm2d(out),
        )
        straight = (
            nn.Sequential(nn.Conv2d(inside, out, 1, stride, bias=False), nn.BatchNorm2d(out))
            if stride != 1 or inside != out
            else nn.Identity()
        )
        return _residual(torch, main, straight)

    stages, inside = [], 64
    for width, count, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
        for number in range(count):
            stages.append(bottleneck(inside, width, stride if number == 0 else 1))
            inside = width * 4
    model = nn.Sequential(
        nn.Conv2d(3, 64, 7, 2, 3, bias=False),
        nn.BatchNorm2d(64),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(3, 2, 1),
        *stages,
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(2048, 1000),
    ).to(device)
    images = torch.randn(batch, 3, 224, 224, device=device)
    labels = torch.randint(0, 1000, (batch,), device=device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    loss = nn.CrossEntropyLoss()
    kind = device.partition(":")[0]

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(kind, dtype=torch.bfloat16):
            value = loss(model(images), labels)
        value.backward()
        optimizer.step()

    return step, batch, f"training step, batch {batch}, 224 x 224, BF16 autocast, random weights"


def _residual(torch: Any, main: Any, straight: Any) -> Any:
    class Residual(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.main, self.straight = main, straight

        def forward(self, value: Any) -> Any:
            return torch.relu(self.main(value) + self.straight(value))

    return Residual()


def _yolo(torch: Any, device: str, batch: int) -> tuple[Callable[[], Any], float, str]:
    """A forward pass through the layers of YOLOv8-m at 640 x 640."""
    nn = torch.nn

    def conv(inside: int, out: int, size: int = 1, stride: int = 1) -> Any:
        return nn.Sequential(
            nn.Conv2d(inside, out, size, stride, size // 2, bias=False), nn.BatchNorm2d(out), nn.SiLU(inplace=True)
        )

    class Split(nn.Module):  # type: ignore[misc,name-defined]
        """Half goes round, half through ``count`` residual pairs of convolutions; all are joined."""

        def __init__(self, inside: int, out: int, count: int, add: bool) -> None:
            super().__init__()
            half = out // 2
            self.half, self.add = half, add
            self.first = conv(inside, out)
            self.pairs = nn.ModuleList(nn.Sequential(conv(half, half, 3), conv(half, half, 3)) for _ in range(count))
            self.last = conv(half * (2 + count), out)

        def forward(self, value: Any) -> Any:
            parts = list(self.first(value).split(self.half, 1))
            for pair in self.pairs:
                after = pair(parts[-1])
                parts.append(parts[-1] + after if self.add else after)
            return self.last(torch.cat(parts, 1))

    class Pyramid(nn.Module):  # type: ignore[misc,name-defined]
        def __init__(self, inside: int) -> None:
            super().__init__()
            self.first, self.last = conv(inside, inside // 2), conv(inside * 2, inside)
            self.pool = nn.MaxPool2d(5, 1, 2)

        def forward(self, value: Any) -> Any:
            parts = [self.first(value)]
            for _ in range(3):
                parts.append(self.pool(parts[-1]))
            return self.last(torch.cat(parts, 1))

    class Detector(nn.Module):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.low = nn.Sequential(conv(3, 48, 3, 2), conv(48, 96, 3, 2), Split(96, 96, 2, True), conv(96, 192, 3, 2))
            self.p3 = Split(192, 192, 4, True)
            self.p4 = nn.Sequential(conv(192, 384, 3, 2), Split(384, 384, 4, True))
            self.p5 = nn.Sequential(conv(384, 576, 3, 2), Split(576, 576, 2, True), Pyramid(576))
            self.up = nn.Upsample(scale_factor=2)
            self.n4, self.n3 = Split(576 + 384, 384, 2, False), Split(384 + 192, 192, 2, False)
            self.d4, self.m4 = conv(192, 192, 3, 2), Split(192 + 384, 384, 2, False)
            self.d5, self.m5 = conv(384, 384, 3, 2), Split(384 + 576, 576, 2, False)
            self.heads = nn.ModuleList(
                nn.ModuleList(
                    nn.Sequential(conv(wide, mid, 3), conv(mid, mid, 3), nn.Conv2d(mid, out, 1))
                    for mid, out in ((64, 64), (192, 80))
                )
                for wide in (192, 384, 576)
            )

        def forward(self, image: Any) -> Any:
            p3 = self.p3(self.low(image))
            p4 = self.p4(p3)
            p5 = self.p5(p4)
            n4 = self.n4(torch.cat((self.up(p5), p4), 1))
            n3 = self.n3(torch.cat((self.up(n4), p3), 1))
            m4 = self.m4(torch.cat((self.d4(n3), n4), 1))
            m5 = self.m5(torch.cat((self.d5(m4), p5), 1))
            levels = zip((n3, m4, m5), self.heads, strict=True)
            return [head(value) for value, heads in levels for head in heads]

    half = torch.bfloat16 if device == "cpu" else torch.float16
    model = Detector().eval().to(device=device, dtype=half)
    images = torch.randn(batch, 3, 640, 640, device=device).to(half)

    def forward() -> None:
        with torch.inference_mode():
            model(images)

    return forward, batch, f"forward pass, batch {batch}, 640 x 640, {str(half).rpartition('.')[2]}, random weights"


class _Decoder:
    """Layers of a Llama-style decoder with a cache of keys and values, in BF16."""

    WIDE, HEADS, SHARED, INSIDE = 4096, 32, 8, 14336

    def __init__(self, torch: Any, device: str, layers: int) -> None:
        self.torch, self.size = torch, self.WIDE // self.HEADS

        def weight(out: int, inside: int) -> Any:
            return (torch.randn(out, inside, device=device) * inside**-0.5).to(torch.bfloat16)

        kv = self.SHARED * self.size
        shapes = [(self.WIDE, self.WIDE), (kv, self.WIDE), (kv, self.WIDE), (self.WIDE, self.WIDE)]
        shapes += [(self.INSIDE, self.WIDE), (self.INSIDE, self.WIDE), (self.WIDE, self.INSIDE)]
        self.layers = [[weight(*shape) for shape in shapes] for _ in range(layers)]
        self.norm = torch.ones(self.WIDE, device=device, dtype=torch.bfloat16)

    def forward(self, value: Any, caches: list[tuple[Any, Any]] | None) -> Any:
        """[batch, tokens, wide] through all layers; ``caches`` hold the keys and values before, by layer."""
        functional = self.torch.nn.functional
        batch, tokens, _ = value.shape
        for number, (q, k, v, o, gate, up, down) in enumerate(self.layers):
            normed = functional.rms_norm(value, (self.WIDE,), self.norm)
            query = functional.linear(normed, q).view(batch, tokens, self.HEADS, self.size).transpose(1, 2)
            key = functional.linear(normed, k).view(batch, tokens, self.SHARED, self.size).transpose(1, 2)
            worth = functional.linear(normed, v).view(batch, tokens, self.SHARED, self.size).transpose(1, 2)
            if caches is not None:
                key = self.torch.cat((caches[number][0], key), 2)
                worth = self.torch.cat((caches[number][1], worth), 2)
            groups = self.HEADS // self.SHARED
            seen = functional.scaled_dot_product_attention(
                query,
                key.repeat_interleave(groups, 1),
                worth.repeat_interleave(groups, 1),
                is_causal=caches is None,
            )
            value = value + functional.linear(seen.transpose(1, 2).reshape(batch, tokens, self.WIDE), o)
            normed = functional.rms_norm(value, (self.WIDE,), self.norm)
            inner = functional.silu(functional.linear(normed, gate)) * functional.linear(normed, up)
            value = value + functional.linear(inner, down)
        return value


def _prefill(torch: Any, device: str, prompt: int, layers: int) -> tuple[Callable[[], Any], float, str]:
    decoder = _Decoder(torch, device, layers)
    tokens = torch.randn(1, prompt, _Decoder.WIDE, device=device).to(torch.bfloat16)

    def read() -> None:
        with torch.inference_mode():
            decoder.forward(tokens, None)

    return read, prompt * layers, f"{prompt} tokens through {layers} layers of Llama 3 8B's shape, BF16, random weights"


def _decode(torch: Any, device: str, prompt: int, layers: int) -> tuple[Callable[[], Any], float, str]:
    decoder = _Decoder(torch, device, layers)
    shape = (1, _Decoder.SHARED, prompt, _Decoder.WIDE // _Decoder.HEADS)
    caches = [
        (torch.randn(shape, device=device).to(torch.bfloat16), torch.randn(shape, device=device).to(torch.bfloat16))
        for _ in range(layers)
    ]
    token = torch.randn(1, 1, _Decoder.WIDE, device=device).to(torch.bfloat16)

    def write() -> None:
        with torch.inference_mode():
            decoder.forward(token, caches)

    return write, layers, f"one token after {prompt}, {layers} layers of Llama 3 8B's shape, BF16, random weights"
