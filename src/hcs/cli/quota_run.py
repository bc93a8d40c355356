"""``hcs quota run``: reads which card and how much, makes the share, runs the program in it, and cleans up."""

import os
import re
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from hcs.cli.errors import USAGE, CommandError
from hcs.cli.output import tell
from hcs.inject.quota_file import QuotaCard, QuotaFileError
from hcs.model.quantities import QuantityError, parse_amount, show_bytes
from hcs.native import NativeLibraryError, shares
from hcs.vendors import emulated as emulated_cards

NOT_FOUND: Final = 127
_NOT_EXECUTABLE: Final = 126
_SIGNALLED: Final = 128
_VENDORS: Final = ("nvidia", "ascend", "cambricon", "hygon", "amd", "mthreads")
_BY_PREFIX: Final = {"GPU-": "nvidia", "MIG-": "nvidia", "MLU-": "cambricon"}
_PCI: Final = re.compile(r"(?:[0-9a-fA-F]{4,8}:)?[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7]")
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
_MODELS: Final = {
    "nvidia": "A100-SXM4-80GB",
    "ascend": "910B3",
    "cambricon": "MLU370-X8",
    "hygon": "K100",
    "mthreads": "MTT S4000",
}
_EMULATED_BYTES: Final = 80 << 30
_EXAMPLE: Final = "hcs quota run --card GPU-5f3c9a1e-0b1d-4c5e-9f00-0123456789ab=8Gi -- python train.py"


def run_with_quota(cards: Sequence[str], command: Sequence[str], *, name: str, context: str, emulated: bool) -> int:
    """Run the command with these quotas; the exit code.

    Raises:
        CommandError: a card, an amount or the command cannot be used.
    """
    with share_for(cards, command, name=name, context=context, emulated=emulated) as share:
        process = start(share, command)
        return wait(process)


@contextmanager
def share_for(
    cards: Sequence[str], command: Sequence[str], *, name: str, context: str, emulated: bool
) -> Iterator[shares.Share]:
    """The share these words describe, for as long as it is needed.

    Raises:
        CommandError: a card, an amount or the command cannot be used.
    """
    if not command:
        raise CommandError("no program to run", "it stands at the end, after --", _EXAMPLE, code=USAGE)
    if not cards:
        raise CommandError("no quota", "at least one card with an amount is needed", _EXAMPLE, code=USAGE)
    if not _NAME.fullmatch(name):
        raise CommandError(
            f"cannot use {name!r} as a name", "it is letters, digits, '.', '_' and '-'", "--name train", code=USAGE
        )
    wanted = [read_card(text, _amount(context, "the memory of a context")) for text in cards]
    if not emulated:
        for card in wanted:
            _check_it_exists(card)
    try:
        share = shares.create(name, wanted, owner=os.getpid())
    except QuotaFileError as error:
        raise CommandError("the quota cannot be written", str(error), _EXAMPLE, code=USAGE) from error
    try:
        if emulated:
            shares.give_emulated(share, {card.uuid: _emulate(card) for card in wanted})
            tell(f"hcs: {', '.join(card.uuid for card in wanted)} {'is' if len(wanted) == 1 else 'are'} emulated")
        yield share
    finally:
        shares.remove(share)


def start(share: shares.Share, command: Sequence[str]) -> subprocess.Popen[bytes]:
    """The program, started in the share.

    Raises:
        CommandError: it cannot be started.
    """
    try:
        return subprocess.Popen(list(command), env=shares.environment(share, os.environ))
    except NativeLibraryError as error:
        raise CommandError("there is no interceptor", str(error), "make native") from error
    except FileNotFoundError as error:
        raise CommandError(
            f"there is no program {command[0]}", "it is not on the PATH", "write its path", code=NOT_FOUND
        ) from error
    except OSError as error:
        raise CommandError(f"cannot run {command[0]}", str(error), "is it executable?", code=_NOT_EXECUTABLE) from error


def wait(process: subprocess.Popen[bytes]) -> int:
    """Wait for the program, handing it the signals that end a command line; its exit code as a shell says it."""

    def pass_on(number: int, frame: object) -> None:
        process.send_signal(number)

    before = {number: signal.signal(number, pass_on) for number in (signal.SIGTERM, signal.SIGHUP)}
    # Ctrl-C reaches the program by itself; we wait for what it does about it.
    before[signal.SIGINT] = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        code = process.wait()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    return code if code >= 0 else _SIGNALLED - code


def read_card(text: str, context_bytes: int) -> QuotaCard:
    """Read ``[VENDOR:]CARD=AMOUNT``.

    Raises:
        CommandError: it is not of that form.
    """
    card, equals, amount = text.rpartition("=")
    vendor, colon, identity = card.partition(":")
    if not colon or vendor not in _VENDORS:
        vendor, identity = next((word for prefix, word in _BY_PREFIX.items() if card.startswith(prefix)), ""), card
    if not equals or not identity or not vendor:
        raise CommandError(
            f"cannot read the card {text!r}",
            "it is [VENDOR:]CARD=AMOUNT; the vendor may be left out before GPU-…, MIG-… and MLU-…, and is one of "
            + ", ".join(_VENDORS),
            _EXAMPLE,
            code=USAGE,
        )
    quota = _amount(amount, f"the quota of {identity}")
    if quota == 0:
        raise CommandError(
            f"a quota of 0 for {identity}",
            "it would refuse everything",
            "leave the card out, or give it some",
            code=USAGE,
        )
    physical_id = None
    if vendor == "ascend":
        if not identity.isdecimal():
            raise CommandError(
                f"cannot read the Ascend card {identity!r}",
                "it is the N of /dev/davinciN: the runtime knows cards by that alone",
                "--card ascend:0=16Gi",
                code=USAGE,
            )
        physical_id, identity = int(identity), f"davinci{identity}"
    return QuotaCard(
        vendor=vendor,
        uuid=identity,
        quota_bytes=quota,
        context_bytes=context_bytes,
        bus_id=identity if _PCI.fullmatch(identity) else None,
        physical_id=physical_id,
    )


def _amount(text: str, what: str) -> int:
    try:
        return parse_amount(text, what=what, example="8Gi")
    except QuantityError as error:
        raise CommandError(f"cannot read {what}", str(error), _EXAMPLE, code=USAGE) from error


def _emulate(card: QuotaCard) -> Path:
    """The file of an emulated card with this UUID, the same for every share of it."""
    if card.vendor not in emulated_cards.VENDORS:
        raise CommandError(
            f"there is no emulated driver for {card.vendor}",
            "there are those of " + ", ".join(sorted(emulated_cards.VENDORS)),
            "leave --emulated out, or choose another vendor",
            code=USAGE,
        )
    folder = shares.home() / "emulated"
    folder.mkdir(exist_ok=True)
    path = folder / re.sub(r"[^A-Za-z0-9.-]", "_", card.uuid)
    if not path.exists():
        emulated_cards.create_card(
            path,
            vendor=card.vendor,
            model=_MODELS[card.vendor],
            uuid=card.uuid,
            index=card.physical_id or 0,
            total_bytes=_EMULATED_BYTES,
            bus_id=card.bus_id or "",
        )
    total = emulated_cards.read_card(path).total_bytes
    if card.quota_bytes > total:
        tell(f"hcs: the quota is more than the emulated card has, {show_bytes(total)}")
    return path


def _check_it_exists(card: QuotaCard) -> None:
    """Refuse a card that this machine certainly does not have."""
    there = cards_of_this_machine(card.vendor)
    if there is None or card.uuid.startswith("MIG-"):
        return
    known = {identity.lower() for pair in there for identity in pair if identity}
    wanted = (card.bus_id or card.uuid).lower()
    if wanted.lstrip("0") not in {identity.lstrip("0") for identity in known}:
        raise CommandError(
            f"this machine has no {card.vendor} card {card.uuid}",
            "it has " + (", ".join(uuid for uuid, _ in there) or "none"),
            "one of these, or --emulated",
            code=USAGE,
        )


def cards_of_this_machine(vendor: str) -> list[tuple[str, str]] | None:
    """UUID and PCI address of each card of the vendor; None where they cannot be listed."""
    root = os.environ.get("HCS_ROOT")
    if root:
        found = []
        for path in sorted(Path(root, "dev").glob("*")):
            try:
                card = emulated_cards.read_card(path)
            except (emulated_cards.EmulatedCardError, OSError):
                continue
            if card.vendor == vendor:
                identity = card.uuid if vendor != "ascend" else f"davinci{card.index}"
                found.append((identity, card.bus_id))
        return found
    if vendor != "nvidia":
        return None
    from hcs.vendors.nvml import list_cards

    return list_cards()
