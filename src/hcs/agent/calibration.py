"""Measures the cards of this node: each once per driver and suite, when nobody uses it, under a reservation.

A card is reserved as everybody reserves one, by a quarantine entry on the ComputeNode, which the router honours; the
agent then waits until the router must have seen it and nothing is granted on the card, and lets no container start
there until it is done. Copies between cards are timed only between cards that are reserved, each pair once. An entry of
ours that a crash left behind is taken away at start. What was found is kept on disk and published as the card's own
rates and ways; the median of all cards of the model becomes the model's ``ExchangeRate``.
"""

import asyncio
import datetime
import logging
import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final

import httpx2
import msgspec
from lightkube import ApiError, AsyncClient
from lightkube.types import PatchType

from hcs.agent.admissions import plain, write_file
from hcs.kube import resources
from hcs.kube.manifests import create_or_replace
from hcs.kube.writes import EventRecorder
from hcs.measure.results import Result, is_slow, merged, model_rate, rates_of
from hcs.measure.suite import VERSION
from hcs.measure.ways import Pair, measured_ways, peers_of, tried, with_ways
from hcs.model import names
from hcs.model.devices import DEFAULT_WORKLOAD, Device, Quarantine
from hcs.model.quantities import show_acu

log = logging.getLogger(__name__)

REASON: Final = "Calibrating"
BY: Final = "agent"
SETTLE_SECONDS: Final = 2.0
"""How long a router may take to see a quarantine; a pod it bound before is seen on the node within the same time."""
LOOK_SECONDS: Final = 30.0
AGAIN_SECONDS: Final = 3600.0
"""When a card that could not be measured is tried again."""

Measurer = Callable[[Device, tuple[Device, ...]], Awaitable[Result | None]]
"""Measures a card, or where others are named the ways to and from them, in a process of its own; None where no
framework here can drive it.

Raises:
    MeasureError: it began and failed.
"""


class MeasureError(RuntimeError):
    """A measurement began and failed; the message says how."""


class Calibration:
    """Keeps the node's cards measured."""

    def __init__(
        self,
        node: str,
        *,
        client: AsyncClient,
        measurer: Measurer,
        state: Path,
        devices: Callable[[], tuple[Device, ...]],
        drivers: Callable[[], dict[str, str]],
        granted: Callable[[str], bool],
        observed: Callable[[], resources.ComputeNode | None],
        refined: Callable[[], None],
        now: Callable[[], datetime.datetime],
    ) -> None:
        """Read what was measured before.

        Args:
            node: this node's name.
            client: the API server.
            measurer: does the work.
            state: the agent's directory.
            devices: the cards as they are.
            drivers: the versions of the drivers.
            granted: whether anything is granted on a card, by its id.
            observed: this node's ComputeNode as the server has it.
            refined: called when a card's rates changed.
            now: the wall clock.
        """
        self._node, self._client, self._measurer = node, client, measurer
        self._folder = state / "measured"
        self._folder.mkdir(parents=True, exist_ok=True)
        self._devices, self._drivers, self._granted = devices, drivers, granted
        self._observed, self._refined, self._now = observed, refined, now
        self._events = EventRecorder(client, "hcs-agent")
        self._results = {result.device: result for path in self._folder.glob("*.json") if (result := _read(path))}
        self._in_progress: tuple[str, ...] = ()
        self._not_before: dict[tuple[str, bool], datetime.datetime] = {}
        self.slow: dict[str, str] = {}
        """Cards more than a tenth below the median of their model, and the sentence that says so."""

    @property
    def results(self) -> tuple[Result, ...]:
        """What is known, in order of device."""
        return tuple(self._results[device] for device in sorted(self._results))

    def refine(self, device: Device) -> Device:
        """The card with its own rates and ways, where they were measured."""
        device = with_ways(device, measured_ways(self._valid()))
        result = self._results.get(device.id)
        if result is None or not self._holds(result, device):
            return device
        own = rates_of(result)
        if not own:
            return device
        return msgspec.structs.replace(device, rates=merged(device.rates, own), measured_at=result.measured)

    @property
    def reserved(self) -> tuple[Quarantine, ...]:
        """The cards that are being measured now, as entries that admit no container, whatever the server shows."""
        return tuple(Quarantine(device, REASON, "the card is being measured", BY) for device in self._in_progress)

    def due(self) -> tuple[Device, tuple[Device, ...]] | None:
        """The next card to measure, and those to copy to and from meanwhile; all healthy, unused and not reserved.

        First cards that were not measured with this driver, each alone. Then those with a way to another that nobody
        has timed: that takes several cards, and not long.
        """
        node = self._observed()
        if node is None:
            return None
        held = node.inventory()
        free = [
            device
            for device in self._devices()
            if device.verdict == "Healthy"
            and not device.foreign
            and not self._granted(device.id)
            and held.quarantined(device.id) is None
        ]
        for device in self._ready(free, ways=False):
            result = self._results.get(device.id)
            if result is None or not self._holds(result, device):
                return device, ()
        known = tried(self._valid())
        for device in self._ready(free, ways=True):
            if others := _untried(device, free, known):
                return device, others
        return None

    def _ready(self, free: list[Device], *, ways: bool) -> list[Device]:
        """Those that have not been tried in vain a short while ago."""
        return [d for d in free if self._now() >= self._not_before.get((d.id, ways), self._now())]

    async def run(self, pause: Callable[[float], Awaitable[None]]) -> None:
        """Measure what is due, one card at a time, until cancelled."""
        while self._observed() is None:  # the ComputeNode is made by the first publishing
            await pause(0.5)
        while True:
            try:
                await self._unreserve_strays()
                while (due := self.due()) is not None:
                    await self.calibrate(*due, pause)
            except (ApiError, httpx2.HTTPError, MeasureError, OSError, ValueError) as error:
                log.warning("calibration put off: node=%s error=%r", self._node, error)
            await pause(LOOK_SECONDS)

    async def calibrate(
        self, device: Device, peers: tuple[Device, ...], pause: Callable[[float], Awaitable[None]]
    ) -> Result | None:
        """Reserve, measure, publish and give back one card, or its ways to others; None where nothing was measured.

        Raises:
            ApiError: the reservation could not be written.
        """
        turn = (device.id, bool(peers))
        self._not_before[turn] = self._now() + datetime.timedelta(seconds=AGAIN_SECONDS)
        every = {device.id, *(peer.id for peer in peers)}
        ours = await self._reserve(every)
        try:
            await pause(SETTLE_SECONDS)
            if device.id not in ours or self._granted(device.id):
                log.info("calibration put off, the card was taken meanwhile: device=%s", device.id)
                self._not_before[turn] = self._now() + datetime.timedelta(seconds=LOOK_SECONDS)
                return None
            there = tuple(peer for peer in peers if peer.id in ours and not self._granted(peer.id))
            if peers and not there:
                self._not_before[turn] = self._now() + datetime.timedelta(seconds=LOOK_SECONDS)
                return None
            self._in_progress = (device.id, *(peer.id for peer in there))
            result = await self._measurer(device, there)
        except MeasureError as error:
            log.warning("not measured: device=%s error=%s", device.id, error)
            return None
        finally:
            self._in_progress = ()
            await asyncio.shield(self._unreserve(every))
        if result is None:
            log.info("no framework here can measure the card: device=%s model=%s", device.id, device.model)
            return None
        self._keep(self._with_earlier(result, device, ways=bool(peers)))
        if not peers:
            await self._tell(device, result)
        return result

    def _keep(self, result: Result) -> None:
        path = self._folder / f"{plain(result.device)}.json"
        write_file(path, msgspec.json.format(msgspec.json.encode(result), indent=2), 0o644)
        self._results[result.device] = result
        self._refined()
        log.info("measured: device=%s model=%s figures=%d", result.device, result.model, len(result.figures))

    def _holds(self, result: Result, device: Device) -> bool:
        """Whether a result still speaks of this card with its present driver."""
        driver = self._drivers().get(device.vendor, "")
        return (result.model, result.suite) == (device.model, VERSION) and result.driver in ("", driver)

    def _valid(self) -> list[Result]:
        """The results that still speak of the cards that are here."""
        here = {device.id: device for device in self._devices()}
        found = ((result, here.get(id)) for id, result in self._results.items())
        return [result for result, device in found if device is not None and self._holds(result, device)]

    def _with_earlier(self, result: Result, device: Device, *, ways: bool) -> Result:
        """The result, and what an earlier one knew and this one did not try again: ways, or all but these ways."""
        before = self._results.get(device.id)
        if before is None or not self._holds(before, device):
            return result
        again = peers_of(result) | (frozenset() if ways else {""})
        return msgspec.structs.replace(
            before if ways else result,
            figures=(*result.figures, *(figure for figure in before.figures if figure.peer not in again)),
            failures=(*result.failures, *(failure for failure in before.failures if failure.peer not in again)),
        )

    async def _tell(self, device: Device, result: Result) -> None:
        """Compare with the model's other cards, and state the model's rate."""
        own = next((rate for rate in rates_of(result) if rate.workload == DEFAULT_WORKLOAD), None)
        if own is None:
            return
        cards = {device.id: own.milliacu}
        async for node in self._client.list(resources.ComputeNode):
            for other in node.status.devices:
                rate = other.rate()
                same = (other.vendor, other.model) == (device.vendor, device.model)
                if same and rate is not None and other.measured_at and rate.as_of == other.measured_at:
                    cards.setdefault(other.id, rate.milliacu)
        median = model_rate(cards.values())
        self.slow.pop(device.id, None)
        if is_slow(own.milliacu, cards.values()):
            sentence = (
                f"card {device.id} does {show_acu(own.milliacu)} ACU, the {device.model} here {show_acu(median)} "
                f"(median of {len(cards)}); look for heat, a power cap or a narrow PCIe link"
            )
            self.slow[device.id] = sentence
            about = resources.ObjectReference(
                apiVersion=f"{names.GROUP}/{names.VERSION}", kind="ComputeNode", name=self._node
            )
            await self._events.tell(about, reason="SlowCard", message=sentence, now=self._now(), warning=True)
        await create_or_replace(self._client, _exchange_rate(device, median, len(cards), result.measured))
        self._refined()

    async def _reserve(self, devices: set[str]) -> set[str]:
        """Reserve cards; those that somebody else has taken out of service meanwhile are not among the answer."""
        since = self._now().astimezone(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        ours: set[str] = set()

        def reserved(entries: tuple[Quarantine, ...]) -> tuple[Quarantine, ...]:
            ours.clear()
            ours.update(devices - {entry.device for entry in entries})
            new = (Quarantine(id, REASON, "the card is being measured", BY, since) for id in sorted(ours))
            return (*entries, *new)

        await self._change(reserved)
        return ours

    async def _unreserve(self, devices: set[str] | None) -> None:
        def without(entries: tuple[Quarantine, ...]) -> tuple[Quarantine, ...]:
            return tuple(
                e
                for e in entries
                if (e.by, e.reason) != (BY, REASON) or (devices is not None and e.device not in devices)
            )

        await self._change(without)

    async def _unreserve_strays(self) -> None:
        node = self._observed()
        if node is not None and any((e.by, e.reason) == (BY, REASON) for e in node.spec.quarantine):
            await self._unreserve(None)

    async def _change(self, change: Callable[[tuple[Quarantine, ...]], tuple[Quarantine, ...]]) -> None:
        """Change the quarantine as it is now: others write it too, so a write on an older state is made again."""
        for _ in range(5):
            node = await self._client.get(resources.ComputeNode, self._node)
            wanted = change(node.spec.quarantine)
            if wanted == node.spec.quarantine:
                return
            body: dict[str, Any] = {
                "metadata": {"resourceVersion": node.metadata.resourceVersion},
                "spec": {"quarantine": msgspec.to_builtins(wanted)},
            }
            try:
                await self._client.patch(resources.ComputeNode, self._node, body, patch_type=PatchType.MERGE)
            except ApiError as error:
                if error.status.code != 409:
                    raise
            else:
                return
        raise MeasureError("the node's quarantine is written by others all the time; tried 5 times")


def _untried(device: Device, free: list[Device], known: frozenset[Pair]) -> tuple[Device, ...]:
    """The cards to which the way from this one is not known."""
    return tuple(
        other
        for other in free
        if other.vendor == device.vendor and other.id != device.id and frozenset((device.id, other.id)) not in known
    )


def _exchange_rate(device: Device, milliacu: int, cards: int, measured: str) -> dict[str, Any]:
    """The model's rate as measured here. Named so that a site's own statement about the model comes after it."""
    name = re.sub(r"[^a-z0-9.-]+", "-", f"a-measured-{device.vendor}-{device.model}".lower()).strip("-.")
    note = f"median of {cards} cards of this cluster" if cards > 1 else "one card of this cluster"
    rate = {
        "workload": DEFAULT_WORKLOAD,
        "milliacu": milliacu,
        "source": "measured",
        "note": f"{note}{', emulated' if device.emulated else ''}",
        "asOf": measured,
    }
    return {
        "apiVersion": f"{names.GROUP}/{names.VERSION}",
        "kind": "ExchangeRate",
        "metadata": {"name": name, "labels": {"app.kubernetes.io/managed-by": "hcs-agent"}},
        "spec": {"vendor": device.vendor, "model": device.model, "rates": [rate]},
    }


def _read(path: Path) -> Result | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=Result)
    except (OSError, msgspec.MsgspecError) as error:
        log.warning("measurement not readable, forgotten: file=%s error=%s", path.name, error)
        return None
