"""Settings: what a site may choose about admission."""

import msgspec

from hcs.model import names
from hcs.neuro.capacities import DOMAIN as SPIKING_DOMAIN


class Settings(msgspec.Struct, frozen=True):
    """``schedulers`` are the scheduler names that carry our extender; a pod that names none of them is moved to the
    first if it asked for the default scheduler and refused otherwise. ``pull_secrets`` are added to every managed pod,
    since the image it will run is not known yet.
    """

    schedulers: tuple[str, ...] = (names.SCHEDULER,)
    pull_secrets: tuple[str, ...] = ()
    spiking_domain: str = SPIKING_DOMAIN
    """Domain of the spiking resources; a pod that asks for them wrongly is refused with the fix."""
