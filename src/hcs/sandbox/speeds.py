"""True speeds for emulated cards: near their model's rating, as real cards are, and different for each."""

import hashlib
import random
from typing import Final

from hcs.measure.backends import Precision
from hcs.measure.emulated_backend import Speed
from hcs.ura.catalogue import CardModel

LOW: Final = 0.75
HIGH: Final = 1.05
"""A card reaches so much of its rating."""
UNRATED_TFLOPS: Final = 50.0
UNRATED_GBPS: Final = 800.0
PEER_GBPS: Final = 25.0


def hidden_speed(model: CardModel, seed: str) -> Speed:
    """The true speed of one card: the same for the same seed, and within :data:`LOW` to :data:`HIGH` of its rating."""
    chance = random.Random(int.from_bytes(hashlib.sha256(seed.encode()).digest()[:8], "big"))
    reached = chance.uniform(LOW, HIGH)
    rated: dict[Precision, int | None] = {
        "fp16": model.fp16_mtflops,
        "bf16": model.bf16_mtflops,
        "fp32": model.fp32_mtflops,
        "int8": model.int8_mtops,
    }
    operations = {precision: figure / 1000 * reached for precision, figure in rated.items() if figure}
    memory = model.memory_mbps / 1000 if model.memory_mbps else UNRATED_GBPS
    return Speed(operations or {"fp16": UNRATED_TFLOPS * reached}, memory * chance.uniform(LOW, 1.0), PEER_GBPS)
