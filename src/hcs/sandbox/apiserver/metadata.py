"""What the server owns in ``metadata``, and what it refuses there.

Promises: uid, creationTimestamp, generation and the deletion fields are the server's alone; labels, annotations, names,
finalizers and owners are checked as by a real server, with its messages.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Iterator
from datetime import UTC, datetime

import msgspec

from hcs.sandbox.apiserver.kinds import Resource
from hcs.sandbox.apiserver.status import Cause, JsonObject, forbidden_field, invalid_value, required, too_long

SUFFIX_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
ANNOTATION_LIMIT = 262_144
_LABEL = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN = re.compile(rf"^{_LABEL}(\.{_LABEL})*$")
_DNS_LABEL = re.compile(rf"^{_LABEL}$")
_NAME = re.compile(r"^([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]$")
SUBDOMAIN_MESSAGE = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
    r"'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
LABEL_MESSAGE = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with "
    "an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
)
_QUALIFIED_MESSAGE = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric "
    "character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
    "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)
_VALUE_MESSAGE = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is "
    "'(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)
_SERVER_OWNED = ("uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "generation")


class Sources(msgspec.Struct, frozen=True):
    """Where time and randomness come from, so that tests can fix them."""

    now: Callable[[], datetime] = lambda: datetime.now(UTC)
    uid: Callable[[], str] = lambda: str(uuid.uuid4())

    def timestamp(self) -> str:
        return timestamp(self.now())

    def suffix(self) -> str:
        """Five characters for ``generateName``, from the alphabet without vowels."""
        number = uuid.UUID(self.uid()).int
        return "".join(SUFFIX_ALPHABET[(number >> (8 * i)) % 256 % len(SUFFIX_ALPHABET)] for i in range(5))


def timestamp(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def prepare_create(resource: Resource, object: JsonObject, sources: Sources) -> None:
    """Give a new object its identity, replacing whatever the client wrote there."""
    metadata = object["metadata"]
    for field in (*_SERVER_OWNED, "selfLink", "managedFields", "resourceVersion"):
        metadata.pop(field, None)
    metadata["uid"] = sources.uid()
    metadata["creationTimestamp"] = sources.timestamp()
    if resource.generation or resource.custom:
        metadata["generation"] = 1


def prepare_update(object: JsonObject, old: JsonObject) -> None:
    """Keep the server's fields of ``old`` whatever the client sent."""
    metadata, before = object["metadata"], old["metadata"]
    for field in (*_SERVER_OWNED, "generateName"):
        metadata.pop(field, None)
        if field in before:
            metadata[field] = before[field]
    metadata.pop("selfLink", None)
    metadata.pop("managedFields", None)
    for field in ("labels", "annotations", "finalizers", "ownerReferences"):
        if field in metadata and not metadata[field]:
            del metadata[field]


def validate(resource: Resource, object: JsonObject) -> Iterator[Cause]:
    """Check names, labels, annotations and owners."""
    metadata = object["metadata"]
    name = metadata.get("name", "")
    if not name:
        yield required("metadata.name", "name or generateName is required")
    elif resource.group != "rbac.authorization.k8s.io":
        pattern, why = (
            (_DNS_LABEL, LABEL_MESSAGE) if resource.plural == "namespaces" else (_SUBDOMAIN, SUBDOMAIN_MESSAGE)
        )
        if not pattern.match(name) or len(name) > 253:
            yield invalid_value("metadata.name", name, why)
    for key, value in (metadata.get("labels") or {}).items():
        yield from qualified_name("metadata.labels", key)
        if len(value) > 63:
            yield Cause(
                "metadata.labels", "FieldValueInvalid", f'Invalid value: "{value}": must be no more than 63 bytes'
            )
        elif value and not _NAME.match(value):
            yield invalid_value("metadata.labels", value, _VALUE_MESSAGE)
    annotations = metadata.get("annotations") or {}
    for key in annotations:
        yield from qualified_name("metadata.annotations", key.lower())
    if sum(len(key.encode()) + len(value.encode()) for key, value in annotations.items()) > ANNOTATION_LIMIT:
        yield too_long("metadata.annotations", ANNOTATION_LIMIT)
    for owner in metadata.get("ownerReferences") or ():
        for field, subject in (("apiVersion", "version "), ("kind", ""), ("name", ""), ("uid", "")):
            if not owner.get(field):
                yield invalid_value(f"metadata.ownerReferences.{field}", "", f"{subject}must not be empty")
    for index, finalizer in enumerate(metadata.get("finalizers") or ()):
        if "/" not in finalizer and finalizer not in ("orphan", "foregroundDeletion", "kubernetes"):
            why = "name is neither a standard finalizer name nor is it fully qualified"
            yield invalid_value(f"metadata.finalizers[{index}]", finalizer, why)
        yield from qualified_name("metadata.finalizers", finalizer)


def validate_update(new: JsonObject, old: JsonObject) -> Iterator[Cause]:
    """An object on its way out takes no new finalizers."""
    added = [f for f in new["metadata"].get("finalizers") or () if f not in (old["metadata"].get("finalizers") or ())]
    if old["metadata"].get("deletionTimestamp") and added:
        listed = ", ".join(f'"{finalizer}"' for finalizer in added)
        why = (
            f"no new finalizers can be added if the object is being deleted, found new finalizers []string{{{listed}}}"
        )
        yield forbidden_field("metadata.finalizers", why)


def qualified_name(field: str, key: str) -> Iterator[Cause]:
    prefix, slash, name = key.rpartition("/")
    if slash and (not prefix or not _SUBDOMAIN.match(prefix) or len(prefix) > 253):
        yield invalid_value(field, key, "prefix part " + (SUBDOMAIN_MESSAGE if prefix else "must be non-empty"))
    if not name:
        yield invalid_value(field, key, "name part must be non-empty")
        yield invalid_value(field, key, _QUALIFIED_MESSAGE)
    elif len(name) > 63:
        yield invalid_value(field, key, "name part must be no more than 63 bytes")
    elif not _NAME.match(name):
        yield invalid_value(field, key, _QUALIFIED_MESSAGE)


def is_subdomain(name: str) -> bool:
    return bool(_SUBDOMAIN.match(name)) and len(name) <= 253


def is_label(name: str) -> bool:
    return bool(_DNS_LABEL.match(name)) and len(name) <= 63
