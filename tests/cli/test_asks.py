"""``hcs asks``, ``accept`` and ``decline``: what is offered, and the answer as the router reads it."""

import asyncio
import datetime
from collections.abc import Iterator

import pytest
from lightkube.types import PatchType
from tests.cli.room import CRDS, Hcs, manifest

from hcs.cli.errors import USAGE
from hcs.kube import manifests, resources
from hcs.kube.connection import connect
from hcs.model import names
from hcs.model.offers import Offer, encode_offer
from hcs.router.asking import STAMP
from hcs.sandbox.apiserver.server import Settings, running


def offer(uid: str, minutes: float = 5, *, accepted: bool = False) -> Offer:
    """Two Ascend cards for one A100, for as long as said."""
    until = datetime.datetime.now(datetime.UTC) + datetime.timedelta(minutes=minutes)
    return Offer(
        version="v1",
        id=f"0123456789ab-{int(until.timestamp())}",
        pod=uid,
        vendor="ascend",
        model="910B2",
        cards=2,
        wanted="A100-SXM4-80GB",
        wanted_cards=1,
        workload="finetune",
        wanted_milliacu=100_000,
        got_milliacu=60_000,
        source="benchmark",
        vram=64 << 30,
        expires=until.strftime(STAMP),
        reason="2 910B2 instead of 1 A100-SXM4-80GB; 1 A100-SXM4-80GB = 1.66 910B2 in finetune (benchmark)",
        accepted=accepted,
    )


@pytest.fixture(scope="module")
def hcs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hcs]:
    """Commands on a cluster where pods are offered things."""
    folder = tmp_path_factory.mktemp("asks")
    with running(Settings(data=folder / "data")) as server:
        kubeconfig = folder / "kubeconfig"
        kubeconfig.write_text(server.kubeconfig("admin-token"))
        asyncio.run(_furnish(str(kubeconfig)))
        yield Hcs(kubeconfig)


async def _furnish(kubeconfig: str) -> None:
    client = connect(kubeconfig)
    for crd in manifests.read_manifests(CRDS):
        await manifests.create(client, crd)
    for name, minutes, accepted in (("late", -1, False), ("open", 5, False), ("taken", 5, True), ("two", 5, False)):
        made = await manifests.create(client, manifest(name, {"cards": "1"}, substitution="ask"))
        text = encode_offer(offer(made["metadata"]["uid"], minutes, accepted=accepted))
        body = {"metadata": {"annotations": {names.SUBSTITUTION_OFFER: text}}}
        await client.patch(resources.Pod, name, body, namespace="default", patch_type=PatchType.MERGE)
    await manifests.create(client, manifest("bare", {"cards": "1"}, substitution="ask"))
    await manifests.create(client, manifest("never", {"cards": "1"}))
    await client.close()


def _annotation(hcs: Hcs, name: str) -> str:
    async def read() -> str:
        client = connect(str(hcs.kubeconfig))
        pod = await client.get(resources.Pod, name, namespace="default")
        await client.close()
        return str(pod.annotations.get(names.SUBSTITUTION_ANSWER, ""))

    return asyncio.run(read())


def test_the_list_says_what_is_wanted_offered_and_for_how_long(hcs: Hcs) -> None:
    lines = hcs.text("asks").splitlines()
    assert lines[0].split() == ["POD", "WANTED", "OFFERED", "RATE", "EXPIRES", "IN"]
    rows = {line.split()[0]: line for line in lines[1:]}
    assert set(rows) == {"late", "open", "two"}
    assert "1 x A100-SXM4-80GB   2 x 910B2, 64Gi each   1 = 1.66 in finetune (benchmark)" in rows["open"]
    assert rows["late"].endswith("expired")
    assert max(map(len, lines)) <= 100


def test_as_data_and_by_name(hcs: Hcs) -> None:
    (late, opened, _) = hcs.data("asks")
    assert (late["expiresSeconds"], opened["pod"], opened["offer"]["cards"]) == (0, "open", 2)
    assert 0 < opened["expiresSeconds"] <= 300
    assert hcs.text("asks", "-o", "name").split() == ["pod/late", "pod/open", "pod/two"]
    assert hcs.text("asks", "-n", "kube-system") == ""
    assert "default" in hcs.text("asks", "-A")


def test_accepting_writes_the_answer_that_the_router_reads(hcs: Hcs) -> None:
    said = hcs.text("accept", "pod/open")
    assert "accepted 2 910B2 instead of 1 A100-SXM4-80GB" in said
    assert _annotation(hcs, "open").startswith("accept 0123456789ab-")


def test_declining_adds_to_what_was_declined(hcs: Hcs) -> None:
    first = hcs.data("decline", "two")["answer"]
    assert first == _annotation(hcs, "two")
    assert hcs.data("decline", "two")["answer"] == first


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        pytest.param(["accept", "late"], "has expired", id="expired"),
        pytest.param(["accept", "bare"], "nothing free could stand in", id="nothing-to-offer"),
        pytest.param(["accept", "never"], "is never, not ask", id="does-not-ask"),
        pytest.param(["accept", "taken"], "accepted already", id="twice"),
        pytest.param(["accept", "nobody"], "there is no pod nobody", id="no-such-pod"),
        pytest.param(["decline", "bare"], "has no offer", id="nothing-to-decline"),
    ],
)
def test_an_answer_in_vain_is_refused_in_three_lines(hcs: Hcs, arguments: list[str], words: str) -> None:
    result = hcs(*arguments)
    assert (result.exit_code, result.stdout) == (1, "")
    assert words in result.stderr
    assert "  try:  " in result.stderr


def test_a_pod_must_be_named(hcs: Hcs) -> None:
    assert hcs("accept").exit_code == USAGE
