"""What a container is told instead, where a runtime cannot take a variable away.

NRI's marker for removal reaches the plugins that are asked later, not the container: the image's and the user's
variables stay (containerd 1.7.24, 2.2.7, 2.3.4, tried). So a variable by which software chooses devices is given the
value that chooses none, or all that the container has:

* one that a *framework* reads (a vendor's pattern is ``{ordinals}``) counts the container's own devices: all of them.
  An empty one would hide the cards from other vendors' software that reads the same variable;
* one that a *container runtime* reads names devices of the host: empty, which means none.

For any other variable no value is known to be as good as none; then the container is refused.
"""

import msgspec

from hcs.inject.adjustments import Adjustment, Variable
from hcs.inject.profiles import Profiles
from hcs.model.refusals import Refusal, RefusedError


def withdrawn(adjustment: Adjustment, profiles: Profiles, count: int) -> Adjustment:
    """The adjustment without removals.

    Args:
        adjustment: what to change.
        profiles: all that are in force.
        count: how many devices the container has.

    Raises:
        RefusedError: a variable would have to go that no value can stand for.
    """
    if all(variable.value is not None for variable in adjustment.env):
        return adjustment
    env = (
        Variable(variable.name, _harmless(variable.name, profiles, count) if variable.value is None else variable.value)
        for variable in adjustment.env
    )
    return msgspec.structs.replace(adjustment, env=tuple(env))


def _harmless(name: str, profiles: Profiles, count: int) -> str:
    patterns = [profile.selection[name] for profile in profiles.entries if name in profile.selection]
    if not patterns:
        raise RefusedError(
            Refusal(
                "VariableStays",
                f"the image or the pod sets {name}, which would undo the choice of cards, and this node's container "
                "runtime cannot take a variable away; take it out of the pod or the image",
            )
        )
    if any("{ordinals}" in pattern for pattern in patterns):
        return ",".join(str(ordinal) for ordinal in range(count))
    return ""
