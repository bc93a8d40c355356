"""Boards: those we know, those a site writes down, and what is refused of them."""

from typing import Any

import pytest
from tests.neuro.boards import board

from hcs.model.refusals import RefusedError
from hcs.neuro.boardfiles import read_boards, read_size
from hcs.neuro.boards import CoreClass, Region, check_model
from hcs.neuro.capacities import capacity_of
from hcs.neuro.grids import Rectangle
from hcs.neuro.models import MODELS, custom, find_model


def test_known_boards_are_as_published() -> None:
    darwin = find_model("darwin3")
    assert (darwin.width, darwin.height) == (24, 24)
    assert darwin.hop_limit == 15, "a 4-bit distance"
    live = board(width=24, height=24).model.layout.cells & ~darwin.layout.of(darwin.controllers)
    assert live.bit_count() == 575
    assert 575 * darwin.classes[0].neurons == 2_355_200
    loihi = find_model("loihi2")
    assert loihi.width * loihi.height == 128
    truenorth = find_model("TrueNorth")
    assert truenorth.width * truenorth.height == 4096
    assert 4096 * truenorth.classes[0].neurons == 1 << 20
    assert find_model("spinnaker").chips_across * find_model("spinnaker").chips_down == 48
    for model in MODELS.values():
        assert model.source


@pytest.mark.parametrize(("name", "hint"), [("darwn3", "darwin3"), ("pentium", "known are darwin3")])
def test_an_unknown_chip_is_refused_with_what_is_known(name: str, hint: str) -> None:
    with pytest.raises(RefusedError, match=hint):
        find_model(name)


def test_a_file_describes_known_and_own_boards() -> None:
    known, own = read_boards(
        {
            "boards": [
                {"id": "b0", "model": "darwin3", "numa": 1, "deadCores": [[3, 4]]},
                {
                    "id": "lab",
                    "grid": "8x4",
                    "chips": "2x1",
                    "module": "type-a",
                    "classes": [
                        {"name": "big", "neurons": 100, "ksps": 5, "activations": 1},
                        {"name": "small", "neurons": 10, "ksps": 2, "activations": 1},
                    ],
                    "regions": [{"x": 0, "y": 0, "width": 1, "height": 4, "coreClass": "small"}],
                    "ports": [{"name": "w", "side": "west", "cell": [0, 1], "ksps": 500}],
                    "virtualChannels": 2,
                    "controlChannels": 0,
                    "hopLimit": 7,
                },
            ]
        }
    )
    assert known.dead_cores == {(3, 4)}
    assert (own.model.width, own.model.height, own.model.module) == (16, 4, "type-a")
    assert own.model.core_class((0, 0)).name == "small"
    assert own.model.core_class((1, 0)).name == "big"
    amounts = capacity_of(own)
    assert amounts.ksps == min(500, 60 * 5 + 4 * 2)
    assert (amounts.streams, amounts.cores) == (2, 64)


@pytest.mark.parametrize(
    ("entry", "sentence"),
    [
        pytest.param({"id": "b"}, "a model or a grid", id="neither"),
        pytest.param({"id": "b", "model": "darwin3", "grid": "2x2"}, "one of the two", id="both"),
        pytest.param({"id": "b", "model": "nope"}, "no board 'nope'", id="unknown-chip"),
        pytest.param({"id": "b", "grid": "-4x4"}, "below 1", id="negative-size"),
        pytest.param({"id": "b", "grid": "fourxfour"}, "columns x rows", id="no-size"),
        pytest.param({"id": "b", "grid": "4096x4096"}, "the most is", id="too-large"),
        pytest.param({"id": "b", "grid": "4x4", "deadCores": [[4, 0]]}, r"no core \(4,0\)", id="fault-outside"),
        pytest.param({"id": "b", "grid": "4x4", "virtualChannels": 0}, "1 to 1024", id="no-channels"),
        pytest.param({"id": "b", "grid": "4x4", "surprise": 1}, "surprise", id="unknown-field"),
        pytest.param({"id": "B 1", "grid": "4x4"}, "small letters", id="bad-id"),
        pytest.param(
            {"id": "b", "grid": "4x4", "ports": [{"name": "w", "side": "west", "cell": [2, 2], "ksps": 5}]},
            "not on that edge",
            id="port-inside",
        ),
        pytest.param(
            {"id": "b", "grid": "4x4", "classes": [{"name": "c", "neurons": 1, "ksps": -5, "activations": 1}]},
            "1 or more",
            id="impossible-rate",
        ),
    ],
)
def test_a_board_that_makes_no_sense_is_refused(entry: dict[str, Any], sentence: str) -> None:
    with pytest.raises(RefusedError, match=sentence):
        read_boards({"boards": [entry]})


@pytest.mark.parametrize("document", [None, [], {"boards": []}, {"boards": "x"}, "boards"])
def test_a_file_that_is_none_is_refused(document: Any) -> None:
    with pytest.raises(RefusedError):
        read_boards(document)


def test_a_dead_core_still_routes_and_counts_for_nothing_else() -> None:
    whole, hurt = board(width=4, height=4), board(width=4, height=4, dead_cores=frozenset({(0, 0)}))
    assert capacity_of(hurt).cores == capacity_of(whole).cores - 1
    assert capacity_of(hurt).activations < capacity_of(whole).activations
    assert capacity_of(hurt).streams == capacity_of(whole).streams


def test_regions_name_known_classes() -> None:
    import msgspec

    model = msgspec.structs.replace(custom(4, 4), regions=(Region(Rectangle(0, 0, 9, 1), "nope"),))
    with pytest.raises(RefusedError) as caught:
        check_model(model)
    assert {refusal.reason for refusal in caught.value.refusals} == {"UnknownClass", "OutsideGrid"}


def test_sizes_are_read() -> None:
    assert read_size("24X16") == (24, 16)


def test_a_class_needs_a_name_of_its_own() -> None:
    import msgspec

    twice = (CoreClass(name="a", neurons=1, ksps=1, activations=1),) * 2
    with pytest.raises(RefusedError, match="same name"):
        check_model(msgspec.structs.replace(custom(4, 4), classes=twice))
