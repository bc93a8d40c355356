"""Shares of a card made by hand, without Kubernetes: a folder with a quota file and a ledger, and what to put into a
program's environment so that it is held to them.

The folders lie under one directory of the user's, so that ``hcs quota top`` finds those of every program that runs. A
folder whose owner has died is swept by the next one who looks. Emulated cards lie beside them, one file a card, so that
several programs can share one.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

import msgspec

from hcs.inject.quota_file import QuotaCard, QuotaFile, parse, render
from hcs.native import audit_path, emulated_driver_dir, interceptor_path
from hcs.native.ledger import Ledger, read_ledger

AUDITED: Final = frozenset({"amd", "hygon"})
"""Vendors whose runtime is caught by the loader's audit interface instead of by preloading."""

NODES: Final = {
    "nvidia": "nvidia",
    "ascend": "davinci",
    "cambricon": "cambricon_dev",
    "hygon": "emulated-hygon",
    "mthreads": "emulated-mthreads",
}
"""How the emulated drivers name device nodes, by vendor."""


class Share(msgspec.Struct, frozen=True):
    """One container or program with a quota: its name and the folder of its files."""

    name: str
    folder: Path

    def quota(self) -> QuotaFile:
        """Its limits. Raises OSError and QuotaFileError."""
        return parse((self.folder / "quota").read_text())

    def ledger(self) -> Ledger:
        """Its books; empty where no program has opened them. Raises OSError and LedgerError."""
        path = self.folder / self.quota().ledger
        return read_ledger(path) if path.exists() else Ledger(cards=(), processes=())


def home() -> Path:
    """The user's directory of hand-made shares, made where it is missing."""
    base = os.environ.get("XDG_RUNTIME_DIR") or tempfile.gettempdir()
    path = Path(base) / f"hcs-quota-{os.getuid()}"
    path.mkdir(mode=0o700, exist_ok=True)
    return path


def create(name: str, cards: Iterable[QuotaCard], *, owner: int) -> Share:
    """Make a share for the process ``owner``. Raises QuotaFileError for values that cannot stand in a quota file."""
    text = render(QuotaFile(cards=tuple(cards)))
    folder = Path(tempfile.mkdtemp(prefix=f"{name}-{owner}-", dir=home()))
    (folder / "quota").write_text(text)
    (folder / "name").write_text(f"{name}\n{owner}\n")
    return Share(name, folder)


def remove(share: Share) -> None:
    """Take it away, files and all."""
    shutil.rmtree(share.folder, ignore_errors=True)


def by_hand() -> list[Share]:
    """The hand-made shares whose owner lives, in order of name; those of the dead are removed."""
    found = []
    for path in sorted(home().glob("*/name")):
        try:
            name, owner = path.read_text().split()
        except (OSError, ValueError):
            continue  # its owner is at it
        share = Share(name, path.parent)
        if Path(f"/proc/{owner}").exists():
            found.append(share)
        else:
            remove(share)
    return found


def of_node(state: Path) -> list[Share]:
    """The shares of containers whose files an agent keeps under ``state``."""
    found = []
    for path in sorted(state.glob("containers/*/*/quota")):
        container, pod = path.parent.name, path.parent.parent.name
        found.append(Share(f"{pod}/{container}", path.parent))
    return found


def own_container() -> list[Share]:
    """The share this very container was given, if it was."""
    folder = Path("/etc/hcs")
    return [Share("this container", folder)] if (folder / "quota").is_file() else []


def environment(share: Share, inherited: Mapping[str, str]) -> dict[str, str]:
    """The variables under which a program is held to the share.

    Raises NativeLibraryError where the libraries have not been built.
    """
    variables = dict(inherited)
    variables["HCS_QUOTA_FILE"] = str(share.folder / "quota")
    variables.pop("HCS_QUOTA_FAIL_OPEN", None)
    vendors = {card.vendor for card in share.quota().cards}
    if vendors - AUDITED:
        variables["LD_PRELOAD"] = _before(str(interceptor_path()), inherited.get("LD_PRELOAD", ""))
    if vendors & AUDITED:
        variables["LD_AUDIT"] = _before(str(audit_path()), inherited.get("LD_AUDIT", ""))
    root = share.folder / "root"
    if root.is_dir():
        drivers = ":".join(str(emulated_driver_dir(vendor)) for vendor in sorted(vendors))
        variables["HCS_ROOT"] = str(root)
        variables["LD_LIBRARY_PATH"] = _before(drivers, inherited.get("LD_LIBRARY_PATH", ""))
    return variables


def give_emulated(share: Share, cards: Mapping[str, Path]) -> None:
    """Show emulated cards, by UUID, to programs of the share and nothing else."""
    nodes = share.folder / "root/dev"
    nodes.mkdir(parents=True)
    for number, card in enumerate(share.quota().cards):
        number = number if card.physical_id is None else card.physical_id
        (nodes / f"{NODES[card.vendor]}{number}").symlink_to(cards[card.uuid])


def _before(first: str, rest: str) -> str:
    return f"{first}:{rest}" if rest else first
