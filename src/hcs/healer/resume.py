"""Where a pod that loses its card should resume: the newest complete checkpoint, as its container sees it.

The directory is looked into as :mod:`hcs.process.checkpoints` says. Where it cannot be, the directory itself is the
answer, and the program picks the newest entry, which it can see and we cannot.
"""

import asyncio
import logging

from hcs.health.checkpoints import newest_complete
from hcs.model import names
from hcs.model.pods import Pod
from hcs.process.checkpoints import LIST_SECONDS, entries, host_directory, in_thread

log = logging.getLogger(__name__)

__all__ = ["host_directory", "resume_point"]


async def resume_point(pod: Pod, before: str = "", *, patience: float = LIST_SECONDS) -> str:
    """Find the place to resume from. Never raises.

    Args:
        pod: the pod that loses its card.
        before: what the last call for this pod returned.
        patience: seconds to wait for the storage.

    Returns:
        A path or URL; empty when the pod keeps no checkpoints. Storage that cannot be listed, or not now, gives
        ``before``, or else the checkpoint directory.
    """
    place = pod.annotations.get(names.CHECKPOINT, "")
    if not place:
        return ""
    try:
        found = await asyncio.wait_for(in_thread(lambda: [name for name, _ in entries(pod, place)]), patience)
    except Exception as error:  # a storage's library may raise anything
        log.warning("checkpoints not listed: pod=%s place=%s error=%r", pod.key, place, error)
        return before or place
    newest = newest_complete(found)
    return f"{place.rstrip('/')}/{newest}" if newest else place
