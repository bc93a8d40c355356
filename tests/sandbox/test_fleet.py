"""Fleet files: the shipped one, and mistakes that name themselves."""

from pathlib import Path

import pytest

from hcs.sandbox.fleet import DEMO, Cards, FleetError, FleetNode, load_fleet
from hcs.ura.catalogue import load_catalogue


def test_the_shipped_fleet_has_four_nodes_of_three_vendors_that_the_catalogue_knows() -> None:
    fleet, catalogue = load_fleet(DEMO), load_catalogue()
    cards = [cards for node in fleet.nodes for cards in node.cards]
    assert len(fleet.nodes) >= 4
    assert len({card.vendor for card in cards}) >= 3
    assert all(catalogue.find(card.model, card.vendor).vram for card in cards)


def test_what_is_left_out_has_its_usual_value(tmp_path: Path) -> None:
    path = tmp_path / "fleet.yaml"
    path.write_text("nodes: [{name: a, cards: [{vendor: nvidia, model: A100-SXM4-80GB}]}, {name: b, cpu: 8}]")
    assert load_fleet(path).nodes == (
        FleetNode("a", (Cards("nvidia", "A100-SXM4-80GB", 1),), 64, "512Gi"),
        FleetNode("b", cpu=8),
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        pytest.param(None, "No such file", id="no-file"),
        pytest.param("nodes: [", "while parsing", id="no-yaml"),
        pytest.param("", "Expected `object`", id="empty"),
        pytest.param("nodes: [{cards: []}]", "missing required field `name`", id="no-name"),
        pytest.param("nodes: [{name: a, gpus: 8}]", "unknown field `gpus`", id="unknown-field"),
        pytest.param("nodes: [{name: a}, {name: a}]", "node a is listed twice", id="twice"),
        pytest.param(
            "nodes: [{name: a, cards: [{vendor: acme, model: X}]}]",
            "vendor 'acme'; known vendors are nvidia",
            id="vendor",
        ),
        pytest.param("nodes: [{name: a, cards: [{vendor: nvidia, model: X, count: 0}]}]", "0 cards", id="no-cards"),
        pytest.param(
            "nodes: [{name: a, cards: [{vendor: nvidia, model: X, count: two}]}]", "Expected `int`", id="not-a-number"
        ),
    ],
)
def test_a_mistake_names_the_file_and_itself(tmp_path: Path, text: str | None, said: str) -> None:
    path = tmp_path / "fleet.yaml"
    if text is not None:
        path.write_text(text)
    with pytest.raises(FleetError) as caught:
        load_fleet(path)
    assert str(path) in str(caught.value)
    assert said in str(caught.value)
