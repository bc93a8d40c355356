"""Who says what: servers behind servers, two servers about the same exporters, several names of one node."""

import asyncio

import pytest
from tests.cpn.collect.answering import Metrics

from hcs.cpn.collect.figures import Bounds, Figures, ask
from hcs.cpn.collect.sources import load_sources

SOURCES = load_sources()


def figures(metrics: Metrics) -> Figures:
    async def main() -> Figures:
        client = metrics.answering.client()
        try:
            return await ask(client, SOURCES, Bounds())
        finally:
            await client.close()

    return asyncio.run(main())


def federated(node: str) -> dict[str, str]:
    """Labels that a server gives what it read from another one, unless told to keep the other's (2.42)."""
    return {
        "job": "federate",
        "instance": "prometheus-east:9090",
        "exported_job": "exporters",
        "exported_instance": f"{node}:8082",
    }


def test_cards_of_one_number_behind_another_server_are_not_one_card() -> None:
    metrics = Metrics()
    metrics.up = [({"job": "federate", "instance": "prometheus-east:9090"}, "1")]
    for node, util in (("10.0.0.1", 30), ("10.0.0.2", 90)):
        metrics.say("npu_chip_info_utilization", util, id="0", **federated(node))
        metrics.say("node_memory_MemAvailable_bytes", util, **federated(node))
        metrics.up.append((federated(node), "1"))
        metrics.cpu.append((federated(node), f"{util / 100:g}"))
    found = figures(metrics)
    assert {(card.node, card.utilization) for card in found.cards} == {("10.0.0.1", 0.3), ("10.0.0.2", 0.9)}
    assert {(host.node, host.busy, host.free) for host in found.hosts} == {
        ("10.0.0.1", 0.3, 30),
        ("10.0.0.2", 0.9, 90),
    }


def test_one_dead_exporter_behind_another_server_takes_no_other_with_it() -> None:
    metrics = Metrics()
    metrics.up = [({"job": "federate", "instance": "prometheus-east:9090"}, "1")]
    for node, up in (("10.0.0.1", "1"), ("10.0.0.2", "0")):
        metrics.say("npu_chip_info_utilization", 50, id="0", **federated(node))
        metrics.up.append((federated(node), up))
    found = figures(metrics)
    assert [card.node for card in found.cards] == ["10.0.0.1"]
    assert found.missing == ("exporter 10.0.0.2:8082 (job exporters) is down, so its figures are not used",)


@pytest.mark.parametrize("states", [("1", "0"), ("0", "1")])
def test_an_exporter_that_one_of_two_servers_reaches_is_alive(states: tuple[str, str]) -> None:
    metrics = Metrics()
    target = {"job": "exporters", "instance": "10.0.0.1:9400"}
    metrics.up = [({**target, "replica": name}, up) for name, up in zip("ab", states, strict=True)]
    metrics.card("GPU-a", 50, 1024)
    assert [card.device for card in figures(metrics).cards] == ["GPU-a"]


def test_of_what_is_said_twice_of_a_card_the_fresher_counts() -> None:
    """Samples with their own times outlive the pod that a label of theirs names."""
    metrics = Metrics()
    metrics.say("npu_chip_info_utilization", 100, 90, id="0", pod_name="ended")
    metrics.say("npu_chip_info_utilization", 0, 3, id="0")
    (card,) = figures(metrics).cards
    assert (card.utilization, card.age) == (0.0, 3000)


def test_of_what_is_said_twice_at_once_the_larger_counts() -> None:
    metrics = Metrics()
    for pod, util in (("a", 20), ("b", 70)):
        metrics.say("npu_chip_info_utilization", util, 3, id="0", pod_name=pod)
    (card,) = figures(metrics).cards
    assert card.utilization == 0.7


def test_of_two_servers_about_one_host_the_fresher_counts() -> None:
    for ages in ((2, 100), (100, 2)):
        metrics = Metrics()
        for replica, age in zip("ab", ages, strict=True):
            labels = {"node": "n1", "replica": replica}
            metrics.say("node_memory_MemAvailable_bytes", 1000 - age, age, **labels)
        (host,) = figures(metrics).hosts
        assert (host.free, host.free_age) == (998, 2000)


def test_a_host_without_a_free_byte_is_known() -> None:
    metrics = Metrics()
    metrics.say("node_memory_MemAvailable_bytes", 0, node="n1")
    (host,) = figures(metrics).hosts
    assert host.free == 0


def test_parts_of_a_card_do_not_make_its_whole_memory() -> None:
    """One slice of 5 GB says nothing about how large the card is; what the slices use is what the card holds."""
    metrics = Metrics()
    for part in "12":
        labels = {"UUID": "GPU-a", "Hostname": "n1", "GPU_I_ID": part, "GPU_I_PROFILE": "1g.5gb"}
        metrics.say("DCGM_FI_DEV_FB_USED", 1000, **labels)
        metrics.say("DCGM_FI_DEV_FB_FREE", 3864, **labels)
    (card,) = figures(metrics).cards
    assert (card.used, card.total) == (2000 << 20, None)
