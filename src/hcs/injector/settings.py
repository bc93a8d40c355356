"""Settings: what a site may choose about admission."""

import msgspec

from hcs.model import names


class Settings(msgspec.Struct, frozen=True):
    """``schedulers`` are the scheduler names that carry our extender; a pod that names none of them is moved to the
    first if it asked for the default scheduler and refused otherwise. ``pull_secrets`` are added to every managed pod,
    since the image it will run is not known yet.
    """

    schedulers: tuple[str, ...] = (names.SCHEDULER,)
    pull_secrets: tuple[str, ...] = ()
