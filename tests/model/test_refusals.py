"""A "no" carries a reason and a sentence, alone and together."""

from hcs.model.refusals import Refusal, RefusedError


def test_a_refusal_reads_as_reason_and_sentence():
    assert str(Refusal("ZeroCards", "ask for at least 1")) == "ZeroCards: ask for at least 1"


def test_an_error_carries_all_refusals():
    one, two = Refusal("A", "first"), Refusal("B", "second")
    error = RefusedError(one, two)
    assert (error.refusals, str(error)) == ((one, two), "A: first; B: second")
    assert sorted([two, one]) == [one, two]
