"""What goes over the socket is small, plain JSON that other programs can rely on."""

import json

import msgspec

from hcs.inject.adjustments import Adjustment, DeviceNode, HostFile, Mount, Variable
from hcs.inject.protocol import AdjustmentAnswer, ContainerCreation, container_path


def test_the_answer_on_the_wire() -> None:
    answer = AdjustmentAnswer(
        Adjustment(
            env=(Variable("A", "1"), Variable("B", None)),
            mounts=(Mount("/host", "/inside", ("ro",)), Mount("tmpfs", "/dev/shm", type="tmpfs")),
            devices=(DeviceNode("/dev/x0", "/host/x0"),),
            args=("sh",),
            files=(HostFile("/host", "text", 0o444),),
        )
    )
    assert json.loads(msgspec.json.encode(answer)) == {
        "adjustment": {
            "env": [{"name": "A", "value": "1"}, {"name": "B", "value": None}],
            "mounts": [
                {"source": "/host", "destination": "/inside", "options": ["ro"]},
                {"source": "tmpfs", "destination": "/dev/shm", "type": "tmpfs"},
            ],
            "devices": [{"path": "/dev/x0", "source": "/host/x0"}],
            "args": ["sh"],
            "files": [{"path": "/host", "content": "text", "mode": 0o444}],
        }
    }
    assert msgspec.json.decode(msgspec.json.encode(answer), type=AdjustmentAnswer) == answer


def test_a_question_from_a_runtime_may_carry_more_than_we_read() -> None:
    question = b"""{"pod": {"metadata": {"name": "p", "uid": "1", "managedFields": []}, "spec": {"containers": []}},
        "container": {"name": "main", "env": [{"name": "A"}], "tty": true}}"""
    creation = msgspec.json.decode(question, type=ContainerCreation)
    assert (creation.pod.metadata.name, creation.container.name, creation.container.args) == ("p", "main", ())


def test_the_path_of_a_container() -> None:
    assert container_path("uid-1", "main") == "/v1/containers/uid-1/main"
