"""What has to change in a container before it starts, as values.

An ``Adjustment`` says the same as the container adjustment of NRI, so that one answer serves the container runtime of a
real node and the process kubelet of the sandbox. On the wire it is JSON in camelCase. Everything in it is a tuple in a
fixed order: equal inputs give equal bytes.
"""

from typing import Final

import msgspec


class Variable(msgspec.Struct, frozen=True, rename="camel"):
    """One environment variable; it replaces the image's and the user's. ``value`` None takes the variable away."""

    name: str
    value: str | None


class Mount(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """``source`` of the host at ``destination`` in the container; replaces whatever was mounted there.

    ``type`` is ``bind`` or ``tmpfs`` (then ``source`` is ``tmpfs`` too). Options are those of an OCI mount.
    """

    source: str
    destination: str
    options: tuple[str, ...] = ()
    type: str = "bind"

    @property
    def read_only(self) -> bool:
        """Whether the container cannot write there."""
        return "ro" in self.options


class DeviceNode(msgspec.Struct, frozen=True, rename="camel"):
    """The device node ``source`` of the host, allowed and present in the container at ``path``."""

    path: str
    source: str


class HostFile(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """A file on the host that must exist before the adjustment is answered.

    ``mode`` holds the permission bits. ``keep`` leaves a file that is already there as it is; only a container that
    starts again begins with it anew.
    """

    path: str
    content: str
    mode: int
    keep: bool = False


class Adjustment(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """All changes to one container. ``args`` None leaves the command as it is; else it is the whole new command line.

    ``files`` are for whoever delivers the adjustment, not for the container: they back some of the mounts.
    """

    env: tuple[Variable, ...] = ()
    mounts: tuple[Mount, ...] = ()
    devices: tuple[DeviceNode, ...] = ()
    args: tuple[str, ...] | None = None
    cdi: tuple[str, ...] = ()
    annotations: dict[str, str] = {}
    files: tuple[HostFile, ...] = ()

    def variables(self) -> dict[str, str | None]:
        """The environment changes by name."""
        return {variable.name: variable.value for variable in self.env}

    def mount(self, destination: str) -> Mount | None:
        """The mount at a path of the container, if any."""
        return next((mount for mount in self.mounts if mount.destination == destination), None)


EMPTY: Final = Adjustment()
"""Start the container as it is."""
