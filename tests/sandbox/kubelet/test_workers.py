"""A pod's life on a node, with real processes: starts, ends, restarts, deletion, refusals."""

import asyncio
import os
from pathlib import Path
from typing import Any

import httpx2
import pytest
from tests.sandbox.kubelet.scene import Ground, answering, deleted, over, pod_with, shell, state
from tests.waiting import until

from hcs.sandbox.images import PLAIN
from hcs.sandbox.kubelet.restarts import BackOff


def test_a_pod_runs_logs_and_succeeds(ground: Ground) -> None:
    async def story() -> None:
        pod = pod_with(shell("echo out; echo err >&2"), restartPolicy="Never")
        async with ground.running(pod):
            status = await ground.cluster.until(over)
        assert status["phase"] == "Succeeded"
        word, end = state(status)
        assert (word, end["exitCode"], end["reason"]) == ("terminated", 0, "Completed")
        assert {"startedAt", "finishedAt"} <= set(end)
        assert ground.log().split() == ["out", "err"]
        running = next(s for s in ground.cluster.statuses if s["phase"] == "Running")
        conditions = {c["type"]: c["status"] for c in running["conditions"]}
        assert conditions == {"Initialized": "True", "ContainersReady": "True", "Ready": "True"}
        assert running["podIP"] == running["hostIP"] == "127.0.0.1"

    asyncio.run(story())


@pytest.mark.parametrize(
    ("script", "code"),
    [
        pytest.param("exit 3", 3, id="own-code"),
        pytest.param("kill -9 $$$$", 137, id="killed"),
        pytest.param("kill -15 $$$$", 143, id="terminated"),
    ],
)
def test_exit_codes_are_those_of_a_container(ground: Ground, script: str, code: int) -> None:
    # A command is expanded as Kubernetes does it: two dollars mean one.
    async def story() -> None:
        async with ground.running(pod_with(shell(script), restartPolicy="Never")):
            status = await ground.cluster.until(over)
        assert status["phase"] == "Failed"
        assert state(status)[1]["exitCode"] == code
        assert state(status)[1]["reason"] == "Error"

    asyncio.run(story())


def test_a_command_that_does_not_exist_is_a_start_error(ground: Ground) -> None:
    async def story() -> None:
        async with ground.running(pod_with({"command": ["no-such-program"]}, restartPolicy="Never")):
            status = await ground.cluster.until(over)
        _, end = state(status)
        assert (end["exitCode"], end["reason"]) == (128, "StartError")
        assert "no-such-program" in end["message"]

    asyncio.run(story())


def test_on_failure_starts_again_until_it_succeeds(ground: Ground) -> None:
    async def story() -> None:
        tries = "n=$(cat /dev/null $HCS_ROOT/data/n 2>/dev/null | wc -c); printf x >> $HCS_ROOT/data/n; [ $n -ge 2 ]"
        pod = pod_with(
            shell(tries, volumeMounts=[{"name": "data", "mountPath": "/data"}]),
            restartPolicy="OnFailure",
            volumes=[{"name": "data", "emptyDir": {}}],
        )
        async with ground.running(pod):
            status = await ground.cluster.until(over)
        assert status["phase"] == "Succeeded"
        assert status["containerStatuses"][0]["restartCount"] == 2
        assert status["containerStatuses"][0]["lastState"]["terminated"]["exitCode"] == 1

    asyncio.run(story())


def test_a_container_that_keeps_ending_backs_off(ground: Ground) -> None:
    async def story() -> None:
        async with ground.running(pod_with(shell("exit 1"), restartPolicy="Always"), BackOff(30.0, 30.0, 60.0)):
            status = await ground.cluster.until(lambda s: state(s)[1].get("reason") == "CrashLoopBackOff")
        assert status["phase"] == "Running"
        assert status["containerStatuses"][0]["restartCount"] == 1, "the first restart does not wait"
        assert status["containerStatuses"][0]["lastState"]["terminated"]["exitCode"] == 1
        assert (ground.logs / "c0.previous.log").exists()

    asyncio.run(story())


def test_init_containers_run_first_and_in_order(ground: Ground) -> None:
    async def story() -> None:
        data = [{"name": "data", "mountPath": "/data"}]
        inits = [
            {"name": "first", "image": PLAIN, **shell("echo 1 >> $HCS_ROOT/data/order", volumeMounts=data)},
            {"name": "second", "image": PLAIN, **shell("echo 2 >> $HCS_ROOT/data/order", volumeMounts=data)},
        ]
        pod = pod_with(
            shell("cat $HCS_ROOT/data/order", volumeMounts=data),
            initContainers=inits,
            restartPolicy="Never",
            volumes=[{"name": "data", "emptyDir": {}}],
        )
        async with ground.running(pod):
            status = await ground.cluster.until(over)
        assert ground.log().split() == ["1", "2"]
        assert [entry["ready"] for entry in status["initContainerStatuses"]] == [True, True]
        assert state(ground.cluster.statuses[0])[1]["reason"] == "PodInitializing"

    asyncio.run(story())


def test_a_failed_init_container_fails_a_pod_that_never_restarts(ground: Ground) -> None:
    async def story() -> None:
        inits = [{"name": "setup", "image": PLAIN, **shell("exit 7")}]
        pod = pod_with(shell("echo never"), initContainers=inits, restartPolicy="Never")
        async with ground.running(pod):
            status = await ground.cluster.until(over)
        assert status["phase"] == "Failed"
        assert state(status)[0] == "waiting"
        assert not (ground.logs / "c0.log").exists()

    asyncio.run(story())


def test_deletion_lets_the_container_end_by_itself(ground: Ground) -> None:
    async def story() -> None:
        pod = pod_with(shell("trap 'echo bye; exit 0' TERM; echo up; while :; do sleep 0.05; done"))
        async with ground.running(pod) as worker:
            await ground.cluster.until(lambda s: s["phase"] == "Running")
            await logged(ground, "up")
            worker.update(deleted(pod, 20))
            status = await ground.cluster.until(over)
            await gone(ground)
        assert status["phase"] == "Succeeded"
        assert ground.log().split() == ["up", "bye"]

    asyncio.run(story())


def test_a_container_that_ignores_sigterm_is_killed_with_all_its_children(ground: Ground) -> None:
    async def story() -> None:
        script = "trap '' TERM; setsid sh -c 'echo $$$$; exec sleep 600' & sleep 600 & echo $!; echo up; wait; wait"
        pod = pod_with({"command": ["bash", "-c", script]})
        async with ground.running(pod) as worker:
            await ground.cluster.until(lambda s: s["phase"] == "Running")
            await logged(ground, "up", lines=3)
            children = [int(word) for word in ground.log().split() if word.isdigit()]
            worker.update(deleted(pod, 30))
            worker.update(deleted(pod, 0))  # asked again, with less patience
            status = await ground.cluster.until(over)
            await gone(ground)
        assert (status["phase"], state(status)[1]["exitCode"]) == ("Failed", 137)
        assert len(children) == 2
        assert not [pid for pid in children if Path(f"/proc/{pid}").exists()], "also one with a session of its own"

    asyncio.run(story())


def test_what_the_command_leaves_running_ends_with_it(ground: Ground) -> None:
    async def story() -> None:
        daemon = "setsid sh -c 'echo $$$$ > pid; exec sleep 600' & until [ -s pid ]; do sleep 0.01; done; cat pid"
        async with ground.running(pod_with(shell(daemon, workingDir="/tmp"), restartPolicy="Never")):
            assert (await ground.cluster.until(over))["phase"] == "Succeeded"
        assert not Path(f"/proc/{int(ground.log())}").exists()

    asyncio.run(story())


def test_a_missing_image_waits(ground: Ground) -> None:
    async def story() -> None:
        for policy, reason in (("Never", "ErrImageNeverPull"), ("IfNotPresent", "ImagePullBackOff")):
            pod = pod_with({"image": "registry.example/hcs/pending:1", "imagePullPolicy": policy})
            async with ground.running(pod):
                status = await ground.cluster.until(lambda s, r=reason: state(s)[1].get("reason") == r)  # type: ignore[misc]
            assert "registry.example/hcs/pending:1" in state(status)[1]["message"]
            assert PLAIN in state(status)[1]["message"], "says what there is"

    asyncio.run(story())


def test_the_agent_refuses_and_later_agrees(ground: Ground, tmp_path: Path) -> None:
    calls: list[tuple[str, str]] = []

    def answer(method: str, path: str, body: bytes) -> tuple[int, Any]:
        calls.append((method, path))
        if method == "DELETE":
            return 204, None
        if len(calls) < 3:
            return 409, {"reason": "DeviceQuarantined", "message": "card 3 is quarantined"}
        return 200, {"adjustment": {"env": [{"name": "CARD", "value": "3"}, {"name": "USER_ONLY", "value": None}]}}

    async def story() -> None:
        socket = tmp_path / "agent.sock"
        ground.socket = str(socket)
        pod = pod_with(
            shell("echo card=$CARD user=$USER_ONLY", env=[{"name": "USER_ONLY", "value": "x"}]), restartPolicy="Never"
        )
        async with answering(socket, answer), ground.running(pod):
            refused = await ground.cluster.until(lambda s: state(s)[1].get("reason") == "CreateContainerError")
            assert refused["phase"] == "Pending"
            assert state(refused)[1]["message"] == "DeviceQuarantined: card 3 is quarantined"
            status = await ground.cluster.until(over)
        assert status["containerStatuses"][0]["restartCount"] == 0, "a refused start is no restart"
        assert ground.log() == "card=3 user=\n"
        assert calls[-1] == ("DELETE", "/v1/containers/0a1b2c3d/c0")

    asyncio.run(story())


MANAGED = {"required-plugins.noderesource.dev": '["hcs"]'}


@pytest.mark.parametrize("socket", [None, "/nonexistent/agent.sock"], ids=["no-agent", "agent-away"])
def test_without_the_agent_managed_pods_do_not_start(ground: Ground, socket: str | None) -> None:
    async def story() -> None:
        ground.socket = socket
        pod = pod_with(shell("echo started"), restartPolicy="Never", annotations=MANAGED)
        async with ground.running(pod):
            status = await ground.cluster.until(lambda s: state(s)[1].get("reason") == "CreateContainerError")
            assert "agent" in state(status)[1]["message"]
        assert not (ground.logs / "c0.log").exists()

    asyncio.run(story())


def test_without_the_agent_other_pods_start(ground: Ground) -> None:
    async def story() -> None:
        ground.socket = "/nonexistent/agent.sock"
        async with ground.running(pod_with(shell("echo started"), restartPolicy="Never")):
            await ground.cluster.until(over)
        assert ground.log() == "started\n"

    asyncio.run(story())


def test_an_api_server_that_is_away_misses_nothing(ground: Ground) -> None:
    async def story() -> None:
        ground.cluster.failures = [httpx2.ConnectError("refused")]
        async with ground.running(pod_with(shell("echo done"), restartPolicy="Never")):
            status = await ground.cluster.until(over)
        assert status["phase"] == "Succeeded"

    asyncio.run(story())


def ran_before(policy: str) -> dict[str, Any]:
    return {
        "restartPolicy": policy,
        "status": {
            "phase": "Running",
            "containerStatuses": [
                {
                    "name": "c0",
                    "containerID": "emulated://0a1b2c3d-c0-1",
                    "restartCount": 1,
                    "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}},
                }
            ],
        },
    }


def test_a_kubelet_that_starts_anew_runs_its_pods_again(ground: Ground) -> None:
    async def story() -> None:
        async with ground.running(pod_with(shell("echo again"), **ran_before("OnFailure"))):
            status = await ground.cluster.until(over)
        (entry,) = status["containerStatuses"]
        assert entry["restartCount"] == 2
        assert entry["lastState"]["terminated"]["reason"] == "ContainerStatusUnknown"
        assert ground.log() == "again\n"

    asyncio.run(story())


def test_a_kubelet_that_starts_anew_never_runs_twice_what_may_run_once(ground: Ground) -> None:
    async def story() -> None:
        async with ground.running(pod_with(shell("echo twice"), **ran_before("Never"))):
            status = await ground.cluster.until(over)
        assert (status["phase"], state(status)[1]["exitCode"]) == ("Failed", 137)
        assert not (ground.logs / "c0.log").exists()

    asyncio.run(story())


def test_a_finished_pod_is_not_run_and_is_removed_when_deleted(ground: Ground) -> None:
    async def story() -> None:
        pod = pod_with(shell("echo twice"), restartPolicy="Always", status={"phase": "Succeeded"})
        async with ground.running(pod) as worker:
            worker.update(deleted(pod, 30))
            await gone(ground)
        assert not (ground.logs / "c0.log").exists()

    asyncio.run(story())


async def logged(ground: Ground, word: str, lines: int = 1) -> None:
    """Wait until the container has said a word, and so many lines in all."""

    def said() -> bool:
        text = ground.log() if (ground.logs / "c0.log").exists() else ""
        return word in text.split() and text.count("\n") >= lines

    await until(said)


async def gone(ground: Ground) -> None:
    """Wait until the pod is removed."""
    await until(lambda: ground.cluster.removed)


def test_no_descriptor_of_the_kubelet_reaches_a_container(ground: Ground) -> None:
    async def story() -> None:
        secret = os.open("/dev/null", os.O_RDONLY)
        os.set_inheritable(secret, True)
        try:
            async with ground.running(pod_with(shell("ls /proc/self/fd | wc -l"), restartPolicy="Never")):
                await ground.cluster.until(over)
        finally:
            os.close(secret)
        assert int(ground.log()) <= 4, "standard streams and the directory that ls reads"

    asyncio.run(story())


def test_the_agent_hears_of_a_pod_that_went_by_force_and_not_of_a_kubelet_that_stops(
    ground: Ground, tmp_path: Path
) -> None:
    calls: list[str] = []

    def answer(method: str, path: str, body: bytes) -> tuple[int, Any]:
        calls.append(method)
        return 200, {"adjustment": {}}

    async def story() -> None:
        ground.socket = str(tmp_path / "agent.sock")
        endless = pod_with(shell("while :; do sleep 0.05; done"))
        async with answering(tmp_path / "agent.sock", answer):
            async with ground.running(endless):
                await ground.cluster.until(lambda s: s["phase"] == "Running")
            assert calls == ["POST"], "a stopping kubelet keeps what the container will need when it starts again"
            async with ground.running(endless) as worker:
                await ground.cluster.until(lambda s: s["phase"] == "Running")
                await until(lambda: calls == ["POST", "POST"])
                worker.abandon(gone=True)
                await until(lambda: calls == ["POST", "POST", "DELETE"])

    asyncio.run(story())
