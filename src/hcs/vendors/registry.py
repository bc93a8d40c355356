"""Every vendor there is a driver for, in the order in which a machine is searched."""

import logging
from collections.abc import Callable
from typing import Final

from hcs.ura.catalogue import Catalogue
from hcs.vendors import (
    amd,
    ascend,
    cambricon,
    enflame,
    hygon,
    iluvatar,
    intel,
    kunlunxin,
    metax,
    mthreads,
    nvidia,
)
from hcs.vendors.base import Vendor, VendorError

log = logging.getLogger(__name__)

FINDERS: Final[dict[str, Callable[[Catalogue], Vendor | None]]] = {
    "nvidia": nvidia.find,
    "ascend": ascend.find,
    "cambricon": cambricon.find,
    "hygon": hygon.find,
    "mthreads": mthreads.find,
    "iluvatar": iluvatar.find,
    "metax": metax.find,
    "enflame": enflame.find,
    "kunlunxin": kunlunxin.find,
    "amd": amd.find,
    "intel": intel.find,
}


def present(catalogue: Catalogue) -> list[Vendor]:
    """The vendors whose library or tool this machine has; whether they have cards, their probes say."""
    found = []
    for word, find in FINDERS.items():
        try:
            vendor = find(catalogue)
        except VendorError as error:
            log.warning("vendor left out: vendor=%s error=%s", word, error)
            continue
        if vendor is not None:
            found.append(vendor)
    return found
