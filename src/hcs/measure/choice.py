"""Which backends there are on this machine, and which of their cards is the one that is meant."""

from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from hcs.measure.backends import Backend, BackendError, Unit
from hcs.measure.cupy_backend import find_cupy
from hcs.measure.emulated_backend import EmulatedBackend
from hcs.measure.numpy_backend import NumpyBackend
from hcs.measure.torch_backend import find_torch
from hcs.measure.torch_processor import find_torch_processor


def backends(emulated_cards: Path | None = None, tell: Callable[[str], None] = lambda _: None) -> list[Backend]:
    """All that can work here, the best first; the processor last, so that there is always one.

    Args:
        emulated_cards: a directory of emulated cards; then nothing else is looked for.
        tell: told why a framework drives no card here.
    """
    if emulated_cards is not None:
        return [EmulatedBackend(emulated_cards)]
    return [*find_torch(tell), *find_cupy(tell), *find_torch_processor(), NumpyBackend()]


def find_unit(
    candidates: Sequence[Backend], uuid: str, *, vendor: str = "", visible: Sequence[str] = ()
) -> tuple[Backend, Unit] | None:
    """The card with this UUID, and who drives it; None where no backend lists it.

    Args:
        candidates: who may drive it.
        uuid: the card's id.
        vendor: the card's vendor word where it is known: then whoever drives other vendors' cards is not asked.
        visible: the ids of the cards that were made visible to this process, in the order in which they are listed;
            for frameworks that tell no UUIDs.

    Raises:
        BackendError: a framework that tells no UUIDs lists several cards: guessing would measure somebody's card.
    """
    blind = []
    for backend in candidates:
        if not backend.is_card or (vendor and backend.vendors and vendor not in backend.vendors):
            continue
        units = backend.units()
        for unit in units:
            if unit.uuid == uuid:
                return backend, unit
        if units and not any(unit.uuid for unit in units):
            blind.append((backend, units))
    for backend, units in blind:
        if len(units) == len(visible) and uuid in visible:
            return backend, msgspec.structs.replace(units[visible.index(uuid)], uuid=uuid)
        if len(units) == 1 and not visible:
            return backend, msgspec.structs.replace(units[0], uuid=uuid)
        raise BackendError(
            f"{backend.name} lists {len(units)} cards without UUIDs; make only the one to measure visible to it"
        )
    return None
