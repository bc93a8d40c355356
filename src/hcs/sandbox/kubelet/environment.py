"""A container's variables: made from its image, its spec and the adjustment, and moved into its private tree.

The first half is what any kubelet does: ``fieldRef`` and ``$(VAR)``. The second half stands in for a kernel and a
loader that would see the container's own root: paths that exist in the container are written as the paths they have on
this machine, ``/etc/ld.so.preload`` becomes ``LD_PRELOAD``, and the quota file is named by ``HCS_QUOTA_FILE``.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from hcs.model import pods

ROOT: Final = "HCS_ROOT"
QUOTA: Final = "HCS_QUOTA_FILE"
DEFAULT_PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
LISTS: Final = frozenset({"PATH", "LD_LIBRARY_PATH", "PYTHONPATH", "LD_PRELOAD"})
"""Variables that hold several paths with ``:`` between them."""

_FIELD = re.compile(r"metadata\.(annotations|labels)\['([^']+)'\]")
_REFERENCE = re.compile(r"\$(?:\$|\(([^()\s]+)\))")


class ConfigurationError(ValueError):
    """A container that cannot be made from its spec; the sentence becomes the message of its waiting state."""


def field_value(pod: pods.Pod, path: str, *, host_ip: str) -> str:
    """What a ``fieldRef`` says; an annotation or label that is missing gives an empty text, as in Kubernetes.

    Raises:
        ConfigurationError: a path this kubelet does not know.
    """
    if match := _FIELD.fullmatch(path):
        values = pod.metadata.annotations if match[1] == "annotations" else pod.metadata.labels
        return (values or {}).get(match[2], "")
    if path in ("metadata.annotations", "metadata.labels"):
        values = pod.metadata.annotations if path.endswith("annotations") else pod.metadata.labels
        return "\n".join(f'{key}="{_quoted(value)}"' for key, value in sorted((values or {}).items()))
    known = {
        "metadata.name": pod.metadata.name,
        "metadata.namespace": pod.metadata.namespace or "default",
        "metadata.uid": pod.metadata.uid,
        "spec.nodeName": pod.spec.nodeName or "",
        "status.hostIP": host_ip,
        "status.podIP": host_ip,
    }
    if path not in known:
        raise ConfigurationError(f"the emulated kubelet cannot read the field {path!r}; it knows {', '.join(known)}")
    return known[path]


def expand(text: str, variables: Mapping[str, str]) -> str:
    """Replace ``$(NAME)`` by the variable's value; an unknown name stays as written and ``$$`` is one ``$``.

    >>> expand("$(A)-$$(A)-$(B)", {"A": "1"})
    '1-$(A)-$(B)'
    """

    def replace(match: re.Match[str]) -> str:
        name = match[1]
        return "$" if name is None else variables.get(name, match[0])

    return _REFERENCE.sub(replace, text)


def declared(pod: pods.Pod, container: pods.Container, image: Mapping[str, str], *, host_ip: str) -> dict[str, str]:
    """The variables before any adjustment: the image's, then the spec's in their order.

    Raises:
        ConfigurationError: a ``valueFrom`` other than ``fieldRef``.
    """
    variables = {"PATH": DEFAULT_PATH, "HOSTNAME": pod.metadata.name, **image}
    named: dict[str, str] = {}  # only the spec's own variables are expanded
    for variable in container.env or ():
        source: Any = variable.valueFrom
        if source is None:
            named[variable.name] = expand(variable.value or "", named)
        elif isinstance(source, dict) and isinstance(source.get("fieldRef"), dict):
            named[variable.name] = field_value(pod, str(source["fieldRef"].get("fieldPath", "")), host_ip=host_ip)
        else:
            raise ConfigurationError(
                f"the emulated kubelet cannot set {variable.name}: of valueFrom it knows only fieldRef"
            )
    return {**variables, **named}


def moved(
    variables: Mapping[str, str],
    *,
    root: str,
    exists: Callable[[str], bool],
    preloads: Sequence[str] = (),
    quota: str | None = None,
) -> dict[str, str]:
    """The variables as the process on this machine must have them.

    Args:
        variables: as the container would see them.
        root: the container's private tree.
        exists: whether a path exists in the container.
        preloads: the libraries that ``/etc/ld.so.preload`` lists, as the container sees them.
        quota: the quota file's own path on this machine, behind all links, or None when there is none. The
            interceptor opens the ledger beside it without following a link.

    Raises:
        ConfigurationError: a library to preload that the container does not have; it must not start without it.
    """
    result = {name: moved_value(name, value, root=root, exists=exists) for name, value in variables.items()}
    for library in preloads:
        if not exists(library):
            raise ConfigurationError(f"/etc/ld.so.preload names {library}, which the container does not have")
    if preloads:
        own = [entry for entry in result.get("LD_PRELOAD", "").split(":") if entry]
        result["LD_PRELOAD"] = ":".join([*(root + library for library in preloads), *own])
    result[ROOT] = root
    result.pop(QUOTA, None)
    if quota is not None:
        result[QUOTA] = quota
    return result


def moved_value(name: str, value: str, *, root: str, exists: Callable[[str], bool]) -> str:
    """One value, with each path that exists in the container written as the path it has on this machine."""
    if name in LISTS:
        return ":".join(moved_path(entry, root=root, exists=exists) for entry in value.split(":"))
    return moved_path(value, root=root, exists=exists)


def moved_path(text: str, *, root: str, exists: Callable[[str], bool]) -> str:
    """An absolute path of something in the container, moved; any other text as it is."""
    inside = text.startswith("/") and text != "/" and "\n" not in text and len(text) < 4096
    return root + text if inside and exists(text) else text


def preload_list(content: str) -> list[str]:
    """The libraries in the text of ``/etc/ld.so.preload``: separated by blanks or colons, ``#`` begins a comment."""
    lines: Iterable[str] = (line.partition("#")[0] for line in content.splitlines())
    return [word for line in lines for word in re.split(r"[\s:]+", line) if word]


def _quoted(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
