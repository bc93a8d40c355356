"""Measured and asked-for runs as columns: the one shape every part of the predictor reads.

A run is a model on a card, with a batch, on a number of cards laid out over nodes. Text is parsed at the edge; here are
only names and numbers. Columns, because the whole queue times every card type is asked in one call.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Names = npt.NDArray[np.str_]
Mask = npt.NDArray[np.bool_]
Index = npt.NDArray[np.intp]


@dataclass(frozen=True)
class Table:
    """Runs as columns of equal length.

    ``batch`` is samples per card and step, 0 where the job has no such setting. ``largest`` and ``smallest`` are the
    most and the fewest cards on one node. ``campaign`` names the conditions of measuring: rows of two campaigns may
    differ by a constant factor or more.
    """

    model: Names
    card: Names
    batch: Floats
    cards: Floats
    nodes: Floats
    largest: Floats
    smallest: Floats
    campaign: Names

    def __len__(self) -> int:
        return len(self.model)

    def take(self, rows: Index | Mask) -> "Table":
        """The rows chosen by positions or by a mask."""
        return replace(self, **{field.name: getattr(self, field.name)[rows] for field in fields(self)})

    def joined(self, other: "Table") -> "Table":
        """These rows, then the other's."""
        return Table(*(np.concatenate([getattr(self, f.name), getattr(other, f.name)]) for f in fields(self)))

    @property
    def pairing(self) -> Names:
        """Model and card as one name."""
        return _joined_names(self.model, self.card)

    @property
    def layout(self) -> Names:
        """Everything about where the cards sit, and the campaign, as one name."""
        shape = [
            f"{c:g}/{n:g}/{a:g}/{b:g}/{s}"
            for c, n, a, b, s in zip(self.cards, self.nodes, self.largest, self.smallest, self.campaign, strict=True)
        ]
        return np.array(shape, dtype=np.str_)


def table(
    model: Sequence[str],
    card: Sequence[str],
    batch: Sequence[float],
    layouts: Sequence[Sequence[int]],
    campaign: Sequence[str] | None = None,
) -> Table:
    """Rows from names, batches and, for each row, how many cards each node gives."""
    shapes = [tuple(layout) or (1,) for layout in layouts]
    return Table(
        np.asarray(model, dtype=np.str_),
        np.asarray(card, dtype=np.str_),
        np.asarray(batch, dtype=np.float64),
        np.array([sum(shape) for shape in shapes], dtype=np.float64),
        np.array([len(shape) for shape in shapes], dtype=np.float64),
        np.array([max(shape) for shape in shapes], dtype=np.float64),
        np.array([min(shape) for shape in shapes], dtype=np.float64),
        np.asarray(campaign if campaign is not None else [""] * len(shapes), dtype=np.str_),
    )


def _joined_names(*columns: Names) -> Names:
    joined = columns[0]
    for column in columns[1:]:
        joined = np.char.add(np.char.add(joined, "\x1f"), column)
    return joined
