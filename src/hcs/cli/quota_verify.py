"""``hcs quota verify``: the interceptor's ledger against the driver's own figures, while a program runs."""

import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from hcs.cli.errors import FAILED, CommandError
from hcs.cli.output import Column, Table, say, tell, write_data, write_table
from hcs.cli.quota_run import share_for, start, wait
from hcs.model.quantities import show_bytes
from hcs.native import shares
from hcs.native.ledger import Ledger, LedgerError
from hcs.vendors import emulated as emulated_cards
from hcs.vendors import nvml

_PAUSE_SECONDS: Final = 0.02
_EXITING: Final = 0x4


class Comparison(msgspec.Struct, rename="camel"):
    """One card: how often ledger and driver were compared, and the moment when they were furthest apart (bytes).

    Inside a container NVIDIA's driver names processes of the host, so none is found. Then the card as a whole is asked,
    and what it held before the program began is taken off; that is right as long as nobody else uses it.
    """

    card: str
    vendor: str
    samples: int = 0
    most_bytes: int = 0
    ledger_bytes: int = 0
    driver_bytes: int = 0
    by: str = ""
    """How the driver was asked: ``process``, or ``card`` where it does not tell processes apart."""

    @property
    def percent(self) -> float:
        """The largest difference, in percent of the larger figure."""
        larger = max(self.ledger_bytes, self.driver_bytes)
        return 100 * abs(self.ledger_bytes - self.driver_bytes) / larger if larger else 0.0

    def add(self, ledger_bytes: int, driver_bytes: int) -> None:
        """Take one more pair of figures."""
        self.samples += 1
        self.most_bytes = max(self.most_bytes, ledger_bytes)
        further = abs(ledger_bytes - driver_bytes) > abs(self.ledger_bytes - self.driver_bytes)
        if further or self.samples == 1:
            self.ledger_bytes, self.driver_bytes = ledger_bytes, driver_bytes


class Verdict(msgspec.Struct, frozen=True, rename="camel"):
    """What ``--json`` says."""

    cards: list[Comparison]
    tolerance_percent: float
    agree: bool
    exit_code: int


def verify_books(
    cards: Sequence[str],
    command: Sequence[str],
    *,
    name: str,
    context: str,
    emulated: bool,
    tolerance: float,
    json: bool,
) -> int:
    """Run the command, compare, report; the exit code.

    Raises:
        CommandError: the quota or the command cannot be used, or the driver could never be asked.
    """
    with share_for(cards, command, name=name, context=context, emulated=emulated) as share:
        found = [Comparison(card.uuid, card.vendor) for card in share.quota().cards]
        before = {one.card: nvml.used_on(one.card) for one in found if one.vendor == "nvidia" and not emulated}
        process = start(share, command)
        look: _Look | None = None
        while process.poll() is None:
            # A program that ends gives its memory back before its books are closed: a look counts at the next one.
            if look is not None and all(map(_lives, look.pids)):
                look.count(found)
            look = _compare(share, found, before)
            time.sleep(_PAUSE_SECONDS)
        code = wait(process)
    compared = [one for one in found if one.samples]
    if not compared:
        raise CommandError(
            "nothing was compared",
            "the program never held memory of the card for long enough, or the driver does not tell who holds what",
            "a program that runs for a second or more; NVIDIA and emulated cards can be asked",
            code=code or FAILED,
        )
    agree = all(one.percent <= tolerance for one in compared)
    if not write_data(Verdict(found, tolerance, agree, code), "line" if json else "table"):
        _report(found, tolerance, agree)
    if code:
        tell(f"hcs: the program ended with {code}")
    return code or (0 if agree else FAILED)


class _Look(msgspec.Struct, frozen=True):
    """What ledger and driver said at one moment about each card, and of whom."""

    pids: frozenset[int]
    ledger_bytes: tuple[int, ...]
    driver_bytes: tuple[int | None, ...]

    def count(self, found: list[Comparison]) -> None:
        for one, held, driver_bytes in zip(found, self.ledger_bytes, self.driver_bytes, strict=True):
            if driver_bytes is not None and held:
                one.add(held, driver_bytes)


def _compare(share: shares.Share, found: list[Comparison], idle: Mapping[str, int | None]) -> _Look | None:
    """One look. It is one only where the ledger said the same before and after the driver was asked."""
    try:
        before = share.ledger()
        figures = tuple(_driver(share, one, index, before, idle) for index, one in enumerate(found))
        after = share.ledger()
    except (OSError, LedgerError):
        return None
    if before != after or len(before.cards) != len(found):
        return None
    held = tuple(sum(process.used_bytes[index] for process in before.processes) for index in range(len(found)))
    return _Look(frozenset(process.pid for process in before.processes), held, figures)


def _lives(pid: int) -> bool:
    """Whether a process goes on: neither gone nor on its way out (PF_EXITING, ``include/linux/sched.h``)."""
    try:
        words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return False
    return words[0] not in "ZX" and not int(words[6]) & _EXITING


def _driver(
    share: shares.Share, one: Comparison, index: int, ledger: Ledger, idle: Mapping[str, int | None]
) -> int | None:
    """Bytes the driver says the share's processes hold on the card; None where it cannot be asked."""
    pids = {process.pid for process in ledger.processes}
    for folder in (share.folder / "root", Path(os.environ.get("HCS_ROOT") or "/nonexistent")):
        for path in sorted((folder / "dev").glob("*")):
            try:
                card = emulated_cards.read_card(path)
            except (emulated_cards.EmulatedCardError, OSError):
                continue
            if one.card in (card.uuid, card.bus_id, f"davinci{card.index}"):
                one.by = "process"
                return sum(process.used_bytes for process in card.processes if process.pid in pids)
    if one.vendor != "nvidia" or not pids:
        return None
    held, floor = nvml.used_by(one.card, pids), idle.get(one.card)
    if held is not None or floor is None:
        one.by = "process"
        return held
    whole = nvml.used_on(one.card)
    one.by = "card"
    return max(0, whole - floor) if whole is not None else None


def _report(found: list[Comparison], tolerance: float, agree: bool) -> None:
    columns = (
        Column("CARD"),
        Column("SAMPLES", right=True),
        Column("MOST", right=True),
        Column("LEDGER", right=True),
        Column("DRIVER", right=True),
        Column("DIFFERENCE", right=True),
    )
    rows: list[tuple[str, ...]] = [
        (
            one.card,
            str(one.samples),
            show_bytes(one.most_bytes),
            show_bytes(one.ledger_bytes),
            show_bytes(one.driver_bytes),
            f"{one.percent:.2f} %" if one.samples else "not compared",
        )
        for one in found
    ]
    write_table(Table(columns, rows))
    if any(one.by == "card" and one.samples for one in found):
        say("the driver does not tell these processes apart: DRIVER is what the whole card holds more than before")
    say(f"ledger and driver {'agree' if agree else 'DIFFER'} (tolerance {tolerance:g} %)")
