"""Answers as others see them: the frozen JSON of an allocation, and one stable sentence for many refusals."""

import json
import re
from pathlib import Path

import pytest

from hcs.model.allocations import Allocation, Exchange, Grant, Peers, decode_allocation, encode_allocation
from hcs.model.refusals import Refusal
from hcs.placement.plans import NodeRefusal, Unplaceable, summarise

PAGE = (Path(__file__).parents[2] / "docs" / "allocation.md").read_text()
EXAMPLES = re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)


@pytest.mark.parametrize("example", EXAMPLES, ids=["share", "exchange"])
def test_the_documented_allocations_are_what_we_read_and_write(example: str) -> None:
    allocation = decode_allocation(example)
    assert json.loads(encode_allocation(allocation)) == json.loads(example)


@pytest.mark.parametrize("kind", [Allocation, Grant, Exchange, Peers])
def test_every_field_is_documented(kind: type) -> None:
    for field in kind.__struct_encode_fields__:  # type: ignore[attr-defined]
        assert re.search(rf"^\| [^|]*`{field}`", PAGE, re.MULTILINE), field


def test_a_field_of_a_later_reader_is_skipped() -> None:
    later = {**json.loads(EXAMPLES[0]), "colour": "blue"}
    assert decode_allocation(json.dumps(later)) == decode_allocation(EXAMPLES[0])


def refusal(node: str, reason: str, message: str, resolvable: bool = True) -> NodeRefusal:
    return NodeRefusal(node, Refusal(reason, message), resolvable)


def test_refusals_are_grouped_with_the_commonest_sentence_of_each_reason() -> None:
    refusals = (
        refusal("a", "CardsTaken", "taken"),
        refusal("b", "VramTooSmall", "has 8Gi", False),
        refusal("c", "VramTooSmall", "has 16Gi", False),
        refusal("d", "VramTooSmall", "has 16Gi", False),
    )
    text = "0 of 4 nodes can serve: 1 CardsTaken (taken), 3 VramTooSmall (has 16Gi)"
    assert summarise(refusals) == text
    assert summarise(refusals[::-1]) == text
    assert summarise(refusals, serving=2) == text.replace("0 of 4", "2 of 6")
    assert summarise((), serving=3) == "3 of 3 nodes can serve"


def test_waiting_helps_where_it_helps_on_one_node() -> None:
    never, later = refusal("a", "NoCards", "none", False), refusal("b", "CardsTaken", "taken")
    assert Unplaceable((never, later), "").resolvable
    assert not Unplaceable((never,), "").resolvable
    assert not Unplaceable((), "").resolvable
