"""From a container's spec to a process: image, variables, the agent's word, the private tree, the command.

The order is that of a container runtime: everything that can be wrong is found before the command runs, and each
failure has the waiting reason that a real kubelet would show.
"""

import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from hcs.inject.adjustments import Adjustment
from hcs.model import pods
from hcs.sandbox.images import Image, ImageMissingError, ImageStore
from hcs.sandbox.kubelet.agent import Agent, RefusedStartError
from hcs.sandbox.kubelet.environment import ConfigurationError, declared, expand, moved, moved_path, preload_list
from hcs.sandbox.kubelet.processes import Launch, Process, StartError, find_program
from hcs.sandbox.kubelet.rootfs import Tree, by_depth, normal
from hcs.sandbox.kubelet.volumes import Volume

PRELOAD_FILE = "/etc/ld.so.preload"
QUOTA_FILE = "/etc/hcs/quota"


class NotStartedError(RuntimeError):
    """The container waits: ``reason`` is the API's word for why, the message says more."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class Place(msgspec.Struct, frozen=True):
    """Where one container's things are: ``directory`` for its tree, ``log`` for its output."""

    directory: Path
    log: Path


async def start_container(
    pod: pods.Pod,
    container: pods.Container,
    place: Place,
    *,
    images: ImageStore,
    volumes: Mapping[str, Volume],
    agent: Agent,
    host_ip: str,
    sandbox: pods.Pod | None = None,
) -> Process:
    """Start a container.

    Args:
        pod: as it is now; its annotations are read again whenever a container starts.
        container: one of its containers.
        place: where its things go.
        images: where its image is.
        volumes: the pod's, made.
        agent: the node's.
        host_ip: the node's address.
        sandbox: the pod as it was when it came to the node, which is what the agent is shown; None: as now.

    Raises:
        NotStartedError: it may be tried again later.
        StartError: everything was ready, but its command cannot be executed.
    """
    image = _image(container, images)
    try:
        variables = declared(pod, container, image.env, host_ip=host_ip)
        args = command_line(container, image, variables)
    except ConfigurationError as error:
        raise NotStartedError("CreateContainerConfigError", str(error)) from error
    try:
        adjustment = await agent.adjust(sandbox or pod, container, variables, args)
        launch = prepare(pod, container, place, image, volumes, variables, args, adjustment)
    except (RefusedStartError, ConfigurationError, OSError) as error:
        raise NotStartedError("CreateContainerError", str(error)) from error
    try:
        return await Process.start(launch, place.directory / "config.json")
    except OSError as error:
        raise NotStartedError("RunContainerError", str(error)) from error


def command_line(container: pods.Container, image: Image, variables: Mapping[str, str]) -> list[str]:
    """The command as Kubernetes puts it together: ``command`` replaces the image's entry point, ``args`` follow.

    Raises:
        ConfigurationError: neither says what to run.
    """
    words = [*(container.command or image.entrypoint), *(container.args or ())]
    if not words:
        raise ConfigurationError(f"no command specified, and image {image.name} has no entry point")
    return [expand(word, variables) for word in words]


def prepare(
    pod: pods.Pod,
    container: pods.Container,
    place: Place,
    image: Image,
    volumes: Mapping[str, Volume],
    variables: Mapping[str, str],
    args: Sequence[str],
    adjustment: Adjustment,
) -> Launch:
    """Build the container's tree and say what to run in it.

    Raises:
        ConfigurationError: a mount that cannot be made, or something the emulated kubelet cannot do.
        StartError: the command is not in the container.
    """
    if adjustment.cdi:
        raise ConfigurationError(f"the emulated kubelet cannot resolve CDI devices: {', '.join(adjustment.cdi)}")
    tree = Tree.build(place.directory / "rootfs", image.tree)
    _mount(tree, container, volumes, adjustment, place.directory / "tmpfs")
    changed = dict(variables)
    for name, value in adjustment.variables().items():
        changed.pop(name, None)
        if value is not None:
            changed[name] = value
    root, words = str(tree.root), list(adjustment.args or args)
    env = moved(
        changed,
        root=root,
        exists=tree.exists,
        preloads=preload_list(tree.host_path(PRELOAD_FILE).read_text()) if tree.exists(PRELOAD_FILE) else (),
        quota=str(tree.host_path(QUOTA_FILE).resolve()) if tree.exists(QUOTA_FILE) else None,
    )
    inside = normal(container.workingDir or image.working_dir)
    cwd = tree.working_directory(inside)
    program = find_program(words[0], env=env, root=tree.root, cwd=cwd)
    if program is None:
        raise StartError(f'exec: "{words[0]}": executable file not found in the container')
    argv = [str(program), *(moved_path(word, root=root, exists=tree.exists) for word in words[1:])]
    env["PWD"] = str(cwd)
    place.log.parent.mkdir(parents=True, exist_ok=True)
    return Launch(tuple(argv), env, str(cwd), str(place.log), os.getpid())


def _image(container: pods.Container, images: ImageStore) -> Image:
    try:
        return images.find(container.image)
    except ImageMissingError as error:
        never = getattr(container, "imagePullPolicy", None) == "Never"
        raise NotStartedError("ErrImageNeverPull" if never else "ImagePullBackOff", str(error)) from error


def _mount(
    tree: Tree, container: pods.Container, volumes: Mapping[str, Volume], adjustment: Adjustment, scratch: Path
) -> None:
    """Place everything, outer paths first; at the same path the adjustment wins over the spec."""
    sources: dict[str, tuple[Path, bool, bool]] = {}
    for mount in container.volumeMounts or ():
        volume = volumes.get(mount.name)
        if volume is None:
            raise ConfigurationError(f"container {container.name} mounts {mount.name}, which is no volume of the pod")
        source = volume.path
        if mount.subPath:
            source = source / normal(mount.subPath).lstrip("/")
            if volume.shared and not source.exists():
                source.mkdir(parents=True)
        sources[normal(mount.mountPath)] = (source, volume.shared and not mount.readOnly, not volume.shared)
    if scratch.exists():
        shutil.rmtree(scratch)
    for number, change in enumerate(adjustment.mounts):
        source = Path(change.source)
        if change.type == "tmpfs":
            source = scratch / str(number)
            source.mkdir(parents=True)
        sources[normal(change.destination)] = (source, not change.read_only, False)
    for device in adjustment.devices:
        sources[normal(device.path)] = (Path(device.source), False, False)
    for path in by_depth(sources):
        source, writable, mirrored = sources[path]
        tree.place(path, source, writable=writable, mirrored=mirrored)
