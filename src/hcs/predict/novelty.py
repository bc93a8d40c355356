"""How far a question is from what was measured, in six steps; each step has its own weights and its own interval.

A prediction for a known pairing in a new layout errs by a few per cent, one for a model never seen by tens. One width
for all would be too wide for the first and too narrow for the second.
"""

from collections.abc import Sequence

import numpy as np

from hcs.predict.table import Index, Names, Table

KNOWN, LAYOUT, PROBED, PAIRING, PROBED_MODEL, MODEL = "known", "layout", "probed", "pairing", "probed-model", "model"
MEASURED = "measured"
"""Exactly this was measured: nearer than any level."""
LEVELS = (KNOWN, LAYOUT, PROBED, PAIRING, PROBED_MODEL, MODEL)

# Probes are few and on one card: a pairing with at most this many measured rows counts as probed, not as known.
_PROBES = 3


def novelty(asked: Table, measured: Table) -> Names:
    """The level of each asked row against the measured ones."""
    pairings, counts = np.unique(measured.pairing, return_counts=True)
    known = set(pairings[counts > _PROBES])
    probed = set(pairings[counts <= _PROBES])
    models = {name.split("\x1f")[0] for name in known}
    probed_models = {name.split("\x1f")[0] for name in probed} - models
    layouts = set(np.char.add(measured.pairing, measured.layout))
    answers = []
    for model, pairing, layout in zip(
        asked.model, asked.pairing, np.char.add(asked.pairing, asked.layout), strict=True
    ):
        if model not in models:
            answers.append(PROBED_MODEL if model in probed_models else MODEL)
        elif pairing in known:
            answers.append(KNOWN if layout in layouts else LAYOUT)
        else:
            answers.append(PROBED if pairing in probed else PAIRING)
    return np.array(answers, dtype=np.str_)


def probes(rows: Table, of: Index, count: int) -> Index:
    """The ``count`` smallest runs on one card among the rows at ``of``: what an exclusive probe would measure first."""
    alone = of[rows.cards[of] == 1]
    smallest: Index = np.argsort(rows.batch[alone], kind="stable")[:count]
    return np.asarray(alone[smallest], dtype=np.intp)


def blocks(rows: Table, level: str) -> Sequence[Index]:
    """Groups of rows that, left out of training together, put their members at ``level``."""
    every = np.arange(len(rows), dtype=np.intp)
    if level == KNOWN:
        return [every[i : i + 1] for i in every]
    column = {LAYOUT: rows.layout, PROBED: rows.pairing, PAIRING: rows.pairing}.get(level, rows.model)
    count = {PROBED: 1, PROBED_MODEL: 2}.get(level, 0)
    answers = []
    for name in np.unique(column):
        inside = every[column == name]
        kept = probes(rows, inside, count)
        block = inside[~np.isin(inside, kept)]
        if len(block) and len(block) < len(rows):
            answers.append(block)
    return answers
