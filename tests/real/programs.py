"""Where the programs of a real control plane are, on machines that have them."""

import os
from pathlib import Path

import pytest

from hcs.sandbox.controlplane import MissingProgramsError, check_programs

NO_REAL_CONTROL_PLANE = "no real Kubernetes control plane in KUBEBUILDER_ASSETS or /usr/local/kubebuilder/bin"


def control_plane() -> Path:
    """The folder with the programs of a control plane; where there is none, the test is skipped."""
    for folder in (os.environ.get("KUBEBUILDER_ASSETS"), "/usr/local/kubebuilder/bin"):
        if folder:
            try:
                check_programs(Path(folder))
            except MissingProgramsError:
                continue
            return Path(folder)
    pytest.skip(NO_REAL_CONTROL_PLANE)
