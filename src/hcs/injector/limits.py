"""Limits: how much a pod may say to us at all.

Everything here is counted before anything is parsed, because a pod reaches admission before the API server has checked
its sizes: a list of a hundred thousand misspelt vendors must not cost a comparison with each name we know.
"""

from collections.abc import Iterator
from typing import Final

from hcs.model import names
from hcs.model.pods import Pod
from hcs.model.refusals import Refusal

MAX_ANNOTATION: Final = 1024
"""Characters of any annotation people write for us; longer ones are mistakes."""
MAX_ANNOTATIONS: Final = 64
"""Annotations of ours on one pod; twice as many as exist."""
MAX_WORDS: Final = 32
"""Words in a list annotation, like ``vendors``."""
MAX_RESOURCES: Final = 256
"""Entries of our resources in all containers of a pod together."""
MAX_NAME: Final = 253 + 1 + 63
"""Characters of an annotation's or resource's name that Kubernetes accepts."""


def check_limits(pod: Pod) -> list[Refusal]:
    """Find what is too long or too much to be read at all; when this finds anything, nothing else may look."""
    return [*_annotations(pod), *_resources(pod)]


def _annotations(pod: Pod) -> Iterator[Refusal]:
    ours = {key: value for key, value in pod.annotations.items() if key.startswith(f"{names.DOMAIN}/")}
    if len(ours) > MAX_ANNOTATIONS:
        yield Refusal(
            "TooManyAnnotations",
            f"{len(ours)} annotations begin with {names.DOMAIN}/; at most {MAX_ANNOTATIONS} are accepted",
        )
        return
    if sum(key.startswith(f"{names.REQUIRED_PLUGINS}/") for key in pod.annotations) > MAX_ANNOTATIONS:
        yield Refusal(
            "TooManyAnnotations",
            f"more than {MAX_ANNOTATIONS} annotations begin with {names.REQUIRED_PLUGINS}/; name the plugins once",
        )
    for key, value in sorted(ours.items()):
        if len(key) > MAX_NAME:
            yield Refusal(
                "OversizedAnnotation",
                f"annotation {key[:60]}... has a name of {len(key)} characters; at most {MAX_NAME} are accepted",
            )
        if len(value) > MAX_ANNOTATION:
            yield Refusal(
                "OversizedAnnotation",
                f"annotation {key[:120]} has {len(value)} characters; at most {MAX_ANNOTATION} are accepted",
            )
        elif key in (names.VENDORS, names.MODELS) and value.count(",") >= MAX_WORDS:
            yield Refusal(
                "OversizedAnnotation",
                f"annotation {key} lists {value.count(',') + 1} words; at most {MAX_WORDS} are accepted",
            )


def _resources(pod: Pod) -> Iterator[Refusal]:
    containers = (*pod.spec.containers, *(pod.spec.initContainers or ()))
    kinds = [kind or {} for c in containers for kind in (c.resources.limits, c.resources.requests)]
    ours = [key for kind in kinds for key in kind if key.startswith(f"{names.DOMAIN}/")]
    if len(ours) > MAX_RESOURCES:
        yield Refusal(
            "TooManyResources",
            f"the pod names {len(ours)} amounts of {names.DOMAIN}/ resources; at most {MAX_RESOURCES} are accepted, "
            "split the work into pods",
        )
        return
    for key in sorted(set(ours)):
        if len(key) > MAX_NAME:
            yield Refusal(
                "UnknownResource",
                f"resource {key[:60]}... has a name of {len(key)} characters; at most {MAX_NAME} are accepted",
            )
