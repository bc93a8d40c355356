"""Node and task lists as CSV, in the columns of the openb trace; lists with fewer columns are read as well.

A card is a thousand thousandths, and a share of it one number: the trace knows no memory of cards. So a card here has a
"memory" of 1000 and a task asks for some of it; CPU and memory are columns of the node.
"""

import csv
from collections.abc import Mapping
from pathlib import Path

import msgspec

CARD = 1000
NODES = "openb_node_list_gpu_node.csv"


class TraceError(ValueError):
    """A list that cannot be read; the message says where and what was expected."""


class Node(msgspec.Struct, frozen=True):
    """One node: CPU in thousandths, memory in MiB."""

    name: str
    cpu: int
    memory: int
    cards: int
    model: str


class Task(msgspec.Struct, frozen=True):
    """One task: ``cards`` cards with ``milli`` thousandths of each, of one of ``models`` (empty: of any)."""

    name: str
    cpu: int
    memory: int
    cards: int
    milli: int
    models: tuple[str, ...] = ()

    @property
    def demand(self) -> int:
        """Thousandths of cards."""
        return self.cards * self.milli


def read_nodes(path: Path) -> tuple[Node, ...]:
    """Read a node list: ``sn``, ``cpu_milli``, ``memory_mib``, ``gpu``, ``model``.

    Raises:
        TraceError: it cannot be read.
    """
    nodes = tuple(
        Node(
            name=row.get("sn") or f"node-{number}",
            cpu=_number(path, line, row, "cpu_milli", 0),
            memory=_number(path, line, row, "memory_mib", 0),
            cards=_number(path, line, row, "gpu", 0),
            model=row.get("model", ""),
        )
        for number, (line, row) in enumerate(_read(path, required=("cpu_milli", "gpu")))
    )
    if len({node.name for node in nodes}) < len(nodes):
        raise TraceError(f"{path}: two nodes have the same name in column sn")
    return nodes


def read_tasks(path: Path) -> tuple[Task, ...]:
    """Read a task list: ``num_gpu``, and where there are any ``name``, ``cpu_milli``, ``memory_mib``, ``gpu_milli``
    (missing: whole cards) and ``gpu_spec``. Other columns are not looked at.

    Raises:
        TraceError: it cannot be read.
    """
    tasks = []
    for number, (line, row) in enumerate(_read(path, required=("num_gpu",))):
        cards = _number(path, line, row, "num_gpu", 0)
        milli = _number(path, line, row, "gpu_milli", CARD) if cards else 0
        if cards and not 1 <= milli <= CARD:
            raise TraceError(f"{path}, line {line}: gpu_milli is {milli}; a share of a card is 1 to {CARD}")
        if cards > 1 and milli != CARD:
            raise TraceError(
                f"{path}, line {line}: asks for {milli} thousandths of {cards} cards; "
                f"several cards are whole, so gpu_milli must be {CARD}"
            )
        tasks.append(
            Task(
                name=row.get("name") or f"task-{number:06}",
                cpu=_number(path, line, row, "cpu_milli", 0),
                memory=_number(path, line, row, "memory_mib", 0),
                cards=cards,
                milli=milli,
                models=tuple(sorted({word.strip() for word in row.get("gpu_spec", "").split("|") if word.strip()})),
            )
        )
    if not tasks:
        raise TraceError(f"{path}: the list has no task")
    return tuple(tasks)


def read_rates(path: Path) -> dict[str, float]:
    """Read what cards are worth to each other: ``model`` and ``acu``.

    Raises:
        TraceError: it cannot be read.
    """
    rates: dict[str, float] = {}
    for line, row in _read(path, required=("model", "acu")):
        try:
            rate = float(row["acu"])
        except ValueError:
            rate = 0.0
        if not 0 < rate < 1e9:
            raise TraceError(f"{path}, line {line}: acu is {row['acu']!r}; a rate is a number above 0")
        if row["model"] in rates:
            raise TraceError(f"{path}, line {line}: model {row['model']} has a rate already")
        rates[row["model"]] = rate
    return rates


def write_tasks(tasks: tuple[Task, ...], path: Path) -> None:
    """Write a list that :func:`read_tasks` reads."""
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(("name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli", "gpu_spec"))
        for task in tasks:
            writer.writerow((task.name, task.cpu, task.memory, task.cards, task.milli, "|".join(task.models)))


def _read(path: Path, required: tuple[str, ...]) -> list[tuple[int, Mapping[str, str]]]:
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.DictReader(file, restval="")
            names = [name.strip() for name in reader.fieldnames or ()]
            missing = [name for name in required if name not in names]
            if missing:
                raise TraceError(f"{path}: no column {' and no column '.join(missing)}; there are {', '.join(names)}")
            reader.fieldnames = names
            rows = []
            for row in reader:
                if None in row:
                    raise TraceError(f"{path}, line {reader.line_num}: more fields than the header has columns")
                rows.append((reader.line_num, {name: (text or "").strip() for name, text in row.items()}))
            return rows
    except OSError as error:
        raise TraceError(f"cannot read {path}: {error.strerror}") from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise TraceError(f"{path} is not a CSV file: {error}") from error


def _number(path: Path, line: int, row: Mapping[str, str], column: str, otherwise: int) -> int:
    text = row.get(column, "")
    if not text:
        return otherwise
    try:
        number = float(text)
        if number < 0 or number != int(number) or number > 1e15:
            raise ValueError
    except (ValueError, OverflowError):
        raise TraceError(f"{path}, line {line}: {column} is {text!r}; expected a whole number, 0 or more") from None
    return int(number)
