"""The demo on a real control plane: the sandbox's own API server, scheduler and Job controller are out of the picture.

Only this can catch what all parts of the sandbox agree on and Kubernetes does not: permissions as they are shipped, the
scheduler's own configuration, the Job controller's pauses, service-account volumes in every pod, logs by way of the
kubelet.
"""

import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from tests.real.programs import control_plane


@pytest.mark.real
@pytest.mark.xdist_group("sandbox")
@pytest.mark.timeout(240)
def test_every_claim_of_the_demo_holds_on_a_real_control_plane(tmp_path: Path) -> None:
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    command = [sys.executable, "-m", "hcs", "demo", "--json", "--kubernetes", str(control_plane())]
    demo = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert demo.stdout, demo.stderr
    report = msgspec.json.decode(demo.stdout)
    assert report["control_plane"].startswith("Kubernetes v")
    untrue = [
        (scene["name"], claim["text"]) for scene in report["scenes"] for claim in scene["claims"] if not claim["ok"]
    ]
    assert not untrue
    assert report["ok"], [(scene["name"], scene["error"]) for scene in report["scenes"]]
    assert not list(tmp_path.iterdir()), "nothing is left behind"
