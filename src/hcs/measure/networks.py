"""The two convolution networks of the model workloads, in plain PyTorch: shapes as published, weights random.

ResNet-50 after He et al. 2016 with the stride in the 3 x 3 convolution, as everybody trains it (25,557,032 parameters
in torchvision's table of models). YOLOv8 at its medium scale (depth 0.67, width 0.75, at most 768 channels before the
width is applied), detection head for 80 classes included (25.9 M parameters in Ultralytics' table of models).

PyTorch comes in as an argument: it is optional, and nothing here imports it.
"""

from typing import Any, Final

_SILU_GAIN: Final = 1.5
"""Keeps values between 1 and 100 through the whole network: a SiLU alone would need 1.68, additions enlarge."""


def resnet50(torch: Any) -> Any:
    """ResNet-50 for 1000 classes."""
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
    return nn.Sequential(
        nn.Conv2d(3, 64, 7, 2, 3, bias=False),
        nn.BatchNorm2d(64),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(3, 2, 1),
        *stages,
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(2048, 1000),
    )


def _residual(torch: Any, main: Any, straight: Any) -> Any:
    class Residual(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.main, self.straight = main, straight

        def forward(self, value: Any) -> Any:
            return torch.relu(self.main(value) + self.straight(value))

    return Residual()


def yolov8m(torch: Any) -> Any:
    """The layers of YOLOv8-m up to the raw predictions of its three levels; boxes are not read off them.

    Weights are drawn so that values keep their size: as PyTorch draws them they fade to zeros in half precision, and a
    card that multiplies zeros runs cooler and faster than one at work.
    """
    nn = torch.nn

    def conv(inside: int, out: int, size: int = 1, stride: int = 1) -> Any:
        folded = nn.Conv2d(inside, out, size, stride, size // 2, bias=False)
        nn.init.normal_(folded.weight, std=_SILU_GAIN / (inside * size * size) ** 0.5)
        return nn.Sequential(folded, nn.BatchNorm2d(out), nn.SiLU(inplace=True))

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
        """Three poolings one after the other; all four are joined."""

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

    return Detector()
