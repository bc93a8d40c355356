"""The demo on a real control plane: the sandbox's own API server, scheduler and Job controller are out of the picture.

Only this can catch what all parts of the sandbox agree on and Kubernetes does not: permissions as they are shipped, the
scheduler's own configuration, the Job controller's pauses, service-account volumes in every pod, logs by way of the
kubelet.
"""

import msgspec
import pytest
from tests.cli.demo.stagehand import demo, place
from tests.real.programs import control_plane


@pytest.mark.real
@pytest.mark.xdist_group("sandbox")
@pytest.mark.timeout(240)
def test_every_claim_of_the_demo_holds_on_a_real_control_plane() -> None:
    programs = control_plane()
    with place() as here:
        status, output, errors = demo(here, "--json", "--kubernetes", str(programs), seconds=200)
        assert output, errors
        assert here.processes() == {}
        assert here.files() == []
    report = msgspec.json.decode(output)
    assert report["control_plane"].startswith("Kubernetes v")
    untrue = [
        (scene["name"], claim["text"]) for scene in report["scenes"] for claim in scene["claims"] if not claim["ok"]
    ]
    assert not untrue
    assert (report["ok"], status) == (True, 0), [(scene["name"], scene["error"]) for scene in report["scenes"]]
