"""The scheduler extender's wire format, version 1.

Field names have no tags in kube-scheduler's own types: it sends them capitalised, older clients in lower case. Any case
is read, capitals are answered. Absent lists come as ``null``.
"""

from collections.abc import Mapping
from typing import Annotated, Any, TypeVar

import msgspec

from hcs.model.pods import Pod

Name = Annotated[str, msgspec.Meta(pattern=r"^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?$")]
"""What can be the name of an object, and so a part of an address."""


class WireError(ValueError):
    """A request that is not of the extender protocol."""


class FilterArguments(msgspec.Struct, frozen=True):
    """The pod to place and the nodes kube-scheduler's own checks left over."""

    pod: Pod
    nodenames: tuple[str, ...] | None = None


class BindArguments(msgspec.Struct, frozen=True):
    """Which pod to bind where."""

    podname: Name
    podnamespace: Name
    poduid: str
    node: Name


class FilterAnswer(msgspec.Struct, frozen=True, rename="pascal"):
    """The nodes that are left and a text for each other one. A node in ``failed_and_unresolvable_nodes`` cannot be
    helped by evicting anyone."""

    node_names: tuple[str, ...] = ()
    failed_nodes: dict[str, str] = {}
    failed_and_unresolvable_nodes: dict[str, str] = {}
    error: str = ""


class BindAnswer(msgspec.Struct, frozen=True, rename="pascal"):
    """Empty ``error`` means bound."""

    error: str = ""


class Uid(msgspec.Struct, frozen=True):
    """A pod by its UID alone."""

    uid: str


class Victims(msgspec.Struct, frozen=True):
    """Whom kube-scheduler would evict on a node."""

    pods: tuple[Uid, ...] | None = None
    numpdbviolations: int = 0


class PreemptArguments(msgspec.Struct, frozen=True):
    """A pod that lacks CPU or memory, and the victims chosen for it; UIDs alone, for extenders with a node cache."""

    pod: Pod
    nodenametometavictims: dict[str, Victims] | None = None


class AnsweredUid(msgspec.Struct, frozen=True):
    """A pod by its UID alone, as it is answered."""

    uid: str = msgspec.field(name="UID")


class AnsweredVictims(msgspec.Struct, frozen=True):
    """Whom to evict on a node."""

    pods: tuple[AnsweredUid, ...] = msgspec.field(name="Pods")
    violations: int = msgspec.field(name="NumPDBViolations")


class PreemptAnswer(msgspec.Struct, frozen=True, rename="pascal"):
    """The nodes on which evicting these pods also frees the devices; no node: nobody is evicted."""

    node_name_to_meta_victims: dict[str, AnsweredVictims] = {}


T = TypeVar("T", FilterArguments, BindArguments, PreemptArguments)


def read_arguments(body: bytes, kind: type[T]) -> T:
    """Decode a request, whatever the case of its outer field names.

    Raises:
        WireError: not JSON, or not such a request.
    """
    try:
        fields = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
        if kind is PreemptArguments and (victims := _named(fields, "nodenametometavictims")) is not None:
            fields[victims] = msgspec.Raw(msgspec.json.encode(_lowered(msgspec.json.decode(fields[victims]))))
        whole = b"{" + b",".join(b'"%s":%s' % (name.lower().encode(), raw) for name, raw in fields.items()) + b"}"
        return msgspec.json.decode(whole, type=kind)
    except msgspec.DecodeError as error:
        raise WireError(f"cannot read the request as {kind.__name__}: {error}") from error


def _named(fields: Mapping[str, object], name: str) -> str | None:
    return next((key for key in fields if key.lower() == name), None)


def _lowered(nodes: Any) -> Any:
    """The victims with field names in lower case; node names stay as they are."""
    if not isinstance(nodes, dict):
        return nodes

    def lower(value: Any) -> Any:
        if isinstance(value, dict):
            return {key.lower(): lower(one) for key, one in value.items()}
        return [lower(one) for one in value] if isinstance(value, list) else value

    return {node: lower(victims) for node, victims in nodes.items()}
