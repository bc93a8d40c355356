"""From what a vendor's tool prints to a device of the catalogue.

A card whose name the catalogue does not know is published all the same, with its memory and without rates: it has no
ACU until somebody measures it, and it is never guessed to be a relative of another card.
"""

from hcs.model.devices import Device
from hcs.ura.catalogue import CardError, Catalogue, as_device


def recognise(
    catalogue: Catalogue,
    *,
    vendor: str,
    name: str,
    id: str,
    index: int,
    vram: int,
    bus_id: str | None = None,
    numa: int | None = None,
    emulated: bool = False,
) -> Device:
    """The device a driver describes.

    Args:
        catalogue: what is known about card models.
        vendor: the vendor word.
        name: the model as the vendor's tool prints it.
        id: unique and stable on the node; the UUID where there is one.
        index: the driver's physical number.
        vram: bytes the driver reports.
        bus_id: PCI address, where known.
        numa: NUMA node, where known.
        emulated: whether it only plays a card.
    """
    try:
        card = catalogue.find(name, vendor, vram=vram)
    except CardError:
        return Device(
            id=id, index=index, vendor=vendor, model=name, vram=vram, bus_id=bus_id, numa=numa, emulated=emulated
        )
    return as_device(card, id, index, vram=vram, bus_id=bus_id, numa=numa, emulated=emulated)
