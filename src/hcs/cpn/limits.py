"""How often, how long and how much: what may be set about dispatching."""

import msgspec


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``attempts``: runs that may end badly. Times in seconds, the log in lines and bytes.

    ``step_limit`` is how long an entry may stand in ``Placing``, ``Created`` or ``Cancelling`` until that is told as a
    warning; ``pending_limit`` how long a released Job may have no running pod until it is taken back. ``retry_pause``
    is how long the cluster on which a run failed by itself is left out, twice as long each time up to six minutes, as
    Kubernetes' own Job controller does: a sick card must not use up all attempts in a second.
    """

    attempts: int = 4
    step_limit: float = 60.0
    pending_limit: float = 900.0
    retry_pause: float = 10.0
    log_lines: int = 400
    log_bytes: int = 64 * 1024
    progress_seconds: float = 15.0
