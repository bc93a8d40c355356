"""``hcs devices`` says of every card who holds how much of it, and why it takes no work if it takes none."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from tests.cli.room import Hcs, furnish

from hcs.agent.repairs import read_repaired
from hcs.cli.cluster import Cluster
from hcs.cli.devices import rows_of
from hcs.kube import resources
from hcs.kube.connection import connect
from hcs.model import names
from hcs.model.devices import Device, NodeInventory, Quarantine
from hcs.sandbox.apiserver.server import Settings, running

GIB = 1 << 30


def test_one_row_a_card(on_room):
    lines = on_room.text("devices").splitlines()
    assert [line.split() for line in lines[1:5]] == [
        [
            "gpu-a",
            "0",
            "GPU-0",
            "nvidia",
            "A100-SXM4-80GB*",
            "40/80Gi",
            "default/share-1,",
            "default/share-2",
            "Healthy",
        ],
        ["gpu-a", "1", "GPU-1", "nvidia", "A100-SXM4-80GB*", "80/80Gi", "default/whole", "Healthy"],
        ["gpu-b", "0", "GPU-0", "nvidia", "L40S*", "0/48Gi", "-", "Healthy"],
        ["gpu-b", "1", "GPU-1", "nvidia", "L40S*", "0/48Gi", "-", "Quarantined", "by", "healer:", "Xid79"],
    ]
    assert lines[-1] == "* emulated"
    assert len(lines) == 1 + 9 + 2


def test_wide_shows_compute_and_where_it_comes_from(on_room):
    row = on_room.text("devices", "-o", "wide", "--node", "gpu-a").splitlines()[1].split()
    assert row[6:8] == ["40/100", "measured"]


def test_cards_can_be_chosen(on_room):
    assert {row["node"] for row in on_room.data("devices", "--node", "npu-a")} == {"npu-a"}
    assert {row["device"]["vendor"] for row in on_room.data("devices", "--vendor", "cambricon")} == {"cambricon"}
    assert on_room.text("devices", "--node", "mlu-a", "-o", "name") == "mlu-a/mlu-0\n"
    nothing = on_room("devices", "--node", "nowhere")
    assert (nothing.exit_code, nothing.stdout, nothing.stderr) == (0, "", "no cards on node nowhere\n")


def test_the_same_as_data(on_room):
    row = on_room.data("devices", "--node", "gpu-b")[1]
    assert row["quarantine"]["reason"] == "Xid79"
    assert (row["vramUsed"], row["milliacuUsed"], row["tenants"]) == (0, 0, [])


def test_the_device_star_quarantines_all_cards_of_a_node():
    card = Device("a", 0, "nvidia", "T4", 15 * GIB)
    nodes = (NodeInventory("n", (card, msgspec.structs.replace(card, id="b", index=1)), (Quarantine("*", "Service"),)),)
    assert [row.quarantine.reason for row in rows_of(Cluster("default", inventories=nodes))] == ["Service", "Service"]


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Hcs]:
    """Commands on a room of one's own."""
    with running(Settings(data=tmp_path / "data")) as server:
        kubeconfig = tmp_path / "kubeconfig"
        kubeconfig.write_text(server.kubeconfig("admin-token"))
        asyncio.run(furnish(str(kubeconfig)))
        yield Hcs(kubeconfig)


def test_a_person_says_that_a_card_is_repaired(own):
    done = own("devices", "repaired", "gpu-a", "GPU-1")
    assert (done.exit_code, done.stdout) == (0, "card GPU-1 on gpu-a: repaired\n")
    first = own.data("devices", "repaired", "gpu-a", "0")
    assert (first["node"], first["device"], first["verdict"]) == ("gpu-a", "GPU-0", "Healthy")
    again = own.data("devices", "repaired", "gpu-a", "GPU-0")
    assert again["said"] > first["said"]

    async def look() -> dict[str, str]:
        client = connect(str(own.kubeconfig), None)
        try:
            node = await client.get(resources.ComputeNode, "gpu-a")
            return read_repaired(node.metadata.annotations[names.REPAIRED])
        finally:
            await client.close()

    said = asyncio.run(look())
    assert set(said) == {"GPU-0", "GPU-1"}
    assert said["GPU-0"] == again["said"]


@pytest.mark.parametrize(
    ("node", "card", "why"),
    [
        pytest.param("nowhere", "0", "there is no node nowhere with cards", id="no-node"),
        pytest.param("gpu-a", "GPU-7", "no card GPU-7 on node gpu-a", id="no-card"),
        pytest.param("gpu-a", "GPU", "several cards GPU on node gpu-a", id="which"),
    ],
)
def test_a_card_that_is_not_there_cannot_be_repaired(on_room, node, card, why):
    done = on_room("devices", "repaired", node, card)
    assert (done.exit_code, done.stdout) == (1, "")
    assert why in done.stderr
    if node == "gpu-a":
        assert "there are 0 (GPU-0), 1 (GPU-1)" in done.stderr
