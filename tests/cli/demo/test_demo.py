"""The demo from outside: its facts, its exit status, and that nothing of it is left.

Slow on purpose: only the assembled whole shows that webhook, scheduler, router, agent, kubelet, interceptor and healer
have met, and only real processes show what is left when they are interrupted or killed.
"""

import asyncio
import os
import signal
import time
from pathlib import Path
from typing import Any

import httpx2
import msgspec
import pytest
from lightkube.types import PatchType
from tests.cli.demo.stagehand import Place, demo, finish, nothing_runs, place, started, until_said

from hcs.kube import resources
from hcs.kube.connection import connect
from hcs.model import names
from hcs.model.devices import Device
from hcs.model.pods import ObjectMeta

GIB = 1 << 30
pytestmark = pytest.mark.xdist_group("sandbox")


@pytest.mark.timeout(120)
def test_every_scene_holds_what_it_claims_and_leaves_nothing() -> None:
    with place() as here:
        status, output, errors = demo(here, "--json")
        assert status == 0, output + errors
        (line,) = output.splitlines()
        report = msgspec.json.decode(line)
        assert report["ok"] is True
        assert report["emulated"] is True
        assert all(claim["ok"] for scene in report["scenes"] for claim in scene["claims"])
        facts = {scene["name"]: scene["facts"] for scene in report["scenes"]}
        assert list(facts) == ["fleet", "route", "share", "heal", "why"]
        _fleet(facts["fleet"])
        _route(facts["route"])
        _share(facts["share"])
        _heal(facts["heal"])
        assert facts["why"]["refusals"]
        assert here.processes() == {}
        assert here.files() == []


def _fleet(facts: dict[str, Any]) -> None:
    assert len(facts["nodes"]) >= 4
    assert len(facts["vendors"]) >= 3
    assert set(facts["milliacu"]) <= {"measured", "benchmark", "datasheet", "derived"}


def _route(facts: dict[str, Any]) -> None:
    assert [pod["vendor"] for pod in facts["pods"]] == ["nvidia", "nvidia", "ascend"]
    assert len({device for pod in facts["pods"] for device in pod["devices"]}) == 3
    assert all(pod["node"] for pod in facts["pods"])
    assert facts["exchange"]["wanted_milliacu"] > 0
    assert len(facts["train_sha256"]) == 64


def _share(facts: dict[str, Any]) -> None:
    assert (facts["vendor"], len(facts["devices"]), bool(facts["node"])) == ("nvidia", 1, True)
    assert facts["quota_bytes"] == 16 * GIB
    assert facts["refused_bytes"] > facts["quota_bytes"]
    assert facts["refused_code"] == 2  # CUDA_ERROR_OUT_OF_MEMORY
    assert facts["neighbours_unaffected"] is True


def _heal(facts: dict[str, Any]) -> None:
    failed, replacement = facts["failed"], facts["replacement"]
    assert failed["vendor"] != replacement["vendor"]
    assert failed["device"] not in replacement["devices"]
    assert 0 <= facts["seconds_to_quarantine"] < 1
    assert facts["seconds_to_resumed_step"] > 0
    assert facts["resumed_step"] >= facts["last_checkpoint_step"] > 0


@pytest.mark.timeout(120)
def test_interrupted_it_says_so_and_leaves_nothing() -> None:
    with place() as here:

        async def story() -> tuple[int, str]:
            async with started(here, "--scene", "share") as process:
                await until_said(process, "Four pods ask")
                os.killpg(process.pid, signal.SIGINT)  # Ctrl-C reaches the whole group
                status, _, errors = await finish(process)
                return status, errors

        status, errors = asyncio.run(story())
        assert (status, "Traceback" in errors) == (130, False), errors
        assert "interrupted" in errors
        assert here.processes() == {}
        assert here.files() == []


@pytest.mark.nightly
@pytest.mark.timeout(120)
def test_killed_outright_it_leaves_no_process() -> None:
    """The leash: what it started ends by itself."""
    with place() as here:

        async def story() -> dict[int, str]:
            async with started(here, "--scene", "share") as process:
                await until_said(process, "Four pods ask")
                assert len(here.processes()) > 5
                process.kill()
                await process.communicate()
                return await nothing_runs(here, 20)

        assert asyncio.run(story()) == {}


@pytest.mark.timeout(120)
def test_one_false_claim_ends_it_with_status_1() -> None:
    """Somebody adds a card of unknown speed that does not say it is emulated; the scene claims otherwise."""
    with place() as here:

        async def story() -> tuple[int, str, str]:
            async with started(here, "--json", "--scene", "fleet") as process:
                await _add_ghost(here)
                return await finish(process)

        status, output, errors = asyncio.run(story())
        assert status == 1, output + errors
        report = msgspec.json.decode(output)
        (scene,) = report["scenes"]
        assert (report["ok"], scene["ok"]) == (False, False)
        assert [claim["ok"] for claim in scene["claims"]] == [True, False, False]
        assert here.files() == []


async def _add_ghost(here: Place) -> None:
    """Create a ComputeNode as soon as the starting sandbox takes one, long before the scene plays."""
    deadline = time.monotonic() + 30
    kubeconfig = Path()
    while not kubeconfig.is_file() or not kubeconfig.read_bytes().endswith(b"\n"):
        assert time.monotonic() < deadline
        await asyncio.sleep(0.02)
        kubeconfig = next((folder / "users" / "admin.yaml" for folder in here.sandboxes()), kubeconfig)
    client = connect(str(kubeconfig))
    ghost = resources.ComputeNode(
        apiVersion=f"{names.GROUP}/{names.VERSION}", kind="ComputeNode", metadata=ObjectMeta(name="ghost")
    )
    try:
        while True:
            assert time.monotonic() < deadline
            try:
                await client.create(ghost)
                break
            except httpx2.HTTPStatusError as error:  # the kind is not served yet
                if error.response.status_code != 404:
                    raise
                await asyncio.sleep(0.02)
        devices = [msgspec.to_builtins(Device("ghost-0", 0, "hygon", "X", GIB, verdict="Healthy"))]
        await client.patch(
            resources.ComputeNodeStatus, "ghost", {"status": {"devices": devices}}, patch_type=PatchType.MERGE
        )
    finally:
        await client.close()


def test_a_scene_that_does_not_exist_is_a_mistake_in_the_command() -> None:
    with place() as here:
        status, output, errors = demo(here, "--scene", "nope")
        assert (status, output) == (2, "")
        assert "nope" in errors
        for name in ("fleet", "route", "share", "heal", "why"):
            assert name in errors
        assert here.files() == []


@pytest.mark.nightly
@pytest.mark.timeout(180)
def test_two_at_once_do_not_meet() -> None:
    with place() as one, place() as other:

        async def story() -> list[tuple[int, str, str]]:
            async with started(one, "--json") as first, started(other, "--json") as second:
                return await asyncio.gather(finish(first), finish(second))

        for status, output, errors in asyncio.run(story()):
            assert status == 0, output + errors
        assert (one.processes(), other.processes()) == ({}, {})
        assert (one.files(), other.files()) == ([], [])
