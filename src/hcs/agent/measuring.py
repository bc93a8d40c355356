"""Measures a card in a process of its own: frameworks take memory and hold contexts that the agent must not have."""

import asyncio
import contextlib
import importlib.util
import os
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import msgspec

from hcs.agent.calibration import MeasureError
from hcs.measure.emulated_backend import SUFFIX
from hcs.measure.results import Result
from hcs.measure.torch_backend import VENDORS
from hcs.model.devices import Device

LIMIT_SECONDS: Final = 600.0
_NO_FRAMEWORK: Final = 2
"""The command's exit code where nothing here can drive the card."""
_TELL_UUIDS: Final = VENDORS["cuda"]
"""Vendors whose frameworks name cards as their drivers do; others number what they see."""


def can_measure(emulated_cards: Path | None) -> bool:
    """Whether anything on this machine could drive a card: a framework, or a speed for the emulated engine.

    Asked before the first reservation; nothing is imported, a framework takes seconds and much memory.
    """
    if emulated_cards is not None:
        return any(emulated_cards.glob(f"*{SUFFIX}"))
    return any(importlib.util.find_spec(module) is not None for module in ("torch", "cupy"))


class ProcessMeasurer:
    """Calls ``hcs measure`` for one card."""

    def __init__(
        self,
        *,
        emulated_cards: Path | None,
        drivers: Callable[[], dict[str, str]],
        visibility: Callable[[str], Sequence[str]] = lambda vendor: (),
    ) -> None:
        """Prepare.

        Args:
            emulated_cards: the directory of emulated cards, if those are measured.
            drivers: the versions of the drivers, by vendor.
            visibility: the variables by which a vendor's runtime is told which cards, by number, a process sees.
        """
        self._emulated, self._drivers, self._visibility = emulated_cards, drivers, visibility

    async def __call__(self, device: Device, peers: Sequence[Device] = ()) -> Result | None:
        """Measure; see :data:`hcs.agent.calibration.Measurer`.

        Raises:
            MeasureError: it failed, or took longer than the limit.
        """
        words = ["--device", device.id, "--vendor", device.vendor, "--model", device.model, "--json"]
        words += ["--driver", self._drivers().get(device.vendor, "")]
        for peer in peers:
            words += ["--peer", peer.id]
        if self._emulated is not None:
            words += ["--emulated-cards", str(self._emulated)]
        if peers:
            words.append("--ways")
        elif self._emulated is None:
            words.append("--models")
        shown, variables = self._shown((device, *peers))
        for id in shown:
            words += ["--visible", id]
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "hcs", "measure", *words),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
            env={**os.environ, **variables},
        )
        try:
            out, err = await asyncio.wait_for(process.communicate(), LIMIT_SECONDS)
        except TimeoutError as error:
            raise MeasureError(f"no result within {LIMIT_SECONDS:g} s; the card or its driver hangs") from error
        finally:
            if process.returncode is None:  # cancelled or too slow: its whole session goes, the framework's helpers too
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                await process.wait()
        if process.returncode == _NO_FRAMEWORK:
            return None
        if process.returncode != 0:
            raise MeasureError(" ".join(err.decode(errors="replace").split())[-500:])
        try:
            return msgspec.json.decode(out, type=Result)
        except msgspec.MsgspecError as error:
            raise MeasureError(f"the result cannot be read: {error}") from error

    def _shown(self, cards: Sequence[Device]) -> tuple[tuple[str, ...], dict[str, str]]:
        """The cards that the process sees, in the order in which it numbers them, and the variables that make it so.

        Nothing where the framework tells UUIDs.
        """
        vendor = cards[0].vendor
        variables = self._visibility(vendor)
        if self._emulated is not None or vendor in _TELL_UUIDS or not variables:
            return (), {}
        ordered = sorted(cards, key=lambda card: card.index)
        numbers = ",".join(str(card.index) for card in ordered)
        return tuple(card.id for card in ordered), dict.fromkeys(variables, numbers)
