"""The Node says which cards it has, in labels of ours alone, and stops saying so when they are gone."""

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from tests.agent.scene import NODE, scene

from hcs.agent.labels import CARDS, MODEL, VENDOR, changes, labels_of
from hcs.kube.resources import Node
from hcs.model.devices import Device
from hcs.sandbox.scheduler.virtualtime import run_virtual

ROOM = (
    Device("a", 0, "nvidia", "L40S", 1),
    Device("b", 1, "nvidia", "L40S", 1),
    Device("c", 0, "metax", "MX C500!", 1),
)


def test_cards_vendors_and_models_are_counted():
    assert labels_of(ROOM) == {
        CARDS: "3",
        f"{VENDOR}nvidia": "2",
        f"{VENDOR}metax": "1",
        f"{MODEL}L40S": "2",
        f"{MODEL}MX-C500": "1",
    }
    assert labels_of(()) == {}


def test_what_no_longer_holds_is_taken_away_and_nothing_of_others():
    present = {CARDS: "4", f"{VENDOR}ascend": "4", f"{VENDOR}nvidia": "2", "ai.compute/managed": "true", "zone": "a"}
    assert changes(present, ROOM) == {
        f"{VENDOR}ascend": None,
        CARDS: "3",
        f"{VENDOR}metax": "1",
        f"{MODEL}L40S": "2",
        f"{MODEL}MX-C500": "1",
    }


@given(st.text(max_size=100))
def test_any_models_name_makes_a_label_that_kubernetes_takes(model: str):
    (name,) = (key.partition("/")[2] for key in labels_of((Device("a", 0, "amd", model, 1),)) if key.startswith(MODEL))
    assert 0 < len(name) <= 63
    assert name[-1].isalnum()
    assert all(letter.isascii() and (letter.isalnum() or letter in "._-") for letter in name)


def test_the_agent_labels_its_node_once(tmp_path: Path) -> None:
    async def story() -> None:
        async with scene(tmp_path) as node:
            await node.start_agent()
            await node.settle()
            labels = (await node.cluster.client.get(Node, NODE)).metadata.labels or {}
            assert (labels[CARDS], labels[f"{VENDOR}nvidia"]) == ("2", "2")
            version = (await node.cluster.client.get(Node, NODE)).metadata.resourceVersion
            node.agent.publisher.wake.set()
            await node.settle()
            assert (await node.cluster.client.get(Node, NODE)).metadata.resourceVersion == version
            conditions = {c.type: c.status for c in (await node.published()).status.conditions}
            assert conditions["Healthy"] == "True"

    run_virtual(story())
