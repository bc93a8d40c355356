"""``hcs why`` answers in one screen, with the router's own decision and its own sentences."""

import msgspec
import pytest
from tests.cli.room import Hcs, manifest

from hcs.cli.explaining import Answer, Reason, explain_pod, in_words
from hcs.cli.hints import HINTS
from hcs.cli.why import screen
from hcs.model.devices import NodeInventory, Quarantine
from hcs.model.quantities import GIB
from hcs.model.requests import ComputeRequest, ContainerRequest
from hcs.router.references import reference_rates

SCREEN = 24


@pytest.mark.parametrize(
    ("pod", "state", "lines"),
    [
        pytest.param(
            "share-1",
            "Bound",
            ["is on gpu-a (Running)", "asks     16Gi on one card; of nvidia", "gets     main: GPU-0, 16Gi of it"],
            id="a-share",
        ),
        pytest.param("whole", "Bound", ["gets     main: GPU-1, the whole card"], id="a-whole-card"),
        pytest.param(
            "swapped",
            "Bound",
            [
                "card     ascend Ascend910B2 on npu-a",
                "instead  Ascend910B2 stands in for A100-SXM4-80GB: 1 A100-SXM4-80GB = 0.82 Ascend910B2 in gemm",
            ],
            id="a-substitute",
        ),
        pytest.param(
            "lost",
            "Unplaceable",
            [
                "is pending: 0 of 5 nodes can serve it",
                "VendorNotAllowed on npu-a",
                "asks for mthreads; the cards here are Ascend910B2",
                "NotManaged on cpu-a",
                "try      name another vendor in ai.compute/vendors, or set ai.compute/substitution: auto",
            ],
            id="no-card-of-that-vendor",
        ),
        pytest.param(
            "wants",
            "Unplaceable",
            [
                "CardsTaken on gpu-a",
                "ModelNotAllowed on npu-a",
                "offer    with ai.compute/substitution: auto it would be placed on npu-a, Ascend910B2",
            ],
            id="a-substitute-would-do",
        ),
        pytest.param(
            "fits",
            "Placeable",
            ["has a place now", "but      kube-scheduler said: 0/5 nodes"],
            id="not-tried-again-yet",
        ),
        pytest.param("gated", "Gated", ["waits behind a scheduling gate; a place exists now"], id="gated"),
        pytest.param(
            "picky",
            "Unplaceable",
            ["NodeSelectorMismatch on cpu-a, gpu-a, gpu-b, mlu-a and 1 more (5 nodes)", "zone=north"],
            id="node-selector",
        ),
        pytest.param("astray", "Unplaceable", ["WrongScheduler", "set schedulerName: hcs-scheduler"], id="scheduler"),
        pytest.param("plain", "NotOurs", ["asks HCS for nothing"], id="none-of-ours"),
        pytest.param("done", "Finished", ["is over (Succeeded) and holds no card"], id="finished"),
    ],
)
def test_one_screen(cluster, pod, state, lines):
    answer = explain_pod(cluster.pod(pod, "default"), cluster, reference_rates=reference_rates())
    assert answer.state == state
    shown = "\n".join(text for text, _ in screen(answer))
    assert len(shown.splitlines()) <= SCREEN
    assert all(len(line) <= 100 for line in shown.splitlines())
    for line in lines:
        assert line in shown


def test_the_screen_is_data_on_stdout(on_room):
    result = on_room("why", "lost")
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.startswith(
        "pod default/lost is pending: 0 of 5 nodes can serve it\n  asks     40Gi on one card"
    )


def test_every_node_has_its_reason_and_the_routers_own_sentence(on_room):
    answer = on_room.data("why", "lost")
    nodes = [node for refusal in answer["refusals"] for node in refusal["nodes"]]
    assert sorted(nodes) == ["cpu-a", "gpu-a", "gpu-b", "mlu-a", "npu-a"]
    assert all(refusal["try"] == HINTS[refusal["reason"]] for refusal in answer["refusals"])
    assert answer["request"]["containers"][0]["vram"] == 40 * GIB
    assert answer["says"] == "0/5 nodes are available"


def test_a_pod_that_is_not_there(on_room):
    result = on_room("why", "nobody", "-n", "lab")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.splitlines()[0] == "error: there is no pod nobody in namespace lab"
    elsewhere = on_room("why", "share-1", "-n", "lab")
    assert elsewhere.stderr.splitlines()[1:] == [
        "  why:  there is default/share-1",
        "  try:  hcs why share-1 -n default",
    ]
    assert "is on gpu-a" in on_room.text("why", "pod/share-1")


@pytest.mark.parametrize("arguments", [(), ("p", "-f", "x.yaml")])
def test_one_pod_or_one_file(on_room, arguments):
    result = on_room("why", *arguments)
    assert (result.exit_code, result.stdout) == (2, "")


def test_a_manifest_is_admitted_as_the_webhook_would(on_room, write):
    bad = manifest("bad", {"vram": "16GB"}, vendors="nvida")
    result = on_room.text("why", "-f", write(bad))
    assert "pod default/bad is refused at admission" in result
    for reason in ("MalformedQuantity", "UnknownVendor"):
        assert f"\n  {reason}\n" in result
    assert "did you mean nvidia?" in result
    good = manifest("good", {"vram": "8Gi"}, scheduler="", models="910b2")
    answer = on_room.data("why", "-f", write(good))
    assert (answer["state"], answer["place"]["node"]) == ("Placeable", "npu-a")


def test_a_refused_manifest_needs_no_cluster(write, tmp_path):
    nowhere = Hcs(tmp_path / "no-kubeconfig")
    shown = nowhere.text("why", "-f", write(manifest("bad", {"vram": "300Gi"})))
    assert "VramBeyondAnyCard" in shown
    assert "try      ask for less ai.compute/vram on each of several ai.compute/cards" in shown


def test_the_pod_of_a_job_is_found_in_its_template(on_room, write):
    pod = manifest("x", {"vram": "8Gi"}, models="L40S")
    job = {"kind": "Job", "metadata": {"name": "nightly"}, "spec": {"template": pod}}
    answer = on_room.data("why", "-f", write({"kind": "ConfigMap"}, job))
    assert (answer["state"], answer["place"]["node"]) == ("Placeable", "gpu-b")


@pytest.mark.parametrize(
    ("text", "what"),
    [("{", "cannot read"), ("kind: ConfigMap", "there is no pod in"), ("", "there is no pod in"), ("- 1", "no pod in")],
)
def test_a_file_without_a_pod(on_room, tmp_path, text, what):
    path = tmp_path / "f.yaml"
    path.write_text(text)
    result = on_room("why", "-f", str(path))
    assert result.exit_code in (1, 2)
    assert what in result.stderr.splitlines()[0]
    assert on_room("why", "-f", str(tmp_path / "missing.yaml")).exit_code == 2


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        (
            ComputeRequest((ContainerRequest("a", cards=2),), models=("T4", "L4"), sharing="exclusive"),
            "2 cards; model T4 or L4; for gemm; whole cards; no substitution",
        ),
        (
            ComputeRequest(
                (ContainerRequest("a", vram=GIB), ContainerRequest("b", vram=2 * GIB)),
                workload="decode",
                substitution="auto",
                runtime="pytorch-2.6",
            ),
            "a: 1Gi on one card + b: 2Gi on one card; for decode; shared; any substitute; runtime pytorch-2.6",
        ),
    ],
)
def test_a_request_in_words(request_, words):
    assert in_words(request_) == words


def test_many_reasons_still_fit_one_screen():
    reasons = tuple(
        Reason(
            "TooFewCards",
            f"needs 8 cards, which is {i} of them; this node has {i}",
            tuple(f"n{i}-{j}" for j in range(99)),
        )
        for i in range(40)
    )
    answer = Answer("default/p", "Unplaceable", asks="8 cards", refusals=reasons, nodes=3960)
    lines = [text for text, _ in screen(answer)]
    assert len(lines) <= SCREEN
    assert any("and 35 more reasons on 3465 nodes; -o wide shows them" in line for line in lines)
    assert sum(len(text) for text, _ in screen(answer, wide=True)) > 10_000


def test_a_sick_card_is_told(cluster):
    def quarantined(node: NodeInventory) -> NodeInventory:
        entries = (Quarantine("GPU-0", "Xid79"),) if node.name == "gpu-a" else node.quarantine
        return msgspec.structs.replace(node, quarantine=entries)

    sick = msgspec.structs.replace(cluster, inventories=tuple(map(quarantined, cluster.inventories)))
    answer = explain_pod(sick.pod("share-1", "default"), sick)
    assert answer.notes == ("card GPU-0 is quarantined: Xid79; the pod will be evicted under the healer's budget",)
    assert any("but" in text and "quarantined" in text for text, _ in screen(answer))


def test_a_member_waits_for_the_others_and_an_asker_for_its_owner() -> None:
    from tests.cli.test_asks import offer

    from hcs.cli.cluster import Cluster
    from hcs.model import names
    from hcs.model.offers import encode_offer
    from hcs.model.pods import Pod

    def made(name: str, **notes: str) -> Pod:
        body = manifest(name, {"cards": "1"}, **notes)
        body["metadata"]["uid"] = f"uid-{name}"
        return msgspec.convert(body, Pod)

    members = [made(f"g-{number}", gang="g", gang_size="3") for number in range(2)]
    room = Cluster(namespace="default", pods=tuple(members))
    assert explain_pod(members[0], room).waits.startswith("gang g: 2 of 3 members are there, 0 have their place")
    asks = made("asks", substitution="ask", models="A100-SXM4-80GB")
    notes = {**asks.annotations, names.SUBSTITUTION_OFFER: encode_offer(offer("uid-asks"))}
    asks = msgspec.structs.replace(asks, metadata=msgspec.structs.replace(asks.metadata, annotations=notes))
    answer = explain_pod(asks, room)
    assert answer.waits.endswith("hcs accept asks -n default")
    assert any(text.startswith("  waits    for your answer until") for text, _ in screen(answer))
