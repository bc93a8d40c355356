"""Where the programs of a real control plane are, on machines that have them."""

from pathlib import Path

import pytest
from tests.clusters import real_binaries

from hcs.sandbox.controlplane import PROGRAMS

NO_REAL_CONTROL_PLANE = "no real Kubernetes control plane in KUBEBUILDER_ASSETS or /usr/local/kubebuilder/bin"


def control_plane() -> Path:
    """The folder with the programs of a control plane; where there is none, the test is skipped."""
    found = real_binaries(*PROGRAMS)
    if found is None:
        pytest.skip(NO_REAL_CONTROL_PLANE)
    return found
