"""An adjustment in the wire's words, and whether the runtime's last word still contains it.

A device node is named by its numbers on the host. A source that is no device node, such as the file of an emulated
card, is mounted in its place: the program in the container opens the same path.
"""

import os
import stat
from collections.abc import Callable
from typing import Any, Final

from hcs.inject.adjustments import Adjustment, DeviceNode, Mount
from hcs.model.refusals import Refusal, RefusedError
from hcs.nri.messages import MESSAGES
from hcs.nri.runtimes import Runtime

Look = Callable[[str], os.stat_result]
_IN_PLACE: Final = ("bind", "rw", "nosuid", "nodev", "noexec", "rprivate")


def wire(adjustment: Adjustment, runtime: Runtime, look: Look = os.stat) -> Any:
    """The message for an adjustment.

    Args:
        adjustment: what to change.
        runtime: who will do it.
        look: how a device node is looked at; ``/dev`` is memory, nothing waits for a disk.

    Raises:
        RefusedError: the runtime would ignore part of it in silence, or a device node is not there.
    """
    if adjustment.args is not None and not runtime.args:
        raise RefusedError(
            Refusal(
                "RuntimeTooOld",
                f"{runtime} cannot change a container's command line, which this vendor's entry point needs; "
                "use containerd from 2.2 on, or CRI-O from 1.34 on",
            )
        )
    if adjustment.cdi and not runtime.cdi:
        raise RefusedError(Refusal("RuntimeTooOld", f"{runtime} ignores CDI names given by a plugin"))
    message = MESSAGES["Adjustment"](annotations=adjustment.annotations, args=adjustment.args or ())
    for variable in adjustment.env:
        if variable.value is None:
            raise RefusedError(Refusal("VariableStays", f"{runtime} cannot take the variable {variable.name} away"))
        message.env.add(key=variable.name, value=variable.value)
    mounts, nodes = list(adjustment.mounts), []
    for device in adjustment.devices:
        found = _numbers(device, look)
        if found is None:
            mounts.append(Mount(device.source, device.path, _IN_PLACE))
        else:
            nodes.append(found)
    for mount in mounts:
        message.mounts.add(destination=mount.destination, type=mount.type, source=mount.source, options=mount.options)
    if nodes:  # to touch the field is to send it
        message.linux.devices.extend(nodes)
    message.CDI_devices.extend(MESSAGES["CDIDevice"](name=name) for name in adjustment.cdi)
    return message


def missing(ours: Any, whole: Any) -> str:
    """What of our part is not, or not so, in the whole that the runtime made of all plugins' parts; empty if nothing.

    Args:
        ours: the message we answered with.
        whole: the message the runtime wants to have validated.
    """
    env = {variable.key: variable.value for variable in whole.env}
    for variable in ours.env:
        if env.get(variable.key) != variable.value:
            return f"variable {variable.key}"
    mounts = {mount.destination: mount.source for mount in whole.mounts}
    for mount in ours.mounts:
        if mounts.get(mount.destination) != mount.source:
            return f"the mount on {mount.destination}"
    devices = {device.path: (device.major, device.minor) for device in whole.linux.devices}
    for device in ours.linux.devices:
        if devices.get(device.path) != (device.major, device.minor):
            return f"device {device.path}"
    names = {device.name for device in whole.CDI_devices}
    for device in ours.CDI_devices:
        if device.name not in names:
            return f"CDI device {device.name}"
    if ours.args and list(ours.args) != list(whole.args):
        return "the command line"
    for key, value in ours.annotations.items():
        if whole.annotations.get(key) != value:
            return f"annotation {key}"
    return ""


def _numbers(device: DeviceNode, look: Look) -> Any | None:
    try:
        found = look(device.source)
    except OSError as error:
        raise RefusedError(
            Refusal("HostFileMissing", f"device node {device.source} cannot be seen: {error.strerror}")
        ) from error
    for kind, is_it in (("c", stat.S_ISCHR), ("b", stat.S_ISBLK)):
        if is_it(found.st_mode):
            return MESSAGES["Device"](
                path=device.path, type=kind, major=os.major(found.st_rdev), minor=os.minor(found.st_rdev)
            )
    return None
