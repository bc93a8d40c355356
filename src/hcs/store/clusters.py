"""A cluster as a named object of the queue: how to reach it, and what is peculiar there.

Clusters come and go without a restart: the store keeps these objects, and whoever watches them connects or lets go.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, NoReturn

import msgspec
import yaml

from hcs.model.refusals import Refusal, RefusedError
from hcs.wide.jobs import Milliseconds
from hcs.wide.network import Link

LOST_AFTER: Final[Milliseconds] = 5 * 60 * 1000
"""How long an unreachable cluster keeps its jobs, where nothing else is said."""


_LABEL: Final = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_PROMETHEUS_LABEL: Final = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
_URL: Final = re.compile(r"https?://[^\s/?#]+(/[^\s?#]*)?")
_OUTSIDE: Final = frozenset(
    ("exec", "auth-provider", "certificate-authority", "client-certificate", "client-key", "tokenFile")
)


class Line(msgspec.Struct, frozen=True, omit_defaults=True):
    """A line between a cluster and another place, equally fast both ways: another cluster, or a store of data."""

    place: str
    bytes_per_second: int
    latency: Milliseconds = 0


class ClusterConfig(msgspec.Struct, frozen=True, omit_defaults=True):
    """One cluster.

    Its API is found by ``kubeconfig``, a path on the controller's machine, or ``kubeconfig_text``, the file itself,
    with ``context`` (empty: the current one); ``server`` overrides the API's address there. ``prometheus`` and
    ``blobs`` are base URLs; empty: none. ``namespace`` is its client's own; a Job goes to that of its manifest.
    ``overlay`` is merged into the pod template of every Job sent there: another scheduler's name, annotations, limits.
    ``lost_after`` is how long it may be out of reach, in milliseconds, until jobs that never ran there are planned
    anew. ``gone`` is the operator's word that nothing runs there any more; then the others are too.
    ``prometheus_token_file`` holds a bearer token for it, ``prometheus_ca_file`` the authority of its certificate, and
    ``prometheus_labels`` tell this cluster's series from those of others.
    """

    name: str
    kubeconfig: str = ""
    kubeconfig_text: str = ""
    context: str = ""
    server: str = ""
    prometheus: str = ""
    blobs: str = ""
    namespace: str = "default"
    overlay: dict[str, Any] = {}
    lines: tuple[Line, ...] = ()
    lost_after: Milliseconds = LOST_AFTER
    prometheus_token_file: str = ""
    prometheus_ca_file: str = ""
    prometheus_labels: dict[str, str] = {}
    gone: bool = False

    def links(self) -> tuple[Link, ...]:
        """Its lines as one-way links of the planner's network, both ways."""
        ways = (
            ((self.name, line.place, line) for line in self.lines),
            ((line.place, self.name, line) for line in self.lines),
        )
        return tuple(
            Link(source, target, line.bytes_per_second, line.latency) for way in ways for source, target, line in way
        )


def read_cluster(name: str, document: Mapping[str, Any]) -> ClusterConfig:
    """Read a cluster object as somebody wrote it.

    Raises:
        RefusedError: with every reason found.
    """
    unknown = sorted(set(document) - set(ClusterConfig.__struct_fields__))
    if unknown:
        _refuse(f"there is no field {unknown[0][:40]!r}; known are {', '.join(ClusterConfig.__struct_fields__)}")
    if document.get("name") not in (None, name):
        _refuse(f"the object is named {str(document['name'])[:40]!r} but was sent as {name[:40]!r}; name it once")
    try:
        config = msgspec.convert({**document, "name": name}, ClusterConfig)
    except msgspec.ValidationError as error:
        _refuse(str(error).replace("`", ""))
    found: list[str] = []
    for what, text in (("name", config.name), ("namespace", config.namespace)):
        if _LABEL.fullmatch(text) is None:
            found.append(f"{what} {text[:40]!r} is no name; use at most 63 small letters, digits and dashes")
    found += [
        f"{what} {url[:60]!r} is no address; write it like https://10.0.0.1:6443"
        for what, url in (("server", config.server), ("prometheus", config.prometheus), ("blobs", config.blobs))
        if url and _URL.fullmatch(url) is None
    ]
    if config.kubeconfig and config.kubeconfig_text:
        found.append("kubeconfig and kubeconfig_text are both given; keep the path or the text")
    found += [
        f"{what} {path[:60]!r} is no absolute path on the controller's machine"
        for what, path in (
            ("kubeconfig", config.kubeconfig),
            ("prometheus_token_file", config.prometheus_token_file),
            ("prometheus_ca_file", config.prometheus_ca_file),
        )
        if path and not path.startswith("/")
    ]
    found += [
        f"prometheus label {label[:40]!r} is no name of a label"
        for label in config.prometheus_labels
        if _PROMETHEUS_LABEL.fullmatch(label) is None
    ]
    if config.kubeconfig_text:
        found += _check_kubeconfig(config.kubeconfig_text)
    for line in config.lines:
        if line.bytes_per_second < 1 or not 0 <= line.latency <= 86_400_000 or not line.place:
            found.append(f"the line to {line.place[:40]!r} needs a place, at least 1 byte a second and a latency in ms")
    if not 1000 <= config.lost_after <= 365 * 86_400_000:
        found.append(f"lost_after is {config.lost_after}; write milliseconds, from one second to a year")
    if found:
        raise RefusedError(*(Refusal("MalformedCluster", message) for message in found))
    return config


def _check_kubeconfig(text: str) -> Iterator[str]:
    """What an enclosed kubeconfig may not hold: whatever makes its reader run a program or open a file of its own."""
    try:
        found = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError):
        found = None
    if not isinstance(found, dict) or not isinstance(found.get("clusters"), list):
        yield "kubeconfig_text is no kubeconfig; send what kubectl config view --flatten --minify --raw prints"
        return
    entries = [*(found.get("clusters") or ()), *(found.get("users") or ())]
    held = [
        inner for entry in entries if isinstance(entry, dict) for inner in entry.values() if isinstance(inner, dict)
    ]
    for key in sorted({key for inner in held for key in inner if key in _OUTSIDE}):
        yield (
            f"kubeconfig_text has {key}, which the controller would run or read on its own machine; enclose data "
            "(kubectl config view --flatten --raw), or name a file there with kubeconfig"
        )


def _refuse(message: str) -> NoReturn:
    raise RefusedError(Refusal("MalformedCluster", message))
