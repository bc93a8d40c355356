"""A Llama-style decoder in plain PyTorch, with a cache of keys and values: its two phases are two kinds of work.

Shapes of Llama 3 8B (4096 wide, 32 heads, 8 key-value heads, 14336 inside, rotary positions with base 500 000; "The
Llama 3 Herd of Models", table 3): 218,112,000 parameters a layer. Layers only: the embedding and the last product, a
parameter in eight, are left out, so that figures are by layer. Weights are random and in BF16.

Reading a prompt is bound by multiplication, writing token by token by memory: all weights pass once for each token.
"""

from typing import Any, Final

WIDE: Final = 4096
HEADS: Final = 32
SHARED: Final = 8
INSIDE: Final = 14336
SIZE: Final = WIDE // HEADS
BASE: Final = 500_000.0


class Decoder:
    """Layers, and room for keys and values of a prompt and one token more."""

    def __init__(self, torch: Any, device: str, *, layers: int, prompt: int) -> None:
        """Draw the weights.

        Args:
            torch: the module.
            device: PyTorch's word for the card.
            layers: how many.
            prompt: tokens before the one that is written.
        """
        self.torch, self.prompt = torch, prompt
        bfloat16 = torch.bfloat16

        def weight(out: int, inside: int) -> Any:
            return torch.empty(out, inside, device=device, dtype=bfloat16).normal_(std=inside**-0.5)

        kv = SHARED * SIZE
        shapes = ((WIDE, WIDE), (kv, WIDE), (kv, WIDE), (WIDE, WIDE), (INSIDE, WIDE), (INSIDE, WIDE), (WIDE, INSIDE))
        self.layers = [[weight(*shape) for shape in shapes] for _ in range(layers)]
        self.norms = [torch.ones(2, WIDE, device=device, dtype=bfloat16) for _ in range(layers)]
        room = (2, 1, SHARED, prompt + 1, SIZE)
        self.caches = [torch.empty(room, device=device, dtype=bfloat16).normal_() for _ in range(layers)]
        turns = BASE ** (-torch.arange(0, SIZE, 2, device=device, dtype=torch.float32) / SIZE)
        angles = torch.arange(prompt + 1, device=device, dtype=torch.float32)[:, None] * turns
        self.cosine, self.sine = angles.cos().to(bfloat16), angles.sin().to(bfloat16)

    @property
    def parameters(self) -> int:
        """How many weights the layers have."""
        every = [*(weight for layer in self.layers for weight in layer), *self.norms]
        return sum(weight.numel() for weight in every)

    def read(self, tokens: Any) -> Any:
        """A prompt, [1, prompt, wide], through all layers; fills the cache."""
        return self._forward(tokens, slice(0, self.prompt))

    def write(self, token: Any) -> Any:
        """The token after the prompt, [1, 1, wide]: it sees the cache."""
        return self._forward(token, slice(self.prompt, self.prompt + 1))

    def _forward(self, value: Any, places: slice) -> Any:
        functional = self.torch.nn.functional
        tokens = places.stop - places.start
        for (q, k, v, o, gate, up, down), norms, cache in zip(self.layers, self.norms, self.caches, strict=True):
            normed = functional.rms_norm(value, (WIDE,), norms[0])
            query = self._turned(self._heads(functional.linear(normed, q), HEADS), places)
            cache[0, :, :, places] = self._turned(self._heads(functional.linear(normed, k), SHARED), places)
            cache[1, :, :, places] = self._heads(functional.linear(normed, v), SHARED)
            keys, values = cache[:, :, :, : places.stop]
            groups = HEADS // SHARED
            seen = functional.scaled_dot_product_attention(
                query,
                keys.repeat_interleave(groups, 1),
                values.repeat_interleave(groups, 1),
                is_causal=tokens > 1,
            )
            value = value + functional.linear(seen.transpose(1, 2).reshape(1, tokens, WIDE), o)
            normed = functional.rms_norm(value, (WIDE,), norms[1])
            inner = functional.silu(functional.linear(normed, gate)) * functional.linear(normed, up)
            value = value + functional.linear(inner, down)
        return value

    def _heads(self, value: Any, count: int) -> Any:
        """[1, tokens, count * size] as [1, count, tokens, size]."""
        return value.view(1, -1, count, SIZE).transpose(1, 2)

    def _turned(self, value: Any, places: slice) -> Any:
        """Rotary positions: the two halves of each head as the parts of complex numbers."""
        one, other = value.chunk(2, -1)
        cosine, sine = self.cosine[places], self.sine[places]
        return self.torch.cat((one * cosine - other * sine, other * cosine + one * sine), -1)
