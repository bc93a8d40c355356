"""The scheduler extender's wire format, version 1.

Field names have no tags in kube-scheduler's own types: it sends them capitalised, older clients in lower case. Any case
is read, capitals are answered. Absent lists come as ``null``.
"""

from typing import TypeVar

import msgspec

from hcs.model.pods import Pod


class WireError(ValueError):
    """A request that is not of the extender protocol."""


class FilterArguments(msgspec.Struct, frozen=True):
    """The pod to place and the nodes kube-scheduler's own checks left over."""

    pod: Pod
    nodenames: tuple[str, ...] | None = None


class BindArguments(msgspec.Struct, frozen=True):
    """Which pod to bind where."""

    podname: str
    podnamespace: str
    poduid: str
    node: str


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


T = TypeVar("T", FilterArguments, BindArguments)


def read_arguments(body: bytes, kind: type[T]) -> T:
    """Decode a request, whatever the case of its outer field names.

    Raises:
        WireError: not JSON, or not such a request.
    """
    try:
        fields = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
        whole = b"{" + b",".join(b'"%s":%s' % (name.lower().encode(), raw) for name, raw in fields.items()) + b"}"
        return msgspec.json.decode(whole, type=kind)
    except msgspec.DecodeError as error:
        raise WireError(f"cannot read the request as {kind.__name__}: {error}") from error
