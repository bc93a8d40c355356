"""Topology matrices: who is linked to whom, by which kind of link, and which processors are near.

``topo -m`` of NVIDIA's tool and those made after it, ``npu-smi info -t topo``, and the "Link Type" matrix of rocm-smi.
The words stay the tool's own (``NV12``, ``HCCS``, ``PHB``, ``XGMI``); what they are worth is decided elsewhere.
"""

import re
from typing import Any, Final

import msgspec

from hcs.vendors.parsing import values

_DEVICE: Final = re.compile(r"(?:GPU|NPU|DCU|HCU|XPU|MLU|GCU|AIP|Card|Phy-ID)\s?#?[0-9]+", re.IGNORECASE)
_PORT: Final = re.compile(
    r"(?:NIC|HCA|mlx[0-9]*_|bnxt_re|irdma|hns_|rocep|ib|xscale_|erdma_)[\w.]*[0-9]", re.IGNORECASE
)
_LINK: Final = re.compile(r"[A-Za-z][A-Za-z0-9_+#-]*")
_SELF: Final = frozenset({"x", "self", "-", "0"})
_NODE: Final = re.compile(
    r"(?:GPU|DCU|HCU)[ \[]([0-9]+)\]?\s*:\s*\(Topology\) Numa (Node|Affinity):\s*(-?[0-9]+)", re.IGNORECASE
)
_NIC: Final = re.compile(r"^\s*(NIC[0-9]+):\s*(\S+)\s*$", re.MULTILINE)
_CPUS: Final = re.compile(r"[0-9]+(?:-[0-9]+)?(?:,[0-9]+(?:-[0-9]+)?)*")


class Topology(msgspec.Struct, frozen=True):
    """The matrix: device labels in order, links by ``"A-B"``, nearness by label, ports' names by label."""

    devices: tuple[str, ...]
    links: dict[str, str]
    numa: dict[str, dict[str, Any]]
    ports: dict[str, str]


def read(text: str) -> Topology | None:
    """The topology in ``text``; None where there is no matrix."""
    columns: list[str] | None = None
    trailing: list[str] = []
    cells: dict[tuple[str, str], str] = {}
    numa: dict[str, dict[str, Any]] = {}
    order: list[str] = []
    for line in text.split("\n"):
        words = line.split()
        heading = _heading(words)
        if heading and (columns is None or columns[0] == heading[0][0]):  # else a row of which nothing is left
            columns, trailing = heading
            continue
        if not columns or not words or words[0] not in columns or len(words) <= len(columns):
            if words and columns and words[0] in columns:
                _row(words[0], columns, words[1:], cells)  # cut off
            continue
        label, rest = words[0], words[1:]
        if not _row(label, columns, rest[: len(columns)], cells):
            continue
        order += [label] if label not in order else []
        near = _near(trailing, rest[len(columns) :])
        if near and _DEVICE.fullmatch(label):
            numa[label] = near
    for number, kind, node in _NODE.findall(text):
        entry = numa.setdefault(f"GPU{number}", {"cpus": None, "numa": None})
        if kind.lower() == "node" and int(node) >= 0:
            entry["numa"] = int(node)
    if columns is None:
        return None
    everyone = [*columns, *(label for label in order if label not in columns)]
    return Topology(
        devices=tuple(label for label in everyone if _DEVICE.fullmatch(label)),
        links=_pairs(everyone, cells),
        numa=numa,
        ports={label: port for label, port in _NIC.findall(text) if label in everyone},
    )


def _heading(words: list[str]) -> tuple[list[str], list[str]] | None:
    """Column labels and the headings behind them, of a line that is nothing but a heading."""
    count = 0
    while count < len(words) and (_DEVICE.fullmatch(words[count]) or _PORT.fullmatch(words[count])):
        count += 1
    if not count or not any(_DEVICE.fullmatch(word) for word in words[:count]) or len(set(words[:count])) != count:
        return None
    behind = " ".join(words[count:]).lower()
    trailing = re.findall(r"cpu affinity|numa affinity|gpu numa id|node affinity", behind)
    return (words[:count], trailing) if " ".join(trailing) == behind else None


def _row(label: str, columns: list[str], words: list[str], cells: dict[tuple[str, str], str]) -> bool:
    """Take over one row's links; False where the row is about something else than kinds of links."""
    if not all(word.lower() in _SELF or _LINK.fullmatch(word) for word in words):
        return False
    for column, word in zip(columns, words, strict=False):
        if column != label and word.lower() not in _SELF:
            cells[label, column] = word
    return True


def _near(trailing: list[str], words: list[str]) -> dict[str, Any]:
    """Processors and NUMA node, where there is exactly one word for each heading."""
    if not trailing or len(words) != len(trailing):
        return {"cpus": None, "numa": None} if trailing and words else {}
    cells = dict(zip(trailing, words, strict=True))
    cpus = cells.get("cpu affinity", "")
    return {
        "cpus": cpus if _CPUS.fullmatch(cpus) else None,
        "numa": _node(values.word(cells.get("numa affinity") or cells.get("node affinity"))),
    }


def _node(text: str | None) -> int | str | None:
    """A NUMA node, or several as the tool lists them (``0-1``)."""
    if text is None or not _CPUS.fullmatch(text):
        return None
    return int(text) if text.isdecimal() else text


def _pairs(labels: list[str], cells: dict[tuple[str, str], str]) -> dict[str, str]:
    links = {}
    for position, one in enumerate(labels):
        for other in labels[position + 1 :]:
            there, back = cells.get((one, other)), cells.get((other, one))
            word = there or back
            if word is not None and there in (None, word) and back in (None, word) and values.word(word):
                links[f"{one}-{other}"] = word
    return links
