"""What the API server would not refuse in a Binding, and would regret for ever, is refused here."""

import pytest

from hcs.model import names
from hcs.router.annotations import TOTAL_LIMIT, AnnotationError, check_annotations


@pytest.mark.parametrize("key", [names.ALLOCATION, names.ROUTE_REASON, "plain", "env.ai.compute/CUDA_VISIBLE_DEVICES"])
def test_qualified_names_pass(key: str) -> None:
    check_annotations({}, {key: "x"})


@pytest.mark.parametrize("key", ["", "/", "a/", "/a", "a b", "a/b/c", "A.example/x", "-x", "x" * 64, f"{'a' * 254}/x"])
def test_other_names_are_refused(key: str) -> None:
    with pytest.raises(AnnotationError, match="qualified name"):
        check_annotations({}, {key: "x"})


def test_the_size_counts_with_what_is_there_already() -> None:
    present = {"note": "x" * (TOTAL_LIMIT - len("note") - 10)}
    check_annotations(present, {"a": "123456789"})
    check_annotations(present, {"note": "replaced", "a": "x" * 1000})
    with pytest.raises(AnnotationError, match="262145 bytes"):
        check_annotations(present, {"a": "1234567890"})
