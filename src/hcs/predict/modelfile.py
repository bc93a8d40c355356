"""A predictor as bytes: the rows it was trained on and what was chosen, never code.

The file is JSON in two lines: a header with format version and the SHA-256 of the second line, then the content.
Loading fits again from the rows, which gives the same predictor because every draw is seeded; so a file from elsewhere
can be wrong but cannot run anything, unlike a pickle. Bytes in, bytes out: files are the edge's part.
"""

import math

import msgspec
import numpy as np

from hcs.predict.runtime import Training
from hcs.predict.sealed import AGAIN, ModelFileError, opened, read, sealed
from hcs.predict.table import Table
from hcs.predict.trees import KINDS, Kind

__all__ = ["VERSION", "ModelFileError", "decode", "encode"]

VERSION = 1
_FORMAT = "hcs-predictor"
_MOST_ROWS = 200_000


class _Content(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    model: list[str]
    card: list[str]
    batch: list[float]
    cards: list[float]
    nodes: list[float]
    largest: list[float]
    smallest: list[float]
    campaign: list[str]
    seconds: list[float]
    exchange: list[float | None] | None
    seed: int
    kind: str
    limit: int
    repeat: float = 0.01


def encode(training: Training) -> bytes:
    """The file's bytes. The same training gives the same bytes."""
    rows = training.rows
    exchange = None
    if training.exchange is not None:
        exchange = [value if math.isfinite(value) else None for value in training.exchange.tolist()]
    content = msgspec.json.encode(
        _Content(
            model=rows.model.tolist(),
            card=rows.card.tolist(),
            batch=rows.batch.tolist(),
            cards=rows.cards.tolist(),
            nodes=rows.nodes.tolist(),
            largest=rows.largest.tolist(),
            smallest=rows.smallest.tolist(),
            campaign=rows.campaign.tolist(),
            seconds=training.seconds.tolist(),
            exchange=exchange,
            seed=training.seed,
            kind=training.kind,
            limit=training.limit,
            repeat=training.repeat,
        )
    )
    return sealed(_FORMAT, VERSION, content)


def decode(data: bytes) -> Training:
    """The training a file holds, checked: format, version, checksum, lengths, finite and positive numbers."""
    content = opened(_FORMAT, VERSION, data)
    found = read(content, _Content, "the content cannot be read")
    return _training(found)


def _training(found: _Content) -> Training:
    count = len(found.model)
    names, sizes = (found.card, found.campaign), (found.batch, found.cards, found.nodes, found.largest, found.smallest)
    lengths = {*map(len, names), *map(len, sizes), len(found.seconds), len(found.exchange or found.model)}
    if lengths != {count}:
        raise ModelFileError(f"columns of different lengths; {AGAIN}")
    if not 0 < count <= _MOST_ROWS:
        raise ModelFileError(f"{count} rows; between 1 and {_MOST_ROWS} are expected; {AGAIN}")
    if found.kind not in KINDS or not 1 <= found.limit <= 10_000:
        raise ModelFileError(f"trees {found.kind!r} with limit {found.limit} are unknown here; {AGAIN}")
    if not 0 < found.repeat <= 10:
        raise ModelFileError(f"repeated runs that differ by {found.repeat}; more than 0, up to 10; {AGAIN}")
    kind: Kind = "forest" if found.kind == "forest" else "boosted"
    rows = Table(
        np.array(found.model, dtype=np.str_),
        np.array(found.card, dtype=np.str_),
        np.array(found.batch),
        np.array(found.cards),
        np.array(found.nodes),
        np.array(found.largest),
        np.array(found.smallest),
        np.array(found.campaign, dtype=np.str_),
    )
    if min(rows.cards.min(), rows.nodes.min(), rows.largest.min(), rows.smallest.min()) < 1 or rows.batch.min() < 0:
        raise ModelFileError(f"a row with less than one card or a batch below 0; {AGAIN}")
    exchange = None if found.exchange is None else np.array([math.nan if v is None else v for v in found.exchange])
    return Training(rows, np.array(found.seconds), exchange, found.seed, kind, found.limit, repeat=found.repeat)
