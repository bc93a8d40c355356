"""A last look at what a Binding is about to write.

The API server does not validate a Binding's annotations. A bad key, or too much of it, is accepted, and from then on
*every* update of the pod fails, the kubelet's included. So it is checked here, with the server's own rules.
"""

import re
from collections.abc import Mapping
from typing import Final

TOTAL_LIMIT: Final = 262_144
"""Bytes of all keys and values of an object's annotations together, as the API server counts them."""
_PREFIX: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_NAME: Final = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")


class AnnotationError(ValueError):
    """Annotations that would block every later update of the pod."""


def check_annotations(present: Mapping[str, str], added: Mapping[str, str]) -> None:
    """Check what a Binding adds to a pod's annotations.

    Raises:
        AnnotationError: a key that is no qualified name, or more than :data:`TOTAL_LIMIT` bytes in all.
    """
    for key in added:
        prefix, slash, name = key.rpartition("/")
        if (slash and (len(prefix) > 253 or not _PREFIX.fullmatch(prefix))) or not _NAME.fullmatch(name):
            raise AnnotationError(f"annotation key {key[:80]!r} is not a qualified name like ai.compute/allocation")
    total = sum(len(key.encode()) + len(value.encode()) for key, value in {**present, **added}.items())
    if total > TOTAL_LIMIT:
        raise AnnotationError(f"the pod would have {total} bytes of annotations, over the limit of {TOTAL_LIMIT}")
