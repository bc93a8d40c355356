"""What a vendor is to the node agent, and how to ask one without waiting for ever.

One small file per vendor implements ``Vendor``. Its calls go into libraries and drivers, which hang on sick cards: so
they are made in a thread, with a limit, and a vendor that still has not answered is not asked again until it has.
"""

import asyncio
import contextlib
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar, runtime_checkable

import msgspec

from hcs.health.faults import Fault
from hcs.inject.injection import NodeFiles
from hcs.inject.instances import Instance
from hcs.model.allocations import Grant
from hcs.model.devices import Device

LIMIT_SECONDS: Final = 5.0
"""How long any call of a vendor may take."""

T = TypeVar("T")


class VendorError(RuntimeError):
    """A vendor's library could not answer; the message names the call and the library's own word."""


class VendorHungError(VendorError):
    """A vendor has not answered within the limit."""


class HealthObservation(msgspec.Struct, frozen=True):
    """What a vendor says about one device now.

    ``code`` is the vendor's own fault code, 0 for none; ``name`` its short name and ``text`` whatever else it says.
    ``figures`` are what was read, with the keys of ``docs/probes.md``; ``faults`` is what they say, notes included.
    ``told``: the code is of an event that is over and that the vendor remembers, not of a state that was read now.
    """

    device: str
    code: int = 0
    name: str = ""
    text: str = ""
    faults: tuple[Fault, ...] = ()
    figures: Mapping[str, Any] = {}
    told: bool = False


class Vendor(Protocol):
    """One source of cards. All methods may block and may raise :class:`VendorError`."""

    @property
    def word(self) -> str:
        """The word for it in logs and metrics: the vendor's, or ``emulated``."""

    def probe(self) -> Sequence[Device]:
        """Every device, with identity, memory and the catalogue's rates. The verdict is not part of it.

        Raises:
            VendorError: the library cannot answer. No cards is not an error.
        """

    def read_health(self) -> Sequence[HealthObservation]:
        """The state of every device that answers; one that is left out has vanished. Cheap: called several times a
        second.

        Raises:
            VendorError: the library cannot answer.
        """

    def node_files(self, device: Device) -> NodeFiles:
        """What a container needs for this device beyond what its profile lists, like nodes found by bus id."""

    def forget(self, device: str) -> None:
        """The device was repaired: events remembered of it are over. Does not block."""

    def driver_versions(self) -> dict[str, str]:
        """Component and version, like ``{"nvidia": "550.54.15"}``; empty where unknown."""


class Wanted(msgspec.Struct, frozen=True):
    """For whom a part of a card is wanted.

    ``folder`` holds the container's files on the host, in a folder named by the pod's UID; it lasts as long as the pod.
    ``live`` tells the UIDs of the pods whose containers may run now or soon: what others hold is nobody's.
    """

    pod: str
    container: str
    folder: Path
    live: Callable[[], frozenset[str]]


@runtime_checkable
class Partitioner(Protocol):
    """A vendor that can hold a container to a part of a card. Methods may block and may raise :class:`VendorError`."""

    def divisible(self, device: Device) -> bool:
        """Whether a part of the card can be had that holds memory and compute, as the last probe found. Cheap."""

    def instance(self, wanted: Wanted, device: Device, grant: Grant) -> Instance | None:
        """What a container needs for its part of the card: the same each time it is asked, from the moment it is told
        until the pod is gone. None where nothing can be held.

        Raises:
            RefusedError: there is no room for it, though there should be.
            VendorError: the driver cannot answer, or fails.
            OSError: it cannot be written down.
        """

    def keep(self, live: Callable[[], frozenset[str]]) -> None:
        """Take back what pods other than those that ``live`` tells still have; nothing is taken back twice.

        Raises:
            VendorError: the driver fails; what is left is taken back the next time.
        """


class Asker(Protocol):
    """A way to ask a vendor that never makes the event loop wait."""

    @property
    def vendor(self) -> Vendor:
        """Whom it asks."""

    async def ask(self, question: Callable[[], T]) -> T:
        """Call ``question``, a bound method of the vendor, and give its answer or raise what it raised."""


class Aside:
    """Asks somebody off the event loop, one question at a time, none for longer than the limit."""

    def __init__(self, word: str, *, limit: float = LIMIT_SECONDS) -> None:
        """Prepare.

        Args:
            word: whom it asks, for messages.
            limit: seconds for each question.
        """
        self._word, self._limit = word, limit
        self._pending: asyncio.Future[Any] | None = None

    async def ask(self, question: Callable[[], T]) -> T:
        """Call ``question`` in a thread.

        Raises:
            VendorHungError: it took longer than the limit, or an earlier question is still unanswered.
            Exception: whatever the question raised.
        """
        if self._pending is not None and not self._pending.done():
            raise VendorHungError(f"{self._word} has not answered an earlier question yet")
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[T] = loop.create_future()
        self._pending = answer

        def work() -> None:
            try:
                result = question()
            except BaseException as error:  # carried over to the one who asked
                _deliver(loop, answer, lambda error=error: answer.set_exception(error))  # type: ignore[misc]
            else:
                _deliver(loop, answer, lambda: answer.set_result(result))

        # A daemon, so that a driver call that never returns cannot keep the process from ending.
        threading.Thread(target=work, name=f"ask-{self._word}", daemon=True).start()
        done, _ = await asyncio.wait({answer}, timeout=self._limit)
        if not done:
            answer.add_done_callback(lambda late: late.cancelled() or late.exception())
            raise VendorHungError(f"{self._word} has not answered within {self._limit:g} s")
        return answer.result()


class Questioner(Aside):
    """Asks one vendor; the questions are its bound methods."""

    def __init__(self, vendor: Vendor, *, limit: float = LIMIT_SECONDS) -> None:
        """Prepare.

        Args:
            vendor: whom to ask.
            limit: seconds for each question.
        """
        super().__init__(vendor.word, limit=limit)
        self.vendor = vendor


def _deliver(loop: asyncio.AbstractEventLoop, answer: "asyncio.Future[Any]", settle: Callable[[], None]) -> None:
    def settle_once() -> None:
        if not answer.done():
            settle()

    with contextlib.suppress(RuntimeError):  # the loop has ended meanwhile: nobody waits
        loop.call_soon_threadsafe(settle_once)
